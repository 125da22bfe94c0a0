"""Leader changes on request: ElectLeaders, controlled shutdown, and the preferred leader balance.

    preferred        the first replica, if it is alive and in the ISR
    unclean          for partitions without a leader: a member of the ISR, else any live replica: records may be lost
    shutdown         leaders move off the broker, and it leaves every ISR; where no other broker can lead, it stays
    balance          preferred elections, if a broker leads too few of the partitions whose preferred leader it is

Elections after brokers fail are in `elections`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from odradek.broker.controller.machine.elections import elect
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage, PartitionImage
from odradek.metadata.isr_request import ANY_EPOCH
from odradek.metadata.nodes import PreferredReplicaElectionNode
from odradek.metadata.state_change import StateChange, new_leadership
from odradek.metadata.store import Delete
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.probes import probe

Offline = Mapping[int, Collection[TopicPartition]]
"""Replicas whose logs are offline, by broker."""
NOTHING_OFFLINE: Final[Offline] = MappingProxyType({})


class ElectionType(IntEnum):
    """The election types of ElectLeaders, numbered as on the wire (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class ControlledShutdownPlan(Struct, frozen=True, kw_only=True):
    """The plan of a controlled shutdown: `changes` are written first.

    Then the broker stops the partitions in `stop`, without deleting them. It still leads `remaining`.
    """

    changes: tuple[StateChange, ...]
    stop: tuple[TopicPartition, ...]
    remaining: tuple[TopicPartition, ...]


def elect_on_demand(
    image: ClusterImage,
    wanted: Iterable[TopicPartition] | None,
    election_type: ElectionType,
    *,
    shutting_down: Collection[int],
    offline: Offline = NOTHING_OFFLINE,
    controller_epoch: int,
) -> dict[TopicPartition, StateChange | KafkaError]:
    """Return the election of each `wanted` partition, or its error; `None` selects all partitions that need one.

    The codes are Kafka's: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION, and INVALID_TOPIC_EXCEPTION for a topic that is being deleted. Brokers
    `shutting_down` and `offline` replicas are not elected.
    """
    alive = image.brokers.keys() - set(shutting_down)
    decided: dict[TopicPartition, StateChange | KafkaError] = {}
    for key in _all_partitions(image) if wanted is None else wanted:
        try:
            partition = _existing(image, key)
            live = alive - _without_log(key, offline)
            if election_type is ElectionType.PREFERRED:
                leader, isr = _preferred(partition, live)
            else:
                leader, isr = _unclean(partition, live, image.brokers.keys())
        except KafkaError as error:
            if wanted is not None or error.code is not ErrorCode.election_not_needed:
                decided[key] = error.with_traceback(None)
        else:
            decided[key] = new_leadership(key, partition, leader, isr, controller_epoch=controller_epoch)
    return decided


def plan_preferred_elections(
    image: ClusterImage,
    node: PreferredReplicaElectionNode,
    version: int,
    *,
    shutting_down: Collection[int],
    offline: Offline = NOTHING_OFFLINE,
    controller_epoch: int,
) -> tuple[list[StateChange], list[KafkaError], Delete]:
    """Return the elections that `/admin/preferred_replica_election` requests, their errors, and the node's deletion.

    The node is deleted last. As in Kafka, an impossible election is dropped, with an error. Partitions that already
    have their preferred leader are in neither list.
    """
    decided = elect_on_demand(
        image,
        node.partitions,
        ElectionType.PREFERRED,
        shutting_down=shutting_down,
        offline=offline,
        controller_epoch=controller_epoch,
    )
    changes = [each for each in decided.values() if isinstance(each, StateChange)]
    errors = [
        each
        for each in decided.values()
        if isinstance(each, KafkaError) and each.code is not ErrorCode.election_not_needed
    ]
    return changes, errors, Delete(path=paths.PREFERRED_REPLICA_ELECTION, version=version)


def shut_down(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    *,
    shutting_down: Collection[int],
    offline: Offline = NOTHING_OFFLINE,
    controller_epoch: int,
) -> ControlledShutdownPlan:
    """Plan the controlled shutdown of a broker; a repeated request continues the first one.

    `shutting_down` are brokers with earlier requests. Partitions with one replica are skipped, because no other broker
    can lead them. Raises `KafkaError` STALE_BROKER_EPOCH unless `broker_epoch` is the current one or -1, and
    BROKER_NOT_AVAILABLE for a broker that is not registered.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.broker_not_available, f"there is no broker {broker_id}")
    if broker_epoch not in (ANY_EPOCH, broker.epoch):
        message = f"broker {broker_id} is registered in epoch {broker.epoch}, not {broker_epoch}"
        raise KafkaError(ErrorCode.stale_broker_epoch, message)
    going = {*shutting_down, broker_id}
    live = image.brokers.keys() - going
    changes, stop, remaining = [], [], []
    for key in _all_partitions(image):
        partition = image.topics[key.topic].partitions[key.partition]
        if broker_id not in partition.replicas or len(partition.replicas) == 1 or not partition.is_readable:
            continue
        isr = tuple(replica for replica in partition.isr if replica not in going)
        leader = partition.leader
        if leader == broker_id:
            able = live - _without_log(key, offline)
            successor = next((replica for replica in partition.replicas if replica in isr and replica in able), None)
            if successor is None:
                probe("controller: no broker can take over from one that shuts down")
                remaining.append(key)
                continue
            leader = successor
        elif leader not in isr:
            # The leader shuts down too, or there is none: the broker may still be needed in the ISR.
            isr = partition.isr
        stop.append(key)
        if (leader, isr) != (partition.leader, partition.isr):
            changes.append(new_leadership(key, partition, leader, isr, controller_epoch=controller_epoch))
    return ControlledShutdownPlan(changes=tuple(changes), stop=tuple(stop), remaining=tuple(remaining))


def balance_preferred_leaders(
    image: ClusterImage,
    imbalance_percentage: int,
    *,
    shutting_down: Collection[int],
    offline: Offline = NOTHING_OFFLINE,
    controller_epoch: int,
) -> Iterator[StateChange]:
    """Yield preferred elections for brokers that exceed `leader.imbalance.per.broker.percentage`.

    Of the partitions whose preferred leader a broker is, its imbalance is the percentage that it does not lead.
    Preferred replicas that cannot lead yet are skipped.
    """
    preferred: dict[int, list[TopicPartition]] = {}
    for key in _all_partitions(image):
        partition = image.topics[key.topic].partitions[key.partition]
        if partition.replicas and partition.is_readable:
            preferred.setdefault(partition.replicas[0], []).append(key)
    for broker_id, keys in preferred.items():
        elsewhere = [key for key in keys if image.topics[key.topic].partitions[key.partition].leader != broker_id]
        if len(elsewhere) * 100 > imbalance_percentage * len(keys):
            decided = elect_on_demand(
                image,
                elsewhere,
                ElectionType.PREFERRED,
                shutting_down=shutting_down,
                offline=offline,
                controller_epoch=controller_epoch,
            )
            yield from (each for each in decided.values() if isinstance(each, StateChange))


def _without_log(key: TopicPartition, offline: Offline) -> set[int]:
    return {broker_id for broker_id, keys in offline.items() if key in keys}


def _all_partitions(image: ClusterImage) -> Iterator[TopicPartition]:
    return (TopicPartition(name, number) for name, topic in image.topics.items() for number in topic.partitions)


def _existing(image: ClusterImage, key: TopicPartition) -> PartitionImage:
    if key.topic in image.deleting:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"the topic {key.topic} is being deleted")
    partition = image.partition(key)
    if partition is None:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {key.topic}-{key.partition}")
    return partition


def _preferred(partition: PartitionImage, live: Collection[int]) -> tuple[int, tuple[int, ...]]:
    preferred = next(iter(partition.replicas), None)
    if preferred is not None and partition.leader == preferred:
        raise KafkaError(ErrorCode.election_not_needed, f"the preferred leader {preferred} leads")
    if preferred not in live or preferred not in partition.isr or not partition.is_readable:
        message = f"the preferred leader {preferred} is not alive, or not in the ISR {list(partition.isr)}"
        raise KafkaError(ErrorCode.preferred_leader_not_available, message)
    return preferred, partition.isr


def _unclean(
    partition: PartitionImage, live: Collection[int], registered: Collection[int]
) -> tuple[int, tuple[int, ...]]:
    if partition.has_leader and partition.leader in registered:
        raise KafkaError(ErrorCode.election_not_needed, f"broker {partition.leader} leads")
    decided = elect(partition, live, unclean=True) if partition.is_readable else None
    if decided is None or decided[0] not in live:
        message = f"none of the replicas {list(partition.replicas)} is alive"
        raise KafkaError(ErrorCode.eligible_leaders_not_available, message)
    return decided
