"""M4. Groups of generation 1 while sessions expire, trees vanish and members come and go: what holds afterwards.

While it lasts, two consumers may read one partition, and none knows how a rebalance ended for the others: those are the
faults of this generation. No record is lost, no committed offset goes back, and at rest each partition has one owner.
"""

import asyncio
import random
from contextlib import suppress
from typing import Final

import pytest

from odradek.clients.zookeeper_consumer import RebalanceFailedError
from odradek.clients.zookeeper_consumer.group_tree import GroupTree
from odradek.clients.zookeeper_consumer.machine.membership import Membership
from odradek.metadata import paths
from odradek.model import TopicPartition
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore
from tests.clients.zookeeper_consumer.zookeeper_world import GROUP, Reader, play
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

PARTITIONS: Final = 6
TROUBLE_S: Final = 60.0
LIMIT_S: Final = 1_000.0
FOUND_WITHIN: Final = 20


class Watched:
    """Committed offsets, which must not go back."""

    def __init__(self, world: World) -> None:
        self.store = MemoryStore(world.tree)
        self.seen: dict[int, int] = {}

    async def look(self) -> None:
        """Read them all."""
        places = [paths.consumer_offset(GROUP, TopicPartition("t", number)) for number in range(PARTITIONS)]
        for number, node in enumerate(await self.store.get_many(places)):
            offset = 0 if node is None else int(node.data)
            assert offset >= self.seen.get(number, 0), f"the committed offset of t-{number} went back"
            self.seen[number] = offset


async def write(world: World, sent: list[bytes]) -> None:
    async with world.producer("writer") as producer:
        while True:
            for number in range(PARTITIONS):
                value = f"{number}:{len(sent)}".encode()
                await producer.send("t", value, partition=number)
                sent.append(value)
            await producer.flush()
            await asyncio.sleep(0.5)


def new_reader(world: World, number: int, chance: random.Random) -> Reader:
    store = SlowStore(world.tree, random.Random(chance.random()), 0.002)
    settings = {"rebalance_backoff_ms": 500, "rebalance_max_retries": 20}
    return Reader(world, f"c{number}", {"t": 1 + number % 2}, store=store, **settings)


async def make_trouble(world: World, chance: random.Random, watched: Watched) -> tuple[list[Reader], list[Reader]]:
    """Return the readers that live, and those that are gone."""
    living, gone = [new_reader(world, number, chance) for number in range(3)], []
    await asyncio.gather(*(reader.start() for reader in living))
    number, ends_at = 3, world.now_s + TROUBLE_S
    while world.now_s < ends_at:
        await asyncio.sleep(chance.uniform(0.1, 8.0))
        await watched.look()
        reader = chance.choice(living)
        assert isinstance(reader.store, MemoryStore)
        match chance.choice(("expire", "away", "leave", "silent", "join", "grow")):
            case "expire":
                world.tree.expire(reader.store.session_id)
            case "away":
                reader.store.disconnect()
                await asyncio.sleep(chance.choice((1.0, 10.0, 40.0)))
                reader.store.reconnect()
            case "leave" if len(living) > 1:
                living.remove(reader)
                gone.append(reader)
                await reader.stop()
            case "silent" if len(living) > 1:
                living.remove(reader)
                gone.append(reader)
                await reader.fall_silent()
            case _:
                joining = new_reader(world, number, chance)
                number += 1
                with suppress(RebalanceFailedError):
                    living.append(await joining.start())
    return living, gone


async def scenario(world: World) -> None:
    await world.create_topic("t", PARTITIONS)
    chance, sent, watched = world.simulation.entropy("trouble"), [], Watched(world)
    writing = asyncio.create_task(write(world, sent))
    living, gone = await make_trouble(world, chance, watched)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)

    def is_at_rest() -> bool:
        owned = sorted(number for reader in living for number in reader.owned)
        return owned == list(range(PARTITIONS))

    await until(is_at_rest)
    await world.pass_time(30)
    assert is_at_rest(), "it stays so"
    for number in range(PARTITIONS):
        node = await watched.store.get(paths.consumer_owner(GROUP, TopicPartition("t", number)))
        (owner,) = (reader for reader in living if number in reader.owned)
        assert node is not None
        assert node.data.decode() == owner.consumer.owned()[TopicPartition("t", number)]
    everything = {value for reader in (*living, *gone) for value in reader.read}
    await until(lambda: set(sent) <= {value for reader in (*living, *gone) for value in reader.read})
    assert set(sent) >= everything
    for reader in (*living, *gone):
        await reader.stop()
    await watched.look()


@pytest.mark.parametrize("seed", seeds(2))
def test_at_rest_each_partition_has_one_owner_and_nothing_is_lost(seed: int) -> None:
    assert play(seed, scenario, limit_s=LIMIT_S)


def test_a_membership_that_misses_changes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the checks above find it."""
    monkeypatch.setattr(Membership, "tree_changed", lambda membership: None)
    assert any(is_found(seed) for seed in range(FOUND_WITHIN))


def test_claims_that_are_not_made_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the checks above find it."""

    async def claim(tree: GroupTree, wanted: object) -> bool:
        return True

    monkeypatch.setattr(GroupTree, "claim", claim)
    assert any(is_found(seed) for seed in range(FOUND_WITHIN))


def is_found(seed: int) -> bool:
    try:
        play(seed, scenario, limit_s=LIMIT_S)
    except (AssertionError, TimeoutError, RebalanceFailedError):
        return True
    return False
