"""Bad requests, records and files: a group coordinator names the error, and serves other groups and members."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.groups.machine.messages import JoinRequest
from odradek.broker.replication.partition import ACKS_ALL
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode
from odradek.model.java_hash import coordinator_partition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.protocol.internal_records.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
)
from odradek.simulation.world import World
from tests.world.scenes import played

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


def group_partition(world: Any, broker: int = 0) -> int:
    return coordinator_partition(GROUP, len(world.running[broker].image.topics[OFFSETS_TOPIC].partitions))


async def append(world: Any, *records: tuple[bytes | None, bytes | None]) -> None:
    """Append a batch to the group's partition, as another release might have done."""
    partition = world.broker.partitions.leader(OFFSETS_TOPIC, group_partition(world))
    batch = encode_batch([(0, key, value, ()) for key, value in records])
    partition.append_records(memoryview(batch), acks=ACKS_ALL, now_ms=0, from_client=False)
    await world.pass_time(0.1)


def damage(world: Any, number: int, byte: int, broker: int = 0) -> None:
    """Flip a bit of a batch in the file of the group's partition."""
    disk = world.simulation.runtime(world.hosts[broker]).disk
    path = f"/data/{OFFSETS_TOPIC}-{group_partition(world, broker)}/{0:020d}.log"
    data = bytearray(disk.read_file(path))
    data[[position for position, _ in iterate_batches(data)][number] + byte] ^= 0x40
    file = disk.open(path)
    file.truncate(0)
    file.append([bytes(data)])


def lead_again(world: Any, broker: int = 0) -> None:
    """Have a broker load its groups from the files."""
    world.running[broker].partitions.fence()
    world.running[broker].partitions.unfence()


BYTES = {"base offset": 7, "length": 9, "magic": 16, "value": 70}


