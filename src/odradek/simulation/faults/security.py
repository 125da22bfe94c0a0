"""Changes of rights and passwords while clients run."""

from collections.abc import Iterator

from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.workloads.security import Security


def _secured(schedule: Schedule) -> Iterator[Security]:
    return (each for each in schedule.workloads if isinstance(each, Security))


async def revoke_acls(schedule: Schedule, one: int, other: int) -> None:
    """Remove the ACLs of a user until the faults end."""
    del one, other
    for workload in _secured(schedule):
        workload.revoke()

        async def grant(workload: Security = workload) -> None:
            workload.grant()

        schedule.later(grant)


async def rotate_password(schedule: Schedule, one: int, other: int) -> None:
    del one, other
    for workload in _secured(schedule):
        workload.rotate()
