"""Producers while leaders move, brokers restart, partitions are added, and a topic is created anew (M2).

Each acknowledged record is in the log once, at the offset that its future gave, in the order of the calls.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from odradek.clients import Producer, TransactionAbortedError
from odradek.clients.producer.arrow import SentRows
from odradek.model import KafkaError, OdradekError
from odradek.simulation.world import World
from tests.world.sampling import seeds
from tests.world.scenes import in_world

pytestmark = pytest.mark.long

PARTITIONS = 4
CONFIG = {"min.insync.replicas": "2", "default.replication.factor": "3", "auto.create.topics.enable": "false"}
KEYS = [b"k%d" % number for number in range(40)]


class Sent:
    """The values that a test sent, by key, and their futures."""

    def __init__(self) -> None:
        self.by_key: dict[bytes, list[bytes]] = {}
        self.records: list[tuple[bytes, bytes, asyncio.Future[Any]]] = []
        self.rows: list[tuple[list[tuple[bytes, bytes]], list[SentRows]]] = []
        self._numbers = 0

    def next(self, key: bytes) -> bytes:
        self._numbers += 1
        value = b"%d" % self._numbers
        self.by_key.setdefault(key, []).append(value)
        return value

    async def some(self, producer: Producer, count: int) -> None:
        """Send so many records, and as many rows."""
        for number in range(count):
            key = KEYS[number % len(KEYS)]
            value = self.next(key)
            self.records.append((key, value, await producer.send("t", value, key)))
        pairs = [(key, self.next(key)) for key in KEYS[:count]]
        table = pa.table({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})
        self.rows.append((pairs, await producer.send_arrow(table, "t", max_batch_bytes=200)))

    async def check(self, world: World, partitions: int = PARTITIONS) -> None:
        """Compare the log with what was sent."""
        log = await world.read_records("t", partitions)
        found: dict[bytes, list[bytes]] = {}
        for records in log.values():
            for record in records:
                assert record.key is not None
                assert record.value is not None
                found.setdefault(record.key, []).append(record.value)
        assert found == self.by_key
        for key, value, future in self.records:
            place = future.result()
            record = log[place.partition][place.offset]
            assert (record.key, record.value) == (key, value)
        for pairs, batches in self.rows:
            assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(pairs)))
            for batch in batches:
                for row, offset in zip(batch.rows.tolist(), batch.offsets.result().tolist(), strict=True):
                    record = log[batch.partition.partition][offset]
                    assert (record.key, record.value) == pairs[row]


async def create(world: World, partitions: int = PARTITIONS) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=partitions)


async def during(producer: Producer, sent: Sent, trouble: Callable[[], Awaitable[None]]) -> None:
    """Send while there is trouble, and some records afterwards."""
    task = asyncio.ensure_future(trouble())
    try:
        async with asyncio.timeout(600):
            while not task.done():
                await sent.some(producer, 20)
                await asyncio.sleep(0.2)
            await task
            await sent.some(producer, 20)
            await producer.flush()
    finally:
        task.cancel()


@pytest.mark.parametrize("memory", [32 << 20, 3_000])
@pytest.mark.parametrize("seed", seeds(1))
@in_world(CONFIG, brokers=3)
async def test_records_outlive_brokers_that_are_killed_in_turn(world: World, memory: int) -> None:
    """With little memory, calls wait for it most of the time."""
    await create(world)
    sent = Sent()
    async with world.producer("client", buffer_memory=memory, batch_size=500, linger_ms=2) as producer:

        async def kill_in_turn() -> None:
            for number in range(3):
                await asyncio.sleep(1)
                await world.kill(number)
                await asyncio.sleep(2)
                await world.start(number)
                await asyncio.sleep(3)

        await during(producer, sent, kill_in_turn)
        assert producer.metrics()["buffer_available_bytes"] == memory
        assert producer.metrics()["record_error_total"] == 0
    await sent.check(world)


@pytest.mark.parametrize("seed", seeds(1))
@in_world(CONFIG, brokers=3)
async def test_records_follow_leaders_that_stop_cleanly(world: World) -> None:
    await create(world)
    sent = Sent()
    async with world.producer("client", batch_size=300, linger_ms=0, compression_type="zstd") as producer:

        async def roll() -> None:
            for number in range(3):
                await asyncio.sleep(1)
                await world.stop(number)
                await asyncio.sleep(1)
                await world.start(number)
                await asyncio.sleep(2)

        await during(producer, sent, roll)
    await sent.check(world)


@pytest.mark.parametrize("seed", seeds(1))
@in_world(CONFIG, brokers=3)
async def test_partitions_that_are_added_get_records_without_keys(world: World) -> None:
    await create(world, 1)
    async with (
        world.admin() as admin,
        world.producer("client", metadata_max_age_ms=1_000, batch_size=100, partitioner="round_robin") as producer,
    ):
        await producer.send("t", b"before")
        await admin.create_partitions("t", 3)
        # Named at once: the producer looks for a partition that it does not know.
        placed = await (await producer.send("t", b"named", partition=2))
        assert placed.partition == 2
        await asyncio.sleep(2)
        places = {(await (await producer.send("t", b"after"))).partition for _ in range(30)}
        assert places == {0, 1, 2}


@pytest.mark.parametrize("seed", seeds(1))
@in_world(CONFIG, brokers=3)
async def test_a_topic_that_is_created_anew_gets_the_records_that_follow(world: World) -> None:
    """Sequences of the old topic do not keep the new one from taking batches."""
    await create(world)
    async with (
        world.admin() as admin,
        world.producer("client", batch_size=200, linger_ms=0) as producer,
    ):
        for number in range(200):
            await producer.send("t", b"old %d" % number)
        await producer.flush()
        await admin.delete_topics(["t"])
        await asyncio.sleep(0.2)
        await admin.create_topic("t", partitions=2)
        async with asyncio.timeout(60):
            delivered = [await producer.send("t", b"new %d" % number, partition=number % 2) for number in range(200)]
            results = await asyncio.gather(*delivered, return_exceptions=True)
        # A partition that the new topic lacks cannot fail these, which name others.
        assert not [result for result in results if isinstance(result, KafkaError)]
    found = await world.read("t", 2)
    assert found == {half: [b"new %d" % number for number in range(half, 200, 2)] for half in range(2)}


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_transactions_are_whole_and_written_once_while_a_broker_dies(seed: int, victim: int) -> None:
    """X1: the coordinator, a leader, or both; an aborted transaction is repeated."""
    config = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "transaction.state.log.num.partitions": "1",
        "num.partitions": "3",
    }

    async def scene(world: World) -> None:
        async with world.producer("client", transactional_id="x", retry_backoff_ms=20) as producer:
            for number in range(8):
                if number == 3:
                    await world.kill(victim)
                done = False
                while not done:
                    with contextlib.suppress(TransactionAbortedError):
                        async with producer.transaction():
                            for partition in range(3):
                                await producer.send("t", b"%d" % number, partition=partition)
                            if number == 2:
                                await producer.flush()
                        done = True
        async with world.consumer("auditor", isolation_level="read_committed") as consumer:
            consumer.assign([("t", partition) for partition in range(3)])
            found: list[Any] = []
            while len(found) < 24:
                found += await consumer.poll()
        for partition in range(3):
            values = [record.value for record in found if record.partition == partition]
            assert values == [b"%d" % number for number in range(8)]

    World(seed, config, brokers=3).play(scene)


@pytest.mark.parametrize("appended", [True, False])
@in_world(brokers=1)
async def test_a_batch_of_unknown_outcome_keeps_its_sequence_when_an_earlier_one_is_given_up(
    world: World, appended: bool
) -> None:
    """Only the broker knows whether it has appended a batch: in a new epoch it would be appended twice."""
    await world.create_topic("t")
    async with world.producer(
        "client", delivery_timeout_ms=5_000, request_timeout_ms=2_000, linger_ms=0, acks="all"
    ) as producer:
        await (await producer.send("t", b"known"))
        world.simulation.network.block(*((world.hosts[0], "client") if appended else ("client", world.hosts[0])))
        given_up = await producer.send("t", b"given up")
        await asyncio.sleep(1)
        late = [await producer.send("t", b"second"), await producer.send("t", b"third")]
        await asyncio.sleep(4.5)
        with pytest.raises(OdradekError):
            await given_up
        world.simulation.network.reject(world.hosts[0])  # what was held back is lost
        world.simulation.network.heal()
        await asyncio.gather(*late)
        await (await producer.send("t", b"last"))
    first = [b"known", b"given up"] if appended else [b"known"]
    assert (await world.read("t", 1))[0] == [*first, b"second", b"third", b"last"]
