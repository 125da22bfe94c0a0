"""Our `Admin` and `SimpleConsumer` against our broker and against Apache Kafka: the same results (M5, M10)."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from conformance.peers.compare_with_kafka import BrokerPair
from odradek.clients import Admin, NewTopic, OffsetAndMetadata, Producer, SimpleConsumer
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType, ConfigSource
from odradek.clients.admin.reassignments import ElectionType
from odradek.clients.admin.results import (
    RefusedGroupsError,
    RefusedMembersError,
    RefusedPartitionsError,
    RefusedTopicsError,
)
from odradek.clients.leader_fetch import OffsetOutOfRangeError, TopicRecreatedError
from odradek.config.altering import Alteration, AlterOperation
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from tests.world.scenes import played_by

pytestmark = pytest.mark.needs("kafka")
_numbers = itertools.count()
Scene = Callable[[Admin, SimpleConsumer, str], Awaitable[None]]


@pytest.fixture(params=["ours", "kafka"])
def servers(request: pytest.FixtureRequest, pair: BrokerPair) -> str:
    """The addresses of one side."""
    found: str = getattr(pair, request.param).bootstrap_servers
    return found


def play(servers: str, scene: Scene, *, records: int = 0) -> None:
    """Run `scene` with a topic of its own of two partitions, and `records` records in partition 0."""

    async def main() -> None:
        topic = f"clients-{next(_numbers)}"
        async with Admin(servers) as admin, SimpleConsumer(servers) as reader:
            await create(admin, reader, topic)
            async with Producer(servers) as producer:
                for number in range(records):
                    await producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)
            await scene(admin, reader, topic)

    asyncio.run(main())


async def create(admin: Admin, reader: SimpleConsumer, topic: str, **more: Any) -> None:
    """Create a topic and wait until the broker serves it; Kafka's controller answers earlier."""
    await admin.create_topics([NewTopic(name=topic, partitions=2, **more)])
    await reader.end_offsets([(topic, 0), (topic, 1)])


@played_by(play)
async def test_topics_and_their_errors(admin: Admin, reader: SimpleConsumer, topic: str) -> None:
    """M10: refused topics are named after the others were created."""
    with pytest.raises(RefusedTopicsError) as refused:
        await admin.create_topics([NewTopic(name=name, partitions=1) for name in (topic, f"{topic}-new", "a b")])
    assert {name: each.code for name, each in refused.value.errors.items()} == {
        topic: ErrorCode.topic_already_exists,
        "a b": ErrorCode.invalid_topic_exception,
    }
    assert await reader.partitions_for_topic(f"{topic}-new") == (0,)
    await admin.create_partitions(topic, 3)
    with pytest.raises(KafkaError) as fewer:
        await admin.create_partitions(topic, 1)
    assert fewer.value.code is ErrorCode.invalid_partitions
    with pytest.raises(RefusedTopicsError, match="there is no topic 'nobody-made-it'"):
        await admin.delete_topics([f"{topic}-new", "nobody-made-it"])
    with pytest.raises(KafkaError, match="there is no topic 'nobody-made-it'"):
        await admin.describe_topics(["nobody-made-it"])


@played_by(play)
async def test_configurations_are_altered_and_described(admin: Admin, reader: SimpleConsumer, topic: str) -> None:
    """M10: incremental changes, and the source of each value."""
    resource = ConfigResource(type=ConfigResourceType.TOPIC, name=topic)
    set_, append = AlterOperation.SET, AlterOperation.APPEND
    await admin.alter_configs(
        resource,
        [
            Alteration(name="retention.ms", operation=set_, value="86400000"),
            Alteration(name="cleanup.policy", operation=append, value="compact"),
        ],
    )
    while not (found := await own_values(admin, resource)):
        pass
    assert found == {"retention.ms": "86400000", "cleanup.policy": "delete,compact"}
    with pytest.raises(KafkaError) as refused:
        await admin.alter_configs(resource, [Alteration(name="retention.ms", operation=set_, value="soon")])
    assert refused.value.code is ErrorCode.invalid_config
    listed = await admin.list_config_resources([ConfigResourceType.TOPIC])
    assert resource in listed


async def own_values(admin: Admin, resource: ConfigResource) -> dict[str, str | None]:
    entries = (await admin.describe_configs([resource]))[resource]
    return {each.name: each.value for each in entries if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG}


