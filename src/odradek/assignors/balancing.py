"""How many partitions each member gets in the sticky assignors: balance first, then racks, then the fewest moves.

A group here is a set of interchangeable partitions, with the same subscribers and, if racks matter, replicas on the
same racks. Matrices of counts have a row per member and a column per group. `sticky_placement` chooses the partitions.

With one group and without racks, `level` is optimal. Otherwise each group is levelled in turn until no count changes,
and if the matrix is small enough, `cheapest_cycles` finds the optimum.
"""

from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from odradek.assignors.cheapest_cycles import cancel_negative_cycles

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_MAX_EXACT_CELLS: Final = 1 << 16
"""Limit of members times groups for the search of the optimum: a step takes milliseconds at this size, and larger
inputs are balanced well without the search."""


class Groups(Struct, kw_only=True):
    """Members as rows, groups of interchangeable partitions as columns."""

    totals: Counts
    """The number of partitions of each group."""
    kept: Counts
    """The number of partitions of each group that each member had and still subscribes to."""
    subscribed: Flags
    matches: Flags
    """Whether the member has no rack, or its rack has replicas of the group."""


def balanced_counts(groups: Groups) -> Counts:
    """Return how many partitions of each group each member gets. Groups without subscribers stay unassigned."""
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
    """Distribute `total` partitions so that the members' loads, `base` plus share, are as equal as possible.

    Return the shares, with the fewest changes from `have`. Members with a `base` above the common load get none.
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
    """Add the partitions that no member keeps to the subscribers with the lowest loads, by rack if possible."""
    unassigned = int(groups.totals[group] - groups.kept[:, group].sum())
    near = members[groups.matches[members, group]]
    chosen = near if len(near) else members
    if unassigned and len(chosen):
        added = level(loads[chosen], np.zeros_like(chosen), unassigned)
        counts[chosen, group] += added
        loads[chosen] += added
