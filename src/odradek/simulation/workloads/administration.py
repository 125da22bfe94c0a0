"""An administrator who creates, extends, configures, deletes and creates again topics, one call after the other.

In the end, each topic is as the acknowledged calls left it. After a call that failed, the administrator stops using
the topic, because the request may still be on its way. A topic that was created again has none
of the records of the one before.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar, Final

from msgspec import Struct

from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.config.altering import Alteration, AlterOperation
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.workload import Workload
from odradek.simulation.world import World, until

_TOPICS: Final = 2


class Known(Struct):
    """A topic as the administrator knows it."""

    name: str
    exists: bool = False
    partitions: int = 0
    retention_ms: str = ""


class Administration(Workload):
    """One administrator of two topics."""

    clients: ClassVar[Sequence[str]] = ("administrator",)
    config: ClassVar[Mapping[str, str]] = {}
    topics: ClassVar[Sequence[str]] = ()

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._known: list[Known] = []
        self._names = count()
        self._chance = world.simulation.entropy("administrator")
        self._admin = world.admin("administrator", **CLIENTS)
        self._working: asyncio.Task[None] | None = None
        self._calls = 0
        self._is_stopping = False

    async def start(self) -> None:
        """Begin, and return after a few calls."""
        with self.world.simulation.on("administrator"):
            await self._admin.start()
            self._working = asyncio.create_task(self._work(), name="administrator")
        await until(lambda: self._calls > 2, within_s=PATIENCE_S, each_s=0.1)

    async def finish(self) -> list[str]:
        """Stop; return a sentence for each broker and topic that differs from acknowledged calls for `PATIENCE_S`.

        Other brokers than the one that answered get topics by UpdateMetadata, and read configurations from the tree,
        perhaps later.
        """
        assert self._working is not None
        self._is_stopping = True  # let the last call end: a cancelled call may have been executed or not
        await asyncio.wait_for(self._working, PATIENCE_S)
        await self._admin.close()
        await until(self._is_deleted, within_s=PATIENCE_S, each_s=0.1)
        with suppress(TimeoutError):
            await until(lambda: not self._contradictions(), within_s=PATIENCE_S, each_s=0.1)
        return self._contradictions()

    def _is_deleted(self) -> bool:
        return not self.world.tree.names(paths.DELETE_TOPICS)

    def _contradictions(self) -> list[str]:
        images = [(number, broker.image) for number, broker in sorted(self.world.running.items())]
        found = ((number, self._contradiction(known, image)) for known in self._known for number, image in images)
        return [f"on broker {number} {sentence}" for number, sentence in found if sentence]

    def _contradiction(self, known: Known, cluster: ClusterImage) -> str:
        """Return how the image of a broker differs from what is known of a topic, or an empty text."""
        image = cluster.topics.get(known.name)
        if image is None or not known.exists:
            is_right = (image is None) != known.exists
            return "" if is_right else f"{known.name} should {'' if known.exists else 'not '}be there"
        found = Known(
            name=known.name,
            exists=True,
            partitions=len(image.partitions),
            retention_ms=image.config.get("retention.ms", ""),
        )
        return "" if found == known else f"there is {found}, and should be {known}"

    async def _work(self) -> None:
        calls = {False: [self._create], True: [self._extend, self._configure, self._delete]}
        while not self._is_stopping:
            while len(self._known) < _TOPICS:
                self._known.append(Known(name=f"ledger-{next(self._names)}"))
            known = self._chance.choice(self._known)
            try:
                await self._chance.choice(calls[known.exists])(known)
            except OdradekError:
                self._known.remove(known)
            self._calls += 1
            await asyncio.sleep(self._chance.choice((0.1, 1.0, 3.0)))

    async def _create(self, known: Known) -> None:
        partitions = self._chance.choice((1, 2))
        await self._admin.create_topic(known.name, partitions=partitions, replication_factor=len(self.world.hosts))
        known.exists, known.partitions = True, partitions
        await self._write(TopicPartition(known.name, 0))

    async def _delete(self, known: Known) -> None:
        await self._admin.delete_topics([known.name])
        known.exists, known.partitions, known.retention_ms = False, 0, ""

    async def _extend(self, known: Known) -> None:
        wanted = known.partitions + 1
        await self._admin.create_partitions(known.name, wanted)
        known.partitions = wanted

    async def _configure(self, known: Known) -> None:
        wanted = self._chance.choice(("3600000", "7200000"))
        resource = ConfigResource(type=ConfigResourceType.TOPIC, name=known.name)
        await self._admin.alter_configs(
            resource, [Alteration(name="retention.ms", operation=AlterOperation.SET, value=wanted)]
        )
        known.retention_ms = wanted

    async def _write(self, place: TopicPartition) -> None:
        """Write a record to a new topic, which must be its first one."""
        settings: Any = {"delivery_timeout_ms": 6_000, "max_block_ms": 6_000, **CLIENTS}
        with suppress(OdradekError):
            async with self.world.producer("administrator", **settings) as producer:
                delivery = await (await producer.send(place.topic, b"first", partition=place.partition))
            if delivery.offset > 0:
                raise BrokenPromiseError(f"the first record of the new {place} has offset {delivery.offset}")
