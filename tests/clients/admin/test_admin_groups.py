"""Groups through `Admin`: several in one request, over coordinators that move, and changes of their offsets (M10)."""

import asyncio
from typing import Any

import pytest

from odradek.broker.coordinators.machine import Producer
from odradek.broker.groups.machine.messages import CommitRequest
from odradek.clients import Admin, OffsetAndMetadata
from odradek.clients.admin.descriptions import GroupDescription
from odradek.clients.admin.results import RefusedGroupsError, RefusedPartitionsError
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from odradek.simulation.world import Member, World, settled
from odradek.testing import Simulation
from tests.clients.admin.scene import play, play_scripted
from tests.world.scenes import in_world, played_by

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
NAMES = [f"group-{number}" for number in range(10)]


async def commit(admin: Admin, *group_ids: str) -> None:
    for number, group_id in enumerate(group_ids):
        await admin.alter_group_offsets(group_id, {T0: OffsetAndMetadata(number)})


# ---- several groups -------------------------------------------------------------------------------------------------


@played_by(play, config=QUICK, partitions=2, brokers=3)
async def test_groups_on_three_coordinators_are_described_together_with_errors_by_group(
    admin: Admin, world: World
) -> None:
    await commit(admin, *NAMES)
    found = await admin.describe_groups([*NAMES, "nobody", NAMES[0]])
    assert list(found) == [*NAMES, "nobody"]
    nobody = found.pop("nobody")
    assert isinstance(nobody, KafkaError)
    assert nobody.code is ErrorCode.group_id_not_found
    coordinators = set()
    for number, group in enumerate(found.values()):
        assert isinstance(group, GroupDescription)
        (partition,) = group.partitions
        assert (group.group_state, partition.committed_offset, partition.end_offset) == ("Empty", number, 0)
        assert group.coordinator is not None
        coordinators.add(group.coordinator.broker_id)
    assert coordinators == {0, 1, 2}
    assert await admin.describe_groups([]) == {}


def answer_groups(broker: Any) -> None:
    """Let a scripted broker coordinate groups of any name, each with an offset in `t`."""
    broker.topics = {"t": {0: 0}}
    offset = {"partition_index": 0, "committed_offset": 5, "metadata": ""}
    topics = [{"name": "t", "partitions": [offset]}]
    empty = {"group_state": "Empty", "protocol_type": "", "protocol_data": "", "members": []}
    end = {"name": "t", "partitions": [{"partition_index": 0, "offset": 9, "timestamp": -1}]}
    broker.answers |= {
        ApiKey.DESCRIBE_GROUPS: lambda request: {
            "groups": [{"group_id": group_id, **empty} for group_id in request.message.groups]
        },
        ApiKey.OFFSET_FETCH: lambda request: {
            "topics": topics,
            "groups": [
                {"group_id": each.group_id, "topics": topics} for each in getattr(request.message, "groups", ())
            ],
        },
        ApiKey.LIST_OFFSETS: lambda _: {"topics": [end]},
    }


def test_each_api_is_requested_once_for_all_groups_of_a_coordinator(simulation: Simulation, broker: Any) -> None:
    async def scene(admin: Admin) -> None:
        found = await admin.describe_groups(NAMES)
        assert [each.lag for each in found.values() if isinstance(each, GroupDescription)] == [4] * 10

    answer_groups(broker)
    play_scripted(simulation, broker, scene)
    apis = (ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS)
    assert [len(broker.asked(api)) for api in apis] == [2, 1, 1, 1]


def test_brokers_without_requests_for_several_groups_get_one_for_each(simulation: Simulation, broker: Any) -> None:
    """As before KIP-699 and KIP-709."""

    async def scene(admin: Admin) -> None:
        found = await admin.describe_groups(NAMES)
        assert [each.lag for each in found.values() if isinstance(each, GroupDescription)] == [4] * 10

    answer_groups(broker)
    broker.versions |= {ApiKey.FIND_COORDINATOR: (0, 3), ApiKey.OFFSET_FETCH: (0, 7)}
    play_scripted(simulation, broker, scene)
    assert [len(broker.asked(api)) for api in (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH)] == [20, 10]


