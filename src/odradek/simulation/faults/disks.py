"""Faults of brokers' disks."""

import asyncio
import errno
from collections.abc import Callable

from odradek.protocol.batches.record_batch import CRC_START
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.promises import PATIENCE_S
from odradek.simulation.virtual.disk import MemoryDisk
from odradek.simulation.world import cancel, until


async def flip_bit(schedule: Schedule, one: int, other: int) -> None:
    """Flip a bit in a log that a broker leads, and read the log until the broker detects it.

    This happens once in a schedule, while every replica is in sync and no other fault lasts: no promise covers damage
    to the last copy.
    """
    del other
    world, chance = schedule.world, schedule.chance
    led = [each for each in world.running[one].partitions if each.topic_partition.topic in schedule.topics]
    if not schedule.is_quiet() or schedule.has_flipped or not led:
        return
    world.simulation.network.heal()  # the broker that takes over must receive the controller's requests
    partition = chance.choice(sorted(led, key=lambda each: each.topic_partition))
    log, disk = partition.log, world.simulation.disk(world.hosts[one])
    # Consumers do not read what was deleted from the start of a segment.
    written = [
        (segment, batch)
        for segment in log.segments
        for batch in segment.scan()
        if batch[1].base_offset >= log.log_start_offset
    ]
    if not written:
        return
    segment, batch = chance.choice(written)
    position, bit = batch[0] + chance.randrange(CRC_START, batch[1].size), 1 << chance.randrange(8)
    _flip(disk, segment.log.path, position, bit)
    schedule.has_flipped = True
    place = partition.topic_partition
    world.simulation.network.note(f"a bit of {place} at offset {batch[1].base_offset} has flipped")
    async with asyncio.timeout(PATIENCE_S), world.consumer("finder") as consumer:
        consumer.assign([place])
        while log.suspected.damage is None:
            if log.log_start_offset > batch[1].base_offset:
                return  # it was deleted before a consumer read it
            if place not in {each.topic_partition for each in world.running[one].partitions}:
                _flip(disk, segment.log.path, position, bit)  # another broker leads: consumers do not read this log
                return
            consumer.seek(place, batch[1].base_offset)
            await consumer.poll(1_000)
            await asyncio.sleep(0.01)
    await until(lambda: world.running[one].logs.get(place) is not log, within_s=PATIENCE_S)
    await schedule.until_whole()


def _flip(disk: MemoryDisk, path: str, position: int, bit: int) -> None:
    data = bytearray(disk.read_file(path))
    data[position] ^= bit
    file = disk.open(path)
    file.truncate(0)
    file.append([data])


async def fill_disk(schedule: Schedule, one: int, other: int) -> None:
    """Leave at most 3,000 bytes free on a broker's disk."""
    del other
    disk = schedule.world.simulation.disk(schedule.world.hosts[one])
    disk.capacity_bytes = disk.used_bytes() + schedule.chance.choice((0, 100, 3_000))

    async def empty() -> None:
        disk.capacity_bytes = None

    schedule.repair_later(empty)


async def fail_syncs(schedule: Schedule, one: int, other: int) -> None:
    """Fail a broker's next fsync, or the next three, with EIO; the kernel then forgets what it should have written."""
    del other
    disk = schedule.world.simulation.disk(schedule.world.hosts[one])
    disk.fail_next("sync", errno.EIO, count=schedule.chance.choice((1, 3)))
    _end_with_the_last_directory(schedule, one, disk.forget_failures)


async def lose_directory(schedule: Schedule, one: int, other: int) -> None:
    """Fail every use of a data directory with EIO, as a dead disk does."""
    del other
    disk = schedule.world.simulation.disk(schedule.world.hosts[one])
    path = schedule.chance.choice(schedule.world.running[one].config.log_dirs)
    disk.broken.add(path)
    _end_with_the_last_directory(schedule, one, lambda: disk.broken.discard(path))


def _end_with_the_last_directory(schedule: Schedule, one: int, repair: Callable[[], object]) -> None:
    """End a broker when its last directory has failed. After the repair, start it, or restart it."""
    world, broker = schedule.world, schedule.world.running[one]

    async def end() -> None:
        await broker.failed.wait()
        if world.running.get(one) is broker:
            schedule.note(f"broker {one} has no data directory left")
            await world.kill(one)

    ending = asyncio.create_task(end(), name=f"directories of broker {one}")

    async def repair_disk() -> None:
        repair()

    async def restart() -> None:
        await cancel(ending)
        running = world.running.get(one)
        # Another fault may have started it again before the repair: then it may lack the directory, too.
        if running is not None and (running is broker or running.logs.directories.offline):
            await world.kill(one)
        if one not in world.running:
            await world.start(one)

    schedule.repair_later(repair_disk)
    schedule.later(restart)


async def slow_disk(schedule: Schedule, one: int, other: int) -> None:
    del other
    disk = schedule.world.simulation.disk(schedule.world.hosts[one])
    disk.delay_s = (0.0, schedule.chance.choice((0.05, 0.5)))

    async def hasten() -> None:
        disk.delay_s = (0.0, 0.0)

    schedule.repair_later(hasten)


async def take_descriptors(schedule: Schedule, one: int, other: int) -> None:
    """Let a broker open at most two more files than it has open."""
    del other
    disk = schedule.world.simulation.disk(schedule.world.hosts[one])
    disk.most_open_files = disk.open_files + schedule.chance.choice((0, 2))

    async def release() -> None:
        disk.most_open_files = None

    schedule.repair_later(release)
