"""How many replicas and preferred leaderships each broker has."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

Replicas = tuple[int, ...]


class ClusterLoad(Struct, kw_only=True):
    """Each broker's number of partitions of which it is the preferred leader, and its number of replicas."""

    leaders: Counter[int] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)

    def add(self, assignment: Iterable[Replicas]) -> None:
        for replicas in assignment:
            self.replicas.update(replicas)
            self.leaders.update(replicas[:1])

    def remove(self, assignment: Iterable[Replicas]) -> None:
        for replicas in assignment:
            self.replicas.subtract(replicas)
            self.leaders.subtract(replicas[:1])

    def copy(self) -> "ClusterLoad":
        return ClusterLoad(leaders=self.leaders.copy(), replicas=self.replicas.copy())