def test_a_group_of_another_protocol_is_described_by_its_offsets(simulation: Simulation, broker: Any) -> None:
    """Neither DescribeGroups nor ConsumerGroupDescribe finds share groups."""

    async def scene(admin: Admin) -> None:
        group = await admin.describe_group("modern")
        assert (group.group_state, group.members, group.lag) == ("Dead", (), 4)

    answer_groups(broker)
    missing = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
    missing |= {"group_id": "modern", "error_code": ErrorCode.group_id_not_found, "error_message": "not found"}
    broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda _: {"groups": [missing]}
    unknown = described_consumer_group("modern", error_code=ErrorCode.group_id_not_found)
    broker.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda _: {"groups": [unknown]}
    play_scripted(simulation, broker, scene)


def described_consumer_group(name: str, **changes: Any) -> dict[str, Any]:
    answer = {"group_id": name, "group_state": "Stable", "group_epoch": 2, "assignment_epoch": 2}
    return answer | {"assignor_name": "uniform", "members": [], "authorized_operations": 0, **changes}


def test_a_group_of_the_consumer_protocol_is_described_with_its_members(simulation: Simulation, broker: Any) -> None:
    async def scene(admin: Admin) -> None:
        group = await admin.describe_group("modern")
        assert (group.group_state, group.protocol_type, group.protocol) == ("Stable", "consumer", "uniform")
        assert [(each.member_id, each.assignment) for each in group.members] == [("m", (TopicPartition("t", 0),))]

    answer_groups(broker)
    missing = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
    missing |= {"group_id": "modern", "error_code": ErrorCode.group_id_not_found, "error_message": "not found"}
    broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda _: {"groups": [missing]}
    partitions = {"topic_partitions": [{"topic_id": None, "topic_name": "t", "partitions": [0]}]}
    member = {"member_id": "m", "member_epoch": 2, "client_id": "c", "client_host": "/h", "member_type": 1}
    member |= {"instance_id": None, "rack_id": None, "assignment": partitions, "target_assignment": partitions}
    found = described_consumer_group("modern", members=[member])
    broker.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda _: {"groups": [found]}
    play_scripted(simulation, broker, scene)


def test_only_groups_whose_coordinator_loads_are_requested_again(simulation: Simulation, broker: Any) -> None:
    loading = [ErrorCode.coordinator_load_in_progress, ErrorCode.none]

    def answer(request: Any) -> dict[str, Any]:
        codes = {"slow": loading.pop(0)} if "slow" in request.message.groups_names else {}
        return {
            "results": [
                {"group_id": each, "error_code": codes.get(each, ErrorCode.none)}
                for each in request.message.groups_names
            ]
        }

    async def scene(admin: Admin) -> None:
        await admin.delete_groups(["quick", "slow"])

    broker.answers[ApiKey.DELETE_GROUPS] = answer
    play_scripted(simulation, broker, scene)
    asked = [list(request.message.groups_names) for request in broker.asked(ApiKey.DELETE_GROUPS)]
    assert asked == [["quick", "slow"], ["slow"]]


def test_a_coordinator_that_never_finishes_loading_is_an_error_of_its_groups_only(
    simulation: Simulation, broker: Any
) -> None:
    codes = {"slow": ErrorCode.coordinator_load_in_progress}

    def answer(request: Any) -> dict[str, Any]:
        return {
            "results": [
                {"group_id": each, "error_code": codes.get(each, ErrorCode.none)}
                for each in request.message.groups_names
            ]
        }

    async def scene(admin: Admin) -> None:
        with pytest.raises(RefusedGroupsError, match="'slow': COORDINATOR_LOAD_IN_PROGRESS") as refused:
            await admin.delete_groups(["quick", "slow"])
        assert list(refused.value.errors) == ["slow"]

    broker.answers[ApiKey.DELETE_GROUPS] = answer
    play_scripted(simulation, broker, scene, timeout_ms=3000)


