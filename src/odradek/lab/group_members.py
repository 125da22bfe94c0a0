"""Members of one consumer group on a simulated cluster, of each generation; `generations` and `player` use them.

With virtual time and a seed, they do the same every time. Members send heartbeats every second; a silent member is
removed after six seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from odradek.clients import ZookeeperConsumer
from odradek.lab.costs import Generation
from odradek.metadata.store import Create, Node, Operation, Result
from odradek.model import OdradekError
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.simulation.world import Member, World

TOPIC: Final = "t"
GROUP: Final = "group"
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 1_000
TREE_S: Final = 0.001
"""The mean latency of a message to or from the tree."""
CONFIG: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": str(HEARTBEAT_MS),
    "group.consumer.min.session.timeout.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "offsets.topic.num.partitions": "1",
}
"""The brokers' configuration."""
_CLASSIC: Final = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
_SETTINGS: Final[dict[Generation, dict[str, Any]]] = {
    Generation.EAGER: {**_CLASSIC, "partition_assignment_strategy": "range"},
    Generation.COOPERATIVE: {**_CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
    Generation.CONSUMER: {"group_protocol": "consumer"},
}


class TreeRequest(NamedTuple):
    """A request of a member to the tree: paths to read, or operations; `error` is the name of its failure."""

    member: str
    reads: Sequence[str]
    operations: Sequence[Operation]
    error: str

    @property
    def is_claim(self) -> bool:
        return any(isinstance(each, Create) and each.ephemeral and "/owners/" in each.path for each in self.operations)


class GroupMember(Protocol):
    """One consumer on a host of its own."""

    name: str

    @property
    def owned(self) -> set[int]:
        """The numbers of the partitions that the consumer owns."""

    async def start(self) -> object:
        """Join the group and read."""

    async def leave(self) -> None: ...

    def die(self) -> None:
        """Stop sending to brokers and to the tree, without leaving."""

    def reach_tree(self, *, is_reachable: bool) -> None:
        """Lose or restore the connection to the tree, if the consumer has one."""


def new_member(
    world: World, generation: Generation, name: str, observe: Callable[[TreeRequest], object], **settings: Any
) -> GroupMember:
    """Return a member that has not started; `observe` is called with its requests to the tree."""
    if generation is Generation.ZOOKEEPER:
        return _TreeMember(world, name, observe, **settings)
    return _BrokerMember(world, name, TOPIC, GROUP, **_SETTINGS[generation], **settings)


class _ObservedStore(SlowStore):
    """A store session that shows its requests."""

    observe: Callable[[TreeRequest], object]
    member: str

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = list(paths)
        self.observe(TreeRequest(self.member, wanted, (), ""))
        return await super().get_many(wanted)

    async def children(self, path: str) -> list[str]:
        self.observe(TreeRequest(self.member, (path,), (), ""))
        return await super().children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        error = ""
        try:
            return await super().multi(operations)
        except OdradekError as failure:
            error = type(failure).__name__
            raise
        finally:
            self.observe(TreeRequest(self.member, (), operations, error))


class _TreeMember:
    """A consumer of generation 1 (ZooKeeper)."""

    def __init__(self, world: World, name: str, observe: Callable[[TreeRequest], object], **settings: Any) -> None:
        self._store = _ObservedStore(world.tree, world.simulation.entropy(f"way of {name} to the tree"), TREE_S)
        self._store.observe = observe
        self._store.member = self.name = name
        self._consumer = ZookeeperConsumer(
            store=self._store,
            runtime=world.simulation.runtime(name),
            group_id=GROUP,
            consumer_id=name,
            rebalance_max_retries=1_000,
            **settings,
        )
        self._world = world

    @property
    def owned(self) -> set[int]:
        return {place.partition for place in self._consumer.owned()}

    async def start(self) -> None:
        await self._consumer.start()
        await self._consumer.create_message_streams({TOPIC: 1})

    async def leave(self) -> None:
        await self._consumer.close()

    def die(self) -> None:
        self._store.disconnect()
        loop = asyncio.get_running_loop()
        loop.call_later(SESSION_MS / 1000, self._world.tree.end_session, self._store.session_id)

    def reach_tree(self, *, is_reachable: bool) -> None:
        if is_reachable:
            self._store.reconnect()
        else:
            self._store.disconnect()


class _BrokerMember(Member):
    """A consumer of generation 2 or 3 (classic or consumer protocol)."""

    def __init__(self, world: World, name: str, topic: str, group: str, **settings: Any) -> None:
        super().__init__(world, name, topic, group, **settings)
        self._world = world
        self.name = name

    async def leave(self) -> None:
        await self.stop()

    def die(self) -> None:
        others = [host for host in (*self._world.hosts, "admin") if host != self.name]
        self._world.simulation.network.partition([self.name], others)

    def reach_tree(self, *, is_reachable: bool) -> None:
        """Do nothing: brokers keep the group, not the tree."""
