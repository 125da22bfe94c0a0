"""Metadata loops on one tree, and followers that catch up, for the controller's work on replicas."""

import asyncio
import json
from typing import Any

from odradek.broker.controller import jobs
from odradek.broker.controller.machine.alter_partition import alter_partition
from odradek.broker.controller.machine.elections import ElectionType
from odradek.config.broker import BrokerConfig
from odradek.metadata.image import ClusterImage, PartitionImage, StateChange
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.store import NoNode
from odradek.metadata.tree_watchers import ControllerTreeWatcher
from odradek.model import KafkaError, TopicPartition
from odradek.testing import Simulation
from tests.broker.controller.command_listener import ListeningMetadataLoop
from tests.broker.controller.control_plane import ControlPlane
from tests.broker.controller.controller_deaths import MortalStore

CONFIG = BrokerConfig(auto_leader_rebalance_enable=False)
KEY = TopicPartition("t", 0)
REASSIGN, ELECT = "/admin/reassign_partitions", "/admin/preferred_replica_election"


class Brokers(ControlPlane):
    """A control plane whose leaders do not exist, but request an ISR of all replicas; the first loop is controller."""

    def __init__(self, simulation: Simulation, config: BrokerConfig = CONFIG) -> None:
        super().__init__(simulation)
        self.config = config
        self.brokers: dict[int, ListeningMetadataLoop] = {}
        self.stores: dict[int, MortalStore] = {}
        self.lagging: set[int] = set()
        """Brokers that never catch up."""
        self._following: asyncio.Task[None] | None = None

    async def start(self, *ids: int) -> None:
        for broker_id in ids:
            self.stores[broker_id] = store = MortalStore(self.tree)
            self.brokers[broker_id] = await self.started(broker_id, config=self.config, store=store)
        await self.until(lambda: all(each.image.brokers.keys() == set(self.brokers) for each in self.brokers.values()))
        if self._following is None:
            self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
        for broker_id in list(self.brokers):
            await self.brokers.pop(broker_id).stop()

    def kill_broker(self, broker_id: int) -> None:
        self.kill(self.brokers.pop(broker_id))
        del self.stores[broker_id]

    @property
    def controller(self) -> ListeningMetadataLoop | None:
        return next((broker for broker in self.brokers.values() if broker.is_controller), None)

    @property
    def now(self) -> PartitionImage | None:
        """Partition t-0 as the controller has it."""
        return None if self.controller is None else self.controller.image.partition(KEY)

    def _controller(self) -> ListeningMetadataLoop:
        broker = self.controller
        assert broker is not None, "no broker is the controller"
        return broker

    async def create(self, *assignment: tuple[int, ...], **config: str) -> None:
        wanted = NewTopic(name="t", assignment=dict(enumerate(assignment)), config=config)
        [created] = await self._controller().create_topics([wanted])
        assert created.error is None

    async def reassign(self, targets: Any, **more: Any) -> dict[TopicPartition, KafkaError]:
        broker = self._controller()
        more = {"allow_replication_factor_change": True} | more
        errors: dict[TopicPartition, KafkaError] = await broker.do(
            lambda controller: jobs.alter_reassignments(controller, targets, **more)
        )
        return errors

    async def elect(self, wanted: Any, election_type: ElectionType = ElectionType.PREFERRED) -> dict[Any, Any]:
        broker = self._controller()
        elected: dict[Any, Any] = await broker.do(
            lambda controller: jobs.elect_leaders(controller, wanted, election_type)
        )
        return elected

    async def request(self, path: str, *partitions: Any) -> None:
        """Write a node as tools do: (topic, partition) or (topic, partition, replicas)."""
        names = ("topic", "partition", "replicas")
        entries = [dict(zip(names, each, strict=False)) for each in partitions]
        await self.write(path, json.dumps({"version": 1, "partitions": entries}).encode())

    async def write(self, path: str, data: bytes) -> None:
        try:
            await self.store.set(path, data)
        except NoNode:
            await self.store.create(path, data)

    async def node(self, path: str) -> Any:
        node = await self.store.get(path)
        return None if node is None else json.loads(node.data)

    async def tree_image(self) -> ClusterImage:
        """The cluster as a reader finds it that knows nothing."""
        watcher = ControllerTreeWatcher(self.store, wake=lambda: None)
        image = await watcher.refresh(ClusterImage())
        watcher.stop()
        return image

    async def until_gone(self, path: str) -> None:
        while await self.store.get(path) is not None:
            await asyncio.sleep(0.01)

    async def until_reassigned(self, *target: int) -> None:
        def is_so() -> bool:
            now = self.now
            return now is not None and now.replicas == target and set(now.isr) == set(target) and now.has_leader

        await self.until(is_so)
        now = self.now
        assert now is not None
        assert (now.adding_replicas, now.removing_replicas) == ((), ())

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            broker = self.controller
            if broker is None:
                continue
            for name, topic in list(broker.image.topics.items()):
                for number, partition in topic.partitions.items():
                    await self._join(broker, TopicPartition(name, number), partition)

    async def _join(self, broker: ListeningMetadataLoop, key: TopicPartition, partition: PartitionImage) -> None:
        live = broker.image.brokers.keys() - self.lagging
        for joining in [each for each in partition.replicas if each in live and each not in partition.isr]:
            request = AlterPartitionItem(
                isr=dict.fromkeys((*partition.isr, joining), -1),
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.state_version,
            )

            async def ask(controller: Any, request: AlterPartitionItem = request) -> None:
                change = alter_partition(
                    broker.image, key, partition.leader, request, ineligible=(), controller_epoch=controller.number
                )
                if isinstance(change, StateChange):
                    await controller.change_states([change])

            try:
                if partition.leader in broker.image.brokers:
                    await asyncio.wait_for(broker.do(ask), 1)
            except (KafkaError, TimeoutError):
                return
            return
