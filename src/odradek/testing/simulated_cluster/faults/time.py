"""Faults of clocks."""

from odradek.testing.simulated_cluster.faults.schedule import Schedule


async def jump_clock(schedule: Schedule, one: int, other: int) -> None:
    """Set the wall clocks of all hosts forward or back, but not their monotonic clocks."""
    del one, other
    schedule.world.simulation.clock.wall_offset_ms += schedule.chance.choice((-3_600_000, -1_000, 1_000, 600_000))
