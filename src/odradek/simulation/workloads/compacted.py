"""A compacted table: producers change and delete the values of keys, and the log keeps each key's last change.

In the end, the log gives the same table as the acknowledged changes. Some keys are changed in transactions, which may
stay open while the cleaner runs, and be aborted. A reader that is never long behind misses no deletion.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, ClassVar, Final

from odradek.clients import Producer
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.workloads.transactions import repeated, stable
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, cancel, raise_failures

TOPIC: Final = "table"
_PLACE: Final = TopicPartition(TOPIC, 0)
_KEYS: Final = 8
_DELETE_RETENTION_MS: Final = 15_000
_LATE_S: Final = 10.0
"""A reader that was behind for so long starts again: deletions may be gone, also if its clock drifts."""


class Compacted(Workload):
    """Two producers of a table with few keys, and a reader. Segments are small, but larger than a batch."""

    config: ClassVar[Mapping[str, str]] = {
        "log.cleaner.backoff.ms": "2000",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    clients: ClassVar[Sequence[str]] = ("table-writer", "table-transactor", "table-reader")
    topics: ClassVar[Sequence[str]] = (TOPIC,)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self._producer = world.producer("table-writer", batch_size=800, delivery_timeout_ms=3_000_000, **CLIENTS)
        self._tasks: list[asyncio.Task[None]] = []
        self._changing: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._numbers = count()
        self._changes: dict[bytes, tuple[bytes | None, asyncio.Future[Any]]] = {}
        """The last change of each key outside transactions, and its delivery."""
        self._allowed: dict[bytes, tuple[bytes | None, ...]] = {}
        """The values of the other keys: several after a transaction with an unknown outcome."""

    async def start(self) -> None:
        """Create the topic, and begin to write."""
        config = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
        config |= {"delete.retention.ms": str(_DELETE_RETENTION_MS), "segment.ms": "5000"}
        await create_topic(self.world, TOPIC, 1, replicas=self.setup.replicas, **config)
        self._tasks = [
            self.world.spawn(host, work)
            for host, work in (("table-writer", self._write()), ("table-reader", self._follow()))
        ]
        self._changing = self.world.spawn("table-transactor", self._transact())

    async def finish(self) -> list[str]:
        """Write no more, and compare the table with that of the log."""
        assert self._changing is not None
        self._is_stopping = True
        raise_failures(self._tasks)
        await cancel(*self._tasks)
        async with asyncio.timeout(PATIENCE_S):
            for _, delivery in self._changes.values():
                await delivery
            await self._changing
        await self._producer.close()
        await stable(self.world)
        found = await self._read()
        allowed = {key: (value,) for key, (value, _) in self._changes.items()} | self._allowed
        return [
            f"the compacted table has {found.get(key)!r} for {key!r}, and not {' or '.join(map(repr, values))}"
            for key, values in allowed.items()
            if found.get(key) not in values
        ]

    async def _write(self) -> None:
        chance = self.world.simulation.entropy("table-writer")
        await self._producer.start()
        while True:
            key = b"key-%d" % chance.randrange(_KEYS)
            value = None if chance.random() < 0.1 else self._value()
            delivery = await self._producer.send(TOPIC, value, key=key, partition=0)
            self._changes[key] = value, delivery
            await asyncio.sleep(chance.choice((0.0, 0.1, 1.0)))

    def _value(self) -> bytes:
        return b"%060d" % next(self._numbers)

    async def _transact(self) -> None:
        """Run transactions; after an error, a new producer ends the open one."""
        chance = self.world.simulation.entropy("table-transactor")
        settings: Any = {"transactional_id": "table", "transaction_timeout_ms": 8_000, "max_block_ms": 60_000}
        while True:
            producer = self.world.producer("table-transactor", delivery_timeout_ms=30_000, **settings, **CLIENTS)
            try:
                async with producer:
                    while not self._is_stopping:
                        await self._change_some(producer, chance)
                        await asyncio.sleep(chance.choice((0.0, 2.0)))
                    return
            except OdradekError:
                await asyncio.sleep(1.0)

    async def _change_some(self, producer: Producer, chance: Random) -> None:
        """Change some keys in a transaction, and commit or abort it. An error leaves the outcome unknown."""
        changes = {b"own-%d" % chance.randrange(_KEYS // 2): self._value() for _ in range(3)}
        before = {key: self._allowed.get(key, (None,)) for key in changes}
        self._allowed |= {key: (*before[key], value) for key, value in changes.items()}
        await producer.begin_transaction()
        for key, value in changes.items():
            delivery = await producer.send(TOPIC, value, key=key, partition=0)
            delivery.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.sleep(chance.choice((0.0, 0.5, 6.0)))
        if chance.random() < 0.5:
            await repeated(producer.commit_transaction)
            self._allowed |= {key: (value,) for key, value in changes.items()}
        else:
            await repeated(producer.abort_transaction)
            self._allowed |= before

    async def _follow(self) -> None:
        """Read the table as it changes, and compare it with the changes up to the position."""
        chance, table = self.world.simulation.entropy("table-reader"), dict[bytes, bytes | None]()
        async with self.world.consumer("table-reader", **READERS) as consumer:
            consumer.assign([_PLACE])
            was_at_end_s = self.world.now_s
            while True:
                records = await consumer.poll(1_000)
                if self.world.now_s > was_at_end_s + _LATE_S:
                    consumer.seek(_PLACE, 0)
                    table.clear()
                    was_at_end_s = self.world.now_s
                    continue
                table.update({record.key or b"": record.value for record in records})
                if records and consumer.is_at_end(_PLACE):
                    was_at_end_s = self.world.now_s
                    if not self.clocks_have_jumped:
                        self._compare(table, await consumer.position(_PLACE))
                    await asyncio.sleep(chance.choice((0.0, 1.0, 7.0)))

    def _compare(self, table: Mapping[bytes, bytes | None], position: int) -> None:
        for key, (value, delivery) in self._changes.items():
            is_known = delivery.done() and not delivery.cancelled() and delivery.exception() is None
            if is_known and 0 <= delivery.result().offset < position and table.get(key) != value:
                raise BrokenPromiseError(
                    f"a reader at {position} of {_PLACE} has {table.get(key)!r} for {key!r}, and not {value!r}, which "
                    f"has offset {delivery.result().offset}"
                )

    async def _read(self) -> dict[bytes, bytes | None]:
        table = dict[bytes, bytes | None]()
        async with (
            self.world.consumer("auditor", isolation_level="read_committed") as consumer,
            asyncio.timeout(PATIENCE_S),
        ):
            consumer.assign([_PLACE])
            consumer.seek(_PLACE, 0)
            end = (await consumer.end_offsets([_PLACE]))[_PLACE]
            while await consumer.position(_PLACE) < end:
                table.update({record.key or b"": record.value for record in await consumer.poll(1_000)})
        return table
