"""Failover of group coordinators: every announced generation is in the log and is restored from it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinators import coordinator_context
from odradek.broker.coordinators.coordinator_loader import LoadSummary
from odradek.broker.coordinators.machine import NO_PRODUCER
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.messages import CommitRequest, FetchOffsetsRequest
from odradek.broker.groups.machine.records import GroupRecordCodec
from odradek.broker.replication.partition import Partition
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records
from odradek.protocol.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.broker.groups.machine.machine_log import classic_groups
from tests.world.scenes import played

Play = Callable[..., None]


def join_message(member_id: str = "") -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"metadata"}],
        "reason": None,
    }


def sync_message(joined: Any, **assignments: bytes) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": data} for data in assignments.values()],
    }


def heartbeat_message(joined: Any) -> dict[str, Any]:
    return {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}


def recorded(world: Any) -> list[GroupMetadataValue | None]:
    """Every record of the group `g`, as it is in the log."""
    log = world.broker.partitions.leader_or_none(OFFSETS_TOPIC, coordinator_partition("g", 2)).log
    data = log.read(log.log_start_offset, 1 << 20)
    values: list[GroupMetadataValue | None] = []
    for position, header in iterate_batches(data):
        for record in decode_records(data[position : position + header.size]):
            key, value = GROUP_RECORDS.decode(record.key, record.value)
            if isinstance(key, GroupMetadataKey):
                values.append(value)
    return values


async def member(world: Any, client: Any) -> Any:
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(), 3)
    assert joined.error_code == ErrorCode.none
    await client.ask(ApiKey.SYNC_GROUP, sync_message(joined, mine=b"mine"), 3)
    return joined


@played
async def test_generations_and_assignments_are_in_the_log_before_they_are_announced(world: Any) -> None:
    """M6."""
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(), 3)
    (opened,) = recorded(world)
    assert (opened.generation, opened.protocol_type, opened.protocol) == (1, "consumer", "range")
    assert opened.leader == joined.member_id
    assert opened.current_state_timestamp > 1_000_000
    (only,) = opened.members
    assert (only.member_id, only.client_id, only.subscription) == (joined.member_id, "client", b"metadata")
    assert only.client_host.startswith("/")
    assert (only.rebalance_timeout, only.session_timeout, only.assignment) == (60_000, 10_000, b"")
    await client.ask(ApiKey.SYNC_GROUP, sync_message(joined, mine=b"mine"), 3)
    assert [each.members[0].assignment for each in recorded(world)] == [b"", b"mine"]
    await client.ask(ApiKey.LEAVE_GROUP, {"group_id": "g", "member_id": joined.member_id}, 0)
    last = recorded(world)[-1]
    assert (last.generation, last.protocol, last.leader, last.members) == (2, None, None, ())


@pytest.mark.parametrize(
    ("assigned", "error"),
    [
        ((0, 1, 2), ErrorCode.none),
        ((0, 1), ErrorCode.rebalance_in_progress),
        ((0, 1, 2, 3), ErrorCode.rebalance_in_progress),
    ],
)
@played
async def test_a_new_coordinator_rebalances_a_group_whose_topics_have_changed(
    world: Any, assigned: tuple[int, ...], error: ErrorCode
) -> None:
    """M6. Failover, phase 1: it was not there when partitions came or went."""
    await world.create_topic("t", 3)
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
    message = join_message()
    message["protocols"][0]["metadata"] = encode_subscription(Subscription(topics=("t", "not there yet")))
    joined = await client.ask(ApiKey.JOIN_GROUP, message, 3)
    partitions = tuple(TopicPartition("t", number) for number in assigned)
    mine = encode_assignment(Assignment(partitions=partitions))
    await client.ask(ApiKey.SYNC_GROUP, sync_message(joined, mine=mine), 3)
    await world.restart()
    client = await world.client("client again")
    await world.pass_time(1)
    assert (await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined))).error_code == error


@played
async def test_a_loading_coordinator_answers_load_in_progress_but_accepts_heartbeats(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M6."""
    await world.create_topic("t", 3)
    client = await world.client()
    joined = await member(world, client)
    go_on = asyncio.Event()
    load = coordinator_context.load

    async def slow_load(partition: Partition, *arguments: Any, **options: Any) -> LoadSummary:
        await go_on.wait()
        return await load(partition, *arguments, **options)

    monkeypatch.setattr(coordinator_context, "load", slow_load)
    await world.restart()
    client = await world.client("client again")
    beat = await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined))
    assert beat.error_code == ErrorCode.none
    loading = ErrorCode.coordinator_load_in_progress
    assert (await client.ask(ApiKey.JOIN_GROUP, join_message())).error_code == loading
    assert (await client.ask(ApiKey.SYNC_GROUP, sync_message(joined), 3)).error_code == loading
    leave = {"group_id": "g", "member_id": joined.member_id}
    assert (await client.ask(ApiKey.LEAVE_GROUP, leave, 0)).error_code == loading
    assert (await client.ask(ApiKey.LIST_GROUPS, {})).error_code == loading
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    commit = {"group_id": "g", "member_id": "", "topics": [{"name": "t", "partitions": partitions}]}
    committed = await client.ask(ApiKey.OFFSET_COMMIT, commit, 9)
    assert committed.topics[0].partitions[0].error_code == loading
    fetched = await client.ask(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": None}]})
    assert fetched.groups[0].error_code == loading
    go_on.set()
    await world.pass_time(1)
    assert (await client.ask(ApiKey.SYNC_GROUP, sync_message(joined), 3)).assignment == b"mine"


@played
async def test_a_partition_that_cannot_be_replayed_has_no_coordinator_until_a_retry_succeeds(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M6. A coordinator with only some of its groups would break promises."""
    client = await world.client()
    joined = await member(world, client)

    attempts: Counter[TopicPartition] = Counter()
    load = coordinator_context.load

    async def broken_load(partition: Partition, *arguments: Any, **options: Any) -> LoadSummary:
        attempts[partition.topic_partition] += 1
        match attempts[partition.topic_partition]:
            case 1:
                raise ValueError("a bug")
            case 2:
                raise KafkaError(ErrorCode.kafka_storage_error)
        return await load(partition, *arguments, **options)

    monkeypatch.setattr(coordinator_context, "load", broken_load)
    await world.restart()
    client = await world.client("client again")
    beat = await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined))
    assert beat.error_code == ErrorCode.not_coordinator
    assert "a bug; it has no coordinator, the next attempt is in 1 s" in caplog.text
    assert (await client.ask(ApiKey.LIST_GROUPS, {})).error_code == ErrorCode.none, "of the others"
    await world.pass_time(1.5)
    beat = await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined))
    assert beat.error_code == ErrorCode.not_coordinator
    await world.pass_time(2)
    beat = await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined))
    assert beat.error_code == ErrorCode.none


@played
async def test_waiting_requests_get_not_coordinator_when_the_broker_stops(world: Any) -> None:
    """M6."""
    first, second = await world.client("first"), await world.client("second")
    await member(world, first)
    waiting = second.request(ApiKey.JOIN_GROUP, join_message(), 3)
    await world.pass_time(1)
    assert not waiting.done()
    world.broker.groups.stop()
    assert (await waiting).error_code == ErrorCode.not_coordinator


@played(brokers=2, min_insync_replicas="2", offsets_topic_replication_factor="2")
async def test_no_generation_is_announced_without_enough_in_sync_replicas(world: Any) -> None:
    """M6."""
    await world.kill(1)
    await world.pass_time(60)  # broker 1 may have been the controller
    await world.create_topic("t", 3)
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(), 3)
    assert (joined.error_code, joined.generation_id) == (ErrorCode.coordinator_not_available, -1)
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    commit = {"group_id": "g", "member_id": "", "topics": [{"name": "t", "partitions": partitions}]}
    committed = await client.ask(ApiKey.OFFSET_COMMIT, commit, 9)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.coordinator_not_available
    fetched = await client.ask(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": "g", "topics": None}]})
    assert fetched.groups[0].topics == ()


@played
async def test_a_commit_that_times_out_is_valid_once_it_is_acknowledged(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M8. `offsets.commit.timeout.ms`."""
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["g"]})
    groups = world.broker.groups
    context = groups.context("g")
    waiters: list[Any] = []
    monkeypatch.setattr(type(context.partition), "when_reached", lambda *_, waiter, **__: waiters.append(waiter))
    value = OffsetCommitValue(offset=4, commit_timestamp=0)
    started = asyncio.get_running_loop().time()
    with pytest.raises(KafkaError) as error:
        await groups.submit("g", CommitRequest(values={TopicPartition("t", 0): value}))
    assert error.value.code is ErrorCode.coordinator_not_available
    assert 4.9 < asyncio.get_running_loop().time() - started < 5.1
    fetching = groups.submit("g", FetchOffsetsRequest())
    await world.pass_time(1)
    assert not fetching.done(), "it would show what may be lost"
    waiters[0](None)
    fetched = await fetching
    assert {key: each.offset for key, each in fetched.values.items()} == {TopicPartition("t", 0): 4}


