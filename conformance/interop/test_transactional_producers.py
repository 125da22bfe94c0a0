"""Transactional producers of librdkafka, on one broker and on three."""

import subprocess
from typing import Any

import confluent_kafka
import pytest

from bench.peers.franz_go_client import franz_go
from conformance.interop.existing_clients import DEADLINE_S
from conformance.interop.transactional_clients import CLIENTS, check_ends, check_fencing, committed, create
from odradek.testing import Cluster

TIMEOUT_S = 60
TOPIC = "t"


def producer(cluster: Cluster, transactional_id: str) -> Any:
    """Return a producer that has fenced the former ones of its id."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    made = confluent_kafka.Producer(config)
    made.init_transactions(TIMEOUT_S)
    return made


def consumer(cluster: Cluster, group: str) -> Any:
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    made = confluent_kafka.Consumer(config)
    made.subscribe([TOPIC])
    return made


def read(reader: Any, count: int) -> list[bytes]:
    values = []
    while len(values) < count:
        message = reader.poll(TIMEOUT_S)
        assert message is not None, values
        assert message.error() is None, message.error()
        values.append(message.value())
    return sorted(values)


@pytest.mark.parametrize("brokers", [1, 3])
def test_committed_records_and_offsets_are_seen_and_fenced_producers_are_not(brokers: int) -> None:
    with Cluster(brokers=brokers) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        first = producer(cluster, "tx")
        for number, end in enumerate((first.commit_transaction, first.abort_transaction, first.commit_transaction)):
            first.begin_transaction()
            for partition in range(3):
                first.produce(TOPIC, f"{number}-{partition}", partition=partition)
            end(TIMEOUT_S)
        first.begin_transaction()
        first.produce(TOPIC, "open")
        first.flush(TIMEOUT_S)
        second = producer(cluster, "tx")
        with pytest.raises(confluent_kafka.KafkaException) as fenced:
            first.commit_transaction(TIMEOUT_S)
        assert fenced.value.args[0].fatal()

        committed = [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2"]
        worker = consumer(cluster, "workers")
        for end, more in ((second.abort_transaction, []), (second.commit_transaction, [b"last"])):
            assert read(worker, 6) == committed
            second.begin_transaction()
            second.produce(TOPIC, "last")
            places = worker.position(worker.assignment())
            second.send_offsets_to_transaction(places, worker.consumer_group_metadata(), TIMEOUT_S)
            end(TIMEOUT_S)
            worker.close()
            reader = consumer(cluster, f"readers-{len(more)}")
            assert read(reader, 6 + len(more)) == sorted(committed + more)
            reader.close()
            worker = consumer(cluster, "workers")
        assert read(worker, 1) == [b"last"]
        worker.close()


# ---- Clients of other libraries --------------------------------------------------------------------------------------


@pytest.fixture
def created(servers: str, topic: str) -> str:
    create(servers, topic)
    return topic


@pytest.mark.long
@pytest.mark.parametrize("name", CLIENTS)
def test_a_transaction_is_read_whole_or_not_at_all_and_its_offsets_with_it(
    servers: str, created: str, name: str
) -> None:
    check_ends(servers, created, CLIENTS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", CLIENTS)
def test_a_second_producer_of_the_id_fences_the_first_and_aborts_its_transaction(
    servers: str, created: str, name: str
) -> None:
    check_fencing(servers, created, CLIENTS[name])


@pytest.mark.long
@pytest.mark.needs("franz-go")
def test_transactions_of_franz_go_are_read_whole_or_not_at_all(servers: str, created: str) -> None:
    for end, values in (("commit", ("a", "b")), ("abort", ("c", "d")), ("commit", ("e",))):
        command = [franz_go(), "-X", f"bootstrap.servers={servers}", "transact", created, end, created, *values]
        subprocess.run(command, timeout=DEADLINE_S, check=True, capture_output=True)
    assert committed(servers, created, 3) == ["a", "b", "e"]
