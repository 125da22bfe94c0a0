"""A compacted table: one producer changes and deletes the values of keys, and the log keeps each key's last change.

In the end, the log gives the same table as the acknowledged changes; compaction may only have removed changes that a
later one replaced.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from odradek.model import TopicPartition
from odradek.testing.simulated_cluster.promises import CLIENTS, PATIENCE_S
from odradek.testing.simulated_cluster.setup import Setup
from odradek.testing.simulated_cluster.workloads.workload import Workload, create_topic
from odradek.testing.world import World, cancel

TOPIC: Final = "table"
_KEYS: Final = 8


class Compacted(Workload):
    """One producer of a table with few keys. The compacted segments are small, but larger than a batch."""

    config: ClassVar[Mapping[str, str]] = {"log.cleaner.backoff.ms": "2000"}
    clients: ClassVar[Sequence[str]] = ("table-writer",)
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._producer = world.producer("table-writer", batch_size=800, delivery_timeout_ms=3_000_000, **CLIENTS)
        self._writing: asyncio.Task[None] | None = None
        self._table: dict[bytes, bytes | None] = {}
        self._deliveries: list[asyncio.Future[Any]] = []

    async def start(self) -> None:
        """Create the topic, and begin to write."""
        config = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
        config |= {"delete.retention.ms": "5000", "segment.ms": "5000"}
        await create_topic(self.world, TOPIC, 1, replicas=self.setup.replicas, **config)
        with self.world.simulation.on("table-writer"):
            await self._producer.start()
            self._writing = asyncio.create_task(self._write(), name="table-writer")

    async def finish(self) -> list[str]:
        """Write no more, and compare the table with that of the log."""
        assert self._writing is not None
        await cancel(self._writing)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._deliveries)
        await self._producer.close()
        found = await self._read()
        return [
            f"the compacted table has {found.get(key)!r} for {key!r}, and not {value!r}"
            for key, value in self._table.items()
            if found.get(key) != value
        ]

    async def _write(self) -> None:
        chance = self.world.simulation.entropy("table-writer")
        while True:
            number = len(self._deliveries)
            key, value = b"key-%d" % chance.randrange(_KEYS), None if chance.random() < 0.1 else b"%060d" % number
            self._table[key] = value
            self._deliveries.append(await self._producer.send(TOPIC, value, key=key, partition=0))
            await asyncio.sleep(chance.choice((0.0, 0.1, 1.0)))

    async def _read(self) -> dict[bytes, bytes | None]:
        place, table = TopicPartition(TOPIC, 0), dict[bytes, bytes | None]()
        async with self.world.consumer("auditor") as consumer, asyncio.timeout(PATIENCE_S):
            consumer.assign([place])
            consumer.seek(place, 0)
            end = (await consumer.end_offsets([place]))[place]
            while await consumer.position(place) < end:
                table.update({record.key or b"": record.value for record in await consumer.poll(1_000)})
        return table