@pytest.mark.parametrize(
    ("group_id", "java_hash"), [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31))]
)
def test_a_groups_partition_is_that_of_javas_string_hash(group_id: str, java_hash: int) -> None:
    """M6. The last one's hash has no absolute value among Java's integers; Kafka takes 0."""
    expected = 0 if java_hash == -(2**31) else abs(java_hash)
    assert [coordinator_partition(group_id, count) for count in (1, 16, 50)] == [0, expected % 16, expected % 50]


def test_a_groups_name_is_hashed_as_utf_16() -> None:
    """M6. A character beyond the first plane is two of Java's: 31 * 0xD83D + 0xDE00."""
    assert coordinator_partition("\U0001f600", 2**30) == 31 * 0xD83D + 0xDE00


def offset_record(group: str, offset: int | None, partition: int = 0) -> tuple[bytes, bytes | None]:
    value = None if offset is None else OffsetCommitValue(offset=offset, commit_timestamp=0)
    return GROUP_RECORDS.encode(OffsetCommitKey(group=group, topic="t", partition=partition), value)


class Replay:
    """A machine that gets records as a log has them."""

    def __init__(self) -> None:
        self.machine = GroupCoordinatorMachine(GroupSettings, OffsetSettings)
        self._codec = GroupRecordCodec()
        self._next_offset = 0

    def record(self, key: bytes | None, value: bytes | None, producer_id: int = NO_PRODUCER) -> None:
        record = self._codec.decode(key, value)
        if record is not None:
            self.machine.apply(record, self._next_offset, producer_id)
        self._next_offset += 1

    def offsets(self, group: str) -> dict[int, int]:
        return {number: value.offset for (_, number), value in self.machine.offsets.of(group).items()}