def test_a_filter_that_a_broker_does_not_know_is_refused_and_not_ignored(simulation: Simulation, broker: Any) -> None:
    async def scene(admin: Admin) -> None:
        assert await admin.list_groups() == []
        assert await admin.list_groups(states=["Stable"]) == []
        with pytest.raises(KafkaError, match="broker 0 is too old to filter groups by state or type") as refused:
            await admin.list_groups(types=["classic"])
        assert refused.value.code is ErrorCode.unsupported_version

    broker.versions[ApiKey.LIST_GROUPS] = (0, 4)
    broker.answers[ApiKey.LIST_GROUPS] = lambda _: {"groups": []}
    play_scripted(simulation, broker, scene)


@played_by(play, config=QUICK, partitions=2)
async def test_groups_are_filtered_by_state_and_type(admin: Admin, world: World) -> None:
    await commit(admin, "idle")
    member = await Member(world, "reader", "t", "busy").start()
    await settled([member], 2)
    listed = {group.group_id: (group.group_state, group.group_type) for group in await admin.list_groups()}
    assert listed == {"idle": ("Empty", "classic"), "busy": ("Stable", "classic")}
    assert [group.group_id for group in await admin.list_groups(states=["stable", "Dead"])] == ["busy"]
    assert [group.group_id for group in await admin.list_groups(types=["Classic"])] == ["busy", "idle"]
    assert await admin.list_groups(states=["Empty"], types=["consumer"]) == []
    await member.stop()


@played_by(play, config=QUICK, partitions=2, brokers=2)
async def test_the_groups_of_some_brokers_are_listed_while_another_one_is_away(admin: Admin, world: World) -> None:
    names = [f"g-{number}" for number in range(8)]
    await commit(admin, *names)
    listed = [[each.group_id for each in await admin.list_groups(broker_ids=[number])] for number in (0, 1)]
    assert sorted(listed[0] + listed[1]) == names
    world.pause(1)
    assert [each.group_id for each in await admin.list_groups(broker_ids=[0])] == listed[0]
    assert await admin.list_groups(broker_ids=[]) == []
    world.resume(1)


@played_by(play, config=QUICK, partitions=2, brokers=3)
async def test_a_description_survives_the_death_of_the_coordinator(admin: Admin, world: World) -> None:
    members = [await Member(world, f"reader-{number}", "t", "g").start() for number in range(2)]
    await settled(members, 2)
    before = await admin.describe_group("g")
    assert before.coordinator is not None
    await world.kill(before.coordinator.broker_id)
    after = await admin.describe_group("g")
    assert after.coordinator is not None
    assert after.coordinator.broker_id != before.coordinator.broker_id
    assert {member.member_id for member in after.members} == {member.member_id for member in before.members}
    for member in members:
        await member.stop()


@in_world(QUICK | {"offsets.topic.replication.factor": "2"}, brokers=2, noticed_at_once=False)
async def test_a_partition_whose_leader_dies_meanwhile_is_described_without_its_end(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=2, replication_factor=1)
        await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(0), T1: OffsetAndMetadata(0)})
        leaders = {number: each.leader for number, each in (await admin.describe_topics(["t"]))["t"].partitions.items()}
        coordinator = (await admin.describe_group("g")).coordinator
        assert coordinator is not None
        await world.kill(1 - coordinator.broker_id)
        started = world.now_s
        group = await admin.describe_group("g")
        assert world.now_s - started < 30
        assert {each.partition: each.end_offset for each in group.partitions} == {
            number: 0 if leader == coordinator.broker_id else None for number, leader in leaders.items()
        }
        assert set(leaders.values()) == {0, 1}


# ---- offsets --------------------------------------------------------------------------------------------------------


@played_by(play, config=QUICK, partitions=2)
async def test_offsets_that_an_open_transaction_may_change_delay_only_requests_for_stable_ones(
    admin: Admin, world: World
) -> None:
    """KIP-447."""
    await commit(admin, "g")
    value, producer = OffsetCommitValue(offset=7, commit_timestamp=0), Producer(producer_id=1, epoch=0)
    log = world.broker.groups.context("g").partition.log
    log.producers.begin_verification(1, 0, 0).is_verified = True
    await world.broker.groups.submit("g", CommitRequest(values={T0: value}, producer=producer))
    assert await admin.list_group_offsets(["g", "h"]) == {"g": {T0: OffsetAndMetadata(0)}, "h": {}}
    assert [each.committed_offset for each in (await admin.describe_group("g")).partitions] == [0]
    assert world.now_s < 30
    found = (await admin.list_group_offsets(["g"], require_stable=True))["g"]
    assert isinstance(found, KafkaError)
    assert found.code is ErrorCode.unstable_offset_commit
    assert world.now_s > 50


