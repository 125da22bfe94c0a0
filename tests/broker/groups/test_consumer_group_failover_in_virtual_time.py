"""M7. The coordinator of a consumer group dies, and the next leader of its partition continues (SPEC 6, phase 1).

In the end each partition has one owner, no epoch goes back, no two members have a partition in the log, and no
committed offset is lost. The other phases are in `machine/consumer`: `test_rebalances`, `test_requests` and, at any
step, `test_model_invariants`.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.broker.controller.machine.topic_creation import NewPartitions
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.records import ConsumerGroupRecord, GroupRecordCodec
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.world import Member, World, settled, until
from tests.broker.groups.test_group_failover_in_virtual_time import (
    CONFIG,
    GROUP,
    PARTITIONS,
    HostOfMember,
    controller_of,
    coordinator,
    create_topics,
    fail_over,
    in_sync,
)
from tests.broker.groups.test_groups_in_virtual_time import SEEDS, write
from tests.world.scenes import in_world

pytestmark = pytest.mark.long

REBALANCE_S = 60


class ManualConsumer(HostOfMember):
    """A member of the consumer protocol, whose heartbeats the test sends."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.regex = ""
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.assigned: frozenset[int] = frozenset()
        self._topic_id: Any = None

    def send(self) -> "asyncio.Future[Any]":
        """Send a heartbeat that says everything."""
        owned = [] if not self.owned else [{"topic_id": self._topic_id, "partitions": sorted(self.owned)}]
        message = {
            "group_id": GROUP,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": REBALANCE_S * 1000,
            "subscribed_topic_names": [] if self.regex else ["t"],
            "subscribed_topic_regex": self.regex,
            "server_assignor": None,
            "topic_partitions": owned,
        }
        return self._client.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, 1)

    def follow(self, answer: Any) -> ErrorCode:
        """Take a response; new partitions wait until others are revoked."""
        if answer.error_code == ErrorCode.none:
            assert answer.member_epoch >= self.epoch, "an epoch goes back"
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                numbers: set[int] = set()
                for each in answer.assignment.topic_partitions:
                    self._topic_id = each.topic_id
                    numbers.update(each.partitions)
                self.assigned = frozenset(numbers)
            if self.owned <= self.assigned:
                self.owned = self.assigned
        return ErrorCode(answer.error_code)

    async def beat(self) -> ErrorCode:
        """Send a heartbeat and follow its response."""
        return self.follow(await self.send())

    def revoke(self) -> None:
        """Give up what is not assigned any more."""
        self.owned &= self.assigned

    async def commit(self, offset: int) -> ErrorCode:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1,
                       "committed_metadata": None}]  # fmt: skip
        message = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": self.epoch,
            "member_id": self.name,
            "group_instance_id": None,
            "topics": [{"name": "t", "partitions": partitions}],
        }
        answer = await self._client.ask(ApiKey.OFFSET_COMMIT, message, 9)
        return ErrorCode(answer.topics[0].partitions[0].error_code)


async def until_shared(members: Sequence[ManualConsumer], partitions: int = PARTITIONS) -> None:
    """Let members send heartbeats and revoke until each partition has one owner, all in one epoch."""

    def is_shared() -> bool:
        owned = sorted(number for member in members for number in member.owned)
        return owned == list(range(partitions)) and len({member.epoch for member in members}) == 1

    async with asyncio.timeout(120):
        while not is_shared():
            for member in members:
                assert await member.beat() is ErrorCode.none
                member.revoke()
                claims = [number for each in members for number in each.owned]
                assert len(claims) == len(set(claims)), "a partition has two owners"
            await asyncio.sleep(0.05)


async def stable_group(world: World, *names: str) -> list[ManualConsumer]:
    await create_topics(world)
    members = [ManualConsumer(world, name) for name in names]
    for member in members:
        await member.meet()
    await until_shared(members)
    return members


def group_of(world: World) -> ConsumerGroup | None:
    """Return the group as its coordinator has it."""
    machines = [broker.groups.machine(GROUP) for broker in world.running.values()]
    groups = [group for each in machines if each is not None for group in each.groups.of_type(ConsumerGroup)]
    return next((group for group in groups if group.group_id == GROUP), None)


