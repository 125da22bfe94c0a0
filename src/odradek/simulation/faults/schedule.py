"""A schedule of faults, drawn from a seed: numbered deeds, pauses, and the end of all faults after a few of them.

Each deed has random numbers of its own, so that a schedule without some of the deeds plays the others as before.
Faults that break a precondition of the promises are not played: without group flush, only one broker at a time loses
power, and only while all replicas are in sync.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from msgspec import Struct

from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode, TopicNode
from odradek.model import TopicPartition
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.simulation.promises import PATIENCE_S, BrokenPromiseError
from odradek.simulation.workloads.workload import Workload
from odradek.simulation.world import World, until

Fault = Callable[["Schedule", int, int], Awaitable[None]]
"""Breaks something of the broker with the first number; the second is another broker, for faults between two."""

NEEDS_RUNNING: Final = frozenset(
    {
        "kill", "cut_power", "stop", "disconnect_tree", "blink", "expire", "flip_bit", "unplug", "pause", "fail_syncs",
        "lose_directory", "kill_in_recovery", "damage_files",
    }
)  # fmt: skip


class Deed(Struct, frozen=True, kw_only=True):
    """A drawn fault: its name, two brokers, the pause after it, and whether all faults end after that.

    Then `rest_s` is the pause before they end, and `calm_s` the pause without faults.
    """

    number: int
    name: str
    one: int
    other: int
    pause_s: float
    ends_faults: bool
    waits_until_whole: bool
    rest_s: float
    calm_s: float


class Schedule:
    """One seed's faults on one world.

    `names` are the faults that are drawn, of `kinds`; a name that is given twice is drawn more often. `topics` must be
    whole before some faults; `clients` are the hosts of clients. The schedule draws `count` deeds for about
    `virtual_s`, and plays those in `kept`, or all if it is None.
    """

    def __init__(
        self,
        world: World,
        kinds: Mapping[str, Fault],
        names: Sequence[str] = (),
        *,
        count: int = 5,
        virtual_s: float = 60.0,
        kept: Collection[int] | None = None,
        flushes_by_group: bool = False,
    ) -> None:
        self.world = world
        self.done: list[str] = []
        """The played deeds, as `3 12.40 kill 1 0`."""
        self.topics: list[str] = []
        self.clients: list[str] = []
        self.workloads: Sequence[Workload] = ()
        self.chance = random.Random(0)
        """The random numbers of the deed that is being played."""
        self.aims_at_coordinators = False
        """Whether that deed is aimed at leaders of internal topics, if there are any."""
        self.homes: dict[str, tuple[int, ...]] = {}
        """The replicas of the first partition of each topic that was reassigned, before that."""
        self.has_flipped = False
        self._kinds = kinds
        self._names = list(names or kinds)
        self._count, self._share_s = count, virtual_s / max(count, 1)
        self._kept = kept
        self.flushes_by_group = flushes_by_group
        """Whether acknowledged records are on the disks of all in-sync replicas."""
        self._undo: list[Callable[[], Awaitable[object]]] = []
        self._repairs: list[Callable[[], Awaitable[object]]] = []
        self._endings: list[Callable[[], Awaitable[object]]] = []

    # ---- drawing and playing ----------------------------------------------------------------------------------------

    def draw(self, number: int) -> Deed:
        """Return a deed; its number alone decides it."""
        chance = self.world.simulation.entropy(f"deed {number}")
        one, other = chance.sample(range(max(len(self.world.hosts), 2)), 2)
        one, other = (min(each, len(self.world.hosts) - 1) for each in (one, other))
        return Deed(
            number=number,
            name=chance.choice(self._names),
            one=one,
            other=other,
            pause_s=chance.choice((0.0, 0.05, 1.0)) * chance.random(),
            ends_faults=number == self._count - 1 or chance.random() < 0.57,
            waits_until_whole=chance.random() < 0.6,
            rest_s=chance.choice((0.2, 2.0, 1.5 * self._share_s)) * chance.random(),
            calm_s=0.75 * self._share_s * chance.random(),
        )

    async def play(self) -> None:
        """Play the schedule, and leave a cluster without faults, which need not be whole yet."""
        for number in range(self._count):
            deed = self.draw(number)
            if self._kept is None or number in self._kept:
                self.chance = self.world.simulation.entropy(f"draws of deed {number}")
                self.aims_at_coordinators = self.world.simulation.entropy(f"aim of deed {number}").random() < 0.25
                await self._play(deed)
            await asyncio.sleep(deed.pause_s)
            if deed.ends_faults:
                await asyncio.sleep(deed.rest_s)
                await self.end_faults()
                if deed.waits_until_whole and number + 1 < self._count:
                    await self.until_whole()
                await asyncio.sleep(deed.calm_s)

    async def _play(self, deed: Deed) -> None:
        name = deed.name
        if name == "cut_power" and not self.power_may_go():
            name = "kill"
        if name == "fail_syncs" and not self.flushes_by_group:
            name = "lose_directory"  # records in the memory of one machine alone were acknowledged, perhaps
        if name in NEEDS_RUNNING and deed.one not in self.world.running:
            return
        self.note(f"{deed.number} {self.world.now_s:.2f} {name} {deed.one} {deed.other}")
        await self._kinds[name](self, deed.one, deed.other)

    def note(self, what: str) -> None:
        """Record `what` among the deeds and in the trace."""
        self.done.append(what)
        self.world.simulation.network.note(what)

    def later(self, undo: Callable[[], Awaitable[object]]) -> None:
        """Call `undo` when the faults end; the last one is called first."""
        self._undo.append(undo)

    def repair_later(self, repair: Callable[[], Awaitable[object]]) -> None:
        """Call `repair` when the faults end, before any `undo`, such as the start of a broker that needs the repair."""
        self._repairs.append(repair)

    def at_the_end(self, ending: Callable[[], Awaitable[object]]) -> None:
        """Await `ending` after all faults; it returns when the operation that a deed began is complete."""
        self._endings.append(ending)

    async def end_faults(self) -> None:
        """End every fault, the last one first."""
        self.world.simulation.network.heal()
        for undo in (self._repairs, self._undo):
            while undo:
                await undo.pop()()
        self.world.simulation.network.note("all faults have ended")

    async def finish(self) -> None:
        """Await the end of the operations that the deeds began."""
        for ending in self._endings:
            await ending()

    # ---- the state of the cluster -----------------------------------------------------------------------------------

    def all_brokers(self, *first: int) -> list[int]:
        """Return the numbers of all brokers, these ones first."""
        return list(dict.fromkeys((*first, *range(len(self.world.hosts)))))

    def is_quiet(self) -> bool:
        """Whether nothing is left to undo, every replica is in sync, and no change of an ISR is pending."""
        return not self._undo and not self._repairs and self.is_whole() and not self._is_isr_changing()

    def power_may_go(self) -> bool:
        """Whether a broker may lose power: with group flush, acknowledged records are on the disks of the whole ISR."""
        return self.flushes_by_group or (len(self.world.hosts) > 1 and self.is_quiet())

    def _is_isr_changing(self) -> bool:
        """Whether a change of an ISR is pending; it may be written after the leader has lost power."""
        return any(partition.replication.pending is not None for partition in self.world.led)

    def is_whole(self) -> bool:
        """Whether every broker runs and every replica of `topics` and of internal topics is in sync, by the tree."""
        return next(self._gaps(), None) is None

    async def until_whole(self) -> None:
        """Let virtual time pass until `is_whole`. Raise `BrokenPromiseError` with a reason if it never is."""
        try:
            await until(self.is_whole, within_s=PATIENCE_S, each_s=0.2)
        except TimeoutError:
            raise BrokenPromiseError(f"the cluster never is whole again: {next(self._gaps(), '')}") from None

    def _gaps(self) -> Iterator[str]:
        """Yield the brokers that do not run, and the partitions without a leader or with replicas out of sync."""
        world = self.world
        if len(world.running) < len(world.hosts):
            yield f"only the brokers {sorted(world.running)} run"
        internal = [topic for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if is_in_tree(world, topic)]
        for topic in (*self.topics, *internal):
            states, replicas = partition_states(world, topic), assignments(world, topic)
            # A topic is created, or gets partitions, before these have states.
            for number, (state, some) in enumerate(zip_longest(states, replicas, fillvalue=None)):
                if state is None or some is None or state.leader not in world.running or len(state.isr) != len(some):
                    yield f"{topic}-{number} has the replicas {list(some or ())} and the state {state}"


def partition_states(world: World, topic: str) -> Iterator[PartitionStateNode | None]:
    """Yield the states of a topic's partitions in the tree; None for one without a state, or without partitions."""
    numbers = sorted(map(int, world.tree.names(paths.partitions(topic)))) if is_in_tree(world, topic) else []
    if not numbers:
        yield None
    for number in numbers:
        path = paths.partition_state(TopicPartition(topic, number))
        record = world.tree.find(path)
        yield None if record is None else PartitionStateNode.decode(path, record.data)


def assignments(world: World, topic: str) -> list[tuple[int, ...]]:
    """Return the replicas of each partition of a topic by the tree; one empty tuple for a topic that it lacks."""
    record = world.tree.find(paths.topic(topic)) if is_in_tree(world, topic) else None
    replicas = {} if record is None else TopicNode.decode(paths.topic(topic), record.data).replicas
    return [replicas[number] for number in sorted(replicas)] or [()]


def leaders(world: World, topic: str) -> list[int]:
    """Return the running brokers that lead a partition of the topic."""
    return [
        number
        for number, broker in world.running.items()
        if any(each.topic_partition.topic == topic for each in broker.partitions)
    ]


def is_in_tree(world: World, topic: str) -> bool:
    return world.tree.find(paths.partitions(topic)) is not None
