"""M4, M6, M7, M8. The split brain and the unknown outcome: present in generation 1, absent in the later ones.

The herd effect is in `test_generations`.
"""

import asyncio
from typing import Any, Final

import pytest

from odradek.clients.consumer import consumer_coordinator
from odradek.clients.group_offsets import commit_once
from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.lab.costs import Change, Generation
from odradek.lab.generations import measure
from odradek.model import KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.simulation.world import Member, World, until
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, expect, produce
from tests.world.scenes import in_world

pytestmark = pytest.mark.long

FIRST: Final = TopicPartition("t", 0)
CONFIG: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
CLASSIC: Final = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
LATER: Final[dict[str, dict[str, Any]]] = {
    "2 range": {"partition_assignment_strategy": "range", **CLASSIC},
    "2 cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky", **CLASSIC},
    "3 consumer protocol": {"group_protocol": "consumer"},
}


async def committed(world: World) -> int | None:
    """Return the group's offset of partition 0 in Kafka."""
    async with world.admin() as admin:
        found = (await admin.list_group_offsets([GROUP]))[GROUP]
    assert not isinstance(found, OdradekError)
    return found[FIRST].offset if FIRST in found else None


async def group_state(world: World) -> str:
    """Return the group's state as its coordinator has it."""
    async with world.admin() as admin:
        found = (await admin.describe_groups([GROUP]))[GROUP]
    assert not isinstance(found, OdradekError)
    return found.group_state


@in_world(CONFIG)
async def test_a_late_commit_of_a_member_that_was_replaced_is_stored_in_generation_1(world: World) -> None:
    """The split brain. The coordinator stores what any client sends, and offsets go back from 3 to 1."""
    await world.create_topic("t")
    await produce(world, "t", *((0, value) for value in (b"a", b"b", b"c")))
    kept = {"offsets_storage": "kafka", "dual_commit_enabled": False, "auto_commit_enable": False}
    first = Reader(world, "c1", {"t": 1}, **kept)
    await first.consumer.start()
    (stream,) = (await first.consumer.create_message_streams({"t": 1}))["t"]
    await first.consumer.commit_offsets()  # opens the connection
    assert (await anext(stream)).value == b"a"
    world.simulation.network.partition(["c1"], world.hosts)
    committing = asyncio.create_task(first.consumer.commit_offsets())
    await world.pass_time(1)
    world.tree.end_session(first.store.session_id)  # type: ignore[attr-defined]
    second = await Reader(world, "c2", {"t": 1}, **kept).start()
    await expect(lambda: second.read == [b"a", b"b", b"c"])
    await second.consumer.commit_offsets()
    assert await committed(world) == 3
    world.simulation.network.heal()
    await committing
    assert await committed(world) == 1
    await second.stop()
    await first.stop()


@pytest.mark.parametrize("generation", LATER)
@in_world(CONFIG)
async def test_a_late_commit_of_a_member_that_was_replaced_is_refused_in_later_generations(
    world: World, generation: str
) -> None:
    await world.create_topic("t")
    await produce(world, "t", *((0, value) for value in (b"a", b"b", b"c")))
    settings = {**LATER[generation], "auto_offset_reset": "earliest", "enable_auto_commit": False}
    first = await Member(world, "c1", "t", GROUP, **settings).start()
    await until(lambda: len(first.read) == 3)
    await first.consumer.commit({FIRST: 0})
    world.simulation.network.partition(["c1"], world.hosts)
    committing = asyncio.create_task(first.consumer.commit({FIRST: 1}))
    second = await Member(world, "c2", "t", GROUP, **settings).start()
    await until(lambda: len(second.read) == 3)
    await second.consumer.commit({FIRST: 3})
    world.simulation.network.heal()
    with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
        await committing
    assert await committed(world) == 3
    await second.stop()
    await first.stop()


