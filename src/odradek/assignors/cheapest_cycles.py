"""Finds the optimal partition counts for `balancing`: a minimum-cost flow, improved by one negative cycle at a time.

Nodes are the members, the groups of partitions, and one sink. Arcs:

    member → group   the member gives away one partition of the group
    group → member   the member takes one partition of the group
    sink → member    the member's total decreases by one
    member → sink    the member's total increases by one

So a cycle leaves all partitions assigned, and counts without a negative cycle are optimal (Klein 1967). Costs, by
priority: the sum of squares of the members' totals; partitions whose member is on another rack; moved partitions.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

_NEVER: Final = 1 << 60
"""The cost of an arc that does not exist."""
_NO_NODE: Final = -1


class _Weights(NamedTuple):
    rack: int
    load: int


def cancel_negative_cycles(counts: Counts, kept: Counts, subscribed: Flags, mismatched: Flags) -> None:
    """Make `counts` optimal, in place. Rows are members, columns are groups."""
    weights = _weights(*counts.shape)
    loads = counts.sum(axis=1)
    rack_cost = mismatched * weights.rack
    while True:
        give = np.where(counts > 0, -(rack_cost + (counts > kept)), _NEVER)
        take = np.where(subscribed, rack_cost + (counts >= kept), _NEVER)
        cycle = _negative_cycle(give, take, loads * weights.load, weights.load)
        if not cycle:
            return
        _apply(cycle, counts, kept, loads)


def _weights(members: int, groups: int) -> _Weights:
    """Return weights such that one unit of a cost exceeds all costs of lower priority in a cycle together."""
    arcs = 2 * min(members, groups) + 2
    return _Weights(rack=arcs + 1, load=arcs * (arcs + 2) + 1)


def _negative_cycle(give: Counts, take: Counts, load_cost: Counts, unit: int) -> list[int]:
    """Return the nodes of a negative cycle in the order of its arcs; empty if there is none (Bellman-Ford).

    Nodes are numbered: first the members, then the groups, last the sink.
    """
    member_count, group_count = give.shape
    sink = member_count + group_count
    members, groups = np.arange(member_count), np.arange(group_count)
    distance = np.zeros(sink + 1, np.int64)
    before = np.full(sink + 1, _NO_NODE)
    of_members, of_groups = distance[:member_count], distance[member_count:sink]
    before_members, before_groups = before[:member_count], before[member_count:sink]

    def shorten(to: Counts, via: Counts, found: Counts, source: Counts | int) -> bool:
        better = found < to
        to[better] = found[better]
        via[better] = source if isinstance(source, int) else source[better]
        return bool(better.any())

    while True:
        is_changed = shorten(of_members, before_members, distance[sink] - load_cost, sink)
        through = of_members[:, None] + give
        best = through.argmin(axis=0)
        is_changed |= shorten(of_groups, before_groups, through[best, groups], best)
        through = of_groups[None, :] + take
        best = through.argmin(axis=1)
        is_changed |= shorten(of_members, before_members, through[members, best], best + member_count)
        through = of_members + load_cost + unit
        last = through.argmin()
        if through[last] < distance[sink]:
            distance[sink], before[sink], is_changed = through[last], last, True
        if not is_changed:
            return []
        if cycle := _cycle(before.tolist()):
            return cycle


def _cycle(before: list[int]) -> list[int]:
    """Return a cycle of the graph in which `before` has each node's predecessor, or -1; empty if there is none."""
    seen_from = [_NO_NODE] * len(before)
    for start in range(len(before) - 1, -1, -1):
        node = start
        while node != _NO_NODE and seen_from[node] == _NO_NODE:
            seen_from[node] = start
            node = before[node]
        if node != _NO_NODE and seen_from[node] == start:
            cycle = [node]
            while before[cycle[-1]] != node:
                cycle.append(before[cycle[-1]])
            return cycle[::-1]
    return []


def _apply(cycle: list[int], counts: Counts, kept: Counts, loads: Counts) -> None:
    """Move partitions along a cycle of negative cost, as many as possible before one of its costs changes.

    Updates `counts` and `loads`.
    """
    member_count = len(counts)
    sink = member_count + counts.shape[1]
    arcs = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    limits = []
    for source, target in arcs:
        if sink in (source, target):
            continue
        member, group = min(source, target), max(source, target) - member_count
        count, had = int(counts[member, group]), int(kept[member, group])
        if source < member_count:
            limits.append(count - had if count > had else count)
        elif count < had:
            limits.append(had - count)
    if sink in cycle:
        position = cycle.index(sink)
        less, more = cycle[(position + 1) % len(cycle)], cycle[position - 1]
        limits.append(max(1, int(loads[less] - loads[more]) // 2))
    amount = min(limits)
    for source, target in arcs:
        if source == sink:
            loads[target] -= amount
        elif target == sink:
            loads[source] += amount
        elif source < member_count:
            counts[source, target - member_count] -= amount
        else:
            counts[target, source - member_count] += amount
