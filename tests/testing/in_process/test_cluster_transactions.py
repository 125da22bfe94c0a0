"""A Cluster kills the coordinator at a step of a transaction's end, and leaves hanging transactions."""

import pytest

from odradek.clients import ProducerFencedError
from odradek.testing import Cluster

CONFIG = {"transaction.state.log.min.isr": "1"}


def committed(cluster: Cluster, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with cluster.consumer("t", isolation_level="read_committed") as consumer:
        while len(values) < count:
            values += [record.value for record in consumer.poll(60_000)]
    return values


@pytest.mark.parametrize("step", ["before prepare", "after prepare", "after first marker", "after completion"])
def test_a_commit_survives_the_death_of_its_coordinator_at_each_step(step: str) -> None:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        cluster.create_topic("t", partitions=3)
        with cluster.producer(transactional_id="tx") as producer:
            killed = cluster.transactions.kill_coordinator("tx", step)
            with producer.transaction():
                for number in range(3):
                    producer.send("t", b"%d" % number, partition=number)
            assert killed.result(60) not in cluster.brokers
        assert sorted(committed(cluster, 3)) == [b"0", b"1", b"2"]


def test_a_hanging_transaction_blocks_readers_until_it_is_aborted() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        producer_id = cluster.transactions.hang("t", value=b"hanging")
        with cluster.producer() as producer:
            producer.send("t", b"after").result()
        with cluster.consumer("t", isolation_level="read_committed") as consumer:
            assert consumer.poll(300) == []
            with cluster.admin() as admin:
                admin.abort_transaction(("t", 0), producer_id=producer_id, producer_epoch=0)
            assert [record.value for record in consumer.poll(60_000)] == [b"after"]


def test_an_unknown_step_is_refused() -> None:
    with Cluster() as cluster, pytest.raises(ValueError, match="there is no step 'later'; there are before prepare"):
        cluster.transactions.kill_coordinator("tx", "later")


def test_an_administrator_fences_a_producer_and_aborts_its_transaction() -> None:
    with Cluster() as cluster:
        cluster.create_topic("t")
        with cluster.producer(transactional_id="tx") as producer, cluster.admin() as admin:
            producer.begin_transaction()
            producer.send("t", b"x").result()
            admin.terminate_transaction("tx")
            with pytest.raises(ProducerFencedError):
                producer.commit_transaction()