@pytest.mark.parametrize("byte", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("number", [0, 1, 2])
@played
async def test_a_damaged_batch_is_skipped_and_named_and_the_commits_around_it_are_loaded(
    world: Any, caplog: pytest.LogCaptureFixture, number: int, byte: int
) -> None:
    """M8."""
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


def test_a_malformed_record_is_skipped_counted_and_named(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    """M8."""

    async def scenario(world: Any) -> None:
        client = await ready(world)
        assert await commit(client, {0: 10}) == [ErrorCode.none]
        key, _ = GROUP_RECORDS.encode(OffsetCommitKey(group=GROUP, topic="t", partition=1), None)
        await append(world, (key, b"\x00\x03short"), (b"\x00", b""), (b"\x00\x63new", b""))
        assert await commit(client, {2: 12}) == [ErrorCode.none]
        await world.restart()
        await world.pass_time(1)
        assert await offsets_of(await ready(world, "later")) == {0: 10, 2: 12}

    play(scenario)
    assert "Record 1 of __consumer_offsets-" in caplog.text
    assert "Skipped 2 malformed records, and 1 of unknown types, of __consumer_offsets-" in caplog.text


@played
async def test_a_record_that_names_a_member_twice_does_not_keep_its_partition_from_loading(world: Any) -> None:
    """M8."""
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
    await append(world, GROUP_RECORDS.encode(GroupMetadataKey(group=GROUP), value))
    await world.restart()
    await world.pass_time(1)
    client = await ready(world, "later")
    assert await offsets_of(client) == {0: 10}
    described = await client.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": False}, 5)
    assert [each.member_id for each in described.groups[0].members] == ["a", "b"]
    await asyncio.sleep(30)
    assert (
        await client.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": False}, 5)
    ).groups[0].group_state == "Empty"


# ---- requests --------------------------------------------------------------------------------------------------------


@played
async def test_a_join_that_is_too_large_at_a_broker_that_is_not_coordinator_gets_not_coordinator(world: Any) -> None:
    """M6. GROUP_MAX_SIZE_REACHED would be final for the client."""
    client = await world.client()
    joined = await client.ask(ApiKey.JOIN_GROUP, large_join(1_200_000))
    assert joined.error_code == ErrorCode.not_coordinator


def large_join(size: int, **more: Any) -> dict[str, Any]:
    return join_message(protocols=[{"name": "range", "metadata": bytes(size)}], **more)


@played
async def test_ten_megabytes_of_user_data_are_refused_and_the_group_goes_on(world: Any) -> None:
    """M6."""
    client, other = await ready(world), await world.client("other")
    joined = await stable_member(client)
    refused = await other.ask(ApiKey.JOIN_GROUP, large_join(10_000_000))
    assert refused.error_code == ErrorCode.group_max_size_reached
    assert await alive(client, joined) is ErrorCode.none


@played
async def test_a_group_whose_members_do_not_fit_into_a_record_keeps_its_last_generation(world: Any) -> None:
    """M6. Each member fits; the error is the one that Kafka has for it."""
    client, other = await ready(world), await world.client("other")
    joined = await stable_member(client, protocols=[{"name": "range", "metadata": bytes(700_000)}])
    joining = other.request(ApiKey.JOIN_GROUP, large_join(700_000), 3)
    await world.pass_time(1)
    again = await client.ask(ApiKey.JOIN_GROUP, large_join(700_000, member_id=joined.member_id), 3)
    assert again.error_code == (await joining).error_code == ErrorCode.unknown_server_error
    assert await alive(client, joined) is ErrorCode.none
    assert await commit(
        client, {0: 5}, member_id=joined.member_id, generation_id_or_member_epoch=joined.generation_id
    ) == [ErrorCode.none]


@played
async def test_an_assignment_that_does_not_fit_into_a_record_fails_its_sync_and_starts_another_rebalance(
    world: Any,
) -> None:
    """M6."""
    client = await ready(world)
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(), 3)
    sync = {
        "group_id": GROUP,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": bytes(2_000_000)}],
    }
    assert (await client.ask(ApiKey.SYNC_GROUP, sync, 2)).error_code == ErrorCode.unknown_server_error
    assert await alive(client, joined) is ErrorCode.rebalance_in_progress
    again = await client.ask(ApiKey.JOIN_GROUP, join_message(member_id=joined.member_id), 3)
    assert (again.error_code, again.generation_id) == (ErrorCode.none, 2)


@pytest.mark.parametrize("offset", [-(2**63), -1, 2**63 - 1])
@played
async def test_negative_and_huge_offsets_are_kept_as_kafka_keeps_them(world: Any, offset: int) -> None:
    """M8. Clients decide what an offset means; a restart changes nothing."""
    client = await ready(world)
    assert await commit(client, {0: offset}) == [ErrorCode.none]
    await world.restart()
    await world.pass_time(1)
    assert await offsets_of(await ready(world, "later")) == {0: offset}


@played
async def test_commits_for_partitions_that_do_not_exist_are_refused_one_by_one(world: Any) -> None:
    """M8."""
    client = await ready(world)
    missing = ErrorCode.unknown_topic_or_partition
    assert await commit(client, {-1: 1, 3: 1, 2**31 - 1: 1, 1: 1}) == [missing, missing, missing, ErrorCode.none]
    assert await offsets_of(client) == {1: 1}


@played
async def test_metadata_of_an_offset_has_a_limit(world: Any) -> None:
    """M8. `offset.metadata.max.bytes` counts characters, as in Kafka."""
    client = await ready(world)
    assert await commit(client, {0: 1}, metadata="ä" * 4096) == [ErrorCode.none]
    assert await commit(client, {0: 2}, metadata="ä" * 4097) == [ErrorCode.offset_metadata_too_large]
    assert await offsets_of(client) == {0: 1}


@played
async def test_a_commit_that_is_too_large_for_a_batch_fails_and_leaves_the_group_as_it_is(world: Any) -> None:
    """M8."""
    client = await ready(world)
    joined = await stable_member(client)
    rejoining = client.request(ApiKey.JOIN_GROUP, join_message(), 3)
    await world.pass_time(1)
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    other = await world.client("other")
    await world.create_topic("wide", 400)
    topics = [
        {
            "name": "wide",
            "partitions": [
                {"partition_index": number, "committed_offset": 1, "committed_metadata": "x" * 4000}
                for number in range(400)
            ],
        }
    ]
    message = {"group_id": GROUP, "topics": topics} | member
    answer = await other.ask(ApiKey.OFFSET_COMMIT, message, 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.unknown_server_error}
    await world.pass_time(1)
    assert not rejoining.done(), "the other member still waits for this one"
    again = await other.ask(ApiKey.JOIN_GROUP, join_message(member_id=joined.member_id), 3)
    assert (again.generation_id, (await rejoining).generation_id) == (2, 2)


@played
async def test_a_retention_time_beyond_all_times_does_not_disturb_other_groups(world: Any) -> None:
    """M8. Versions 2 to 4."""
    client = await ready(world)
    joined = await stable_member(client)
    codes = await commit(client, {0: 1}, 4, group_id="other", retention_time=2**63 - 1)
    assert codes == [ErrorCode.none]
    assert await alive(client, joined) is ErrorCode.none
    assert await offsets_of(client, "other") == {0: 1}


@pytest.mark.parametrize("length", [0, 32_767])
@played
async def test_the_longest_and_the_empty_group_id(world: Any, length: int) -> None:
    """M6. Old clients commit to the group with an empty id."""
    group = "g" * length
    client = await ready(world)
    assert await commit(client, {0: 7}, group_id=group) == [ErrorCode.none]
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(group_id=group), 3)
    assert joined.error_code == (ErrorCode.none if length else ErrorCode.invalid_group_id)
    await world.restart()
    await world.pass_time(1)
    client = await ready(world, "later")
    assert await offsets_of(client, group) == {0: 7}
    listed = await client.ask(ApiKey.LIST_GROUPS, {})
    assert [each.group_id for each in listed.groups] == [group]


