"""Faults of time: processes that do not run for a while, and clocks that drift or jump."""

import asyncio

from odradek.simulation.faults.schedule import Schedule


async def pause(schedule: Schedule, one: int, other: int) -> None:
    """Stop a broker's process as SIGSTOP does. One time in two, its session expires before it continues."""
    del other
    world, expires = schedule.world, schedule.chance.random() < 0.5
    reconnects_after_s = schedule.chance.choice((0.0, 0.01, 0.5))
    broker, store = world.running[one], world.store(one)
    world.pause(one)

    async def resume() -> None:
        if world.running.get(one) is not broker:
            return
        if expires:
            world.tree.expire(store.session_id)
        world.resume(one)
        await asyncio.sleep(reconnects_after_s)
        store.reconnect()

    schedule.later(resume)


async def pause_client(schedule: Schedule, one: int, other: int) -> None:
    """Stop a client's process as SIGSTOP does."""
    del one, other
    simulation, client = schedule.world.simulation, schedule.chance.choice(schedule.clients)
    simulation.pause(client)

    async def resume() -> None:
        simulation.resume(client)

    schedule.later(resume)


async def jump_clock(schedule: Schedule, one: int, other: int) -> None:
    """Set the wall clocks of all hosts forward or back, but not their monotonic clocks."""
    del one, other
    _note_jump(schedule)
    schedule.world.simulation.clock.wall_offset_ms += schedule.chance.choice((-3_600_000, -1_000, 1_000, 600_000))


async def jump_one_clock(schedule: Schedule, one: int, other: int) -> None:
    """Set the wall clock of a broker or a client forward or back, and later to the right time."""
    del other
    _note_jump(schedule)
    clock = schedule.world.simulation.clock.host(_any_host(schedule, one))
    clock.wall_offset_ms = schedule.chance.choice((-600_000, -5_000, 5_000, 600_000))

    async def correct() -> None:
        clock.wall_offset_ms = 0

    schedule.later(correct)


async def drift(schedule: Schedule, one: int, other: int) -> None:
    """Let the clocks and timers of a broker or a client run 500 ppm or 3 % too fast or too slow."""
    del other
    simulation, host = schedule.world.simulation, _any_host(schedule, one)
    simulation.set_rate(host, schedule.chance.choice((0.9995, 1.0005, 0.97, 1.03)))

    async def stop_drifting() -> None:
        simulation.set_rate(host, 1.0)

    schedule.later(stop_drifting)


def _note_jump(schedule: Schedule) -> None:
    for workload in schedule.workloads:
        workload.clocks_have_jumped = True


def _any_host(schedule: Schedule, one: int) -> str:
    """Return the host of the broker, or, one time in two, of a client if there are some."""
    chance = schedule.chance
    is_client = chance.random() < 0.5 and schedule.clients
    return chance.choice(schedule.clients) if is_client else schedule.world.hosts[one]
