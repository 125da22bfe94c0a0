"""The journal in `__rebalances`: what is written, by whom, and what happens when it cannot be (M6)."""

import asyncio
import json
from typing import Any

from msgspec.structs import replace

from odradek.broker.groups.machine.rebalance_trace import (
    Cause,
    CauseKind,
    OwnershipChange,
    RebalanceCompleted,
    RebalanceOutcome,
)
from odradek.broker.groups.rebalance_journal import MOST_PARTITIONS, to_json
from odradek.model import TopicPartition, UnavailableError
from odradek.model.names import JOURNAL_TOPIC
from odradek.simulation.world import Member, World, settled, until
from tests.world.scenes import in_world

CONFIG = {
    "group.initial.rebalance.delay.ms": "200",
    "num.partitions": "6",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
}
SINGLE = CONFIG | {"offsets.topic.replication.factor": "1", "default.replication.factor": "1"}


async def journal(world: World) -> list[dict[str, Any]]:
    """Return the records of the journal, which is one partition."""
    (records,) = (await world.read_records(JOURNAL_TOPIC, 1)).values()
    for record in records:
        assert record.key == json.loads(record.value or b"")["group"].encode()
    return [json.loads(record.value or b"") for record in records]


async def written(world: World, count: int) -> list[dict[str, Any]]:
    """Return the journal when it has so many records."""
    async with asyncio.timeout(60):
        while len(found := await journal(world)) < count:
            await asyncio.sleep(0.1)
    return found


async def members(world: World, group: str, count: int) -> list[Member]:
    joined = [await Member(world, f"{group}-{number}", "t", group).start() for number in range(count)]
    await settled(joined, 6)
    return joined


@in_world(CONFIG, brokers=3)
async def test_rebalances_of_coordinators_on_several_brokers_are_in_one_journal(world: World) -> None:
    """Three groups have their coordinators on three brokers, and the journal is led by one of them."""
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=6)
    groups = ["g", "h", "i", "j"]
    joined = {group: await members(world, group, 2) for group in groups}
    coordinators = {
        number
        for number, broker in world.running.items()
        for group in groups
        if (machine := broker.groups.machine(group)) is not None and group in machine.groups.by_id
    }
    assert len(coordinators) > 1, "or no record would be sent to another broker"
    for some in joined.values():
        await some[0].stop()
    for some in joined.values():
        await settled(some[1:], 6)
    await asyncio.sleep(5)
    found = await journal(world)
    for group in groups:
        records = [each for each in found if each["group"] == group]
        generations = [each["generation"] for each in records if each["outcome"] == "stable"]
        assert generations == sorted(set(generations))
        assert records[0]["cause"] == CauseKind.JOINED
        last = records[-1]
        assert (last["cause"], last["outcome"], last["members"]) == (CauseKind.LEFT, "stable", 1)
        assert last["moved"] == 3
        assert set(last["unowned_ms"]["t"]) >= {"0", "1", "2"} or set(last["unowned_ms"]["t"]) >= {"3", "4", "5"}
        assert last["unowned_partition_ms"] == sum(last["unowned_ms"]["t"].values())
    for some in joined.values():
        await some[1].stop()
    assert sum(broker.rebalance_journal.dropped for broker in world.running.values()) == 0


@in_world(SINGLE)
async def test_the_departure_of_the_last_member_is_in_the_journal(world: World) -> None:
    await world.create_topic("t", 6)
    (first,) = await members(world, "g", 1)
    before = await written(world, 1)
    await first.stop()
    found = await written(world, 2)
    assert found[: len(before)] == before
    assert (found[-1]["outcome"], found[-1]["generation"], found[-1]["members"]) == ("empty", 2, 0)


@in_world(SINGLE | {"group.rebalance.journal.enable": "false"})
async def test_without_the_journal_there_is_no_topic_and_nothing_is_counted(world: World) -> None:
    await world.create_topic("t", 6)
    (first,) = await members(world, "g", 1)
    await first.stop()
    await asyncio.sleep(5)
    assert JOURNAL_TOPIC not in world.broker.image.topics
    assert world.broker.rebalance_journal.rebalances.total() == 0


