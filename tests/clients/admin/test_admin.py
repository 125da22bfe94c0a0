"""Topics, groups, brokers and configuration through `Admin`, beside a broker in virtual time (M10)."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest

from odradek.clients import Admin, NewTopic
from odradek.clients.admin import topics
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType, ConfigSource, GroupPartition
from odradek.clients.offsets import EARLIEST, LATEST
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.clients.admin.scene import play
from tests.world.scenes import played_by


@played_by(play)
async def test_topics_are_created_listed_described_and_deleted(admin: Admin, world: World) -> None:
    await admin.create_topic("b", partitions=3, configs={"retention.ms": "1000"})
    await admin.create_topics([NewTopic(name="a"), NewTopic(name="c", assignments={0: [0], 1: [0]})])
    assert [(topic.name, len(topic.partitions)) for topic in await admin.list_topics()] == [
        ("a", 1), ("b", 3), ("c", 2),
    ]  # fmt: skip
    described = (await admin.describe_topics(["b"]))["b"]
    assert described.topic_id is not None
    assert described.replication_factor == 1
    assert {partition.leader for partition in described.partitions.values()} == {0}
    await admin.delete_topics(["a", "c"])
    assert [topic.name for topic in await admin.list_topics()] == ["b"]


@played_by(play)
async def test_errors_about_topics_contain_the_topics_name(admin: Admin, world: World) -> None:
    await admin.create_topic("t")
    with pytest.raises(KafkaError) as exists:
        await admin.create_topic("t")
    assert str(exists.value) == "Topic 't' already exists.", "the broker's text names it"
    assert exists.value.code == ErrorCode.topic_already_exists
    for call in (admin.delete_topics(["nope"]), admin.describe_topics(["nope"])):
        with pytest.raises(KafkaError, match="there is no topic 'nope'"):
            await call
    with pytest.raises(KafkaError, match="topic 'u': Unknown") as invalid:
        await admin.create_topic("u", configs={"retention.mss": "1"})
    assert invalid.value.code == ErrorCode.invalid_config
    # These errors are not retriable, so they are not retried for a minute.
    assert world.now_s < 5


@played_by(play)
async def test_a_topic_that_is_only_validated_is_not_created(admin: Admin, world: World) -> None:
    await admin.create_topic("t", validate_only=True)
    assert await admin.list_topics() == []


@played_by(play)
async def test_internal_topics_are_listed_on_request(admin: Admin, world: World) -> None:
    async with world.consumer("reader", "t", group_id="g") as consumer:
        await consumer.poll(5_000)
    assert [topic.name for topic in await admin.list_topics()] == ["t"]
    assert "__consumer_offsets" in [topic.name for topic in await admin.list_topics(include_internal=True)]


@played_by(play)
async def test_a_group_is_described_with_its_members_and_its_lag(admin: Admin, world: World) -> None:
    await admin.create_topic("t", partitions=2)
    async with world.producer("writer") as producer:
        for number in range(30):
            await producer.send("t", b"v", partition=number % 2)
    settings = {"client_id": "me", "enable_auto_commit": False, "group_id": "g"}
    async with world.consumer("reader", "t", **settings) as consumer:
        await consumer.poll(10_000)
        await consumer.commit({TopicPartition("t", 0): 4})
        polling = asyncio.ensure_future(consumer.poll(60_000))
        group = await admin.describe_group("g")
        polling.cancel()
    assert (group.group_state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert member.client_id == "me"
    assert member.assignment == (TopicPartition("t", 0), TopicPartition("t", 1))
    first, second = group.partitions
    assert (first.committed_offset, first.end_offset, first.lag) == (4, 15, 11)
    assert (second.committed_offset, second.end_offset, second.lag) == (None, 15, None)
    assert first.member_id == second.member_id == member.member_id
    assert group.lag == 11
    assert [(each.group_id, each.protocol_type) for each in await admin.list_groups()] == [("g", "consumer")]
    assert [each.group_id for each in await admin.list_groups(states=["Empty"])] == ["g"]
    assert await admin.list_groups(states=["Stable"]) == []


@played_by(play)
async def test_a_group_with_a_deleted_topic_is_described_without_end_offsets(admin: Admin, world: World) -> None:
    await admin.create_topic("kept")
    await admin.create_topic("gone")
    consumer = world.consumer("reader", group_id="g")
    async with consumer:
        await consumer.commit({TopicPartition("gone", 0): 3, TopicPartition("kept", 0): 0})
    await admin.delete_topics(["gone"])
    group = await admin.describe_group("g")
    gone = GroupPartition(
        topic="gone", partition=0, committed_offset=3, end_offset=None, lag=None,
        member_id=None, client_id=None, client_host=None,
    )  # fmt: skip
    # A broker may have dropped the offsets together with the topic.
    assert [each for each in group.partitions if each.topic == "gone"] in ([gone], [])
    assert [each.lag for each in group.partitions if each.topic == "kept"] == [0]


@played_by(play)
async def test_describing_an_unknown_group_is_an_error(admin: Admin, world: World) -> None:
    with pytest.raises(KafkaError, match="there is no group 'nope'") as caught:
        await admin.describe_group("nope")
    assert caught.value.code == ErrorCode.group_id_not_found


@played_by(play)
async def test_offsets_brokers_and_configuration_are_described(admin: Admin, world: World) -> None:
    await admin.create_topic("t", configs={"retention.ms": "86400000"})
    async with world.producer("writer") as producer:
        for _ in range(5):
            await producer.send("t", b"v")
    there = TopicPartition("t", 0)
    assert (await admin.list_offsets({there: LATEST}))[there].offset == 5
    assert (await admin.list_offsets({there: EARLIEST}))[there].offset == 0
    cluster = await admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller_id == 0
    assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [(0, "broker", 9092)]
    topic = ConfigResource(type=ConfigResourceType.TOPIC, name="t")
    broker = ConfigResource(type=ConfigResourceType.BROKER, name="0")
    configs = await admin.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)
    by_name = {entry.name: entry for entry in configs[topic]}
    assert by_name["retention.ms"].value == "86400000"
    assert by_name["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert by_name["retention.ms"].synonyms
    assert by_name["retention.ms"].documentation
    assert by_name["segment.bytes"].is_default
    assert "log.segment.bytes" in {entry.name for entry in configs[broker]}
    with pytest.raises(KafkaError, match="topic 'nope'"):
        await admin.describe_configs([ConfigResource(type=ConfigResourceType.TOPIC, name="nope")])


# ---- topics in pages ------------------------------------------------------------------------------------------------


@played_by(play)
async def test_log_directories_have_the_sizes_of_all_logs_or_of_chosen_ones(admin: Admin, world: World) -> None:
    await admin.create_topic("a", partitions=2)
    await admin.create_topic("b")
    (directory,) = await admin.describe_log_dirs(0)
    assert directory.sizes.keys() == {TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)}
    (directory,) = await admin.describe_log_dirs(0, [("a", 1)])
    assert directory.sizes.keys() == {TopicPartition("a", 1)}
    (directory,) = await admin.describe_log_dirs(0, [])
    assert not directory.sizes


def page(name: str, topic_id: int, numbers: Iterable[int], next_cursor: tuple[str, int] | None) -> dict[str, Any]:
    """Return a DescribeTopicPartitions response about some partitions of one topic."""
    partitions = [
        {
            "error_code": 0,
            "partition_index": number,
            "leader_id": 0,
            "leader_epoch": 3,
            "replica_nodes": [0],
            "isr_nodes": [0],
            "eligible_leader_replicas": [],
            "last_known_elr": [],
            "offline_replicas": [],
        }
        for number in numbers
    ]
    topic = {"error_code": 0, "name": name, "topic_id": UUID(int=topic_id), "is_internal": False}
    cursor = next_cursor and {"topic_name": next_cursor[0], "partition_index": next_cursor[1]}
    return {"topics": [{**topic, "partitions": partitions}], "next_cursor": cursor}


def test_topics_are_described_in_pages(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """M10 (KIP-966): pages end in the middle of topics and between them, and names may be repeated."""
    monkeypatch.setattr(topics, "_PAGE_PARTITIONS", 3)

    async def scene(admin: Admin, _: World) -> None:
        counts = {"b": 7, "a": 2, "c": 3, "d": 1}
        await admin.create_topics([NewTopic(name=name, partitions=count) for name, count in counts.items()])
        found = await admin.describe_topics(["b", "a", "d", "b", "c"])
        assert {name: list(each.partitions) for name, each in found.items()} == {
            name: list(range(count)) for name, count in counts.items()
        }
        assert list(found) == ["b", "a", "d", "c"]
        assert list(found.values()) == [{each.name: each for each in await admin.list_topics()}[name] for name in found]
        assert await admin.describe_topics([]) == {}
        with pytest.raises(KafkaError, match="there is no topic 'bb'"):
            await admin.describe_topics(["b", "bb", "c"])

    play(seed, scene)


def describe(simulation: Simulation, broker: Any, pages: Callable[[Any], dict[str, Any]] | None) -> Any:
    """Return what `Admin` says about the topic t when a scripted broker answers so; None lacks the API."""

    async def main() -> Any:
        broker.topics = {"t": {0: 0, 1: 0}}
        if pages is None:
            del broker.versions[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
        else:
            broker.answers[ApiKey.DESCRIBE_TOPIC_PARTITIONS] = pages
        await broker.start()
        async with Admin(broker.address, runtime=simulation.runtime("admin")) as admin:
            return (await admin.describe_topics(["t"]))["t"]

    return simulation.run(main())


def test_a_broker_without_pages_gets_a_metadata_request(simulation: Simulation, broker: Any) -> None:
    """Kafka has pages since 3.8."""
    assert list(describe(simulation, broker, None).partitions) == [0, 1]


def test_a_topic_that_is_created_again_between_two_pages_is_described_anew(simulation: Simulation, broker: Any) -> None:
    answers = iter([page("t", 1, [0, 1], ("t", 2)), page("t", 2, [2], None), page("t", 2, [0, 1, 2], None)])
    found = describe(simulation, broker, lambda _: next(answers))
    assert (found.topic_id, list(found.partitions)) == (UUID(int=2), [0, 1, 2])


def test_a_broker_that_repeats_a_page_gets_no_endless_requests(simulation: Simulation, broker: Any) -> None:
    with pytest.raises(KafkaError, match="the broker repeats the page"):
        describe(simulation, broker, lambda _: page("t", 1, [0], ("t", 1)))
