"""An idempotent producer that encodes every request itself: it repeats batches, and sends some before their turn.

In some seeds its sequences wrap: after 2³¹ - 1 comes 0.

The promises:

- An acknowledged batch that is sent again gets the offset of its first acknowledgement, or a retriable error.
- A batch is refused while the batch before it is not in the log.
- In the end, each batch is in the log once, in order.
"""

import asyncio
from collections.abc import Sequence
from typing import ClassVar, Final

from odradek.broker.replication.partition import Partition
from odradek.model import ErrorCode, OdradekError, TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.promises import PATIENCE_S, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.wire_client import WireClient
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures, until

TOPIC: Final = "numbered"
HOST: Final = "numberer"
_PRODUCER_ID: Final = 77
_REMEMBERED: Final = 5
_ANSWER_S: Final = 4.0
_WAITS: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
    }
)
"""The errors that a batch in the log may get for a while instead of its offset."""
_REFUSALS: Final = _WAITS | {ErrorCode.not_enough_replicas}


class Numberer:
    """A producer of one batch at a time, each of one record, which is its number."""

    def __init__(self, world: World) -> None:
        self.offsets: list[int] = []
        self.repeated = self.repeated_below_min = 0
        """How many batches were sent again, and how many of those while an ISR had less than two members."""
        world.producers_made += 1
        self._world = world
        self._unanswered = 0
        """The last batch that was sent too early and got no response, or a retriable error: it may be in the log."""
        self._place = TopicPartition(TOPIC, 0)
        self._chance = world.simulation.entropy(HOST)
        self._first_sequence = world.simulation.entropy("first sequence").choice((0, 2**31 - 10))
        self._clients: dict[int, WireClient] = {}

    async def run(self) -> None:
        """Send the next batch until it is acknowledged, then some of the last five again, until cancelled."""
        while True:
            if self.offsets and self._chance.random() < 0.3:
                await self._send_too_early()
            await self._send_next()
            await asyncio.sleep(self._chance.choice((0.0, 0.2, 1.0)) * self._chance.random())
            for _ in range(self._chance.choice((0, 1, 3))):
                await self._send_again()

    async def _send_next(self) -> None:
        while True:
            code, offset = await self._produce(len(self.offsets))
            if code is ErrorCode.none:
                self.offsets.append(offset)
                return
            if code not in _REFUSALS:
                raise BrokenPromiseError(f"batch {len(self.offsets)}, whose turn it is, is answered {code.name}")
            await asyncio.sleep(0.1)

    async def _send_too_early(self) -> None:
        number = len(self.offsets) + 1
        if self._unanswered >= number - 1:
            return
        code, offset = await self._produce(number)
        if code in _WAITS:
            self._unanswered = number
        if code not in _REFUSALS | {ErrorCode.out_of_order_sequence_number}:
            raise BrokenPromiseError(f"batch {number} is answered {code.name}, {offset}; {number - 1} was not sent yet")

    async def _send_again(self) -> None:
        end = len(self.offsets)
        remembered = _REMEMBERED - (self._unanswered >= end)
        number = self._chance.randrange(max(end - remembered, 0), end)
        is_below_min = any(len(partition.isr) < 2 for partition in self._led().values())
        code, offset = await self._produce(number)
        if code is ErrorCode.none:
            self.repeated += 1
            self.repeated_below_min += is_below_min
        if code not in _WAITS and (code, offset) != (ErrorCode.none, self.offsets[number]):
            raise BrokenPromiseError(
                f"batch {number}, acknowledged at {self.offsets[number]}, is answered {code.name}, {offset}"
            )

    def _led(self) -> dict[int, Partition]:
        found = {number: broker.partitions.get(self._place) for number, broker in self._world.running.items()}
        return {number: partition for number, partition in found.items() if partition is not None}

    async def _produce(self, number: int) -> tuple[ErrorCode, int]:
        """Send a batch to a leader, and return the answer; REQUEST_TIMED_OUT without one."""
        records = [(EPOCH_MS, None, b"%d" % number, ())]
        sequence = (self._first_sequence + number) % 2**31
        batch = encode_batch(records, producer_id=_PRODUCER_ID, producer_epoch=0, base_sequence=sequence)
        leader = next(iter(self._led()), None)
        if leader is None:
            return ErrorCode.not_leader_or_follower, -1
        try:
            async with asyncio.timeout(_ANSWER_S):
                if leader not in self._clients:
                    self._clients[leader] = await self._world.client(HOST, broker=leader)
                client = self._clients[leader]
                response = await client.produce(self._place.topic, batch, acks=-1)
        except (OdradekError, OSError, TimeoutError):
            if (lost := self._clients.pop(leader, None)) is not None:
                lost.transport.abort()
            return ErrorCode.request_timed_out, -1
        return ErrorCode(response.error_code), response.base_offset

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class Sequences(Workload):
    """One `Numberer`."""

    clients: ClassVar[Sequence[str]] = (HOST,)
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self.numberer = Numberer(world)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await create_topic(self.world, TOPIC, 1, replicas=self.setup.replicas)
        self._running = self.world.spawn(HOST, self.numberer.run())
        await self._send_more()

    async def finish(self) -> list[str]:
        """Let the producer send a few more batches, and compare the log with the acknowledged ones."""
        await self._send_more()
        assert self._running is not None
        await cancel(self._running)
        self.numberer.close()
        records = (await self.world.read_records(TOPIC, 1))[0]
        found, count = [int(record.value or b"") for record in records], len(self.numberer.offsets)
        is_right = found[:count] == list(range(count)) and len(found) <= count + 1
        return [] if is_right else [f"{count} batches were acknowledged, and the log of {TOPIC}-0 has {found}"]

    async def _send_more(self) -> None:
        running, enough = self._running, len(self.numberer.offsets) + 10

        def has_sent() -> bool:
            assert running is not None
            raise_failures([running])
            return len(self.numberer.offsets) > enough

        await until(has_sent, within_s=PATIENCE_S)
