"""Which brokers hold a topic's new partitions.

One partition after the other, each choice the best at that moment:
- the leader: the broker that leads the fewest partitions of this topic, then of the cluster;
- each follower: a rack that this partition has not got yet, then the fewest replicas of this topic, then the fewest
  pairs with this leader (so that a dead broker's partitions move to many others), then the fewest of the cluster.
Ties go to the lowest id. A topic is thus spread over all brokers, and a new broker is filled by new topics.

Brokers that are away become replicas where the live ones are too few, and never leaders, as in KRaft.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from odradek.model.values import dataclass, field

Replicas = tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class ClusterLoad:
    """How many partitions each broker leads, by preference, and how many replicas it has."""

    leaders: Counter[int] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)

    def add(self, assignment: Iterable[Replicas]) -> None:
        """Count a topic's replicas in."""
        for replicas in assignment:
            self.replicas.update(replicas)
            self.leaders.update(replicas[:1])

    def remove(self, assignment: Iterable[Replicas]) -> None:
        """Count a topic's replicas out."""
        for replicas in assignment:
            self.replicas.subtract(replicas)
            self.leaders.subtract(replicas[:1])

    def copy(self) -> "ClusterLoad":
        """The same load, to plan with."""
        return ClusterLoad(leaders=self.leaders.copy(), replicas=self.replicas.copy())


def place(
    racks: Mapping[int, str | None],
    load: ClusterLoad,
    *,
    partitions: int,
    replication_factor: int,
    existing: Iterable[Replicas] = (),
    away: Collection[int] = (),
) -> dict[int, Replicas]:
    """Replicas of `partitions` new partitions on brokers with these `racks`, by number from 0, and `load` counted on.

    `existing` are the topic's partitions so far, `away` those of the brokers that can't lead now. There are at least
    `replication_factor` brokers, and one that is not away; the caller has checked.
    """
    live = [broker for broker in racks if broker not in away]
    assert live
    assert 0 < replication_factor <= len(racks)
    leaders: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for leader, *followers in existing:
        leaders[leader] += 1
        replicas.update((leader, *followers))
        pairs.update((leader, follower) for follower in followers)
    assignment: dict[int, Replicas] = {}
    for partition in range(partitions):
        leader = min(live, key=lambda broker: (leaders[broker], load.leaders[broker], broker))
        chosen = [leader]
        while len(chosen) < replication_factor:
            taken = {racks[broker] for broker in chosen if racks[broker] is not None}
            free = (broker for broker in racks if broker not in chosen)
            follower = min(
                free,
                key=lambda broker: (
                    broker in away,
                    racks[broker] in taken,
                    replicas[broker],
                    pairs[leader, broker],
                    load.replicas[broker],
                    broker,
                ),
            )
            pairs[leader, follower] += 1
            chosen.append(follower)
        leaders[leader] += 1
        replicas.update(chosen)
        load.add((tuple(chosen),))
        assignment[partition] = tuple(chosen)
    return assignment
