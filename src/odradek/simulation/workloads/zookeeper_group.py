"""Consumers of generation 1, which share partitions by claims in the metadata tree, and whose sessions end.

Each consumer has a slow session with the tree, so that watches fire late. Sessions expire, connections to the tree are
away for a while, consumers leave, and processes hang. The promises:

- An offset in the tree never goes back, and no consumer overwrites the claim of another.
- In the end, every acknowledged record was read, each partition has one owner, and its claim in the tree names it.

While sessions end, two consumers may read one partition for a while: that is a fault of this generation.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from odradek.clients.zookeeper_consumer import KafkaStream, RebalanceFailedError, ZookeeperConsumer
from odradek.clients.zookeeper_consumer.machine.view import Ownership
from odradek.metadata import paths
from odradek.model import TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S
from odradek.simulation.setup import Setup
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.simulation.workloads.feeder import PARTITIONS, Feeder
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "claimed"
GROUP: Final = "claimers"
_PLACES: Final = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


class Claimer:
    """A host that runs one consumer after the other; each has one or two streams."""

    def __init__(
        self, world: World, host: str, settings: Mapping[str, Any], *, tree_s: float, tree_lag_s: float
    ) -> None:
        self.host = host
        self.is_calm = False
        """Whether it stays in the group, in one session."""
        self.read: set[bytes] = set()
        self._world, self._settings, self._tree_s, self._tree_lag_s = world, settings, tree_s, tree_lag_s
        self._chance = world.simulation.entropy(host)
        self._consumer: ZookeeperConsumer | None = None

    @property
    def owned(self) -> Ownership:
        """The partitions that its consumer has claimed, with the threads that read them."""
        return {} if self._consumer is None else self._consumer.owned()

    async def live(self) -> None:
        """Run one consumer after the other, until cancelled."""
        while True:
            store = SlowStore(self._world.tree, self._chance, self._tree_s, lag_s=self._tree_lag_s)
            self._consumer = consumer = self._new_consumer(store)
            reading: list[asyncio.Task[None]] = []
            try:
                await consumer.start()
                streams = await consumer.create_message_streams({TOPIC: self._chance.choice((1, 2))})
                reading = [self._world.spawn(self.host, self._read(each)) for each in streams[TOPIC]]
                await self._stay(store)
            except RebalanceFailedError:
                pass  # a later consumer tries again
            finally:
                if reading:
                    await cancel(*reading)
                self._consumer = None
                await consumer.close()
            await asyncio.sleep(self._chance.choice((0.1, 2.0)))

    def _new_consumer(self, store: SlowStore) -> ZookeeperConsumer:
        given = {**self._world.client_settings(self.host), **self._settings, **CLIENTS}
        return ZookeeperConsumer(store=store, runtime=self._world.simulation.runtime(self.host), **given)

    async def _read(self, stream: KafkaStream) -> None:
        async for record in stream:
            self.read.add(record.value or b"")

    async def _stay(self, store: SlowStore) -> None:
        """Stay in the group until the consumer leaves, or its process hangs for so long that it is replaced."""
        while True:
            await asyncio.sleep(self._chance.choice((1.0, 5.0, 20.0)) * self._chance.random())
            trouble = "none" if self.is_calm else self._chance.choice(("expire", "away", "leave", "hang", "none"))
            if trouble == "expire":
                self._world.tree.expire(store.session_id)
            elif trouble == "away":
                store.disconnect()
                await asyncio.sleep(self._chance.choice((1.0, 10.0, 40.0)) * self._chance.random())
                store.reconnect()
            elif trouble == "hang":
                store.disconnect()
                return
            elif trouble == "leave":
                return


class ZookeeperGroup(Workload):
    """A producer, and two or three consumers of generation 1."""

    clients: ClassVar[Sequence[str]] = ("claimer-0", "claimer-1")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        chance = world.simulation.entropy("generation 1")
        settings: dict[str, Any] = {
            "group_id": GROUP,
            "auto_offset_reset": "smallest",
            "auto_commit_interval_ms": 1_000,
            "rebalance_backoff_ms": 500,
            "rebalance_max_retries": 20,
            "offsets_storage": chance.choice(("zookeeper", "zookeeper", "kafka")),
        }
        tree_s, count = chance.choice((0.002, 0.02, 0.1)), chance.choice((2, 3))
        self._claimers = [
            Claimer(world, f"claimer-{number}", settings, tree_s=tree_s, tree_lag_s=setup.tree_lag_s)
            for number in range(count)
        ]
        self._feeder = Feeder(world, "claim-feeder", TOPIC)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the clients, and return when records have been read."""
        await create_topic(self.world, TOPIC, PARTITIONS)
        await self._feeder.start()
        self._tasks = [self.world.spawn(each.host, each.live()) for each in self._claimers]
        await until(self._has_read, within_s=PATIENCE_S)

    async def finish(self) -> list[str]:
        """Send no more, and wait until all is read and every partition has one owner."""
        for each in self._claimers:
            each.is_calm = True
        await self._feeder.stop()
        try:
            await until(self._is_done, within_s=PATIENCE_S)
        except TimeoutError:
            unread = sorted(self._feeder.sent.keys() - self._all_read())[:5]
            owners = {each.host: sorted(place.partition for place in each.owned) for each in self._claimers}
            return [f"the group of generation 1 does not read {unread}, or has no claims; its members own {owners}"]
        await cancel(*self._tasks)
        return []

    def _all_read(self) -> set[bytes]:
        return set().union(*(each.read for each in self._claimers))

    def _has_read(self) -> bool:
        raise_failures(self._tasks)
        return bool(self._all_read())

    def _is_done(self) -> bool:
        raise_failures(self._tasks)
        owned = sorted(claim for each in self._claimers for claim in each.owned.items())
        claims = [(place, node) for place in _PLACES if (node := self._node(paths.consumer_owner(GROUP, place)))]
        return self._feeder.sent.keys() <= self._all_read() and owned == claims and len(claims) == PARTITIONS

    def _node(self, path: str) -> str:
        record = self.world.tree.find(path)
        return "" if record is None else record.data.decode()