@played_by(play, config=QUICK, partitions=2)
async def test_offsets_are_altered_in_a_group_without_members_only(admin: Admin, world: World) -> None:
    await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(3, "a note"), T1: OffsetAndMetadata(4)})
    found = (await admin.list_group_offsets(["g"]))["g"]
    assert found == {T0: OffsetAndMetadata(3, "a note"), T1: OffsetAndMetadata(4)}
    await admin.alter_group_offsets("g", {})
    member = await Member(world, "reader", "t", "g", enable_auto_commit=False).start()
    await settled([member], 2)
    with pytest.raises(KafkaError, match="group 'g' has members, which commit its offsets; stop them") as refused:
        await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(0)})
    assert refused.value.code is ErrorCode.unknown_member_id
    assert (await admin.list_group_offsets(["g"]))["g"] == found
    await member.stop()


@played_by(play, config=QUICK, partitions=2)
async def test_offsets_of_unknown_partitions_are_refused_at_once_and_the_others_changed(
    admin: Admin, world: World
) -> None:
    nowhere = TopicPartition("t", 9)
    with pytest.raises(RefusedPartitionsError, match="there is no partition t-9") as refused:
        await admin.alter_group_offsets("g", {T0: OffsetAndMetadata(3), nowhere: OffsetAndMetadata(4)})
    assert list(refused.value.errors) == [nowhere]
    assert (await admin.list_group_offsets(["g"]))["g"] == {T0: OffsetAndMetadata(3)}
    with pytest.raises(RefusedPartitionsError, match="there is no partition t-9"):
        await admin.delete_group_offsets("g", [nowhere, T0])
    assert (await admin.list_group_offsets(["g"]))["g"] == {}
    assert world.now_s < 30


@played_by(play, config=QUICK, partitions=2)
async def test_groups_are_deleted_unless_they_have_members(admin: Admin, world: World) -> None:
    await commit(admin, "a", "b")
    member = await Member(world, "reader", "t", "busy").start()
    await settled([member], 2)
    with pytest.raises(RefusedGroupsError, match="group 'busy' has members; stop them") as refused:
        await admin.delete_groups(["a", "busy", "nobody", "b"])
    codes = {group_id: error.code for group_id, error in refused.value.errors.items()}
    assert codes == {"busy": ErrorCode.non_empty_group, "nobody": ErrorCode.group_id_not_found}
    assert [group.group_id for group in await admin.list_groups()] == ["busy"]
    with pytest.raises(RefusedPartitionsError, match="members of group 'busy' read topic 't'"):
        await admin.delete_group_offsets("busy", [T0])
    await member.stop()


# ---- generations ----------------------------------------------------------------------------------------------------


@played_by(play, config=QUICK, partitions=2, brokers=3)
async def test_the_generation_of_a_group_is_read_and_followed_over_a_change_of_the_coordinator(
    admin: Admin, world: World
) -> None:
    first = await Member(world, "first", "t", "g").start()
    await settled([first], 2)
    reader = admin.generation_reader("g")
    assert await reader.read() == 1
    second = await Member(world, "second", "t", "g").start()
    await settled([first, second], 2)
    assert await reader.read() == 2
    coordinator = (await admin.describe_group("g")).coordinator
    assert coordinator is not None
    await world.kill(coordinator.broker_id)
    await second.stop()
    await settled([first], 2)
    await asyncio.sleep(5)
    assert await reader.read() == 3
    assert await admin.generation_reader("nobody").read() is None
    await first.stop()


@played_by(play, config=QUICK, partitions=2)
async def test_a_deleted_group_has_no_generation(admin: Admin, world: World) -> None:
    member = await Member(world, "member", "t", "g").start()
    await settled([member], 2)
    reader = admin.generation_reader("g")
    assert await reader.read() == 1
    await member.stop()
    await admin.delete_groups(["g"])
    assert await reader.read() is None
