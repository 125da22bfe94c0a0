"""One change of a group's membership, run in each generation of consumer groups on a simulated cluster: its cost.

The cluster, its network and its tree are those of `odradek.testing`: virtual time, from a seed, so that the figures are
the same every time. Members send heartbeats every second, and a silent one is removed after six.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any, Final, Protocol

from odradek.clients import Admin, Consumer, ZookeeperConsumer
from odradek.metadata.store import Node, Operation, Result
from odradek.model.values import dataclass
from odradek.testing.slow_store import SlowStore
from odradek.testing.world import World

_TOPIC: Final = "t"
_GROUP: Final = "group"
_SESSION_MS: Final = 6_000
_HEARTBEAT_MS: Final = 1_000
_TREE_S: Final = 0.001
"""The mean time of a message to the tree, in each direction."""
_LOOK_S: Final = 0.005
_CALM_S: Final = 3.0
"""How long nothing must change before a group counts as settled."""
_LIMIT_S: Final = 600.0
_GROUP_REQUESTS: Final = frozenset(
    {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch"}
)


class Generation(StrEnum):
    """A protocol by which consumers share partitions."""

    ZOOKEEPER = "1 zookeeper-range"
    EAGER = "2 range"
    COOPERATIVE = "2 cooperative-sticky"
    CONSUMER = "3 consumer protocol"


class Change(StrEnum):
    """A change of membership."""

    JOINS = "one joins"
    LEAVES = "one leaves"
    DIES = "one dies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one change, until every partition had one owner and nothing moved any more."""

    generation: Generation
    change: Change
    members: int
    partitions: int
    settled_s: float
    stopped_partition_s: float
    """For how long partitions had no owner, summed over them; of a dead member since its death."""
    members_stopped: int
    """The members that gave up a partition, even if they got it back."""
    group_requests: int
    """The requests about the group that brokers served."""
    tree_reads: int
    tree_writes: int


class _Member(Protocol):
    """One consumer on a host of its own."""

    @property
    def owned(self) -> set[int]:
        """Numbers of the partitions that it reads."""

    async def start(self) -> None:
        """Join the group, and read."""

    async def leave(self) -> None:
        """Leave the group."""

    def die(self) -> None:
        """Fall silent, for the brokers and for the tree."""


class _CountedStore(SlowStore):
    """A session whose operations are counted."""

    operations: Counter[str]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        self.operations["reads"] += len(wanted)
        return await super().get_many(wanted)

    async def children(self, path: str) -> list[str]:
        self.operations["reads"] += 1
        return await super().children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        self.operations["writes"] += len(operations)
        return await super().multi(operations)


class _TreeMember:
    """A member of generation 1."""

    def __init__(self, world: World, name: str, operations: Counter[str]) -> None:
        self._store = _CountedStore(world.tree, world.simulation.entropy(f"way of {name} to the tree"), _TREE_S)
        self._store.operations = operations
        self._consumer = ZookeeperConsumer(
            store=self._store,
            runtime=world.simulation.runtime(name),
            group_id=_GROUP,
            consumer_id=name,
            rebalance_max_retries=1_000,
        )
        self._world = world

    @property
    def owned(self) -> set[int]:
        return {place.partition for place in self._consumer.owned()}

    async def start(self) -> None:
        await self._consumer.start()
        await self._consumer.create_message_streams({_TOPIC: 1})

    async def leave(self) -> None:
        await self._consumer.close()

    def die(self) -> None:
        self._store.disconnect()
        loop = asyncio.get_running_loop()
        loop.call_later(_SESSION_MS / 1000, self._world.tree.end_session, self._store.session_id)


