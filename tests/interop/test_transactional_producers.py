"""Transactional producers of librdkafka, on one broker and on three."""

from typing import Any

import confluent_kafka
import pytest

from odradek.testing import Cluster

TIMEOUT_S = 60


def producer(cluster: Cluster, transactional_id: str) -> Any:
    """Return a producer that has fenced the former ones of its id."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    made = confluent_kafka.Producer(config)
    made.init_transactions(TIMEOUT_S)
    return made


def read_committed(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    read = []
    while len(read) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, read
        assert message.error() is None, message.error()
        read.append(message.value())
    consumer.close()
    return sorted(read)


@pytest.mark.parametrize("brokers", [1, 3])
def test_consumers_read_the_committed_transactions_of_producers_that_were_not_fenced(brokers: int) -> None:
    config = {"transaction.partition.verification.enable": "false"}
    with Cluster(brokers=brokers, config=config) as cluster:
        cluster.create_topic("t", partitions=3)
        first = producer(cluster, "tx")
        for number, end in enumerate((first.commit_transaction, first.abort_transaction, first.commit_transaction)):
            first.begin_transaction()
            for partition in range(3):
                first.produce("t", f"{number}-{partition}", partition=partition)
            end(TIMEOUT_S)
        first.begin_transaction()
        first.produce("t", "open")
        first.flush(TIMEOUT_S)
        second = producer(cluster, "tx")
        with pytest.raises(confluent_kafka.KafkaException) as fenced:
            first.commit_transaction(TIMEOUT_S)
        assert fenced.value.args[0].fatal()
        second.begin_transaction()
        second.produce("t", "last")
        second.commit_transaction(TIMEOUT_S)
        assert read_committed(cluster, "t", 7) == [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2", b"last"]
