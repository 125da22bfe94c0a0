"""The promises about acknowledged records (SPEC 12), under crashes, power cuts and partitions drawn from a seed."""

import asyncio

import pytest

from odradek.clients import Producer
from odradek.model import TopicPartition
from odradek.simulation.world import World
from tests.world.sampling import seeds
from tests.world.scenes import in_world

PARTITIONS = 3
SEEDS = seeds(4)


class Writer:
    """Sends 0, 1, 2, … and remembers what was acknowledged, by partition."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}

    async def send(self, producer: Producer, count: int) -> None:
        """Send `count` more values, a few at a time."""
        for _ in range(count):
            partition, value = self.sent % PARTITIONS, b"%d" % self.sent
            delivery = await producer.send("t", value, partition=partition)
            delivery.add_done_callback(lambda done, to=partition, what=value: self._note(done, to, what))
            self.sent += 1
            if self.sent % 10 == 0:
                await asyncio.sleep(0.02)

    def _note(self, done: asyncio.Future[object], partition: int, value: bytes) -> None:
        if not done.cancelled() and done.exception() is None:
            self.acknowledged[partition].append(value)

    def all_sent(self) -> dict[int, list[bytes]]:
        """Everything, by partition, in order."""
        return {number: [b"%d" % one for one in range(number, self.sent, PARTITIONS)] for number in range(PARTITIONS)}


def config(**more: str) -> dict[str, str]:
    return {"num.partitions": str(PARTITIONS), **{key.replace("_", "."): value for key, value in more.items()}}


@pytest.mark.parametrize("seed", SEEDS)
@in_world(config(log_flush_mode="group"))
async def test_with_group_flush_acknowledged_records_survive_power_cuts(world: World) -> None:
    """M1. `log.flush.mode=group`: an acknowledged record is on the disk, whatever happens to unsynced data."""
    chance = world.simulation.entropy("power")
    writer = Writer()
    async with world.producer("writer", delivery_timeout_ms=600_000) as producer:
        sending = asyncio.create_task(writer.send(producer, 300))
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.05, 0.3))
            await world.cut_power()
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            await world.start()
        await sending
        await producer.flush()
    assert await world.read("t", PARTITIONS) == writer.all_sent() == writer.acknowledged


@pytest.mark.parametrize("seed", SEEDS)
@in_world(config())
async def test_without_group_flush_a_power_cut_loses_at_most_the_end_of_a_log(world: World) -> None:
    """M1. Afterwards a log has a prefix of the records written: no gap, no torn batch, no other data."""
    writer = Writer()
    async with world.producer("writer") as producer:
        await writer.send(producer, 120)
        await producer.flush()
    await world.cut_power()
    await world.start()
    found = await world.read("t", PARTITIONS)
    for number, values in writer.all_sent().items():
        assert values[: len(found[number])] == found[number]


@in_world(config(), seed=1)
async def test_an_append_completes_a_waiting_fetch(world: World) -> None:
    """M1. A long poll of a minute answers within the network's latency."""
    async with world.producer("writer") as producer:
        await (await producer.send("t", b"first", partition=0))
        async with world.consumer("reader", fetch_max_wait_ms=25_000) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(await consumer.poll(10_000)) == 1
            waiting = asyncio.create_task(consumer.poll(60_000))
            await asyncio.sleep(10)
            sent_at = world.now_s
            await (await producer.send("t", b"second", partition=0))
            assert [record.value for record in await waiting] == [b"second"]
            assert world.now_s - sent_at < 0.1