async def assert_log(world: World) -> None:
    """In the log the group's epoch rises, and no two members have or revoke a partition at the same time."""
    codec, epoch = GroupRecordCodec(), 0
    group = ConsumerGroup(GROUP)
    for records in (await world.read_records("__consumer_offsets", 3)).values():
        for each in records:
            record = codec.decode(each.key, each.value)
            if not isinstance(record, ConsumerGroupRecord) or record.group_id != GROUP:
                continue
            group.apply(record.key, record.value)
            assert group.epoch >= epoch or group.is_gone
            epoch = group.epoch
            held = [
                (topic_id, number)
                for member in group.members.values()
                for assignment in (member.assigned, member.revoking)
                for topic_id, numbers in assignment.items()
                for number in numbers
            ]
            assert len(held) == len(set(held)), "two members have a partition"
    assert epoch > 0


@in_world(CONFIG, brokers=3)
async def test_a_stable_group_keeps_its_epoch_and_no_commit_is_lost(world: World) -> None:
    one, two = await stable_group(world, "one", "two")
    epoch, owned = one.epoch, (one.owned, two.owned)
    assert await one.commit(41) is ErrorCode.none
    for _ in range(2):
        number = await coordinator(world)
        await fail_over(world, one, two)
        assert [await one.beat(), await two.beat()] == [ErrorCode.none] * 2
        assert await one.committed() == 41
        await world.start(number)
        await until(lambda: in_sync(world))
    assert await one.commit(42) is ErrorCode.none
    assert (one.epoch, two.epoch, (one.owned, two.owned)) == (epoch, epoch, owned)
    await assert_log(world)


@in_world(CONFIG, brokers=3)
async def test_partitions_that_are_added_before_the_failover_are_assigned_after_it(world: World) -> None:
    one, two = await stable_group(world, "one", "two")
    (error,) = await (await controller_of(world)).create_partitions([NewPartitions(topic="t", count=PARTITIONS + 2)])
    assert error is None
    await fail_over(world, one, two)
    await until_shared([one, two], PARTITIONS + 2)
    await assert_log(world)


@pytest.mark.parametrize("number", SEEDS)
def test_our_consumers_join_and_leave_while_coordinators_die(number: int) -> None:
    """Whenever that is: the seed says how long each lives. Half of the members use the classic protocol."""

    async def scenario(world: World) -> None:
        values = await write(world, "t", 60)
        chance = world.simulation.entropy("deaths")

        def member(name: str) -> Member:
            protocol = chance.choice(("classic", "consumer"))
            return Member(world, name, "t", GROUP, group_protocol=protocol)

        members = [await member(f"reader-{each}").start() for each in range(2)]
        everybody = list(members)
        for each in range(3):
            await asyncio.sleep(chance.uniform(0, 8))
            victim = await coordinator(world)
            await world.kill(victim)
            members.append(await member(f"late-{each}").start())
            everybody.append(members[-1])
            await asyncio.sleep(chance.uniform(0, 8))
            await members.pop(0).stop()
            await world.start(victim)
        await settled(members, PARTITIONS)
        await until(lambda: {value for member in everybody for value in member.read} == set(values))
        for each_member in members:
            await each_member.stop()

    assert World(number, CONFIG, brokers=3).play(scenario)


@pytest.mark.parametrize("is_resolved", [False, True])
@in_world(CONFIG, brokers=3)
async def test_a_new_coordinator_resolves_expressions(world: World, is_resolved: bool) -> None:
    """The coordinator dies before or after it has resolved them."""
    one, two = await stable_group(world, "one", "two")
    one.regex = "t|u.*"
    assert await one.beat() is ErrorCode.none
    if is_resolved:
        await asyncio.sleep(1)
    await fail_over(world, one, two)
    async with asyncio.timeout(120):
        while (group := group_of(world)) is None or group.regexes != {"t|u.*": ("t",)} or not one.owned:
            for member in (one, two):
                assert await member.beat() is ErrorCode.none
                member.revoke()
            await asyncio.sleep(0.05)
    await until_shared([one, two])
    await assert_log(world)
