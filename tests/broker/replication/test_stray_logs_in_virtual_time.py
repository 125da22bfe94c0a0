"""M9. Topics come, go, come again and move, while brokers are down or lose their sessions, as a seed says.

In the end each broker has the folders of the replicas that the tree gives it, and no others; and what was acknowledged
in topics that were never deleted is there.
"""

import asyncio
import random
from contextlib import suppress
from typing import Final

import pytest

from odradek.clients import Admin
from odradek.metadata import paths
from odradek.metadata.nodes import TopicNode
from odradek.model import OdradekError, TopicPartition
from odradek.simulation.world import World, until
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

BROKERS: Final = range(3)
TOPICS: Final = ("a", "b", "c")
KEPT: Final = "kept"
MOVED: Final = "moved"
CONFIG: Final = {"log.segment.delete.delay.ms": "5000", "log.flush.offset.checkpoint.interval.ms": "1000"}
PATIENCE_S: Final = 300.0


class Administrator:
    """Changes topics and brokers, as a seed says."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.story: list[str] = []

    def note(self, what: str) -> None:
        self.story.append(f"{self.world.now_s:.2f} {what}")

    async def act(self) -> None:
        """Do one action, unless it is impossible now."""
        deed = self.chance.choice(("create", "create", "delete", "delete", "move", "stop", "kill", "start", "expire"))
        with suppress(OdradekError):
            await getattr(self, f"_{deed}")()
        await asyncio.sleep(self.chance.choice((0.0, 0.2, 3.0, 20.0)) * self.chance.random())

    async def _create(self) -> None:
        name = self.chance.choice((*TOPICS, MOVED))
        async with self._admin() as admin:
            await admin.create_topic(name, partitions=2, replication_factor=self.chance.choice((1, 2)))
        self.note(f"created {name}")

    async def _delete(self) -> None:
        name = self.chance.choice((*TOPICS, MOVED))
        self.note(f"delete {name}")
        async with self._admin() as admin:
            await admin.delete_topics([name])

    async def _move(self) -> None:
        key = TopicPartition(MOVED, self.chance.choice((0, 1)))
        replicas = self.chance.sample(BROKERS, self.chance.choice((1, 2)))
        self.note(f"move {key} to {replicas}")
        async with self._admin() as admin:
            await admin.alter_partition_reassignments({key: replicas})

    async def _stop(self) -> None:
        await self._end("stop")

    async def _kill(self) -> None:
        await self._end("kill")

    async def _end(self, how: str) -> None:
        if len(self.world.running) > 1:
            number = self.chance.choice(sorted(self.world.running))
            self.note(f"{how} {number}")
            await getattr(self.world, how)(number)

    async def _start(self) -> None:
        if away := sorted(set(BROKERS) - self.world.running.keys()):
            number = self.chance.choice(away)
            await self.world.start(number)
            self.note(f"started {number}")

    async def _expire(self) -> None:
        number = self.chance.choice(sorted(self.world.running))
        self.note(f"the session of {number} expires")
        self.world.tree.expire(self.world.store(number).session_id)

    def _admin(self) -> Admin:
        return Admin(self.world.servers, runtime=self.world.simulation.runtime("admin"), request_timeout_ms=2_000)

    async def start_all(self) -> None:
        for number in sorted(set(BROKERS) - self.world.running.keys()):
            while number not in self.world.running:
                with suppress(OdradekError):
                    await self.world.start(number)
                await asyncio.sleep(1.0)
        self.note("all run")

    def surplus(self) -> list[str]:
        """Return the folders that brokers have, or lack, unlike the tree."""
        wanted: set[tuple[int, str]] = set()
        for name in self.world.tree.names(paths.TOPICS):
            record = self.world.tree.find(paths.topic(name))
            assert record is not None
            for partition, replicas in TopicNode.decode(name, record.data).replicas.items():
                wanted |= {(each, f"{name}-{partition}") for each in replicas}
        there = set()
        for number in BROKERS:
            disk = self.world.simulation.disk(self.world.hosts[number])
            there |= {(number, name) for name in disk.list("/data") if disk.is_directory(f"/data/{name}")}
        return sorted(map(str, wanted ^ there))


def play(seed: int, deeds: int) -> None:
    chance = random.Random(f"{seed} strays")
    administrators: list[Administrator] = []

    async def scene(world: World) -> None:
        administrator = Administrator(world, chance)
        administrators.append(administrator)
        await until(lambda: all(len(broker.image.brokers) == len(BROKERS) for broker in world.running.values()))
        async with world.admin() as admin:
            await admin.create_topic(KEPT, partitions=1, replication_factor=3)
            await admin.create_topic(MOVED, partitions=2, replication_factor=2)
        values = [b"%d" % number for number in range(10)]
        async with world.producer("writer") as producer:
            for value in values:
                await (await producer.send(KEPT, value, partition=0))
        for _ in range(deeds):
            await administrator.act()
        await administrator.start_all()
        try:
            await until(lambda: not administrator.surplus(), within_s=PATIENCE_S)
        except TimeoutError:
            assert administrator.surplus() == []
        assert await world.read(KEPT, 1) == {0: values}

    world = World(seed, CONFIG, brokers=len(BROKERS), noticed_at_once=chance.random() < 0.5)
    try:
        world.play(scene)
    except BaseException as error:
        error.add_note("the story: " + "; ".join(line for each in administrators for line in each.story))
        raise


@pytest.mark.parametrize("number", seeds(4))
def test_brokers_have_only_the_folders_of_their_replicas(number: int) -> None:
    play(number, deeds=25)


def test_the_seed_of_this_run_is_played_with_more_actions(seed: int) -> None:
    play(seed, deeds=60)
