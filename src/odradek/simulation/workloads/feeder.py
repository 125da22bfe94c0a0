"""A producer of the records that the members of a group read."""

import asyncio
from functools import partial
from typing import Any, Final

from odradek.model import TopicPartition
from odradek.simulation.histories import History, Send
from odradek.simulation.promises import CLIENTS, PATIENCE_S
from odradek.simulation.world import World, cancel

PARTITIONS: Final = 4


class Feeder:
    """A producer on its own host that sends distinct values to a topic's `partitions` until it is stopped.

    `sent` has the delivery of each value; `history` gets what became of it.
    """

    def __init__(self, world: World, host: str, topic: str, history: History | None = None) -> None:
        self.sent: dict[bytes, asyncio.Future[Any]] = {}
        self._history = history or History()
        self.partitions = PARTITIONS
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
            known = await self._producer.partitions_for(self._topic)
            value, place = b"%d" % len(self.sent), TopicPartition(self._topic, chance.choice(sorted(known)))
            send = self._history.send(self._host, place, value, now=self._world.now_s)
            self.sent[value] = delivery = await self._producer.send(self._topic, value, partition=place.partition)
            delivery.add_done_callback(partial(self._note, send))
            await asyncio.sleep(chance.choice((0.0, 0.3, 2.0)))

    def _note(self, send: Send, delivery: "asyncio.Future[Any]") -> None:
        if not delivery.cancelled() and delivery.exception() is None:
            send.acknowledge(delivery.result().offset, now=self._world.now_s)
