"""Faults between clients and brokers, and between brokers, with clients that nobody here wrote."""

import asyncio
import threading

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from odradek.model import UnavailableError
from odradek.protocol.api import ApiKey
from odradek.runtime import system_runtime
from odradek.testing import Cluster, eventually
from odradek.wire.client_connection import open_connection

DEADLINE_S = 120.0


def ask(cluster: Cluster, broker_id: int, api: ApiKey, message: dict[str, object]) -> object:
    """One request of a client to one broker."""
    host, _, port = cluster.address(broker_id).rpartition(":")

    async def exchange() -> object:
        connection = await open_connection(
            system_runtime(),
            host,
            int(port),
            client_id="test",
            request_timeout_ms=int(DEADLINE_S * 1000),
            setup_timeout_ms=int(DEADLINE_S * 1000),
            max_response_bytes=1 << 20,
        )
        try:
            return await connection.request(api, message)
        finally:
            connection.close()

    return asyncio.run(exchange())


def metadata(cluster: Cluster, broker_id: int, *topics: str, create: bool = False) -> list[tuple[str, str]]:
    """Topics and their errors, as one broker says them."""
    message = {
        "topics": [{"name": topic, "topic_id": None} for topic in topics],
        "allow_auto_topic_creation": create,
        "include_topic_authorized_operations": False,
    }
    answer = ask(cluster, broker_id, ApiKey.METADATA, message)
    return [(topic.name, topic.error_code.name) for topic in answer.topics]  # type: ignore[attr-defined]


def test_the_next_requests_fail_as_often_as_given_and_at_the_given_broker():
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t")
        cluster.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=2, broker=1)
        assert metadata(cluster, 0, "t") == [("t", "none")]
        answers = [metadata(cluster, 1, "t") for _ in range(3)]
        assert answers == [[("t", "leader_not_available")]] * 2 + [[("t", "none")]]


def test_a_failed_request_has_no_effect():
    with Cluster() as cluster:
        cluster.fail_next("METADATA", 5)
        assert metadata(cluster, 0, "t", create=True) == [("t", "leader_not_available")]
        assert metadata(cluster, 0, "t") == [("t", "unknown_topic_or_partition")]


def test_a_producer_gets_the_error_and_retries_a_retriable_one():
    with Cluster() as cluster:
        cluster.create_topic("t")
        errors: list[object] = []
        given = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "retry.backoff.ms": 10}
        producer = confluent_kafka.Producer(given)
        cluster.fail_next("produce", "POLICY_VIOLATION")
        producer.produce("t", b"refused", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        cluster.fail_next("produce", "NOT_ENOUGH_REPLICAS", times=3)
        producer.produce("t", b"taken", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        refused, taken = errors
        assert isinstance(refused, confluent_kafka.KafkaError)
        assert refused.name() == "POLICY_VIOLATION"
        assert taken is None
        watermarks = consumer_of(cluster).get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), DEADLINE_S)
        assert watermarks == (0, 1)


def consumer_of(cluster: Cluster) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )


def test_a_producer_without_acknowledgements_loses_its_connection_as_in_kafka():
    with Cluster() as cluster:
        cluster.fail_next("PRODUCE", "NOT_LEADER_OR_FOLLOWER")
        message = {"transactional_id": None, "acks": 0, "timeout": 1000, "topic_data": []}
        with pytest.raises(UnavailableError, match="closed the connection"):
            ask(cluster, 0, ApiKey.PRODUCE, message)


def test_a_delayed_request_is_answered_and_those_of_other_brokers_do_not_wait_for_it():
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("t")
        cluster.delay(0.05, "Metadata", {1})
        assert metadata(cluster, 1, "t") == [("t", "none")]
        cluster.heal()
        cluster.delay(3600, "Metadata", {1})
        failures: list[UnavailableError] = []

        def ask_the_slow_one() -> None:
            try:
                metadata(cluster, 1, "t")
            except UnavailableError as error:
                failures.append(error)

        asking = threading.Thread(target=ask_the_slow_one)
        asking.start()
        assert metadata(cluster, 0, "t") == [("t", "none")]
        assert asking.is_alive()
        cluster.kill(1)
        asking.join(DEADLINE_S)
        assert len(failures) == 1