@pytest.mark.parametrize("generation", LATER)
def test_a_commit_is_not_repeated_by_a_member_that_was_removed_and_has_joined_again(
    generation: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new epoch would be accepted, and offsets would go back."""
    is_reachable = True

    async def commit_if_reachable(*arguments: Any) -> None:
        if not is_reachable:
            raise UnavailableError("cut off")
        await commit_once(*arguments)

    monkeypatch.setattr(consumer_coordinator, "commit_once", commit_if_reachable)

    async def scenario(world: World) -> None:
        nonlocal is_reachable
        await world.create_topic("t")
        await produce(world, "t", *((0, value) for value in (b"a", b"b", b"c")))
        settings = {**LATER[generation], "auto_offset_reset": "earliest", "enable_auto_commit": False}
        first = await Member(world, "c1", "t", GROUP, **settings).start()
        await until(lambda: len(first.read) == 3)
        is_reachable = False
        committing = asyncio.create_task(first.consumer.commit({FIRST: 1}))
        world.simulation.network.partition(["c1"], world.hosts)
        await world.pass_time(10)
        world.simulation.network.heal()
        await until(lambda: len(first.read) == 6)
        is_reachable = True
        with pytest.raises(KafkaError, match="UNKNOWN_MEMBER_ID"):
            await committing
        assert await committed(world) is None
        await first.stop()

    World(seed, CONFIG).play(scenario)


@pytest.mark.parametrize("generation", LATER)
@in_world(CONFIG)
async def test_a_member_that_was_removed_commits_nothing_before_it_joins_again(world: World, generation: str) -> None:
    """The group is empty meanwhile, so its coordinator stores what a client without membership commits."""
    await world.create_topic("t")
    await produce(world, "t", (0, b"a"), (0, b"b"))
    consumer = world.consumer("c1", "t", group_id=GROUP, enable_auto_commit=False, **LATER[generation])
    async with consumer:
        assert await consumer.poll(10_000)
        world.simulation.network.partition(["c1"], world.hosts)
        await world.pass_time(10)
        world.simulation.network.heal()
        await world.pass_time(5)
        with pytest.raises(KafkaError, match=r"UNKNOWN_MEMBER_ID|STALE_MEMBER_EPOCH|FENCED_MEMBER_EPOCH"):
            await consumer.commit({FIRST: 1})
        assert await committed(world) is None


def test_members_of_generation_1_refuse_each_other_s_claims_and_wait() -> None:
    """They read the tree at different times, so two of them may want the same partition."""
    joins = measure(Generation.ZOOKEEPER, Change.JOINS, members=4, partitions=24).cost
    assert joins.claims_refused > 0
    assert joins.settled_s > 2, "rebalance.backoff.ms"


@pytest.mark.parametrize("generation", [Generation.EAGER, Generation.COOPERATIVE, Generation.CONSUMER])
def test_later_generations_claim_nothing(generation: Generation) -> None:
    assert measure(generation, Change.JOINS, members=2, partitions=4).cost.claims_refused == 0


@in_world(CONFIG)
async def test_no_member_of_generation_1_knows_that_a_partition_has_no_owner(world: World) -> None:
    """The unknown outcome: one consumer cannot claim its partition, for whatever reason, and the other is content."""
    await world.create_topic("t", 2)
    store = MemoryStore(world.tree)
    await create_persistent(store, [f"/consumers/{GROUP}{rest}" for rest in ("", "/owners", "/owners/t")])
    await store.create(f"/consumers/{GROUP}/owners/t/0", b"dead-0", ephemeral=True)
    settings = {"rebalance_backoff_ms": 100, "rebalance_max_retries": 1_000}
    first, second = (Reader(world, name, {"t": 1}, **settings) for name in ("c1", "c2"))
    starting = asyncio.create_task(first.start())
    await world.pass_time(1)
    await second.start()
    await world.pass_time(60)
    assert second.consumer.state is State.OWNING
    assert (first.owned, second.owned) == (set(), {1})
    await store.close()
    await starting
    await expect(lambda: first.owned == {0})
    await first.stop()
    await second.stop()


@pytest.mark.parametrize("generation", LATER)
@in_world(CONFIG)
async def test_the_coordinator_of_later_generations_knows_that_a_rebalance_is_not_over(
    world: World, generation: str
) -> None:
    """A member that has fallen silent has a partition, which another one is to have."""
    await world.create_topic("t", 2)
    first = await Member(world, "c1", "t", GROUP, **LATER[generation]).start()
    await until(lambda: first.owned == {0, 1})
    world.simulation.network.partition(["c1"], world.hosts)
    second = await Member(world, "c2", "t", GROUP, **LATER[generation]).start()
    await world.pass_time(2)
    assert await group_state(world) in {"PreparingRebalance", "Reconciling"}
    await until(lambda: second.owned == {0, 1})
    assert await group_state(world) == "Stable", "and it ends the silent member's part"
    world.simulation.network.heal()
    await second.stop()
    await first.stop()