class _GroupMember:
    """A member of a later generation."""

    def __init__(self, world: World, name: str, settings: dict[str, Any]) -> None:
        self._world = world
        self._name = name
        self._consumer: Consumer = world.consumer(name, _TOPIC, group_id=_GROUP, **settings)
        self._closing = AsyncExitStack()
        self._polling: asyncio.Task[None] | None = None

    @property
    def owned(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    async def start(self) -> None:
        await self._closing.enter_async_context(self._consumer)
        self._polling = asyncio.create_task(self._poll(), name=f"member {self._name}")

    async def _poll(self) -> None:
        while True:
            await self._consumer.poll()

    async def leave(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
        await self._closing.aclose()

    def die(self) -> None:
        others = [host for host in (*self._world.hosts, "admin") if host != self._name]
        self._world.simulation.network.partition([self._name], others)


_SETTINGS: Final[dict[Generation, dict[str, Any]]] = {
    Generation.EAGER: {"partition_assignment_strategy": "range"},
    Generation.COOPERATIVE: {"partition_assignment_strategy": "cooperative-sticky"},
    Generation.CONSUMER: {"group_protocol": "consumer"},
}


def measure(generation: Generation, change: Change, *, members: int, partitions: int, seed: int = 0) -> Cost:
    """Run one change in a group of so many members, which share one topic, and return its cost.

    Raises `TimeoutError` if the group does not settle.
    """
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(_HEARTBEAT_MS),
        "group.consumer.min.session.timeout.ms": str(_HEARTBEAT_MS),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.session.timeout.ms": str(_SESSION_MS),
        "group.consumer.heartbeat.interval.ms": str(_HEARTBEAT_MS),
        "offsets.topic.num.partitions": "1",
    }
    world = World(seed, config, tree_s=_TREE_S, limit_s=10 * _LIMIT_S)
    world.prepare = lambda broker: broker.server.measure_requests()
    found: list[Cost] = []

    async def scenario(world: World) -> None:
        found.append(await _Run(world, generation, members, partitions).cost_of(change))

    world.play(scenario)
    return found[0]


class _Run:
    """One group in one world."""

    def __init__(self, world: World, generation: Generation, members: int, partitions: int) -> None:
        self._world = world
        self._generation = generation
        self._partitions = partitions
        self._tree: Counter[str] = Counter()
        self._living = [self._new_member(number) for number in range(members)]
        self._dead: list[_Member] = []

    def _new_member(self, number: int) -> _Member:
        name = f"member-{number:04}"
        if self._generation is Generation.ZOOKEEPER:
            return _TreeMember(self._world, name, self._tree)
        settings = {"session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": _HEARTBEAT_MS}
        if self._generation is Generation.CONSUMER:
            settings = {}
        return _GroupMember(self._world, name, {**settings, **_SETTINGS[self._generation]})

    async def cost_of(self, change: Change) -> Cost:
        """Let the group settle, change it, and return what it costs until it has settled again."""
        async with Admin(self._world.servers, runtime=self._world.simulation.runtime("admin")) as admin:
            await admin.create_topic(_TOPIC, partitions=self._partitions)
        await asyncio.gather(*(member.start() for member in self._living))
        await self._settle()
        self._tree.clear()
        requests, began_s = self._requests(), self._world.now_s
        changing = asyncio.create_task(self._change(change))
        stopped_s, stopped, settled_s = await self._settle()
        await changing
        cost = Cost(
            generation=self._generation,
            change=change,
            members=len(self._living) + len(self._dead) - (change is Change.JOINS),
            partitions=self._partitions,
            settled_s=settled_s - began_s,
            stopped_partition_s=stopped_s,
            members_stopped=stopped,
            group_requests=self._requests() - requests,
            tree_reads=self._tree["reads"],
            tree_writes=self._tree["writes"],
        )
        self._world.simulation.network.heal()
        await asyncio.gather(*(member.leave() for member in (*self._living, *self._dead)))
        return cost

    async def _change(self, change: Change) -> None:
        if change is Change.JOINS:
            joining = self._new_member(len(self._living))
            self._living.append(joining)
            await joining.start()
            return
        leaving = self._living.pop()
        if change is Change.LEAVES:
            await leaving.leave()
        else:
            self._dead.append(leaving)
            leaving.die()

    def _requests(self) -> int:
        meter = self._world.broker.server.meter
        assert meter is not None
        return sum(each.requests for (api, _), each in meter.counters.items() if api in _GROUP_REQUESTS)

    async def _settle(self) -> tuple[float, int, float]:
        """Watch until the group has settled; return partition-seconds without an owner, members stopped, the time."""
        stopped_partition_s, stopped = 0.0, set()
        before = [(member, member.owned) for member in self._living]
        last_change_s = self._world.now_s
        ends_s = last_change_s + _LIMIT_S
        while self._world.now_s < ends_s:
            await asyncio.sleep(_LOOK_S)
            now = [(member, member.owned) for member in self._living]
            previous = {id(member): owned for member, owned in before}
            stopped |= {id(member) for member, owned in now if previous.get(id(member), set()) - owned}
            everything = [number for _, owned in now for number in owned]
            stopped_partition_s += (self._partitions - len(set(everything))) * _LOOK_S
            if [owned for _, owned in now] != [owned for _, owned in before] or len(now) != len(before):
                last_change_s = self._world.now_s
            before = now
            is_complete = len(everything) == len(set(everything)) == self._partitions
            if is_complete and self._is_balanced(now) and self._world.now_s - last_change_s >= _CALM_S:
                return stopped_partition_s, len(stopped), last_change_s
        raise TimeoutError(f"{self._generation}: the group did not settle within {_LIMIT_S:.0f} s")

    def _is_balanced(self, owned: Sequence[tuple[_Member, set[int]]]) -> bool:
        sizes = [len(some) for _, some in owned]
        return max(sizes) - min(sizes) <= 1


def measure_all(
    changes: Iterable[Change],
    *,
    members: int,
    partitions: int,
    seed: int = 0,
    measured: Callable[[Cost], None] = lambda cost: None,
) -> list[Cost]:
    """Return the cost of each change in each generation; `measured` is called with each as soon as it is known."""
    costs = []
    for change in changes:
        for generation in Generation:
            costs.append(measure(generation, change, members=members, partitions=partitions, seed=seed))
            measured(costs[-1])
    return costs
