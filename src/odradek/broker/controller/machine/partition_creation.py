"""CreatePartitions: validation and placement of new partitions of an existing topic.

The topic's node gets their replicas; their states are created afterwards (`initialization`), as for partitions that a
tool wrote into the node. Unlike Kafka, this refuses internal topics that are partitioned by the hash of a name: after a
change of the count, coordinators would not find their records.
"""

from collections.abc import Collection, Generator, Mapping, Sequence

from msgspec import Struct

from odradek.broker.controller.machine.placement import place_in_steps
from odradek.broker.controller.machine.topic_creation import (
    MAX_PARTITIONS,
    PartitionLimit,
    check_replicas,
    check_replication_factor,
)
from odradek.metadata.cluster_load import ClusterLoad, Replicas
from odradek.metadata.image import BrokerImage, TopicImage
from odradek.model import ErrorCode, KafkaError
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

_FIXED = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})


class NewPartitions(Struct, frozen=True, kw_only=True):
    """A request for `count` partitions in all. `assignment` lists the replicas of the new ones; if None, place them."""

    topic: str
    count: int
    assignment: Sequence[Replicas] | None = None


def plan_partitions(
    wanted: NewPartitions,
    topic: TopicImage | None,
    *,
    brokers: Mapping[int, BrokerImage],
    away: Collection[int] = (),
    load: ClusterLoad,
    room: PartitionLimit,
) -> Generator[int, None, dict[int, Replicas]]:
    """Place each new partition in steps, and add it to `load`. Raises `KafkaError` for an invalid request.

    The replication factor is that of the topic's first partition, after its reassignment if one is in progress.
    `brokers` are all registered brokers, and `away` those of them that cannot lead now.
    """
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {wanted.topic}")
    if topic.name in _FIXED:
        message = f"{topic.name} keeps its number of partitions: what is in them is found by a hash of names"
        raise KafkaError(ErrorCode.invalid_partitions, message)
    first_new = max(topic.partitions, default=-1) + 1
    added = wanted.count - first_new
    if added <= 0:
        problem = "has as many" if not added else "would lose some"
        message = f"the topic {topic.name} has {first_new} partitions; with {wanted.count} it {problem}"
        raise KafkaError(ErrorCode.invalid_partitions, message)
    if added > MAX_PARTITIONS:
        message = f"a topic gets at most {MAX_PARTITIONS:,} partitions more at once, not {added:,}"
        raise KafkaError(ErrorCode.policy_violation, message)
    existing = [replicas for number in sorted(topic.partitions) if (replicas := _final_replicas(topic, number))]
    replication_factor = len(existing[0]) if existing else 1
    if wanted.assignment is not None:
        if len(wanted.assignment) != added:
            message = f"{added} partitions are added, and {len(wanted.assignment)} are assigned"
            raise KafkaError(ErrorCode.invalid_replica_assignment, message)
        assignment = {first_new + place: tuple(replicas) for place, replicas in enumerate(wanted.assignment)}
        for number, replicas in assignment.items():
            check_replicas(number, replicas, replication_factor, brokers, away)
        room.take(added)
        load.add(assignment.values())
        return assignment
    check_replication_factor(replication_factor, brokers)
    racks = {broker_id: broker.rack for broker_id, broker in sorted(brokers.items())}
    room.take(added)
    placed = yield from place_in_steps(
        racks, load, partitions=added, replication_factor=replication_factor, existing=existing, away=away
    )
    return {first_new + number: replicas for number, replicas in placed.items()}


def _final_replicas(topic: TopicImage, number: int) -> Replicas:
    partition = topic.partitions[number]
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)
