"""Figures that compare strategies: balance, idle members, moved and stopped partitions, reads in the member's rack."""

from collections.abc import Sequence

from msgspec import Struct

from odradek.assignors import ASSIGNOR_NAMES
from odradek.lab.case import Case, LabError
from odradek.lab.notebook import html
from odradek.lab.runs import Run, run_strategy


class Measures(Struct, frozen=True, kw_only=True):
    """The figures of a strategy's settled result."""

    strategy: str
    protocol: str
    fewest: int
    """The partition count of the member with the fewest."""
    most: int
    idle: int
    """Members without a partition."""
    moved: int
    """Partitions with another owner than before."""
    stopped: int
    """Owned partitions that are not read for a while: all of them if the protocol stops all, else those that move."""
    local: int | None
    """Partitions with a replica on their member's rack; None if no rack is known."""
    generations: int
    """Rebalances until no partition moves."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Strategies side by side on the same case."""

    members: int
    partitions: int
    rows: tuple[Measures, ...]
    errors: tuple[LabError, ...] = ()
    """The errors of built-in strategies that refuse the case."""

    def _repr_html_(self) -> str:
        return html(self)


def compare(case: Case, strategies: Sequence[str] = ()) -> Comparison:
    """Run strategies, by default all built-in ones, on a case. Raises `LabError` if one of `strategies` refuses it."""
    rows, errors = [], []
    for strategy in dict.fromkeys(strategies or ASSIGNOR_NAMES):
        try:
            rows.append(measure(case, run_strategy(case, strategy)))
        except LabError as error:
            if strategies:
                raise
            errors.append(error)
    return Comparison(
        members=len(case.members), partitions=case.partition_count, rows=tuple(rows), errors=tuple(errors)
    )


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