def test_offsets_of_a_transaction_are_valid_from_its_marker_on() -> None:
    """M8. Of a transaction's commit and a later plain one, the later stays."""
    replay = Replay()
    replay.record(*offset_record("g", 1))
    replay.record(*offset_record("g", 2), producer_id=7)
    replay.record(*offset_record("g", 3, partition=1), producer_id=7)
    replay.record(*offset_record("g", 4, partition=1))
    replay.record(*offset_record("g", 9, partition=2), producer_id=8)
    assert replay.offsets("g") == {0: 1, 1: 4}
    offsets = replay.machine.offsets
    assert TopicPartition("t", 0) in offsets.pending("g")
    assert offsets.has_open_transactions("g")
    replay.machine.end_transaction(7, committed=True)
    assert replay.offsets("g") == {0: 2, 1: 4}
    replay.machine.end_transaction(8, committed=False)
    assert replay.offsets("g") == {0: 2, 1: 4}
    assert not offsets.has_open_transactions("g")


def test_tombstones_remove_offsets_and_groups_and_unknown_records_are_skipped() -> None:
    """M6."""
    replay = Replay()
    replay.record(*offset_record("g", 1))
    replay.record(*offset_record("h", 1))
    replay.record(*offset_record("g", None))
    metadata = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    for group in ("g", "i"):
        replay.record(*GROUP_RECORDS.encode(GroupMetadataKey(group=group), metadata))
    replay.record(*GROUP_RECORDS.encode(GroupMetadataKey(group="i"), None))
    replay.record(b"\x00\x63later", b"x")
    with pytest.raises(MalformedMessageError):
        replay.record(GROUP_RECORDS.encode(GroupMetadataKey(group="j"), None)[0], b"\x00\x63")
    replay.record(None, b"x")
    groups = classic_groups(replay.machine)
    assert {group_id: group.generation for group_id, group in groups.items()} == {"g": 3, "h": 0}
    assert replay.offsets("h") == {0: 1}