def test_a_request_that_waits_is_given_up_when_the_broker_dies_or_the_client_goes():
    with Cluster() as cluster:
        cluster.delay(3600, "ListOffsets")
        consumer = consumer_of(cluster)
        cluster.create_topic("t")
        with pytest.raises(confluent_kafka.KafkaException):
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition("t", 0), timeout=0.5)
        consumer.close()
        cluster.kill(0)
        cluster.restart(0)
        cluster.wait_for_leader("t", 0)


def test_brokers_that_are_cut_off_from_each_other_exchange_nothing_until_the_network_heals():
    """M1. A broker that is not the controller asks it to create a topic: that is what one broker wants of another."""
    with Cluster(brokers=3) as cluster:
        first = cluster.controller()
        second, third = (each for each in cluster.brokers if each != first)
        cluster.disconnect({second}, {first, third})
        assert metadata(cluster, second, "late", create=True) == [("late", "unknown_topic_or_partition")]
        assert metadata(cluster, third, "soon", create=True) == [("soon", "none")]
        assert metadata(cluster, second, "soon") in ([("soon", "none")], [("soon", "unknown_topic_or_partition")])
        assert "late" not in cluster.described(first).topics
        cluster.heal()
        eventually(lambda: metadata(cluster, second, "late", create=True) == [("late", "none")], within_s=DEADLINE_S)


@pytest.mark.parametrize("way", ["there", "back"])
def test_one_way_is_enough_for_no_answer_and_what_was_sent_arrives_when_it_heals(way: str):
    """M1. The connection is there before the cut, and is not lost."""
    with Cluster(brokers=2) as cluster:
        first = cluster.controller()
        second = 1 - first
        assert metadata(cluster, second, "before", create=True) == [("before", "none")]
        sides = ({second}, {first}) if way == "there" else ({first}, {second})
        cluster.disconnect(*sides, one_way=True)
        assert metadata(cluster, second, "late", create=True) == [("late", "unknown_topic_or_partition")]
        if way == "back":
            # What is asked arrives, and is done; only the answer does not.
            eventually(lambda: "late" in cluster.described(first).topics, within_s=DEADLINE_S)
        else:
            assert "late" not in cluster.described(first).topics
        cluster.heal()
        eventually(lambda: metadata(cluster, second, "late", create=True) == [("late", "none")], within_s=DEADLINE_S)


def test_faults_that_are_not_there_are_refused_in_a_sentence():
    cluster = Cluster(brokers=2)
    with pytest.raises(RuntimeError, match="does not run"):
        cluster.fail_next("produce", 6)
    with cluster:
        with pytest.raises(ValueError, match="no API 'Prodce'; there are PRODUCE, FETCH"):
            cluster.fail_next("Prodce", "NOT_LEADER_OR_FOLLOWER")
        for nothing in ("NOT_THE_LEADER", 4711, 0, "NONE"):
            with pytest.raises(ValueError, match="Kafka has no error"):
                cluster.fail_next("produce", nothing)
        with pytest.raises(ValueError, match="did you mean NOT_ENOUGH_REPLICAS"):
            cluster.fail_next("produce", "NOT_ENOUGH_REPLICA")
        with pytest.raises(ValueError, match="times must be at least 1"):
            cluster.fail_next("produce", 6, times=0)
        with pytest.raises(ValueError, match="no broker 5"):
            cluster.fail_next("produce", 6, broker=5)
        with pytest.raises(ValueError, match="more than 0 seconds"):
            cluster.delay(0)
        with pytest.raises(ValueError, match="no broker 2"):
            cluster.disconnect({0}, {2})
        with pytest.raises(ValueError, match="name on one side only: 1"):
            cluster.disconnect({0, 1}, {1})
        assert len(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=60).brokers) == 2
