"""How many partitions each member gets: first as balanced as possible, then by rack, then with the fewest moves.

Partitions are interchangeable within a group: those with the same subscribers and, where racks matter, with replicas on
the same racks. Members and groups are rows and columns of matrices of counts. Used by `sticky_placement`, which
decides which partitions these are.

With one group and without racks, `level` is exact. Else, each group in turn is levelled until none changes: then no
member has two partitions less than another from which it may take one. `cheapest_cycles` then finds the best of all
solutions, if the matrix is small enough.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from odradek.assignors.cheapest_cycles import cancel_negative_cycles
from odradek.model.values import dataclass

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_MAX_EXACT_CELLS: Final = 1 << 16
"""Members times groups up to which the best solution is searched for; the search takes milliseconds a step at this
size, and larger groups are levelled well already."""


@dataclass(slots=True, kw_only=True)
class Groups:
    """Members as rows, groups of interchangeable partitions as columns."""

    totals: Counts
    """Partitions of each group."""
    kept: Counts
    """Partitions of each group that each member had and may keep."""
    subscribed: Flags
    matches: Flags
    """Whether the member has no rack, or one with replicas of the group."""


def balanced_counts(groups: Groups) -> Counts:
    """Return how many partitions of each group each member gets. Groups without subscribers are not assigned."""
    counts = groups.kept.copy()
    loads = counts.sum(axis=1)
    order = np.argsort(groups.subscribed.sum(axis=0), kind="stable")
    subscribers = {int(group): np.flatnonzero(groups.subscribed[:, group]) for group in order}
    for group, members in subscribers.items():
        _add_unassigned(groups, group, members, counts, loads)
    is_changing = True
    while is_changing:
        is_changing = False
        for group, members in subscribers.items():
            if len(members) > 1:
                have = counts[members, group]
                levelled = level(loads[members] - have, have, int(have.sum()))
                if not np.array_equal(levelled, have):
                    loads[members] += levelled - have
                    counts[members, group] = levelled
                    is_changing = len(subscribers) > 1
    is_optimal = len(subscribers) == 1 and bool(groups.matches.all())
    if not is_optimal and counts.size <= _MAX_EXACT_CELLS:
        cancel_negative_cycles(counts, groups.kept, groups.subscribed, ~groups.matches)
    return counts


def level(base: Counts, have: Counts, total: int) -> Counts:
    """Spread `total` over members with other loads `base` as evenly as possible, with the fewest changes from `have`.

    All members end at or one above one level, except those whose `base` is above it: these get nothing.
    """
    ascending = np.sort(base)
    sums = np.concatenate(([0], np.cumsum(ascending)))
    needed = np.arange(len(base)) * ascending - sums[:-1]
    count = int(np.searchsorted(needed, total, side="right"))
    height, more = divmod(total + int(sums[count]), count)
    levelled: Counts = np.maximum(height - base, 0)
    takers = np.flatnonzero(base <= height)
    preferred = takers[np.argsort(have[takers] <= levelled[takers], kind="stable")]
    levelled[preferred[:more]] += 1
    return levelled


def _add_unassigned(groups: Groups, group: int, members: Counts, counts: Counts, loads: Counts) -> None:
    """Give the partitions of the group without a previous owner to subscribers with few partitions."""
    unassigned = int(groups.totals[group] - groups.kept[:, group].sum())
    near = members[groups.matches[members, group]]
    chosen = near if len(near) else members
    if unassigned and len(chosen):
        added = level(loads[chosen], np.zeros_like(chosen), unassigned)
        counts[chosen, group] += added
        loads[chosen] += added
