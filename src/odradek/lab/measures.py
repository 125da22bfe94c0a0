"""Figures that compare strategies: balance, idle members, moves, partitions that stop, reads from the own rack."""

from odradek.lab.case import Case
from odradek.lab.runs import Run
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The figures of a strategy's result at rest."""

    strategy: str
    protocol: str
    fewest: int
    """Partitions of the member with the fewest."""
    most: int
    idle: int
    """Members without a partition."""
    moved: int
    """Partitions with another owner than before."""
    stopped: int
    """Owned partitions that are not read for a while: all if members stop for a rebalance, else those that move."""
    local: int | None
    """Partitions with a replica on their member's rack; None if no rack is known."""
    generations: int
    """Rebalances until nothing moves."""


def measure(case: Case, run: Run) -> Measures:
    """Return the figures of `run`, which `run_strategy` has returned for `case`."""
    counts = [len(partitions) for partitions in run.settled.values()]
    before = case.owners()
    moved = 0
    if before:
        after = run.owners()
        moved = sum(after.get(partition) != owner for partition, owner in before.items())
    return Measures(
        strategy=run.strategy,
        protocol=run.protocol.value,
        fewest=min(counts, default=0),
        most=max(counts, default=0),
        idle=counts.count(0),
        moved=moved,
        stopped=len(before) if run.protocol.stops_all else moved,
        local=_local(case, run),
        generations=run.generations,
    )


def _local(case: Case, run: Run) -> int | None:
    if not case.replica_racks or not any(member.rack for member in case.members.values()):
        return None
    return sum(
        case.members[member].rack in racks[number]
        for member, partitions in run.settled.items()
        for topic, number in partitions
        if number < len(racks := case.replica_racks.get(topic, ()))
    )
