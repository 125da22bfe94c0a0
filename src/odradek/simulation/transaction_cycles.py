"""Cycles in the dependency graph of transactions, by Adya's definitions.

An edge says that its source comes before its target:

    ww    both wrote to one place, and the version of the target follows
    wr    the target read what the source wrote
    rw    the source did not see what the target wrote: it read the version before that
    id    the target is the next transaction of the same transactional id

A place is a partition, or the offset of a group in a partition. The edges of a cycle contradict each other. Without a
cycle, the search takes time that is linear in the number of edges.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple


class Dependency(StrEnum):
    """The kinds of edges, which the module explains."""

    WW = "ww"
    WR = "wr"
    RW = "rw"
    ID = "id"


class Edge(NamedTuple):
    """A dependency between the transactions `source` and `target`; `place` is a text."""

    source: str
    target: str
    kind: Dependency
    place: str = ""

    def __str__(self) -> str:
        return f"{self.source} → {self.target} ({' '.join(filter(None, (self.kind, self.place)))})"


def cycles(edges: Iterable[Edge]) -> Iterator[list[Edge]]:
    """Yield one cycle of each strongly connected component: without rw edges, else with one, else with any."""
    edges = [edge for edge in edges if edge.source != edge.target]
    for component in _components(_by_source(edges)):
        yield _cycle([edge for edge in edges if edge.source in component and edge.target in component])


def _cycle(edges: Sequence[Edge]) -> list[Edge]:
    writes = [edge for edge in edges if edge.kind is Dependency.WW]
    missed = [edge for edge in edges if edge.kind is Dependency.RW]
    flow = [edge for edge in edges if edge.kind is not Dependency.RW]
    for starts, others in ((writes, writes), (flow, flow), (missed, flow), (missed, edges)):
        after = _by_source(others)
        for edge in starts:
            if path := _path(after, edge.target, edge.source):
                return [edge, *path]
    raise AssertionError("a strongly connected component has no cycle")


def _path(after: dict[str, list[Edge]], start: str, end: str) -> list[Edge]:
    """Return a shortest path between two transactions; empty if there is none."""
    last: dict[str, Edge] = {}
    queue = deque([start])
    while queue and end not in last:
        for edge in after.get(queue.popleft(), ()):
            if edge.target not in last and edge.target != start:
                last[edge.target] = edge
                queue.append(edge.target)
    path: list[Edge] = []
    while end in last:
        path.append(last[end])
        end = last[end].source
    return path[::-1]


def _components(after: dict[str, list[Edge]]) -> Iterator[set[str]]:
    """Yield the strongly connected components of several transactions: Tarjan's algorithm, without recursion."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: dict[str, None] = {}
    for root in after:
        calls = [] if root in numbers else [(root, iter(after[root]))]
        while calls:
            name, left = calls[-1]
            if name not in numbers:
                numbers[name] = lowest[name] = len(numbers)
                stack[name] = None
            for edge in left:
                if edge.target not in numbers:
                    calls.append((edge.target, iter(after.get(edge.target, ()))))
                    break
                if edge.target in stack:
                    lowest[name] = min(lowest[name], numbers[edge.target])
            else:
                calls.pop()
                if calls:
                    caller = calls[-1][0]
                    lowest[caller] = min(lowest[caller], lowest[name])
                if lowest[name] == numbers[name]:
                    component = {stack.popitem()[0]}
                    while name not in component:
                        component.add(stack.popitem()[0])
                    if len(component) > 1:
                        yield component


def _by_source(edges: Iterable[Edge]) -> dict[str, list[Edge]]:
    after: dict[str, list[Edge]] = defaultdict(list)
    for edge in edges:
        after[edge.source].append(edge)
    return after
