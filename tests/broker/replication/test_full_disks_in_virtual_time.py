"""A disk fills up under everything that a broker does, and has room again (M1): the broker recovers by itself.

The same scenario is played with a process that runs out of descriptors or threads. Records acknowledged meanwhile are
kept, and refused operations leave nothing behind that hinders later ones.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress

import pytest

from odradek.clients import Admin, Consumer, Producer
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.virtual.disk import MemoryDisk
from odradek.simulation.world import World, until
from odradek.testing import Survival

pytestmark = pytest.mark.long

CONFIG = {
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "2000",
    "log.index.interval.bytes": "300",
    "log.retention.ms": "20000",
    "log.retention.check.interval.ms": "3000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "2000",
}
PARTITIONS = 2
TRIED_FOR_S = 8.0


class Users:
    """Clients that repeat every operation, ignoring errors. `kept` is what was acknowledged."""

    def __init__(self, world: World, producer: Producer, admin: Admin, consumer: Consumer) -> None:
        self.kept: dict[TopicPartition, list[bytes]] = {}
        self._replicas = len(world.hosts)
        self._producer = producer
        self._admin = admin
        self._consumer = consumer
        self._count = 0

    async def create(self, topic: str, **config: str) -> None:
        await self._admin.create_topic(topic, partitions=PARTITIONS, replication_factor=self._replicas, configs=config)

    async def write(self, topic: str, value: bytes) -> None:
        """To every partition, with one of ten keys."""
        for number in range(PARTITIONS):
            await (await self._producer.send(topic, value, key=value[-1:], partition=number))
            self.kept.setdefault(TopicPartition(topic, number), []).append(value)

    async def commit(self, offset: int) -> None:
        await self._consumer.commit({TopicPartition("old", 0): offset})

    async def try_everything(self) -> None:
        for _ in range(6):
            self._count += 1
            for topic in ("old", "squeezed", f"new-{self._count - 3}"):
                await tried(self.write(topic, b"%0300d" % self._count))
            await tried(self.create(f"new-{self._count}"))
            await tried(self._admin.delete_topics([f"new-{self._count - 4}"]))
            await tried(self.commit(self._count))


async def tried(work: Awaitable[None]) -> None:
    with suppress(OdradekError, TimeoutError):
        async with asyncio.timeout(TRIED_FOR_S):
            await work


async def interrupt(world: World, end: str) -> None:
    match end:
        case "stopped":
            await world.stop(0)
        case "killed":
            await world.kill(0)
        case "power cut":
            await world.cut_power(Survival.ANY, 0)
    if end != "goes on":
        await world.start(0)


def check_that_all_is_well(world: World) -> None:
    for broker in world.running.values():
        assert broker.partitions.offline_count == 0
        assert {str(key): log.failure for key, log in broker.logs.logs.items() if log.failure is not None} == {}
        assert broker.logs.cleaner.uncleanable == {}
    image = next(broker for broker in world.running.values() if broker.metadata_loop.is_controller).image
    for topic in image.topics.values():
        assert {len(one.isr) for one in topic.partitions.values()} == {len(world.hosts)}, topic.name


async def read_keys(world: World, topic: str) -> dict[TopicPartition, dict[bytes, bytes]]:
    """The last value of each key."""
    found: dict[TopicPartition, dict[bytes, bytes]] = {
        TopicPartition(topic, number): {} for number in range(PARTITIONS)
    }
    async with world.consumer("judge") as judge:
        judge.assign(list(found))
        ends = await judge.end_offsets(list(found))
        while [place for place, end in ends.items() if await judge.position(place) < end]:
            for record in await judge.poll(1000):
                found[TopicPartition(record.topic, record.partition)][record.key or b""] = record.value or b""
    return found


def begin_shortage(disk: MemoryDisk, shortage: str) -> None:
    kind, _, left = shortage.partition(" ")
    match kind:
        case "room":
            disk.capacity_bytes = disk.used_bytes() + int(left)
        case "descriptors":
            disk.most_open_files = max(disk.open_files + int(left), 0)
        case "threads":
            disk.has_threads = False


def end_shortage(disk: MemoryDisk) -> None:
    disk.capacity_bytes = disk.most_open_files = None
    disk.has_threads = True


ENDS = ("goes on", "stopped", "killed", "power cut")


@pytest.mark.parametrize(
    ("room", "brokers", "end"),
    [
        *((room, 1, end) for room in (0, 150, 2500) for end in ENDS),
        *((150, 3, end) for end in ENDS),
        *((room, 3, "goes on") for room in (0, 2500)),
    ],
)
def test_all_operations_that_failed_on_a_full_disk_succeed_when_there_is_room(
    seed: int, room: int, brokers: int, end: str
) -> None:
    play_shortage(seed, f"room {room}", brokers, end)


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize(
    "shortage", ["descriptors -9999", "descriptors -3", "descriptors 0", "descriptors 2", "threads"]
)
def test_all_operations_that_failed_in_a_shortage_succeed_when_it_is_over(
    seed: int, shortage: str, brokers: int
) -> None:
    play_shortage(seed, shortage, brokers, "goes on")


def play_shortage(seed: int, shortage: str, brokers: int, end: str) -> None:
    async def scene(world: World) -> None:
        await until(lambda: all(len(broker.image.brokers) == brokers for broker in world.running.values()))
        disk = world.simulation.disk(world.hosts[0])
        producer = world.producer("writer", delivery_timeout_ms=5000, request_timeout_ms=2000)
        admin = world.admin()
        consumer = world.consumer("reader", group_id="g")
        async with producer, admin, consumer:
            users = Users(world, producer, admin, consumer)
            await users.create("old")
            await users.create("squeezed", **{"cleanup.policy": "compact"})
            consumer.assign([TopicPartition("old", 0)])
            await users.try_everything()
            begin_shortage(disk, shortage)
            await users.try_everything()
            await interrupt(world, end)
            await users.try_everything()
            end_shortage(disk)
            await asyncio.sleep(60)
            check_that_all_is_well(world)
            await users.create("last")
            for topic in ("old", "squeezed", "last"):
                await users.write(topic, b"at last")
            await users.commit(1)
            for place, found in (await read_keys(world, "squeezed")).items():
                expected = {value[-1:]: value for value in users.kept[place]}
                assert all(found.get(key, b"") >= value for key, value in expected.items())

    own = {
        "offsets.topic.replication.factor": str(brokers),
        "log.flush.mode": "group" if end == "power cut" else "none",
    }
    World(seed, CONFIG | own, brokers=brokers).play(scene)
