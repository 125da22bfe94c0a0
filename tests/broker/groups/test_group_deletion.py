"""Deletion of groups and offsets over the wire, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.groups.machine.messages import CommitRequest, DeleteGroupRequest, LeaveRequest, LeavingMember
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from tests.world.scenes import played

Play = Callable[..., None]
GROUP = "g"


async def ready(world: Any) -> Any:
    """Topics `t` and `u`, and a client that knows that its groups have a coordinator."""
    await world.create_topic("t", 3)
    await world.create_topic("u", 1)
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [GROUP]})
    return client


def commit_message(group: str, *offsets: tuple[str, int, int], **member: Any) -> dict[str, Any]:
    topics = [
        {
            "name": topic,
            "partitions": [{"partition_index": number, "committed_offset": offset, "committed_metadata": None}],
        }
        for topic, number, offset in offsets
    ]
    return {"group_id": group, "member_id": "", "topics": topics} | member


async def commit(client: Any, group: str, *offsets: tuple[str, int, int], **member: Any) -> None:
    answer = await client.ask(ApiKey.OFFSET_COMMIT, commit_message(group, *offsets, **member), 9)
    assert {each.error_code for topic in answer.topics for each in topic.partitions} == {ErrorCode.none}


async def offsets_of(client: Any, group: str = GROUP) -> dict[str, int]:
    answer = await client.ask(ApiKey.OFFSET_FETCH, {"groups": [{"group_id": group, "topics": None}]}, 9)
    return {
        f"{topic.name}-{each.partition_index}": each.committed_offset
        for topic in answer.groups[0].topics
        for each in topic.partitions
    }


async def listed(client: Any) -> list[str]:
    return sorted(each.group_id for each in (await client.ask(ApiKey.LIST_GROUPS, {})).groups)


async def delete(client: Any, *groups: str, version: int = 2) -> dict[str, ErrorCode]:
    answer = await client.ask(ApiKey.DELETE_GROUPS, {"groups_names": groups}, version)
    return {each.group_id: each.error_code for each in answer.results}


async def delete_offsets(client: Any, group: str, *partitions: tuple[str, int]) -> Any:
    """The error of each partition, or of the group."""
    topics = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in partitions]
    answer = await client.ask(ApiKey.OFFSET_DELETE, {"group_id": group, "topics": topics})
    if answer.error_code != ErrorCode.none:
        assert answer.topics == ()
        return answer.error_code
    return [each.error_code for topic in answer.topics for each in topic.partitions]


async def join(client: Any, protocol_type: str = "consumer", metadata: bytes | None = None) -> Any:
    """The one member of a group that is stable then; it subscribes `t`."""
    message = {
        "group_id": GROUP,
        "session_timeout": 10_000,
        "member_id": "",
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": metadata or encode_subscription(Subscription(topics=("t",)))}],
    }
    joined = await client.ask(ApiKey.JOIN_GROUP, message, 0)
    assignments = [{"member_id": joined.member_id, "assignment": b""}]
    sync = {"group_id": GROUP, "generation_id": 1, "member_id": joined.member_id, "assignments": assignments}
    await client.ask(ApiKey.SYNC_GROUP, sync, 0)
    return joined


@pytest.mark.parametrize("version", range(3))
@played
async def test_an_empty_group_is_deleted_with_its_offsets(world: Any, version: int) -> None:
    """M8. KIP-229."""
    client = await ready(world)
    await commit(client, GROUP, ("t", 0, 5), ("u", 0, 6))
    await commit(client, "kept", ("t", 0, 7))
    assert await delete(client, GROUP, "none", version=version) == {
        GROUP: ErrorCode.none,
        "none": ErrorCode.group_id_not_found,
    }
    for _ in range(2):
        assert (await listed(client), await offsets_of(client)) == (["kept"], {})
        assert await offsets_of(client, "kept") == {"t-0": 7}
        await world.restart()
        client = await world.client("later")


@played
async def test_a_group_with_members_is_not_deleted(world: Any) -> None:
    """M8."""
    client, other = await ready(world), await world.client("other")
    joined = await join(client)
    assert await delete(client, GROUP) == {GROUP: ErrorCode.non_empty_group}
    leaving = client.request(ApiKey.LEAVE_GROUP, {"group_id": GROUP, "member_id": joined.member_id}, 0)
    assert (await leaving).error_code == ErrorCode.none
    assert await delete(other, GROUP) == {GROUP: ErrorCode.none}
    assert await listed(other) == []
    assert (await join(client)).generation_id == 1, "a new group of the same name"


@played
async def test_a_deletion_waits_for_the_record_of_the_last_member_leaving(world: Any) -> None:
    """M8."""
    client = await ready(world)
    joined = await join(client)
    groups = world.broker.groups
    leaving = groups.submit(GROUP, LeaveRequest(members=(LeavingMember(member_id=joined.member_id),)))
    deletion = groups.submit(GROUP, DeleteGroupRequest())
    assert not leaving.done()
    assert not deletion.done()
    assert await deletion is ErrorCode.none
    assert leaving.done()
    await world.restart()
    assert await listed(await world.client("later")) == []


@played
async def test_an_offset_that_is_being_committed_is_deleted_too(world: Any) -> None:
    """M8."""
    client = await ready(world)
    await commit(client, GROUP, ("t", 0, 5))
    groups = world.broker.groups
    value = OffsetCommitValue(offset=6, commit_timestamp=0)
    committing = groups.submit(GROUP, CommitRequest(values={TopicPartition("t", 1): value}))
    assert await groups.submit(GROUP, DeleteGroupRequest()) is ErrorCode.none
    assert committing.result() is ErrorCode.none
    assert await offsets_of(client) == {}


@played
async def test_deletions_at_a_broker_that_is_not_coordinator_or_stops_get_not_coordinator(world: Any) -> None:
    await world.create_topic("t", 3)
    client = await world.client()
    assert await delete(client, GROUP) == {GROUP: ErrorCode.not_coordinator}
    assert await delete_offsets(client, GROUP, ("t", 0)) == ErrorCode.not_coordinator
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [GROUP]})
    await commit(client, GROUP, ("t", 0, 5))
    deletion = world.broker.groups.submit(GROUP, DeleteGroupRequest())
    world.broker.groups.stop()
    with pytest.raises(KafkaError) as error:
        await deletion
    assert error.value.code is ErrorCode.not_coordinator


@played(offsets_retention_check_interval_ms="60000")
async def test_single_offsets_of_an_empty_group_are_deleted(world: Any) -> None:
    """M8. KIP-496."""
    client = await ready(world)
    await commit(client, GROUP, ("t", 0, 5), ("t", 1, 6), ("u", 0, 7))
    assert await delete_offsets(client, GROUP, ("t", 0), ("t", 2), ("t", 9), ("gone", 0)) == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_or_partition,
    ]
    for _ in range(2):
        assert await offsets_of(client) == {"t-1": 6, "u-0": 7}
        await world.restart()
        client = await world.client("later")
    assert await delete_offsets(client, GROUP, ("t", 1), ("u", 0)) == [ErrorCode.none] * 2
    assert await listed(client) == [GROUP], "an empty group outlives its last offset until offsets are checked"
    await asyncio.sleep(61)
    assert await listed(client) == []
    await world.restart()
    assert await listed(await world.client("last")) == []


@played
async def test_offsets_of_subscribed_topics_are_not_deleted(world: Any) -> None:
    """M8."""
    client = await ready(world)
    await commit(client, GROUP, ("t", 0, 5), ("u", 0, 7))
    await join(client)
    assert await delete_offsets(client, GROUP, ("t", 0), ("u", 0)) == [
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.none,
    ]
    assert await offsets_of(client) == {"t-0": 5}


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "error"),
    [
        ("consumer", b"\0", [ErrorCode.group_subscribed_to_topic]),
        ("connect", b"anything", ErrorCode.non_empty_group),
    ],
)
@played
async def test_offsets_are_kept_if_the_subscription_of_members_is_unknown(
    world: Any, protocol_type: str, metadata: bytes, error: Any
) -> None:
    client = await ready(world)
    await commit(client, GROUP, ("u", 0, 7))
    await join(client, protocol_type, metadata)
    assert await delete_offsets(client, GROUP, ("u", 0)) == error
    assert await offsets_of(client) == {"u-0": 7}


@pytest.mark.parametrize(("group", "error"), [("", ErrorCode.invalid_group_id), ("none", ErrorCode.group_id_not_found)])
@played
async def test_offsets_of_an_unknown_group_cannot_be_deleted(world: Any, group: str, error: ErrorCode) -> None:
    assert await delete_offsets(await ready(world), group, ("t", 0)) == error
