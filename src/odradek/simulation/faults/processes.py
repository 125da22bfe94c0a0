"""Faults of brokers' processes and machines."""

from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.virtual.disk import Survival


def _start_later(schedule: Schedule, one: int) -> None:
    async def start() -> None:
        if one not in schedule.world.running:
            await schedule.world.start(one)

    schedule.later(start)


async def kill(schedule: Schedule, one: int, other: int) -> None:
    del other
    await schedule.world.kill(one)
    _start_later(schedule, one)


async def cut_power(schedule: Schedule, one: int, other: int) -> None:
    """Cut the power of a broker's machine, which loses what it did not sync."""
    del other
    await schedule.world.cut_power(Survival.ANY, one)
    _start_later(schedule, one)


async def stop(schedule: Schedule, one: int, other: int) -> None:
    del other
    await schedule.world.stop(one)
    _start_later(schedule, one)
