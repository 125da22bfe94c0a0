"""Generates reassignment proposals for the administration commands: to given brokers, or off one broker.

A proposal changes nothing; the command submits it by AlterPartitionReassignments. `generate_assignment` uses
`placement`; `plan_drain` moves only the replicas of the drained broker.
"""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from odradek.broker.controller.machine.placement import Placement
from odradek.metadata.cluster_load import ClusterLoad, Replicas
from odradek.model import TopicPartition

Assignments = Mapping[TopicPartition, Replicas]


class DrainPlan(Struct, frozen=True, kw_only=True):
    """New replicas by partition that empty one broker. Partitions in `stuck` stay, as no other broker is left."""

    targets: Assignments
    stuck: tuple[TopicPartition, ...]


def generate_assignment(
    assigned: Assignments, topics: Mapping[str, Assignments], racks: Mapping[int, str | None]
) -> Assignments:
    """Return replicas for all partitions of `topics` on the brokers of `racks`, as if the topics were created now.

    `assigned` has the replicas of all partitions of the cluster. Replication factors stay; the caller has checked that
    there are enough brokers.
    """
    load = ClusterLoad()
    load.add(replicas for key, replicas in assigned.items() if key.topic not in topics)
    planned: dict[TopicPartition, Replicas] = {}
    for partitions in topics.values():
        by_factor: dict[int, list[TopicPartition]] = {}
        for key in sorted(partitions):
            by_factor.setdefault(len(partitions[key]), []).append(key)
        placed: list[Replicas] = []
        for factor, keys in sorted(by_factor.items(), reverse=True):
            placement = Placement(racks, load, replication_factor=factor, existing=placed)
            found = [placement.place() for _ in keys]
            placed += found
            planned |= zip(keys, found, strict=True)
    return planned


def plan_drain(broker_id: int, assigned: Assignments, racks: Mapping[int, str | None]) -> DrainPlan:
    """Return new replicas, without `broker_id`, for every partition of this broker; the other replicas stay.

    `assigned` are the replicas of all partitions, after reassignments in progress; `racks` has the live brokers. The
    new replica is on a rack without another replica if possible, then on the broker with the fewest replicas of the
    topic, then of the cluster. If `broker_id` was the preferred leader, the new one is the live replica that is
    preferred leader of the fewest partitions of the topic.
    """
    candidates = {broker: rack for broker, rack in racks.items() if broker != broker_id}
    load = ClusterLoad()
    load.add(assigned.values())
    per_topic: dict[str, ClusterLoad] = {}
    for key, replicas in assigned.items():
        per_topic.setdefault(key.topic, ClusterLoad()).add((replicas,))
    targets: dict[TopicPartition, Replicas] = {}
    stuck = []
    for key in sorted(key for key, replicas in assigned.items() if broker_id in replicas):
        before = assigned[key]
        topic = per_topic[key.topic]
        others = tuple(replica for replica in before if replica != broker_id)
        successor = _successor(others, candidates, topic.replicas, load.replicas)
        if successor is None:
            stuck.append(key)
            continue
        after = tuple(successor if replica == broker_id else replica for replica in before)
        if before[0] == broker_id:
            leader = min(
                (*others, successor),
                key=lambda replica: (replica not in racks, topic.leaders[replica], load.leaders[replica]),
            )
            after = (leader, *(replica for replica in after if replica != leader))
        for each in (load, topic):
            each.remove((before,))
            each.add((after,))
        targets[key] = after
    return DrainPlan(targets=targets, stuck=tuple(stuck))


def _successor(
    others: Replicas, candidates: Mapping[int, str | None], of_topic: Counter[int], of_cluster: Counter[int]
) -> int | None:
    taken = {candidates.get(other) for other in others} - {None}
    free = (broker for broker in candidates if broker not in others)
    return min(
        free,
        key=lambda broker: (candidates[broker] in taken, of_topic[broker], of_cluster[broker], broker),
        default=None,
    )
