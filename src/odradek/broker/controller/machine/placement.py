"""Replica placement: the brokers that hold a topic's new partitions.

Partitions are placed one after the other:
- the leader: the broker that leads the fewest partitions of this topic, then of the cluster;
- each follower: a broker of a rack without a replica of this partition, then with the fewest replicas of this topic,
  then the fewest pairs with this leader (so that a dead broker's partitions move to many others), then the fewest
  replicas of the cluster.
Ties go to the lowest id. As in KRaft, brokers that cannot lead now (`away`) become replicas only where the others are
too few, and never leaders.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from odradek.metadata.cluster_load import ClusterLoad, Replicas


class Placement:
    """The placement of one topic's new partitions. `racks` maps all brokers to their racks.

    `existing` has the replicas of the topic's other partitions, `away` the brokers that cannot lead now. The caller has
    checked that at least `replication_factor` brokers exist, one not away.
    """

    def __init__(
        self,
        racks: Mapping[int, str | None],
        load: ClusterLoad,
        *,
        replication_factor: int,
        existing: Iterable[Replicas] = (),
        away: Collection[int] = (),
    ) -> None:
        self._racks = racks
        self._load = load
        self._replication_factor = replication_factor
        self._away = away
        self._live = [broker for broker in racks if broker not in away]
        assert self._live
        assert 0 < replication_factor <= len(racks)
        self._leaders: Counter[int] = Counter()
        self._replicas: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()
        for leader, *followers in existing:
            self._leaders[leader] += 1
            self._replicas.update((leader, *followers))
            self._pairs.update((leader, follower) for follower in followers)

    @property
    def weight(self) -> int:
        """The weight of a partition for `broker.turns`, which grows with the number of brokers."""
        return 1 + len(self._racks) // 16

    def place(self) -> Replicas:
        """Return the replicas of the next partition, and add them to `load`."""
        racks, load, away, replicas, pairs = self._racks, self._load, self._away, self._replicas, self._pairs
        leader = min(self._live, key=lambda broker: (self._leaders[broker], load.leaders[broker], broker))
        chosen = [leader]
        while len(chosen) < self._replication_factor:
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
        self._leaders[leader] += 1
        replicas.update(chosen)
        load.add((tuple(chosen),))
        return tuple(chosen)