@played_by(play, records=10)
async def test_records_are_deleted_and_offsets_listed(admin: Admin, reader: SimpleConsumer, topic: str) -> None:
    """M5, M10: the range in the error of an offset out of range is the log's."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await admin.delete_records({first: 4, second: -1}) == {first: 4, second: 0}
    with pytest.raises(RefusedPartitionsError) as refused:
        await admin.delete_records({first: 99, TopicPartition(topic, 7): 0})
    assert [each.code for each in refused.value.errors.values()] == [
        ErrorCode.offset_out_of_range,
        ErrorCode.invalid_partitions,
    ]
    for offset in (3, 11):
        with pytest.raises(OffsetOutOfRangeError) as outside:
            await reader.fetch(first, offset)
        assert (outside.value.beginning_offset, outside.value.end_offset) == (4, 10)
    fetched = await reader.fetch(first, 4)
    assert [(each.offset, each.value) for each in fetched.records] == [(n, b"%d" % n) for n in range(4, 10)]
    assert (fetched.next_offset, fetched.high_watermark, fetched.log_start_offset) == (10, 10, 4)
    (producer,) = await admin.describe_producers(first)
    assert producer.last_sequence == 9
    (sizes,) = [each.sizes for each in await admin.describe_log_dirs((await reader.find_leader(first)).leader.node_id)]
    assert sizes[first] > 0


@played_by(play, records=3)
async def test_a_topic_that_was_created_again_is_noticed(admin: Admin, reader: SimpleConsumer, topic: str) -> None:
    """M5: never other records at the same offsets."""
    fetched = await reader.fetch((topic, 0), 1)
    assert [each.value for each in fetched.records] == [b"1", b"2"]
    await admin.delete_topics([topic])
    async with SimpleConsumer(admin_servers(admin)) as other:
        created = False
        while not created:  # Kafka deletes the old topic after its response
            with contextlib.suppress(KafkaError):
                await create(admin, other, topic)
                created = True
        with pytest.raises(TopicRecreatedError):
            await reader.fetch((topic, 0), 1)
        with pytest.raises(TopicRecreatedError):
            await other.fetch((topic, 0), 0, topic_id=fetched.topic_id)


def admin_servers(admin: Admin) -> str:
    return ",".join(admin._cluster.settings.bootstrap_servers)


@played_by(play, records=3)
async def test_groups_their_offsets_and_their_members(admin: Admin, reader: SimpleConsumer, topic: str) -> None:
    """M10: offsets are altered and deleted, groups listed, described and deleted."""
    group, place = f"group-of-{topic}", TopicPartition(topic, 0)
    other = TopicPartition(topic, 1)
    await admin.alter_group_offsets(group, {place: OffsetAndMetadata(2, "note"), other: OffsetAndMetadata(0)})
    await admin.delete_group_offsets(group, [other])
    assert (await admin.list_group_offsets([group]))[group] == {place: OffsetAndMetadata(2, "note")}
    assert group in [each.group_id for each in await admin.list_groups(states=["Empty"], types=["classic"])]
    described = await admin.describe_group(group)
    assert (described.group_state, described.members, described.lag) == ("Empty", (), 1)
    with pytest.raises(RefusedMembersError) as refused:
        await admin.remove_group_members(group, group_instance_ids=["nobody"])
    assert refused.value.errors["nobody"].code is ErrorCode.unknown_member_id
    with pytest.raises(RefusedGroupsError, match="there is no group 'nobody'"):
        await admin.delete_groups([group, "nobody"])
    with pytest.raises(KafkaError, match="there is no group"):
        await admin.describe_group(group)


@played_by(play)
async def test_leaders_brokers_and_versions(admin: Admin, reader: SimpleConsumer, topic: str) -> None:
    """M10: a leader that is the preferred one is an ordinary result of an election."""
    place = TopicPartition(topic, 0)
    found = await admin.elect_leaders(ElectionType.PREFERRED, [place])
    error = found[place]
    assert error is not None
    assert error.code is ErrorCode.election_not_needed
    assert await admin.list_partition_reassignments() == {}
    cluster = await admin.describe_cluster()
    leader = await reader.find_leader(place)
    assert [each.broker_id for each in cluster.brokers] == [leader.leader.node_id] == list(leader.isr)
    versions = await admin.describe_broker_versions()
    assert versions.api_versions[ApiKey.METADATA][1] >= 12
