"""Replicas in this process: leaders that die or stand still, followers that are cut off."""

import confluent_kafka
import pytest

from odradek.model import TopicPartition
from odradek.testing import Cluster, eventually

DEADLINE_S = 60.0
LEADS, OTHER, THIRD = 1, 2, 0


def produce(cluster: Cluster, topic: str, *values: bytes, **settings: object) -> None:
    given = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "enable.idempotence": True, **settings}
    producer = confluent_kafka.Producer(given)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def values(cluster: Cluster, topic: str) -> list[bytes]:
    """All of partition 0, from the start to what is committed now."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "auditors", "log_level": 0}
    )
    place = confluent_kafka.TopicPartition(topic, 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, DEADLINE_S)
    found = consumer.consume(end, DEADLINE_S) if end else []
    consumer.close()
    return [message.value() for message in found]


def isr(cluster: Cluster, topic: str) -> set[int]:
    partition = cluster.described(cluster.wait_for_leader(topic, 0)).partition(TopicPartition(topic, 0))
    return set() if partition is None else set(partition.isr)


@pytest.fixture
def replicated():
    """A topic `t` of one partition on three brokers, led by one that is not the controller."""
    config = {
        "min.insync.replicas": "2",
        "replica.lag.time.max.ms": "2000",
        "zookeeper.session.timeout.ms": "4000",
    }
    with Cluster(brokers=3, config=config) as cluster:
        cluster.create_topic("t", assignment={0: [LEADS, OTHER, THIRD]})
        yield cluster


def test_a_killed_leader_is_followed_by_one_that_has_all_that_was_acknowledged(replicated: Cluster):
    """M1."""
    produce(replicated, "t", b"one", b"two")
    replicated.kill(LEADS)
    assert replicated.wait_for_leader("t", 0, not_in={LEADS}) == OTHER
    produce(replicated, "t", b"three")
    replicated.restart(LEADS)
    eventually(lambda: isr(replicated, "t") == {0, 1, 2}, within_s=DEADLINE_S)
    assert values(replicated, "t") == [b"one", b"two", b"three"]


def test_a_leader_that_stood_still_acknowledges_nothing_when_it_goes_on(replicated: Cluster):
    """M1. It must not acknowledge what clients sent to it meanwhile."""
    produce(replicated, "t", b"one")
    replicated.pause(LEADS)
    assert replicated.leader("t", 0) is None
    assert replicated.wait_for_leader("t", 0, not_in={LEADS}) == OTHER
    produce(replicated, "t", b"two")
    late = confluent_kafka.Producer(
        {"bootstrap.servers": replicated.bootstrap_servers, "log_level": 0, "enable.idempotence": True}
    )
    late.produce("t", b"three", partition=0)
    replicated.resume(LEADS)
    assert late.flush(DEADLINE_S) == 0
    eventually(lambda: isr(replicated, "t") == {0, 1, 2}, within_s=DEADLINE_S)
    assert values(replicated, "t") == [b"one", b"two", b"three"]


@pytest.mark.parametrize("one_way", [False, True])
def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back_when_it_heals(replicated: Cluster, one_way: bool):
    """M1."""
    produce(replicated, "t", b"one")
    eventually(lambda: isr(replicated, "t") == {0, 1, 2}, within_s=DEADLINE_S)
    replicated.disconnect({OTHER}, {LEADS, THIRD}, one_way=one_way)
    produce(replicated, "t", b"two")  # who lacks nothing is in sync, however silent
    eventually(lambda: isr(replicated, "t") == {LEADS, THIRD}, within_s=DEADLINE_S)
    replicated.heal()
    eventually(lambda: isr(replicated, "t") == {0, 1, 2}, within_s=DEADLINE_S)
    assert values(replicated, "t") == [b"one", b"two"]


def test_a_leader_alone_on_its_side_acknowledges_nothing_and_nothing_is_lost(replicated: Cluster):
    """M1. It is in the tree and clients reach it; followers and the controller do not."""
    produce(replicated, "t", b"one")
    replicated.disconnect({LEADS}, {OTHER, THIRD})
    answers: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": replicated.address(LEADS), "log_level": 0, "enable.idempotence": True}
    )
    producer.produce("t", b"two", partition=0, on_delivery=lambda error, _: answers.append(error))
    assert producer.flush(2) == 1
    assert not answers
    replicated.heal()
    assert producer.flush(DEADLINE_S) == 0
    assert answers == [None]
    assert values(replicated, "t") == [b"one", b"two"]
