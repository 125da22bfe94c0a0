"""M4. Arguments and settings of the consumer of generation 1: wrong ones are refused in one sentence."""

from typing import Any
from uuid import UUID

import pytest

from odradek.assignors import create_assignor
from odradek.clients.zookeeper_consumer import TopicFilter, ZookeeperConsumer
from odradek.clients.zookeeper_consumer.machine.registration import ThreadCounts, thread_id, unique_name
from odradek.clients.zookeeper_consumer.machine.view import GroupView, decide
from odradek.clients.zookeeper_consumer.settings import zookeeper_strategy
from odradek.model import ConfigurationError, OdradekError
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.world.scenes import played


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"t": "2"}, "1 to 10,000 threads, not '2'"),
        ({"t": True}, "1 to 10,000 threads, not True"),
        ({"t": 1.5}, r"1 to 10,000 threads, not 1\.5"),
        ({"t": 0}, "1 to 10,000 threads, not 0"),
        ({"t": 10_001}, "1 to 10,000 threads, not 10001"),
        ({5: 1}, "a topic's name is a string, not 5"),
        ({"t/x": 1}, "'t/x' contains one or more"),
        ({}, "needs a topic"),
        (["t"], r"such as {'flights': 2}, not \['t'\]"),
        ("t", "such as {'flights': 2}, not 't'"),
    ],
)
@played
async def test_wrong_numbers_of_streams_are_refused(world: World, counts: Any, message: str) -> None:
    consumer = ZookeeperConsumer(store=MemoryStore(world.tree), runtime=world.simulation.runtime("c"))
    async with consumer:
        with pytest.raises(OdradekError, match=message):
            await consumer.create_message_streams(counts)


@pytest.mark.parametrize(
    ("topic_filter", "threads", "message"),
    [
        ("t.*", 1, r"is a TopicFilter, not 't\.\*'"),
        (TopicFilter(expression="t"), "3", "1 to 10,000 threads, not '3'"),
        (TopicFilter(expression="t"), 0, "1 to 10,000 threads, not 0"),
    ],
)
@played
async def test_wrong_filters_are_refused(world: World, topic_filter: Any, threads: Any, message: str) -> None:
    consumer = ZookeeperConsumer(store=MemoryStore(world.tree), runtime=world.simulation.runtime("c"))
    async with consumer:
        with pytest.raises(ConfigurationError, match=message):
            await consumer.create_message_streams_by_filter(topic_filter, threads)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (None, "a regular expression in a string, not None"),
        (b"a", "a regular expression in a string, not b'a'"),
        ("a{1,2}", "commas separate alternatives"),
        ("[a-z&&[^b]]", "set intersection"),
        ("*", "nothing to repeat"),
        (r"\p{Alpha}", "braces have one number"),
        ("a{99999999999999999999}", "too large"),
    ],
)
def test_an_expression_that_would_match_other_topics_than_java_s_is_refused(expression: Any, message: str) -> None:
    for _ in range(2):  # Python warns of an expression once
        with pytest.raises(ConfigurationError, match=message):
            TopicFilter(expression=expression)


@pytest.mark.parametrize(
    ("expression", "expected"), [("a{2}", {"aa"}), ('"a, b"', {"a", "b"}), ("__.*", {"__x"}), ("(?i)A", {"a"})]
)
def test_an_expression_matches_whole_names(expression: str, expected: set[str]) -> None:
    names = ["a", "aa", "b", "__x", "__consumer_offsets", "__transaction_state"]
    assert TopicFilter(expression=expression).topics(names, exclude_internal=True) == expected


def test_internal_topics_are_kafka_s() -> None:
    counts = ThreadCounts(filter=TopicFilter(expression=".*"))
    names = ["__consumer_offsets", "__debezium-heartbeat"]
    assert set(counts.threads_of(names, exclude_internal=True)) == {"__debezium-heartbeat"}
    assert set(counts.threads_of(names, exclude_internal=False)) == set(names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group_id": ""}, "group_id is the name of a node"),
        ({"group_id": "a\0b"}, "it can't be 'a\\\\x00b'"),
        ({"consumer_id": "x/y"}, "it can't be 'x/y'"),
        ({"fetch_min_bytes": -5}, "fetch.min.bytes"),
        ({"zookeeper_connect": None}, "the URL of a tree in a string, not None"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ZookeeperConsumer(**settings)


@pytest.mark.parametrize("strategy", ["roundrobin", "RoundRobinAssignor", "kafka.consumer.RoundRobinAssignor"])
def test_the_names_of_kafka_0_8_mean_its_rules(strategy: str) -> None:
    assert zookeeper_strategy(strategy) == "zookeeper-roundrobin"
    assert (
        zookeeper_strategy(strategy.replace("RoundRobin", "Range").replace("roundrobin", "range")) == "zookeeper-range"
    )
    assert zookeeper_strategy("ceiling-range") == "ceiling-range"
    ZookeeperConsumer(partition_assignment_strategy=strategy)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("RangeAssignor", r"takes kafka\.consumer\.RangeAssignor \(range\)"),
        ("RoundRobinAssignor", r"takes kafka\.consumer\.RoundRobinAssignor \(roundrobin\)"),
        ("StickyAssignor", r"takes kafka\.consumer\.RangeAssignor or kafka\.consumer\.RoundRobinAssignor"),
    ],
)
def test_a_class_name_of_the_modern_consumer_is_refused_with_kafka_0_8_s(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ZookeeperConsumer(partition_assignment_strategy=f"org.apache.kafka.clients.consumer.{name}")


def test_a_mixed_group_with_kafka_0_8_agrees_on_a_topic_with_gaps_in_its_partition_ids() -> None:
    """Kafka 0.8 sorts [t,0], [t,1], [t,2] and [t,27] by String.hashCode: 27, 0, 1, 2."""
    consumers = {"c0": ThreadCounts(topics={"t": 1}), "c1": ThreadCounts(topics={"t": 1})}
    view = GroupView(consumers=consumers, partitions={"t": (0, 1, 2, 27)})
    wanted = {
        strategy: {
            place.partition: thread
            for name in consumers
            for place, thread in decide(view, name, create_assignor(strategy), exclude_internal=True).items()
        }
        for strategy in ("zookeeper-roundrobin", "zookeeper-range")
    }
    assert wanted == {
        "zookeeper-roundrobin": {27: "c0-0", 0: "c1-0", 1: "c0-0", 2: "c1-0"},
        "zookeeper-range": {0: "c0-0", 1: "c0-0", 2: "c1-0", 27: "c1-0"},
    }


def test_an_id_is_as_kafka_0_8_made_it() -> None:
    """SPEC 4: group, host, time, and the first eight hexadecimal digits of a UUID; a thread's number follows."""
    made = unique_name("host", 1_700_000_000_000, UUID("0123abcd-4567-89ab-cdef-0123456789ab"))
    assert made == "host-1700000000000-0123abcd"
    assert ZookeeperConsumer(group_id="readers").consumer_id.startswith("readers_")
    assert ZookeeperConsumer(group_id="readers", consumer_id="alpha").consumer_id == "readers_alpha"
    assert thread_id("readers_alpha", 1) == "readers_alpha-1"