@played
async def test_a_group_id_longer_than_a_string_of_the_protocol_ends_the_connection_alone(world: Any) -> None:
    """M6. A compact string could be longer."""
    client, other = await ready(world), await world.client("other")
    joined = await stable_member(client)
    with pytest.raises(ConnectionResetError):
        await other.ask(ApiKey.JOIN_GROUP, join_message(group_id="g" * 40_000), 9)
    assert await alive(client, joined) is ErrorCode.none


@played
async def test_a_member_that_joins_and_never_syncs_is_removed(world: Any) -> None:
    """M6."""
    client, silent = await ready(world), await world.client("silent")
    first = await stable_member(client, session_timeout=300_000)
    joining = silent.request(ApiKey.JOIN_GROUP, join_message(session_timeout=300_000), 3)
    await world.pass_time(1)
    again = await client.ask(ApiKey.JOIN_GROUP, join_message(member_id=first.member_id, session_timeout=300_000), 3)
    assert (await joining).generation_id == again.generation_id == 2
    sync = {"group_id": GROUP, "generation_id": 2, "member_id": first.member_id, "assignments": []}
    assert (await client.ask(ApiKey.SYNC_GROUP, sync, 2)).error_code == ErrorCode.none
    await world.pass_time(61)
    assert await alive(client, again) is ErrorCode.rebalance_in_progress
    third = await client.ask(ApiKey.JOIN_GROUP, join_message(member_id=first.member_id, session_timeout=300_000), 3)
    assert (third.generation_id, len(third.members)) == (3, 1)


@played(group_initial_rebalance_delay_ms="3000")
async def test_five_thousand_joins_at_once_make_one_generation(world: Any) -> None:
    """M6."""
    count = 5000
    await ready(world)
    groups = world.broker.groups
    joining = [
        groups.submit(
            GROUP,
            JoinRequest(
                member_id="", new_member_id=f"m{number}", session_timeout_ms=10_000, rebalance_timeout_ms=60_000,
                protocol_type="consumer", protocols=(("range", b"x"),), requires_member_id=False,
                can_skip_assignment=True,
            ),
        )
        for number in range(count)
    ]  # fmt: skip
    replies = await asyncio.gather(*joining)
    assert {(each.error, each.generation) for each in replies} == {(ErrorCode.none, 1)}
    assert [len(each.members) for each in replies if each.members] == [count]
    await world.pass_time(100)
    listed = await (await world.client()).ask(ApiKey.LIST_GROUPS, {})
    assert [each.group_state for each in listed.groups] == ["Empty"], "nobody came back"
    assert groups.size_bytes == 0


@played
async def test_a_subscription_of_ten_thousand_topics(world: Any) -> None:
    """M6."""
    client = await ready(world)
    topics = tuple(f"topic-of-the-customer-{number}" for number in range(10_000))
    data = encode_subscription(Subscription(topics=topics))
    joined = await stable_member(client, protocols=[{"name": "range", "metadata": data}])
    message = {"group_id": GROUP, "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    assert (await client.ask(ApiKey.OFFSET_DELETE, message)).error_code == ErrorCode.none
    await world.restart()
    await world.pass_time(1)
    client = await ready(world, "later")
    described = await client.ask(ApiKey.DESCRIBE_GROUPS, {"groups": [GROUP], "include_authorized_operations": False}, 5)
    assert described.groups[0].members[0].member_id == joined.member_id


def test_a_replica_that_is_whole_takes_over_from_a_coordinator_with_a_damaged_batch(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """M8. No commit is skipped, not even for a moment."""

    async def scenario(world: World) -> None:
        client = await world.client(broker=0)
        await world.pass_time(5)
        controller = next(each for each in world.running.values() if each.metadata_loop.is_controller)
        await controller.create_topics([NewTopic(name="t", num_partitions=3)])
        await world.pass_time(1)
        found = await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": [GROUP]})
        await world.pass_time(5)
        leader = found.coordinators[0].node_id
        client = await world.client("second", broker=leader)
        for number in range(3):
            assert await commit(client, {number: 10 + number}) == [ErrorCode.none]
        await world.pass_time(5)
        damage(world, 1, BYTES["value"], broker=leader)
        lead_again(world, broker=leader)
        known: dict[int, int] = {}
        for _ in range(60):
            await world.pass_time(0.5)
            for number in range(3):
                message = {"groups": [{"group_id": GROUP, "topics": None}], "require_stable": False}
                other = await world.client(f"third {number}", broker=number)
                (answer,) = (await other.ask(ApiKey.OFFSET_FETCH, message, 9)).groups
                if answer.error_code == ErrorCode.none:
                    known = {
                        each.partition_index: each.committed_offset
                        for topic in answer.topics
                        for each in topic.partitions
                    }
                    assert known == {0: 10, 1: 11, 2: 12}, number
                other.close()
        assert known

    config = {
        "offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1", "num.partitions": "3",
        "default.replication.factor": "3",
    }  # fmt: skip
    World(seed, config, brokers=3).play(scenario)
    assert "Skipped the offsets" not in caplog.text
