"""M1. One broker's log loses its last segment, or its folder, while all brokers are down.

Brokers end in any order and in any way but a power cut, the log of one is damaged, and all come back in any order.
If the damaged one was the last in sync, an operator elects the replica that has the most. Whatever happened, every
record that was acknowledged by two replicas is there once, in order.
"""

import asyncio
import random
from contextlib import suppress
from typing import Final

import pytest

from odradek.broker.log.directories.directory_loading import remove_tree
from odradek.clients import Admin
from odradek.clients.admin.reassignments import ElectionType
from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

KEY: Final = TopicPartition("t", 0)
BROKERS: Final = range(3)
PATIENCE_S: Final = 90.0
CONFIG: Final = {
    "min.insync.replicas": "2",
    "log.segment.bytes": "1024",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.lag.time.max.ms": "3000",
}


class Round:
    """Plays one seed on one world."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.story: list[str] = []
        self.was_elected = False

    def note(self, what: str) -> None:
        self.story.append(f"{self.world.now_s:.2f} {what}")

    async def end_all(self, may_write: asyncio.Event) -> None:
        """Stop all brokers, one after the other, under a writer; or kill some after their checkpoints are written.

        The next start of a killed broker does not know what was committed since its last checkpoint.
        """
        pause_s = self.chance.choice((0.0, 0.5, 10.0))
        some_are_killed = self.chance.random() < 0.5
        if some_are_killed:
            may_write.clear()
            await asyncio.sleep(3.0)
        for number in self.chance.sample(BROKERS, len(BROKERS)):
            how = self.chance.choice(("stop", "kill")) if some_are_killed else "stop"
            self.note(f"{how} {number}")
            await getattr(self.world, how)(number)
            await asyncio.sleep(pause_s * self.chance.random())

    def damage(self, victim: int) -> None:
        """Remove the last segment of a log, or all of it."""
        disk = self.world.simulation.disk(self.world.hosts[victim])
        segments = sorted(name for name in disk.list(f"/data/{KEY}") if name.endswith(".log"))
        if self.chance.random() < 0.3:
            self.note(f"the folder of {victim} goes")
            remove_tree(disk, f"/data/{KEY}")
        else:
            self.note(f"{segments[-1]} of {victim} goes")
            disk.remove(f"/data/{KEY}/{segments[-1]}")

    async def start_all(self) -> None:
        """Start all brokers in any order, with any pauses; a broker that waits for another tries again."""

        async def start(number: int, delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            while number not in self.world.running:
                with suppress(OdradekError):
                    await self.world.start(number)
                    self.note(f"start {number}")
                await asyncio.sleep(1.0)

        span_s = self.chance.choice((0.0, 5.0, 40.0))
        await asyncio.gather(*(start(number, span_s * self.chance.random()) for number in BROKERS))

    def is_whole(self) -> bool:
        """Return whether the partition is led, and every replica in sync."""
        images = [broker.image.partition(KEY) for broker in self.world.running.values()]
        return len(images) == len(BROKERS) and all(
            each is not None and each.has_leader and len(each.isr) == len(BROKERS) for each in images
        )

    async def becomes_whole(self) -> bool:
        with suppress(TimeoutError):
            await until(self.is_whole, within_s=PATIENCE_S)
        return self.is_whole()

    async def elect_the_longest(self, victim: int) -> None:
        """Act as the operator whom the victim's log calls."""
        record = self.world.tree.find(paths.partition_state(KEY))
        assert record is not None
        assert PartitionStateNode.decode("", record.data).isr == (victim,), "only this waits for an operator"
        logs = {number: self.world.running[number].logs.logs[KEY] for number in BROKERS if number != victim}
        longest = max(logs, key=lambda number: (logs[number].epochs.latest, logs[number].log_end_offset))
        (other,) = logs.keys() - {longest}
        self.note(f"elect {longest}")
        await self.world.stop(other)
        async with Admin(self.world.servers, runtime=self.world.simulation.runtime("admin")) as admin:
            for _ in range(30):  # a new controller elects the victim before it knows of its log
                if await admin.elect_leaders(ElectionType.UNCLEAN, [KEY]) == {KEY: None}:
                    break
                await asyncio.sleep(1.0)
            else:
                raise AssertionError("no election")
        self.was_elected = True
        await self.world.start(other)


async def write(world: World, acknowledged: list[bytes], may_write: asyncio.Event) -> None:
    async with world.producer("writer", delivery_timeout_ms=6_000_000, retry_backoff_ms=500) as producer:
        number = 0
        while True:
            await may_write.wait()
            await (await producer.send(KEY.topic, b"%050d" % number, partition=KEY.partition))
            acknowledged.append(b"%050d" % number)
            number += 1
            await asyncio.sleep(0.1)


def play(seed: int, *, rounds: int = 2) -> int:
    """Play one seed; return how often an operator was needed."""
    chance = random.Random(f"{seed} lost records")
    played: list[Round] = []

    async def scene(world: World) -> None:
        await until(lambda: all(len(broker.image.brokers) == len(BROKERS) for broker in world.running.values()))
        async with world.admin() as admin:
            await admin.create_topic(KEY.topic, partitions=1, replication_factor=len(BROKERS))
        acknowledged: list[bytes] = []
        may_write = asyncio.Event()
        writing = asyncio.create_task(write(world, acknowledged, may_write))
        for _ in range(rounds):
            each = Round(world, chance)
            played.append(each)
            may_write.set()
            count = len(acknowledged)
            await until(lambda: len(acknowledged) > count + 30, within_s=PATIENCE_S)  # noqa: B023
            victim = chance.choice(BROKERS)
            await each.end_all(may_write)
            each.damage(victim)
            await each.start_all()
            if not await each.becomes_whole():
                await each.elect_the_longest(victim)
                assert await each.becomes_whole()
        writing.cancel()
        await asyncio.wait([writing])
        found = (await world.read(KEY.topic, 1))[0]
        kept = [each for each in found if each in set(acknowledged)]
        assert kept == acknowledged, (sorted(set(acknowledged) - set(kept)), len(kept), len(acknowledged))

    world = World(seed, CONFIG, brokers=len(BROKERS), noticed_at_once=chance.random() < 0.5)
    try:
        world.play(scene)
    except BaseException as error:
        error.add_note("the story: " + "; ".join(line for each in played for line in each.story))
        raise
    return sum(each.was_elected for each in played)


@pytest.mark.parametrize("number", seeds(4))
def test_acknowledged_records_survive_a_log_that_loses_its_end_while_all_brokers_are_down(number: int) -> None:
    play(number)


def test_the_seed_of_this_run_is_played_too(seed: int) -> None:
    play(seed)
