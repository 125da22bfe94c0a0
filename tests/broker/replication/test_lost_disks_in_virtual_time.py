"""Disks that fail, are lost, replaced and returned in an old state, under writers, while brokers restart (M1).

In a round the disks of one broker change, as the seed says; the others keep theirs. Then the disks of the round's
beginning are put back if the cluster does not recover without them, and missing ones are given up if that does not
help. In any order of restarts, everything acknowledged with `acks=all` must be there once, in order, but for partitions
of which only the given up directories had all records.
"""

import asyncio
import errno
import random
from contextlib import suppress
from itertools import count
from typing import Final

import pytest

from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode
from odradek.model import KafkaError, OdradekError, StorageError, TopicPartition
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore
from odradek.testing import Survival
from tests.world.lost_disks import forget, known

pytestmark = pytest.mark.long

ROUNDS: Final = 1
PATIENCE_S: Final = 60


class Operator:
    """Changes disks and brokers, as a seed says. All earlier disks are kept and may be put back."""

    def __init__(self, world: World, entropy: random.Random, keys: list[TopicPartition], where: list[str]) -> None:
        self.world = world
        self.entropy = entropy
        self.keys = keys
        self.where = where
        self.power_may_go = entropy.random() < 0.5
        self.brokers = range(len(world.hosts))
        self.done: list[str] = []
        self.is_stuck = False
        self.given_up: set[TopicPartition] = set()
        self._old: dict[int, list[str]] = {number: [] for number in self.brokers}
        self._numbers = count()

    async def play_round(self) -> None:
        """Several deeds around one broker's disks; all brokers run in the end."""
        victim = self.entropy.choice(self.brokers)
        self.note(f"round of {victim}")
        before: dict[str, str] = {}
        if self.entropy.random() < 0.2:
            await self.fail(victim)
        for _ in range(self.entropy.choice((1, 1, 2, 3))):
            await self.end_some(victim)
            # Which of several disks was the last one, an earlier release did not write down.
            if self.entropy.random() < 0.1 and not before and not self._old[victim]:
                await self.forget_what_the_tree_knows(victim)
                self.change_disk(victim, before, only_new=True)
            else:
                self.change_disk(victim, before)
            await self.start_some(victim)
        await self.start_all()
        for _ in range(2):
            if await self.becomes_whole():
                return
            before = await self.put_back(victim, before)
        if not await self.becomes_whole():
            self.is_stuck = True
            await self.give_up(victim)
            await self.becomes_whole()

    async def give_up(self, victim: int) -> None:
        """Forget the missing directories of a broker, as its errors advise, and start it again."""
        await self.end(victim)
        store = MemoryStore(self.world.tree)
        for key in self.keys:
            path = paths.partition_state(key)
            node = await store.get(path)
            assert node is not None
            if set(PartitionStateNode.decode(path, node.data).isr) <= {victim}:
                self.given_up.add(key)
        await store.close()
        disk, here = self.world.simulation.disk(self.world.hosts[victim]), b""
        for path in (f"{where}/meta.properties" for where in self.where):
            here += disk.read_file(path) if disk.exists(path) else b""
        ids = [each for each in await known(self.world, victim) if each.encode() not in here]
        self.note(f"give up {ids} and {self.given_up} of {victim}")
        await forget(self.world, victim, *ids)
        await self.start_all()

    async def put_back(self, victim: int, before: dict[str, str]) -> dict[str, str]:
        """Let the disks be those of the round's beginning, or of its end: of some logs the last is here, or there.

        Returns those that were in their places.
        """
        self.note(f"put back {before}")
        await self.end(victim)
        disk = self.world.simulation.disk(self.world.hosts[victim])
        disk.broken.clear()
        taken = {where: self.take_out(victim, where) for where in before if disk.exists(where)}
        for where, name in before.items():
            self.put_in(victim, name, where)
        await self.start_all()
        return taken

    # ---- brokers ------------------------------------------------------------------------------------------------

    async def end_some(self, victim: int) -> None:
        """The victim, and perhaps all others, before or after it, soon after each other or not."""
        chosen = [victim]
        if self.entropy.random() < 0.6:
            chosen = self.entropy.sample(self.brokers, len(self.brokers))
        pause_s = self.entropy.choice((0.0, 0.0, 1.0, 20.0))
        for number in chosen:
            await self.end(number)
            await asyncio.sleep(pause_s * self.entropy.random())

    async def end(self, number: int) -> None:
        """However a broker ends."""
        if number in self.world.running:
            how = self.entropy.choice(("stop", "kill", "cut_power" if self.power_may_go else "kill"))
            self.note(f"{how} {number}")
            if how == "cut_power":
                await self.world.cut_power(Survival.ANY, number)
            else:
                await getattr(self.world, how)(number)

    async def start_some(self, victim: int) -> None:
        """Some brokers start, in any order; a start may be interrupted."""
        waiting = [number for number in self.brokers if number not in self.world.running]
        self.entropy.shuffle(waiting)
        if self.entropy.random() < 0.4:
            waiting = [victim]
        for number in waiting:
            await self.start(number, within_s=self.entropy.choice((0.0001, 0.001, 0.01, 1.0, 60.0, 60.0)))
            await asyncio.sleep(self.entropy.choice((0.0, 1.0, 30.0)) * self.entropy.random())

    async def start(self, number: int, *, within_s: float) -> None:
        """Start a broker, unless it takes too long; it is killed then."""
        try:
            async with asyncio.timeout(within_s * self.entropy.random()):
                await self.world.start(number)
            self.note(f"start {number}")
        except TimeoutError:
            self.note(f"interrupted start {number}")
        except OdradekError as error:
            self.note(f"no start {number}: {error}")

    async def start_all(self) -> None:
        """Start all brokers, again if one waits for another in vain, but for those that refuse their directories."""

        async def start(number: int) -> None:
            while number not in self.world.running:
                try:
                    await self.world.start(number)
                except StorageError as error:
                    self.note(f"no start {number}: {error}")
                    break
                except OdradekError:
                    await asyncio.sleep(1.0)

        for number in self.brokers:
            self.world.simulation.disk(self.world.hosts[number]).broken.clear()
        await asyncio.gather(*map(start, self.brokers))
        self.note(f"{len(self.world.running)} run")

    async def becomes_whole(self) -> bool:
        """Whether every replica is in sync, soon."""
        for _ in range(PATIENCE_S):
            if self.is_whole():
                self.note("whole")
                return True
            await asyncio.sleep(1.0)
        return False

    def is_whole(self) -> bool:
        """Whether every replica is in sync."""
        images = [broker.image.partition(key) for broker in self.world.running.values() for key in self.keys]
        is_in_sync = all(each is not None and len(each.isr) == len(self.brokers) and each.has_leader for each in images)
        return is_in_sync and len(self.world.running) == len(self.brokers)

    def can_be_read(self, key: TopicPartition, least: int) -> bool:
        """Return whether it has a leader and so many in-sync replicas: with fewer, the high watermark does not move."""
        images = [broker.image.partition(key) for broker in self.world.running.values()]
        return all(each is not None and each.has_leader and len(each.isr) >= least for each in images)

    # ---- disks --------------------------------------------------------------------------------------------------

    async def fail(self, number: int) -> None:
        """A disk gives an error while it is used; the broker is restarted over what is on it."""
        disk = self.world.simulation.disk(self.world.hosts[number])
        # Data of a failed sync looks as if it were saved, until the power fails.
        disk.fail_next("append" if self.power_may_go else "sync", errno.EIO, path_end=".log")
        self.note(f"fail {number}")
        await asyncio.sleep(self.entropy.uniform(1, 30))
        disk._faults.clear()
        if not self.world.running[number].logs.directories.usable:
            await self.world.kill(number)

    async def forget_what_the_tree_knows(self, number: int) -> None:
        """As if an earlier release had run so far."""
        self.note(f"upgrade {number}")
        store = MemoryStore(self.world.tree)
        await store.delete(paths.broker_directories(number))
        await store.close()

    def change_disk(self, number: int, before: dict[str, str], *, only_new: bool = False) -> None:
        """Put another disk in: an empty one, an old one, none that answers, or the two in each other's places."""
        disk, where = self.world.simulation.disk(self.world.hosts[number]), self.entropy.choice(self.where)
        kind = "new" if only_new else self.entropy.choice(("new", "old", "old", "broken", "swap", "both", "same"))
        chosen = self.where if kind in ("swap", "both") else [where]
        self.note(f"{kind} {' '.join(chosen)} of {number}")
        disk.broken.clear()
        if kind == "broken":
            if len(self.where) > 1:
                disk.broken.add(where)
            return
        if kind == "same":
            return
        taken = {each: self.take_out(number, each) for each in chosen if disk.exists(each)}
        for each, name in taken.items():
            before.setdefault(each, name)
        if kind == "swap":
            for each, name in zip(taken, reversed(taken.values()), strict=True):
                self.put_in(number, name, each)
        elif kind == "old":
            others = [name for name in self._old[number] if name not in taken.values()]
            if others:
                self.put_in(number, self.entropy.choice(others), where)

    def take_out(self, number: int, where: str) -> str:
        """Take a disk out, and remember it by the name that it gets; its name on later days is the same."""
        disk, name = self.world.simulation.disk(self.world.hosts[number]), f"/disk-{next(self._numbers)}"
        inside = f"{where}/.name"
        if disk.exists(inside):
            name = disk.read_file(inside).decode()
        else:
            disk.replace_file(inside, name.encode())
        disk.rename(where, name)
        disk.sync_directory("/")
        self._old[number].append(name)
        self.note(f"{name} out of {where} of {number}")
        return name

    def put_in(self, number: int, name: str, where: str) -> None:
        """Put it in."""
        disk = self.world.simulation.disk(self.world.hosts[number])
        disk.rename(name, where)
        disk.sync_directory("/")
        self._old[number].remove(name)
        self.note(f"{name} into {where} of {number}")

    def note(self, what: str) -> None:
        """Put it into the story."""
        self.done.append(f"{self.world.now_s:.2f} {what}")


