"""Bad requests, records and files: a group coordinator names the error, and serves other groups and members."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.coordinators.runtime import partition_for
from odradek.broker.groups.group_coordinator import OFFSETS_TOPIC
from odradek.broker.replication.partition import ACKS_ALL
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    encode_key,
    encode_value,
)
from odradek.protocol.record_batch import iterate_batches
from odradek.protocol.records import encode_batch

Play = Callable[..., None]
GROUP = "g"


async def ready(world: Any, name: str = "client") -> Any:
    """A client that knows that its groups have a coordinator, and a topic `t` of three partitions."""
    if "t" not in world.broker.image.topics:
        await world.create_topic("t", 3)
    client = await world.client(name)
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [GROUP]})
    return client


async def commit(
    client: Any, offsets: dict[int, int], version: int = 9, *, metadata: str | None = None, **more: Any
) -> list[ErrorCode]:
    partitions = [
        {"partition_index": number, "committed_offset": offset, "committed_metadata": metadata}
        for number, offset in offsets.items()
    ]
    message = {"group_id": GROUP, "member_id": "", "topics": [{"name": "t", "partitions": partitions}]} | more
    answer = await client.ask(ApiKey.OFFSET_COMMIT, message, version)
    return [each.error_code for each in answer.topics[0].partitions]


async def offsets_of(client: Any, group: str = GROUP) -> dict[int, int]:
    message = {"groups": [{"group_id": group, "topics": None}], "require_stable": False}
    (found,) = (await client.ask(ApiKey.OFFSET_FETCH, message, 9)).groups
    assert found.error_code == ErrorCode.none
    return {each.partition_index: each.committed_offset for topic in found.topics for each in topic.partitions}


def join_message(**more: Any) -> dict[str, Any]:
    return {
        "group_id": GROUP,
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    } | more


async def alive(client: Any, joined: Any) -> ErrorCode:
    beat = {"group_id": GROUP, "generation_id": joined.generation_id, "member_id": joined.member_id}
    code: ErrorCode = (await client.ask(ApiKey.HEARTBEAT, beat)).error_code
    return code


async def stable_member(client: Any, **more: Any) -> Any:
    """A group of one member, which has its assignment."""
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(**more), 3)
    assert joined.error_code == ErrorCode.none
    sync = {
        "group_id": GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b"mine"}],
    }
    assert (await client.ask(ApiKey.SYNC_GROUP, sync, 2)).assignment == b"mine"
    return joined


# ---- damaged files and records ---------------------------------------------------------------------------------------


def group_partition(world: Any, group: str = GROUP) -> int:
    return partition_for(group, len(world.broker.image.topics[OFFSETS_TOPIC].partitions))


async def append(world: Any, *records: tuple[bytes | None, bytes | None]) -> None:
    """Append a batch to the group's partition, as another release might have done."""
    partition = world.broker.partitions.leader(OFFSETS_TOPIC, group_partition(world))
    batch = encode_batch([(0, key, value, ()) for key, value in records])
    partition.append_records(memoryview(batch), acks=ACKS_ALL, now_ms=0, from_client=False)
    await world.pass_time(0.1)


def damage(world: Any, number: int, byte: int) -> None:
    """Flip a bit of a batch in the file of the group's partition."""
    disk, path = world.runtime.disk, f"/data/{OFFSETS_TOPIC}-{group_partition(world)}/{0:020d}.log"
    data = bytearray(disk.read_file(path))
    data[[position for position, _ in iterate_batches(data)][number] + byte] ^= 0x40
    file = disk.open(path)
    file.truncate(0)
    file.append([bytes(data)])


def lead_again(world: Any) -> None:
    """Have the broker load its groups from the files."""
    world.broker.partitions.fence()
    world.broker.partitions.unfence()


BYTES = {"length": 9, "magic": 16, "value": 70}


@pytest.mark.parametrize("byte", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_batch_is_skipped_and_named_and_the_commits_around_it_are_loaded(
    play: Play, caplog: pytest.LogCaptureFixture, number: int, byte: int
) -> None:
    """M8."""

    async def scenario(world: Any) -> None:
        client = await ready(world)
        for each in range(3):
            assert await commit(client, {each: 10 + each}) == [ErrorCode.none]
        partition = group_partition(world)
        damage(world, number, byte)
        lead_again(world)
        await world.pass_time(5)
        known = await offsets_of(client)
        assert number not in known
        assert known.items() <= {0: 10, 1: 11, 2: 12}.items()
        if byte == BYTES["value"]:
            assert len(known) == 2
            assert f"Skipped the offsets {number} to {number} of {OFFSETS_TOPIC}-{partition}" in caplog.text
        assert f"odradek log verify /data/{OFFSETS_TOPIC}-{partition}` shows the damage" in caplog.text
        assert await commit(client, {number: 20}) == [ErrorCode.none]
        assert (await offsets_of(client))[number] == 20

    play(scenario)


def test_a_malformed_record_is_skipped_counted_and_named(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """M8."""

    async def scenario(world: Any) -> None:
        client = await ready(world)
        assert await commit(client, {0: 10}) == [ErrorCode.none]
        key = encode_key(OffsetCommitKey(group=GROUP, topic="t", partition=1))
        await append(world, (key, b"\x00\x03short"), (b"\x00", b""), (b"\x00\x63new", b""))
        assert await commit(client, {2: 12}) == [ErrorCode.none]
        await world.restart()
        await world.pass_time(1)
        assert await offsets_of(await ready(world, "later")) == {0: 10, 2: 12}

    play(scenario)
    assert "Record 1 of __consumer_offsets-" in caplog.text
    assert "Skipped 2 malformed records, and 1 of unknown types, of __consumer_offsets-" in caplog.text


def test_a_record_that_names_a_member_twice_does_not_keep_its_partition_from_loading(play: Play) -> None:
    """M8."""

    async def scenario(world: Any) -> None:
        client = await ready(world)
        assert await commit(client, {0: 10}) == [ErrorCode.none]
        members = tuple(
            MemberMetadata(
                member_id=member_id, group_instance_id=instance_id, client_id="c", client_host="/h",
                session_timeout=10_000, rebalance_timeout=10_000, subscription=b"", assignment=b"x",
            )
            for member_id, instance_id in [("a", None), ("a", None), ("b", "i"), ("c", "i")]
        )  # fmt: skip
        value = GroupMetadataValue(protocol_type="x", generation=3, protocol="p", leader="a", members=members)
        await append(world, (encode_key(GroupMetadataKey(group=GROUP)), encode_value(value)))
        await world.restart()
        await world.pass_time(1)
        client = await ready(world, "later")
        assert await offsets_of(client) == {0: 10}
        described = await client.ask(
            ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": False}, 5
        )
        assert [each.member_id for each in described.groups[0].members] == ["a", "b"]
        await asyncio.sleep(30)
        assert (
            await client.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": False}, 5)
        ).groups[0].group_state == "Empty"

    play(scenario)
