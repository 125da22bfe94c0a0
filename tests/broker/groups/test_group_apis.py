"""The group APIs over the wire, in every version, on virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.groups.machine.messages import CommitRequest
from odradek.model import ErrorCode, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from odradek.simulation.world import World
from tests.world.scenes import played

Play = Callable[..., None]
SUBSCRIPTION = encode_subscription(Subscription(topics=("t",)))
GROUP_APIS = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
)


def join_message(member_id: str = "", instance_id: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        "reason": None,
    } | more


async def find(client: Any, version: int | None = None) -> Any:
    message = {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
    answer = await client.ask(ApiKey.FIND_COORDINATOR, message, version)
    return answer.coordinators[0] if hasattr(answer, "coordinators") else answer


async def join(client: Any, version: int | None = None, **more: Any) -> Any:
    """Join, also a second time if an id has to be asked for first."""
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(**more), version)
    if joined.error_code == ErrorCode.member_id_required:
        joined = await client.ask(ApiKey.JOIN_GROUP, join_message(**more | {"member_id": joined.member_id}), version)
    return joined


def sync_message(joined: Any, assignments: dict[str, bytes], instance_id: str | None = None) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": data} for member, data in assignments.items()],
    }


async def member(client: Any, version: int | None = None, **more: Any) -> Any:
    """Join an empty group and sync an assignment."""
    await find(client)
    joined = await join(client, version, **more)
    assert joined.error_code == ErrorCode.none
    assignments = {joined.member_id: b"mine"}
    synced = await client.ask(ApiKey.SYNC_GROUP, sync_message(joined, assignments, more.get("instance_id")), version)
    assert synced.assignment == b"mine"
    return joined


def heartbeat_message(joined: Any, **more: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": None,
    } | more


@pytest.mark.parametrize("version", range(max(schema_versions(api)[-1] for api in GROUP_APIS) + 1))
@played
async def test_a_member_joins_syncs_heartbeats_and_leaves_in_every_version(world: Any, version: int) -> None:
    """M6. Versions beyond an API's own are its newest or oldest one."""
    await world.create_topic("t", 3)
    topic_id = world.broker.image.topics["t"].topic_id
    client = await world.client("reader")
    found = await find(client, version)
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 0, "broker", 9092)
    joined = await member(client, version)
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    assert joined.member_id.startswith("reader-")
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    beat = await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined), version)
    assert beat.error_code == ErrorCode.none
    partitions = [
        {"partition_index": 1, "committed_offset": 7, "committed_leader_epoch": 0, "committed_metadata": "note"}
    ]
    commit = {
        "group_id": "g",
        "generation_id_or_member_epoch": joined.generation_id,
        "member_id": joined.member_id,
        "topics": [{"name": "t", "topic_id": topic_id, "partitions": partitions}],
    }
    committed = await client.ask(ApiKey.OFFSET_COMMIT, commit, version)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.none
    wanted = [{"name": "t", "topic_id": topic_id, "partition_indexes": [0, 1]}]
    fetch = {"group_id": "g", "topics": wanted, "groups": [{"group_id": "g", "topics": wanted}]}
    fetched = await client.ask(ApiKey.OFFSET_FETCH, fetch, version)
    group = fetched.groups[0] if hasattr(fetched, "groups") else fetched
    offsets = [(each.partition_index, each.committed_offset, each.metadata) for each in group.topics[0].partitions]
    assert offsets == [(0, -1, ""), (1, 7, "note")]
    listed = await client.ask(ApiKey.LIST_GROUPS, {}, version)
    assert [(each.group_id, each.protocol_type) for each in listed.groups] == [("g", "consumer")]
    ask_for = {"groups": ["g"], "include_authorized_operations": True}
    (described,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, ask_for, version)).groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (only,) = described.members
    assert (only.client_id, only.member_metadata, only.member_assignment) == ("reader", SUBSCRIPTION, b"mine")
    leave = {"group_id": "g", "member_id": joined.member_id, "members": [{"member_id": joined.member_id}]}
    left = await client.ask(ApiKey.LEAVE_GROUP, leave, version)
    assert left.error_code == ErrorCode.none
    assert all(each.error_code == ErrorCode.none for each in getattr(left, "members", ()))
    beat = await client.ask(ApiKey.HEARTBEAT, heartbeat_message(joined), version)
    assert beat.error_code == ErrorCode.unknown_member_id


