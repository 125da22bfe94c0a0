"""A log whose oldest records an administrator deletes, one call after the other: deleted records do not come back.

The other acknowledged records stay, unless a call that failed may have deleted them.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from odradek.clients.offsets import EARLIEST
from odradek.model import OdradekError, TopicPartition
from odradek.testing.simulated_cluster.promises import CLIENTS, PATIENCE_S, BrokenPromiseError
from odradek.testing.simulated_cluster.setup import Setup
from odradek.testing.simulated_cluster.workloads.workload import Workload, create_topic
from odradek.testing.world import World, cancel

TOPIC: Final = "trimmed"
_PLACE: Final = TopicPartition(TOPIC, 0)


class Deletions(Workload):
    """One producer, and an administrator that deletes."""

    clients: ClassVar[Sequence[str]] = ("trimmed-writer", "trimmer")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._producer = world.producer("trimmed-writer", batch_size=800, delivery_timeout_ms=3_000_000, **CLIENTS)
        self._deliveries: list[asyncio.Future[Any]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._deleted = self._requested = 0
        """The end of the deletions that succeeded, and of all that were requested."""

    async def start(self) -> None:
        """Create the topic with small segments, and begin to write and to delete."""
        await create_topic(self.world, TOPIC, 1, replicas=self.setup.replicas, **{"segment.bytes": "1024"})
        with self.world.simulation.on("trimmed-writer"):
            await self._producer.start()
            self._tasks = [asyncio.create_task(self._write(), name="trimmed-writer")]
        with self.world.simulation.on("trimmer"):
            self._tasks.append(asyncio.create_task(self._delete(), name="trimmer"))

    async def finish(self) -> list[str]:
        """End, and compare the log with the acknowledged records and deletions."""
        await cancel(*self._tasks)
        async with asyncio.timeout(PATIENCE_S):
            sent = await asyncio.gather(*self._deliveries)
            await self._producer.close()
            start, found = await self._read()
        if not self._deleted <= start <= self._requested:
            return [f"{_PLACE} starts at offset {start}; deletions to {self._deleted} were acknowledged"]
        expected = {each.offset: b"%d" % number for number, each in enumerate(sent) if each.offset >= start}
        return [
            f"{_PLACE} has {found.get(offset)!r} at offset {offset}, and not {value!r}"
            for offset, value in expected.items()
            if found.get(offset) != value
        ]

    async def _write(self) -> None:
        chance = self.world.simulation.entropy("trimmed-writer")
        while True:
            self._deliveries.append(await self._producer.send(TOPIC, b"%d" % len(self._deliveries), partition=0))
            await asyncio.sleep(chance.choice((0.0, 0.1, 0.6)))

    async def _delete(self) -> None:
        chance = self.world.simulation.entropy("trimmer")
        async with self.world.admin("trimmer", **CLIENTS) as admin:
            while True:
                await asyncio.sleep(chance.choice((0.1, 1.0, 3.0)))
                with suppress(OdradekError):
                    start = (await admin.list_offsets({_PLACE: EARLIEST}))[_PLACE].offset
                    if start < self._deleted:
                        raise BrokenPromiseError(
                            f"{_PLACE} was deleted to {self._deleted}, and starts at {start} again"
                        )
                    wanted = max(self._requested, sum(each.done() for each in self._deliveries) - chance.randrange(10))
                    self._requested = wanted
                    await admin.delete_records({_PLACE: wanted})
                    self._deleted = wanted

    async def _read(self) -> tuple[int, dict[int, bytes | None]]:
        found = dict[int, bytes | None]()
        async with self.world.consumer("auditor") as consumer:
            consumer.assign([_PLACE])
            start = (await consumer.beginning_offsets([_PLACE]))[_PLACE]
            end = (await consumer.end_offsets([_PLACE]))[_PLACE]
            consumer.seek(_PLACE, start)
            while await consumer.position(_PLACE) < end:
                found.update({record.offset: record.value for record in await consumer.poll(1_000)})
        return start, found
