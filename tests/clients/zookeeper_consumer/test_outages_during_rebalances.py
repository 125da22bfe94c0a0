"""M4, M8, M9. The tree vanishes for every consumer and broker in the middle of a rebalance, and comes back."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pytest

from odradek.metadata.store import Create, Delete, Node, Operation, Result
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore, MemoryTree
from tests.clients.zookeeper_consumer.test_histories_in_virtual_time import PARTITIONS, Watched, write
from tests.clients.zookeeper_consumer.zookeeper_world import Reader, play
from tests.world.scenes import played_by

pytestmark = pytest.mark.long

TREE_S: Final = 0.002
"""The mean time of a message to the tree, in each direction."""
WITHIN_A_SESSION_S: Final = 3.0
LONGER_THAN_A_SESSION_S: Final = 40.0
STEPS: Final = ("register", "release", "read", "claim", "start")
SETTINGS: Final = {"rebalance_backoff_ms": 500, "rebalance_max_retries": 200}


def step_of(operation: Operation) -> str | None:
    """Return the step of a rebalance that writes a node."""
    if isinstance(operation, Create) and operation.ephemeral:
        return "claim" if "/owners/" in operation.path else "register"
    return "release" if isinstance(operation, Delete) and "/owners/" in operation.path else None


class WatchedStore(SlowStore):
    """A session that reports each step of a rebalance just before it sends the request."""

    def __init__(self, tree: MemoryTree, world: World, name: str, began: Callable[[str], None]) -> None:
        super().__init__(tree, world.simulation.entropy(f"way of {name} to the tree"), TREE_S)
        self._began = began

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        for step in filter(None, map(step_of, operations)):
            self._began(step)
        return await super().multi(operations)

    async def children(self, path: str) -> list[str]:
        if path.endswith("/ids"):
            self._began("read")
        return await super().children(path)

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        if any("/offsets/" in path for path in wanted):
            self._began("start")
        return await super().get_many(wanted)


class Outage:
    """The tree vanishes `delay_s` after the first request of one step, and is back `lasts_s` later."""

    def __init__(self, step: str, delay_s: float, lasts_s: float) -> None:
        self.step = step
        self.delay_s = delay_s
        self.lasts_s = lasts_s
        self.stores: list[MemoryStore] = []
        self.is_armed = False
        self.is_over = asyncio.Event()

    def began(self, step: str) -> None:
        """Note that a consumer begins a step."""
        if self.is_armed and step == self.step:
            self.is_armed = False
            loop = asyncio.get_running_loop()
            loop.call_later(self.delay_s, self._begin)
            loop.call_later(self.delay_s + self.lasts_s, self._end)

    def _begin(self) -> None:
        for store in self.stores:
            store.disconnect()

    def _end(self) -> None:
        for store in self.stores:
            store.reconnect()
        self.is_over.set()


@pytest.mark.parametrize(
    ("delay_s", "lasts_s"),
    [
        pytest.param(0.0, WITHIN_A_SESSION_S, id="before it, shortly"),
        pytest.param(TREE_S, WITHIN_A_SESSION_S, id="in flight, shortly"),
        pytest.param(TREE_S, LONGER_THAN_A_SESSION_S, id="in flight, for long"),
        pytest.param(5 * TREE_S, LONGER_THAN_A_SESSION_S, id="answered, for long"),
    ],
)
@pytest.mark.parametrize("step", STEPS)
@played_by(play, limit_s=2_000, tree_s=TREE_S)
async def test_a_tree_that_vanishes_during_a_step_of_a_rebalance_leaves_one_owner_and_all_records(
    world: World, *, step: str, delay_s: float, lasts_s: float
) -> None:
    """Its request may not arrive, may be done without an answer, or may be answered."""
    await world.create_topic("t", PARTITIONS)
    outage, sent, watched = Outage(step, delay_s, lasts_s), [], Watched(world)

    def new_reader(name: str) -> Reader:
        store = WatchedStore(world.tree, world, name, outage.began)
        outage.stores.append(store)
        return Reader(world, name, {"t": 1}, store=store, **SETTINGS)

    writing = asyncio.create_task(write(world, sent))
    readers = [new_reader(f"c{number}") for number in range(4)]
    await asyncio.gather(*(reader.start() for reader in readers[:3]))
    await world.pass_time(3)
    outage.stores.append(world.store(0))
    outage.is_armed = True
    joining = asyncio.create_task(readers[3].start())
    await outage.is_over.wait()
    await joining
    await until(lambda: sorted(number for each in readers for number in each.owned) == list(range(PARTITIONS)))
    await world.pass_time(10)
    assert all(len(reader.owned) in {1, 2} for reader in readers), "it stays so"
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await until(lambda: set(sent) == {value for reader in readers for value in reader.read})
    await watched.look()
    for reader in readers:
        await reader.stop()
    await watched.look()
    assert sum(watched.seen.values()) == len(sent), "all is committed"