@played
async def test_a_second_member_starts_a_rebalance_that_the_first_gets_by_heartbeat(world: Any) -> None:
    """M6."""
    first, second = await world.client("first"), await world.client("second")
    one = await member(first)
    waiting = asyncio.ensure_future(join(second))
    beat = ErrorCode.none
    while beat == ErrorCode.none:
        await world.pass_time(1)
        beat = (await first.ask(ApiKey.HEARTBEAT, heartbeat_message(one))).error_code
    assert beat == ErrorCode.rebalance_in_progress
    assert not waiting.done()
    one = await join(first, member_id=one.member_id)
    two = await waiting
    assert one.generation_id == two.generation_id == 2
    assert one.leader == two.leader == one.member_id
    assert {each.member_id for each in one.members} == {one.member_id, two.member_id}
    assert two.members == ()
    follower = second.request(ApiKey.SYNC_GROUP, sync_message(two, {}))
    await world.pass_time(1)
    assert not follower.done()
    assignments = {one.member_id: b"half", two.member_id: b"other half"}
    leader = await first.ask(ApiKey.SYNC_GROUP, sync_message(one, assignments))
    assert (leader.assignment, (await follower).assignment) == (b"half", b"other half")


@played
async def test_a_restarted_static_member_keeps_its_assignment_and_fences_its_old_member_id(world: Any) -> None:
    """M6. KIP-345."""
    before, after = await world.client("before"), await world.client("after")
    joined = await member(before, instance_id="i")
    before.close()
    await world.pass_time(9)
    again = await join(after, instance_id="i")
    assert (again.generation_id, again.leader, again.skip_assignment) == (1, again.member_id, True)
    assert again.member_id != joined.member_id
    synced = await after.ask(ApiKey.SYNC_GROUP, sync_message(again, {}, "i"))
    assert synced.assignment == b"mine"
    beat = heartbeat_message(joined, group_instance_id="i")
    assert (await after.ask(ApiKey.HEARTBEAT, beat)).error_code == ErrorCode.fenced_instance_id
    beat = heartbeat_message(again, group_instance_id="i")
    assert (await after.ask(ApiKey.HEARTBEAT, beat)).error_code == ErrorCode.none


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
@pytest.mark.parametrize("version", [0, 6, 9])
@played
async def test_an_invalid_join_is_refused(world: Any, change: dict[str, Any], error: ErrorCode, version: int) -> None:
    """M6."""
    client = await world.client()
    await find(client)
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message(**change), version)
    assert joined.error_code == error
    assert joined.generation_id == -1
    listed = await client.ask(ApiKey.LIST_GROUPS, {})
    assert listed.groups == (), "a refused join left a group behind"


@played
async def test_requests_without_a_group_or_with_another_protocol_are_refused(world: Any) -> None:
    """M6."""
    client = await world.client()
    await find(client)
    nobody = type("Joined", (), {"generation_id": 1, "member_id": "nobody"})
    assert (await client.ask(ApiKey.SYNC_GROUP, sync_message(nobody, {}))).error_code == ErrorCode.unknown_member_id
    beat = heartbeat_message(nobody)
    assert (await client.ask(ApiKey.HEARTBEAT, beat)).error_code == ErrorCode.unknown_member_id
    assert (await client.ask(ApiKey.HEARTBEAT, beat | {"group_id": ""})).error_code == ErrorCode.invalid_group_id
    leave = {"group_id": "g", "member_id": "nobody", "members": [{"member_id": "nobody"}]}
    left = await client.ask(ApiKey.LEAVE_GROUP, leave)
    assert (left.error_code, left.members[0].error_code) == (ErrorCode.none, ErrorCode.unknown_member_id)
    assert (await client.ask(ApiKey.LEAVE_GROUP, leave, 0)).error_code == ErrorCode.unknown_member_id
    empty = await client.ask(ApiKey.LEAVE_GROUP, leave | {"group_id": ""})
    assert empty.error_code == ErrorCode.invalid_group_id
    joined = await member(client)
    bare = sync_message(joined, {}) | {"protocol_name": None}
    assert (await client.ask(ApiKey.SYNC_GROUP, bare)).error_code == ErrorCode.inconsistent_group_protocol
    assert (await client.ask(ApiKey.SYNC_GROUP, bare, 4)).error_code == ErrorCode.none


