"""Faults of the start of a broker: its process ends again while it recovers its logs, or it finds damaged files."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

from odradek.broker.log.checkpoints import leader_epoch_cache
from odradek.broker.log.checkpoints.checkpoint_file import CLEANER_OFFSETS, HIGH_WATERMARKS, RECOVERY_POINTS
from odradek.broker.log.names import INDEX, SNAPSHOT, TIME_INDEX
from odradek.model import OdradekError
from odradek.simulation.faults.processes import cut_power, kill, stop
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError, Survival

_LONGEST_START_S: Final = 5.0
_CHECKPOINTS: Final = (leader_epoch_cache.FILE_NAME, RECOVERY_POINTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
"""Those that recovery can do without. `log-start-offset-checkpoint` is the only record of what was deleted."""
_INDEXES: Final = (INDEX, TIME_INDEX)
"""Those that recovery can rebuild; a transaction index that lost its end is valid, as in Kafka."""


async def kill_in_recovery(schedule: Schedule, one: int, other: int) -> None:
    """Kill a broker or cut its power, and again at a change of its disk while it recovers, once or several times."""
    del other
    world, chance = schedule.world, schedule.chance
    host, disk = world.hosts[one], world.simulation.disk(world.hosts[one])
    has_power_cuts = schedule.power_may_go() and chance.random() < 0.5
    await (cut_power if has_power_cuts else kill)(schedule, one, one)
    for _ in range(chance.choice((1, 1, 2, 4))):
        disk.cut_power_at(disk.operations + chance.randrange(1, chance.choice((4, 16, 64))), in_next_job=True)
        if await _start(schedule, one):
            return
        if has_power_cuts:
            world.simulation.cut_power(host, Survival.ANY)


async def damage_files(schedule: Schedule, one: int, other: int) -> None:
    """Kill or stop a broker, damage some of the files that recovery can do without, and start it."""
    del other
    world, chance = schedule.world, schedule.chance
    disk = world.simulation.disk(world.hosts[one])
    directories = world.running[one].config.log_dirs
    await chance.choice((kill, stop))(schedule, one, one)
    paths = [path for directory in directories for path in _damageable(disk, directory)]
    for path in chance.sample(paths, min(len(paths), chance.choice((1, 3, 10)))):
        _damage(schedule, disk, path)
    await _start(schedule, one)


async def _start(schedule: Schedule, one: int) -> bool:
    """Start a broker; return False if its disk's power is cut meanwhile, or another fault prevents the start."""
    world = schedule.world
    try:
        async with asyncio.timeout(_LONGEST_START_S):
            await world.start(one)
    except (PowerCutError, TimeoutError, OdradekError, OSError) as error:
        schedule.note(f"broker {one} does not start: {type(error).__name__}")
        return False
    return True


def _damageable(disk: MemoryDisk, directory: str) -> Iterator[str]:
    for name in disk.list(directory) if disk.exists(directory) else ():
        path = f"{directory}/{name}"
        if name in _CHECKPOINTS or name.endswith((SNAPSHOT, *_INDEXES)):
            yield path
        elif disk.is_directory(path):
            yield from _damageable(disk, path)


def _damage(schedule: Schedule, disk: MemoryDisk, path: str) -> None:
    """Damage a file in a way that recovery can detect, or remove it.

    An index is cut; a bit of a snapshot flips; a snapshot or a checkpoint is halved, filled with zeros or emptied.
    """
    chance, data = schedule.chance, bytearray(disk.read_file(path))
    if path.endswith(SNAPSHOT) and data and chance.random() < 0.5:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif path.endswith(_INDEXES):
        del data[chance.randrange(len(data) + 1) :]
    else:  # half of a checkpoint lacks a line
        data = chance.choice((data[: len(data) // 2], bytearray(len(data)), bytearray()))
    schedule.world.simulation.network.note(f"{path} is damaged: {len(data)} bytes")
    with suppress(OSError):  # there may be no room left
        if chance.random() < 0.2:
            disk.remove(path)
            return
        with closing(disk.open(path)) as file:
            file.truncate(0)
            file.append([data])