@in_world(SINGLE)
async def test_records_that_cannot_be_written_are_counted_and_groups_go_on(world: World, monkeypatch: Any) -> None:
    await world.create_topic("t", 6)

    async def fail(*_: Any) -> None:
        raise UnavailableError("a test")

    monkeypatch.setattr(world.broker.rebalance_journal, "_write", fail)
    (first,) = await members(world, "g", 1)
    await until(lambda: world.broker.rebalance_journal.dropped == 1)
    assert first.owned == set(range(6))
    await first.stop()


def completed(group_id: str, *, unowned: int = 0) -> RebalanceCompleted:
    """Return a rebalance with that number of partitions without an owner, partition N for N ms."""
    return RebalanceCompleted(
        group_id=group_id,
        generation=3,
        outcome=RebalanceOutcome.STABLE,
        cause=Cause(kind=CauseKind.LEFT, text="a left", members=("a",)),
        started_ms=1,
        duration_ms=2,
        join_ms=1,
        assign_ms=1,
        protocol_type="consumer",
        protocol_name="range",
        members=1,
        waited_for=(("b", 1),),
        timed_out=(),
        moved=(TopicPartition("t", 0),),
        unowned_ms={TopicPartition("t", number): number for number in range(unowned)},
    )


@in_world(SINGLE)
async def test_a_rebalance_that_ends_just_as_the_last_record_is_written_is_in_the_journal(
    world: World, monkeypatch: Any
) -> None:
    """It ends between the last step of the task that writes and the callback that notices the task's end."""
    journal, written = world.broker.rebalance_journal, list[str]()

    async def write(group_id: str, _: Any) -> None:
        written.append(group_id)
        if group_id == "first":
            asyncio.get_running_loop().call_soon(journal.write, completed("second"))

    monkeypatch.setattr(journal, "_write", write)
    journal.write(completed("first"))
    await asyncio.sleep(1)
    assert written == ["first", "second"]


@in_world(SINGLE)
async def test_each_record_is_written_in_a_turn(world: World, monkeypatch: Any) -> None:
    """Very many groups may lose their members at once, and a record of wide groups takes milliseconds."""
    journal, written = world.broker.rebalance_journal, list[str]()

    async def write(group_id: str, _: Any) -> None:
        written.append(group_id)

    monkeypatch.setattr(journal, "_write", write)
    for number in range(100):
        journal.write(completed(f"g{number}"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 1 <= len(written) <= 2
    await asyncio.sleep(1)
    assert len(written) == 100


@in_world(SINGLE)
async def test_an_unexpected_error_drops_one_record_and_no_others(world: World, monkeypatch: Any) -> None:
    journal, written = world.broker.rebalance_journal, list[str]()

    async def write(group_id: str, _: Any) -> None:
        if group_id == "first":
            raise RuntimeError("a test")
        written.append(group_id)

    monkeypatch.setattr(journal, "_write", write)
    journal.write(completed("first"))
    journal.write(completed("second"))
    await until(lambda: bool(written), within_s=10)
    assert (written, journal.dropped) == (["second"], 1)


def test_a_record_names_the_partitions_that_waited_longest_up_to_a_limit() -> None:
    count = MOST_PARTITIONS + 10
    rebalance = completed("g\N{SNOWMAN}", unowned=count)
    value = json.loads(to_json(rebalance))
    assert value["group"] == "g\N{SNOWMAN}"
    assert (value["unowned_partitions"], value["longest_unowned_ms"]) == (count, count - 1)
    assert value["unowned_partition_ms"] == sum(range(count))
    assert sorted(map(int, value["unowned_ms"]["t"])) == list(range(10, count))
    assert b" " not in to_json(rebalance).replace(b"a left", b"")


def test_a_record_has_the_owners_at_its_end_and_the_changes_before_up_to_the_same_limit() -> None:
    everything = frozenset(TopicPartition("t", number) for number in range(MOST_PARTITIONS + 10))
    change = OwnershipChange(-20, "a", True, everything)
    rebalance = replace(completed("g"), owned={"a": everything, "b": frozenset()}, changes=(change,))
    value = json.loads(to_json(rebalance))
    named = {"t": list(range(MOST_PARTITIONS))}
    assert value["owned"] == {"a": named}
    assert value["changes"] == [{"at_ms": -20, "member": "a", "gets": named}]
    assert value["owners_left_out"] == 10