@played
async def test_several_members_leave_at_once_each_with_its_own_answer(world: Any) -> None:
    """M6. KIP-345."""
    client = await world.client()
    joined = await member(client, instance_id="i")
    members = [
        {"member_id": "stranger", "group_instance_id": None, "reason": "curious"},
        {"member_id": "", "group_instance_id": "i", "reason": "removed by an administrator"},
        {"member_id": joined.member_id, "group_instance_id": None},
    ]
    left = await client.ask(ApiKey.LEAVE_GROUP, {"group_id": "g", "members": members})
    assert [each.error_code for each in left.members] == [
        ErrorCode.unknown_member_id,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]


@played
async def test_groups_are_listed_by_state_and_type(world: Any) -> None:
    """M6. KIP-518."""
    client = await world.client()
    await member(client)
    for wanted, expected in [
        ({}, ["g"]),
        ({"states_filter": ["stable"]}, ["g"]),
        ({"states_filter": [" STABLE ", "Empty"]}, ["g"]),
        ({"states_filter": ["Empty"]}, []),
        ({"states_filter": ["no such state"]}, []),
        ({"types_filter": ["Classic"]}, ["g"]),
        ({"types_filter": ["consumer"]}, []),
    ]:
        listed = await client.ask(ApiKey.LIST_GROUPS, wanted)
        assert [each.group_id for each in listed.groups] == expected, wanted
    assert listed.error_code == ErrorCode.none


@played
async def test_an_unknown_group_is_described_as_dead(world: Any) -> None:
    """M6. KIP-1043. The empty id is a group's, too."""
    client = await world.client()
    await find(client)
    for version, error in [(0, ErrorCode.none), (5, ErrorCode.none), (6, ErrorCode.group_id_not_found)]:
        message = {"groups": ["nope", ""], "include_authorized_operations": False}
        for missing in (await client.ask(ApiKey.DESCRIBE_GROUPS, message, version)).groups:
            assert (missing.error_code, missing.group_state) == (error, "Dead")
            assert version < 6 or missing.error_message == f"Group {missing.group_id} not found."


@played
async def test_the_group_with_an_empty_id_is_listed_described_and_deleted(world: Any) -> None:
    """M8. Old clients commit without a group id; otherwise their offsets would stay for ever."""
    await world.create_topic("t", 1)
    client = await world.client()
    await find(client)
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    commit = {"group_id": "", "member_id": "", "topics": [{"name": "t", "partitions": partitions}]}
    committed = await client.ask(ApiKey.OFFSET_COMMIT, commit, 9)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.none
    assert [each.group_id for each in (await client.ask(ApiKey.LIST_GROUPS, {})).groups] == [""]
    message = {"groups": [""], "include_authorized_operations": False}
    (described,) = (await client.ask(ApiKey.DESCRIBE_GROUPS, message)).groups
    assert (described.error_code, described.group_state) == (ErrorCode.none, "Empty")
    (deleted,) = (await client.ask(ApiKey.DELETE_GROUPS, {"groups_names": [""]})).results
    assert deleted.error_code == ErrorCode.none
    assert (await client.ask(ApiKey.LIST_GROUPS, {})).groups == ()


@played
async def test_many_clients_find_the_coordinator_at_once_and_the_topic_is_created_once(world: Any) -> None:
    """M6."""
    clients = [await world.client(f"client-{number}") for number in range(5)]
    assert "__consumer_offsets" not in world.broker.image.topics
    found = await asyncio.gather(*(find(client) for client in clients))
    assert [(each.error_code, each.node_id) for each in found] == [(ErrorCode.none, 0)] * 5
    topic = world.broker.image.topics["__consumer_offsets"]
    assert len(topic.partitions) == 2
    assert topic.config["cleanup.policy"] == "compact"
    message = {"key_type": 0, "coordinator_keys": ["a", "b", ""]}
    many = await clients[0].ask(ApiKey.FIND_COORDINATOR, message)
    assert [(each.key, each.node_id) for each in many.coordinators] == [("a", 0), ("b", 0), ("", 0)]


@played
async def test_share_coordinators_are_refused_with_an_error_that_is_not_retriable(world: Any) -> None:
    client = await world.client()
    for version in (1, 6):
        message = {"key": "x", "key_type": 2, "coordinator_keys": ["x"]}
        answer = await client.ask(ApiKey.FIND_COORDINATOR, message, version)
        found = answer.coordinators[0] if version == 6 else answer
        assert (found.error_code, found.node_id) == (ErrorCode.invalid_request, -1)


