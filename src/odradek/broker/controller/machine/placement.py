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
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any, cast

from odradek.metadata.cluster_load import ClusterLoad, Replicas


def place_in_steps(
    racks: Mapping[int, str | None],
    load: ClusterLoad,
    *,
    partitions: int,
    replication_factor: int,
    existing: Iterable[Replicas] = (),
    away: Collection[int] = (),
) -> Generator[int, None, dict[int, Replicas]]:
    """Return the replicas of `partitions` new partitions, numbered from 0, and add them to `load`.

    Yields each partition's weight for `broker.turns`, which grows with the number of brokers.
    `racks` maps all brokers to their racks. `existing` has the replicas of the topic's other partitions, `away` the
    brokers that cannot lead now. The caller has checked that at least `replication_factor` brokers exist, one not away.
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
        yield 1 + len(racks) // 16
    return assignment


def place(racks: Mapping[int, str | None], load: ClusterLoad, **options: Any) -> dict[int, Replicas]:
    """Return the result of `place_in_steps`."""
    steps = place_in_steps(racks, load, **options)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return cast("dict[int, Replicas]", done.value)
