"""A producer of the records that the members of a group read."""

import asyncio
from typing import Any, Final

from odradek.simulation.promises import CLIENTS, PATIENCE_S
from odradek.simulation.world import World, cancel

PARTITIONS: Final = 4


class Feeder:
    """A producer on its own host that sends distinct values to a topic of `PARTITIONS` partitions until it is stopped.

    `sent` has the delivery of each value.
    """

    def __init__(self, world: World, host: str, topic: str) -> None:
        self.sent: dict[bytes, asyncio.Future[Any]] = {}
        self._world, self._host, self._topic = world, host, topic
        self._producer = world.producer(host, delivery_timeout_ms=3_000_000, **CLIENTS)
        self._feeding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        with self._world.simulation.on(self._host):
            await self._producer.start()
            self._feeding = asyncio.create_task(self._feed(), name=self._host)

    async def stop(self) -> None:
        """Send no more, and wait until all is acknowledged."""
        assert self._feeding is not None
        await cancel(self._feeding)
        async with asyncio.timeout(PATIENCE_S):
            for delivery in self.sent.values():
                await delivery
        await self._producer.close()

    async def _feed(self) -> None:
        chance = self._world.simulation.entropy(self._host)
        while True:
            value = b"%d" % len(self.sent)
            self.sent[value] = await self._producer.send(self._topic, value, partition=chance.randrange(PARTITIONS))
            await asyncio.sleep(chance.choice((0.0, 0.3, 2.0)))