def test_no_coordinator_is_available_if_its_topic_cannot_be_created(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: Any) -> None:
        client = await world.client()
        found = await find(client)
        assert found.error_code == ErrorCode.coordinator_not_available
        assert (await client.ask(ApiKey.JOIN_GROUP, join_message())).error_code == ErrorCode.not_coordinator

    play(scenario, offsets_topic_replication_factor="3")
    assert "Failed to create __consumer_offsets" in caplog.text
    assert "(its keys begin with offsets.topic)" in caplog.text


@pytest.mark.parametrize(
    ("replicas", "in_sync", "warns"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 1, False), (3, 3, True)]
)
def test_the_log_warns_of_an_offsets_topic_that_cannot_lose_a_broker(
    seed: int, caplog: pytest.LogCaptureFixture, replicas: int, in_sync: int, *, warns: bool
) -> None:
    async def scenario(world: World) -> None:
        await find(await world.client())

    config = {"offsets.topic.replication.factor": str(replicas), "min.insync.replicas": str(in_sync)}
    World(seed, config, brokers=3).play(scenario)
    assert ("its coordinators are unavailable while a broker is down" in caplog.text) == warns


@played
async def test_a_broker_that_does_not_lead_a_groups_partition_is_not_its_coordinator(world: Any) -> None:
    """M6."""
    client = await world.client()
    nobody = type("Joined", (), {"generation_id": 1, "member_id": "nobody"})
    joined = await client.ask(ApiKey.JOIN_GROUP, join_message())
    assert joined.error_code == ErrorCode.not_coordinator
    for api, message in [
        (ApiKey.SYNC_GROUP, sync_message(nobody, {})),
        (ApiKey.HEARTBEAT, heartbeat_message(nobody)),
        (ApiKey.LEAVE_GROUP, {"group_id": "g", "member_id": "nobody", "members": []}),
    ]:
        assert (await client.ask(api, message)).error_code == ErrorCode.not_coordinator
    (described,) = (
        await client.ask(ApiKey.DESCRIBE_GROUPS, {"groups": ["g"], "include_authorized_operations": False})
    ).groups
    assert described.error_code == ErrorCode.not_coordinator


@played
async def test_a_client_that_disconnects_during_a_join_does_not_disturb_the_group(world: Any) -> None:
    """M6."""
    first, second = await world.client("first"), await world.client("second")
    one = await member(first)
    asked = second.request(ApiKey.JOIN_GROUP, join_message(), 3)
    await world.pass_time(1)
    second.close()
    with pytest.raises(ConnectionResetError):
        await asked
    again = await join(first, member_id=one.member_id)
    assert again.generation_id == 2
    assert len(again.members) == 2


# ---- Requests of many groups -----------------------------------------------------------------------------------------

GROUPS = tuple({coordinator_partition(name, 2): name for name in ("a", "b", "c", "d")}.values())
"""One group of each partition."""


@pytest.mark.parametrize(
    ("api", "message"),
    [
        (ApiKey.DESCRIBE_GROUPS, {"groups": GROUPS, "include_authorized_operations": False}),
        (
            ApiKey.OFFSET_FETCH,
            {"groups": [{"group_id": each, "topics": None} for each in GROUPS], "require_stable": False},
        ),
    ],
    ids=["DescribeGroups", "OffsetFetch"],
)
@played
async def test_groups_whose_records_are_not_committed_are_awaited_at_the_same_time(
    world: Any, monkeypatch: pytest.MonkeyPatch, api: ApiKey, message: dict[str, Any]
) -> None:
    """M8."""
    assert len(GROUPS) == 2
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"coordinator_keys": ["a"]})
    groups = world.broker.groups
    for name in GROUPS:
        monkeypatch.setattr(type(groups.context(name).partition), "when_reached", lambda *_, **__: None)
        request = CommitRequest(values={TopicPartition("t", 0): OffsetCommitValue(offset=1, commit_timestamp=0)})
        groups.submit(name, request).cancel()
    started = asyncio.get_running_loop().time()
    answer = await client.ask(api, message, 5 if api is ApiKey.DESCRIBE_GROUPS else 9)
    assert [each.error_code for each in answer.groups] == [ErrorCode.coordinator_not_available] * 2
    assert 4.9 < asyncio.get_running_loop().time() - started < 5.5