async def write(world: World, key: TopicPartition, acknowledged: list[bytes]) -> None:
    """Write to a partition for ever, each value until it is acknowledged or known not to be."""
    host = f"writer-{key.partition}"
    async with world.producer(
        host, enable_idempotence=True, delivery_timeout_ms=6_000_000, retry_backoff_ms=1000
    ) as producer:
        for number in count():
            with suppress(KafkaError):
                await (await producer.send(key.topic, b"%d" % number, partition=key.partition))
                acknowledged.append(b"%d" % number)
            await asyncio.sleep(0.5)


def play(seed: int, *, brokers: int, directories: int, partitions: int, rounds: int) -> None:
    """One seed's world and story; what goes wrong carries the story."""
    entropy = random.Random(f"{seed} {brokers} {directories}")
    where = ["/a", "/b"][:directories]
    keys = [TopicPartition("t", number) for number in range(partitions)]
    least = entropy.choice((1, 1 + brokers // 2))
    config = {"log.dirs": ",".join(where), "min.insync.replicas": str(least), "log.flush.mode": "group"}
    operators: list[Operator] = []

    async def scene(world: World) -> None:
        operator = Operator(world, entropy, keys, where)
        operators.append(operator)
        await until(lambda: all(len(broker.image.brokers) == brokers for broker in world.running.values()))
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=partitions, replication_factor=brokers)
        acknowledged: dict[TopicPartition, list[bytes]] = {key: [] for key in keys}
        writing = [asyncio.create_task(write(world, *each)) for each in acknowledged.items()]
        assert await operator.becomes_whole()
        for _ in range(rounds):
            counts = {key: len(values) for key, values in acknowledged.items()}
            await until(lambda: all(len(acknowledged[key]) > counts[key] for key in keys), within_s=600)  # noqa: B023
            await operator.play_round()
            if operator.is_stuck:
                break
        for each in writing:
            each.cancel()
        await asyncio.wait(writing)
        readable = [key.partition for key in keys if operator.can_be_read(key, least)]
        found = await world.read("t", readable)
        for key, values in acknowledged.items():
            if key in operator.given_up or key.partition not in readable:
                assert operator.is_stuck
                continue
            there = set(values)
            kept = [each for each in found[key.partition] if each in there]
            assert kept == values, (key, sorted(there - set(kept), key=int), len(kept), len(values))

    world = World(seed, config, brokers=brokers, noticed_at_once=entropy.random() < 0.5)
    try:
        world.play(scene)
    except BaseException as error:
        for operator in operators:
            error.add_note("the story: " + "; ".join(operator.done))
        raise


@pytest.mark.parametrize(("brokers", "directories"), [(1, 2), (2, 1), (3, 2)], ids=lambda number: str(number))
def test_acknowledged_records_survive_disks_that_fail_are_replaced_and_return(
    seed: int, brokers: int, directories: int
) -> None:
    play(seed, brokers=brokers, directories=directories, partitions=2, rounds=ROUNDS)
