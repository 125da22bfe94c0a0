"""Several brokers in this process: who leads what, who dies, who stands still."""

import asyncio

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.clients import ProducerFencedError
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.testing import Cluster, eventually

DEADLINE_S = 120.0


def settings(cluster: Cluster) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}


def write(cluster: Cluster, topic: str, partition: int, *values: str) -> None:
    producer = confluent_kafka.Producer(settings(cluster))
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def read(cluster: Cluster, topic: str, count: int) -> set[str]:
    consumer = confluent_kafka.Consumer({**settings(cluster), "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return {message.value().decode() for message in found}


def test_the_fixture_kafka_cluster_has_three_brokers_that_share_partitions_and_groups(kafka_cluster: Cluster):
    """M1. Partitions spread over all brokers, and any of them tells where each is."""
    kafka_cluster.create_topic("t", partitions=3)
    assert sorted(kafka_cluster.leader("t", number) for number in range(3)) == [0, 1, 2]
    for number in range(3):
        write(kafka_cluster, "t", number, f"of {number}")
    assert read(kafka_cluster, "t", 3) == {"of 0", "of 1", "of 2"}
    for broker_id in kafka_cluster.brokers:
        known = AdminClient({"bootstrap.servers": kafka_cluster.address(broker_id)}).list_topics(timeout=DEADLINE_S)
        assert set(known.brokers) == {0, 1, 2}
        assert {number: each.leader for number, each in known.topics["t"].partitions.items()} == {
            number: kafka_cluster.leader("t", number) for number in range(3)
        }


def test_records_to_any_leader_are_acknowledged_when_all_replicas_have_them(kafka_cluster: Cluster):
    """M1. Those that are not the controller know of the others what its commands tell."""
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic("r", 3, 3, config={"min.insync.replicas": "3"})]).values():
        future.result(DEADLINE_S)
    for number in range(3):
        write(kafka_cluster, "r", number, f"of {number}")
    assert read(kafka_cluster, "r", 3) == {"of 0", "of 1", "of 2"}


def test_a_killed_controller_is_followed_by_another_and_comes_back_on_its_port():
    """M1."""
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=3)
        servers, first = cluster.bootstrap_servers, cluster.controller()
        cluster.kill(first)
        assert first not in cluster.brokers
        assert eventually(lambda: {cluster.controller()} - {first}, within_s=DEADLINE_S)
        with pytest.raises(RuntimeError, match=rf"broker {first} does not run.*restart\({first}\)"):
            cluster.pause(first)
        cluster.restart(first)
        assert cluster.bootstrap_servers == servers
        for number in range(3):
            cluster.wait_for_leader("t", number)


def test_a_broker_that_stands_still_past_its_session_is_dead_to_the_others_until_it_goes_on():
    """M1. And a broker that was killed while it stood still is dead, too."""
    with Cluster(brokers=2, config={"zookeeper.session.timeout.ms": "1500"}) as cluster:
        first = cluster.controller()
        other = 1 - first
        cluster.pause(first)
        assert cluster.brokers == (0, 1)
        eventually(lambda: cluster.controller() == other, within_s=DEADLINE_S)
        cluster.resume(first)
        eventually(lambda: set(cluster.described(first).brokers) == {0, 1}, within_s=DEADLINE_S)
        cluster.pause(first)
        cluster.kill(first)
        assert cluster.brokers == (other,)
        eventually(lambda: set(cluster.described(other).brokers) == {other}, within_s=DEADLINE_S)


def test_a_leader_that_is_excluded_is_waited_for_until_time_is_up():
    with Cluster() as cluster:
        cluster.create_topic("t")
        assert cluster.wait_for_leader("t", 0) == 0
        assert cluster.leader("t", 1) is None
        with pytest.raises(TimeoutError, match="a leader of t-0 other than 0"):
            cluster.wait_for_leader("t", 0, not_in={0}, timeout_s=0)


def test_a_refused_topic_creation_raises_the_error_of_the_cluster():
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("placed", assignment={0: [1], 1: [0]})
        assert [cluster.leader("placed", number) for number in range(2)] == [1, 0]
        with pytest.raises(KafkaError) as caught:
            cluster.create_topic("placed")
        assert caught.value.code is ErrorCode.topic_already_exists


def test_missing_clusters_and_brokers_are_refused_in_a_sentence():
    cluster = Cluster(brokers=2)
    with pytest.raises(RuntimeError, match="does not run: use `with Cluster"):
        cluster.kill(0)
    with pytest.raises(RuntimeError, match="does not run"):
        _ = cluster.bootstrap_servers
    with pytest.raises(ValueError, match="no broker 7"):
        Cluster(brokers=2, broker_configs={7: {}})
    with cluster:
        with pytest.raises(RuntimeError, match="is running already"):
            cluster.start()
        for call in (cluster.kill, cluster.restart, cluster.pause, cluster.resume):
            with pytest.raises(ValueError, match="no broker 2 in this cluster, only 0, 1"):
                call(2)
    cluster.stop()


def test_each_broker_may_have_a_configuration_of_its_own():
    """M1. Racks are the usual reason."""
    racks = {0: {"broker.rack": "north"}, 1: {"broker.rack": "south"}}
    with Cluster(brokers=2, broker_configs=racks) as cluster:
        for broker_id in cluster.brokers:
            described = cluster.described(broker_id).brokers
            assert [described[each].rack for each in (0, 1)] == ["north", "south"]


def test_a_broker_that_cannot_start_ends_the_whole_start():
    cluster = Cluster(brokers=3, broker_configs={2: {"log.retention.ms": "many"}})
    with pytest.raises(ConfigurationError, match=r"log\.retention\.ms"):
        cluster.start()
    assert cluster.brokers == ()


async def _lead() -> int:
    async with Cluster(brokers=2) as cluster:
        await asyncio.to_thread(cluster.create_topic, "t", assignment={0: [1]})
        return cluster.wait_for_leader("t", 0)


def test_async_with_starts_several_brokers_beside_the_callers_loop():
    assert asyncio.run(_lead()) == 1


def test_a_group_of_a_cluster_adds_no_topic_but_that_of_its_offsets():
    """The rebalance journal, which `serve` and `up` have, would surprise a test that lists topics."""
    with Cluster(brokers=1) as cluster:
        cluster.create_topic("t")
        write(cluster, "t", 0, "a")
        assert read(cluster, "t", 1) == {"a"}
        assert set(AdminClient(settings(cluster)).list_topics(timeout=DEADLINE_S).topics) == {"t", "__consumer_offsets"}


# ---- Transactions ----------------------------------------------------------------------------------------------------

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
