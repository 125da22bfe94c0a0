"""Leader elections when brokers or logs fail or return, and on request.

    leader alive                           it stays; dead members leave the ISR
    disks of some ISR members full         these count as dead, if another one stays
    leader dead, ISR members alive         the first of these, in the order of the replicas
    no ISR member alive, unclean allowed   the first live replica, alone in the ISR: records may be lost
                                           (brokers that shut down lead only if no other can)
    none of these                          no leader; the ISR keeps its members, which may return. Live members
                                           with offline logs leave it, unless no other member remains

Leaders also change on request:

    preferred   the first replica, if it is alive and in the ISR
    unclean     for partitions without a leader: a member of the ISR, else any live replica: records may be lost
    shutdown    leaders move off the broker, and it leaves every ISR; where no other broker can lead, it stays
    balance     preferred elections, if a broker leads too few of the partitions whose preferred leader it is

Every change raises the leader epoch by 1.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from odradek.config.broker import BrokerConfig
from odradek.config.topic import topic_config
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage, PartitionImage, StateChange, TopicImage, new_leadership
from odradek.metadata.isr_request import ANY_EPOCH
from odradek.metadata.nodes import NO_LEADER, PreferredReplicaElectionNode
from odradek.metadata.store import Delete
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition
from odradek.model.probes import probe

ReplicasByBroker = Mapping[int, Collection[TopicPartition]]
NO_REPLICAS: Final[ReplicasByBroker] = MappingProxyType({})


class ElectionContext(Struct, frozen=True, kw_only=True):
    """The brokers that shut down, and the replicas without a usable log or space, as a controller epoch knows them."""

    controller_epoch: int
    shutting_down: Collection[int] = ()
    offline: ReplicasByBroker = NO_REPLICAS
    """Replicas whose logs are offline."""
    full: ReplicasByBroker = NO_REPLICAS
    """Replicas on full disks."""

    def without_log(self, key: TopicPartition) -> set[int]:
        """Return the brokers whose replica of a partition is offline."""
        return {broker_id for broker_id, keys in self.offline.items() if key in keys}

    def on_full_disks(self, key: TopicPartition) -> set[int]:
        """Return the brokers whose replica of a partition is on a full disk."""
        return {broker_id for broker_id, keys in self.full.items() if key in keys}


def elect(
    partition: PartitionImage,
    live: Collection[int],
    *,
    unclean: bool,
    shutting_down: Collection[int] = (),
    without_log: Collection[int] = (),
) -> tuple[int, tuple[int, ...]] | None:
    """Return the leader and the ISR that `partition` should have, or `None` if it has them.

    Brokers `shutting_down` lead only if they are in sync and no other is. Brokers in `without_log` are registered, but
    their log is offline. They leave the ISR if it has other members, because a broker that restarts after a crash does
    not register while it shares an ISR with a registered broker (`broker.cluster.registration.unclean_registration`).
    """
    in_sync = tuple(replica for replica in partition.isr if replica in live)
    if partition.leader in in_sync:
        decided = partition.leader, in_sync
    elif in_sync:
        # A tool may have written an ISR with members that are not replicas; they still have the records.
        candidates = [replica for replica in partition.replicas if replica in in_sync] or list(in_sync)
        decided = _first_staying(candidates, shutting_down), in_sync
    elif unclean and (staying := [each for each in partition.replicas if each in live and each not in shutting_down]):
        # A leader that leaves at once would gain nothing, and cost the records of the replicas that return.
        probe("controller: an unclean election")
        decided = staying[0], (staying[0],)
    else:
        probe("controller: a partition has no leader")
        waited_for = tuple(replica for replica in partition.isr if replica not in without_log)
        decided = NO_LEADER, waited_for or partition.isr
    return None if decided == (partition.leader, partition.isr) else decided


def _first_staying(candidates: Sequence[int], shutting_down: Collection[int]) -> int:
    """Return the first candidate that does not shut down, or the first of all if each does."""
    return next((replica for replica in candidates if replica not in shutting_down), candidates[0])


def elections(
    image: ClusterImage, topics: Iterable[TopicImage], config: BrokerConfig, context: ElectionContext
) -> Iterator[StateChange]:
    """Yield the elections that are necessary in `topics` with the image's live brokers.

    Brokers that shut down keep their leaderships, but elections prefer other brokers. Offline replicas count as dead;
    so do those on full disks, if a live member of the ISR has space and stays. Partitions without a readable state are
    skipped.
    """
    registered, shutting_down = image.brokers.keys(), context.shutting_down
    for topic in topics:
        unclean: bool | None = None
        for number, partition in topic.partitions.items():
            if partition.leader_epoch < 0:
                continue
            key = TopicPartition(topic.name, number)
            without_log = context.without_log(key) & registered
            live = registered - without_log if without_log else registered
            if context.full:
                able = live - context.on_full_disks(key)
                probe("controller: full disks count in an election")
                live = live if able.difference(shutting_down).isdisjoint(partition.isr) else able
            if unclean is None and partition.leader not in live:
                unclean = _allows_unclean(topic.config, config)
            decided = elect(
                partition, live, unclean=bool(unclean), shutting_down=shutting_down, without_log=without_log
            )
            if decided is not None:
                leader, isr = decided
                yield new_leadership(key, partition, leader, isr, controller_epoch=context.controller_epoch)


def _allows_unclean(overrides: Mapping[str, str], config: BrokerConfig) -> bool:
    """Return whether a topic allows unclean elections; False if its configuration is invalid."""
    try:
        return topic_config(config, overrides).unclean_leader_election_enable
    except ConfigurationError:
        return False


# ---- on request -----------------------------------------------------------------------------------------------------


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
    image: ClusterImage, wanted: Iterable[TopicPartition] | None, election_type: ElectionType, context: ElectionContext
) -> dict[TopicPartition, StateChange | KafkaError]:
    """Return the election of each `wanted` partition, or its error; `None` selects all partitions that need one.

    The codes are Kafka's: ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
    UNKNOWN_TOPIC_OR_PARTITION, and INVALID_TOPIC_EXCEPTION for a topic that is being deleted. Brokers that
    shut down and offline replicas are not elected.
    """
    alive = image.brokers.keys() - set(context.shutting_down)
    decided: dict[TopicPartition, StateChange | KafkaError] = {}
    for key in _all_partitions(image) if wanted is None else wanted:
        try:
            partition = _existing(image, key)
            live = alive - context.without_log(key)
            if election_type is ElectionType.PREFERRED:
                leader, isr = _preferred(partition, live)
            else:
                leader, isr = _unclean(partition, live, image.brokers.keys())
        except KafkaError as error:
            if wanted is not None or error.code is not ErrorCode.election_not_needed:
                decided[key] = error.with_traceback(None)
        else:
            decided[key] = new_leadership(key, partition, leader, isr, controller_epoch=context.controller_epoch)
    return decided


def plan_preferred_elections(
    image: ClusterImage, node: PreferredReplicaElectionNode, version: int, context: ElectionContext
) -> tuple[list[StateChange], list[KafkaError], Delete]:
    """Return the elections that `/admin/preferred_replica_election` requests, their errors, and the node's deletion.

    The node is deleted last. As in Kafka, an impossible election is dropped, with an error. Partitions that already
    have their preferred leader are in neither list.
    """
    decided = elect_on_demand(image, node.partitions, ElectionType.PREFERRED, context)
    changes = [each for each in decided.values() if isinstance(each, StateChange)]
    errors = [
        each
        for each in decided.values()
        if isinstance(each, KafkaError) and each.code is not ErrorCode.election_not_needed
    ]
    return changes, errors, Delete(path=paths.PREFERRED_REPLICA_ELECTION, version=version)


def shut_down(
    image: ClusterImage, broker_id: int, broker_epoch: int, context: ElectionContext
) -> ControlledShutdownPlan:
    """Plan the controlled shutdown of a broker; a repeated request continues the first one.

    Brokers that requested it earlier get no leadership, either. Partitions with one replica are skipped, because no
    other broker can lead them. Raises `KafkaError` STALE_BROKER_EPOCH unless `broker_epoch` is the current one or -1,
    and BROKER_NOT_AVAILABLE for a broker that is not registered.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.broker_not_available, f"there is no broker {broker_id}")
    if broker_epoch not in (ANY_EPOCH, broker.epoch):
        message = f"broker {broker_id} is registered in epoch {broker.epoch}, not {broker_epoch}"
        raise KafkaError(ErrorCode.stale_broker_epoch, message)
    going = {*context.shutting_down, broker_id}
    live = image.brokers.keys() - going
    changes, stop, remaining = [], [], []
    for key in _all_partitions(image):
        partition = image.topics[key.topic].partitions[key.partition]
        if broker_id not in partition.replicas or len(partition.replicas) == 1 or not partition.is_readable:
            continue
        isr = tuple(replica for replica in partition.isr if replica not in going)
        leader = partition.leader
        if leader == broker_id:
            able = live - context.without_log(key)
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
            changes.append(new_leadership(key, partition, leader, isr, controller_epoch=context.controller_epoch))
    return ControlledShutdownPlan(changes=tuple(changes), stop=tuple(stop), remaining=tuple(remaining))


def balance_preferred_leaders(
    image: ClusterImage, imbalance_percentage: int, context: ElectionContext
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
            decided = elect_on_demand(image, elsewhere, ElectionType.PREFERRED, context)
            yield from (each for each in decided.values() if isinstance(each, StateChange))


def _all_partitions(image: ClusterImage) -> Iterator[TopicPartition]:
    return (TopicPartition(name, number) for name, topic in image.topics.items() for number in topic.partitions)


_NOT_NEEDED: Final = "Leader election not needed for topic partition."


def _existing(image: ClusterImage, key: TopicPartition) -> PartitionImage:
    if key.topic in image.deleting:
        raise KafkaError(ErrorCode.invalid_topic_exception, f"the topic {key.topic} is being deleted")
    partition = image.partition(key)
    if partition is None:
        what = f"partition as {key}" if key.topic in image.topics else f"topic as {key.topic}"
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"No such {what}")
    return partition


def _preferred(partition: PartitionImage, live: Collection[int]) -> tuple[int, tuple[int, ...]]:
    preferred = next(iter(partition.replicas), None)
    if preferred is not None and partition.leader == preferred:
        raise KafkaError(ErrorCode.election_not_needed, _NOT_NEEDED)
    if preferred not in live or preferred not in partition.isr or not partition.is_readable:
        message = f"the preferred leader {preferred} is not alive, or not in the ISR {list(partition.isr)}"
        raise KafkaError(ErrorCode.preferred_leader_not_available, message)
    return preferred, partition.isr


def _unclean(
    partition: PartitionImage, live: Collection[int], registered: Collection[int]
) -> tuple[int, tuple[int, ...]]:
    if partition.has_leader and partition.leader in registered:
        raise KafkaError(ErrorCode.election_not_needed, _NOT_NEEDED)
    decided = elect(partition, live, unclean=True) if partition.is_readable else None
    if decided is None or decided[0] not in live:
        message = f"none of the replicas {list(partition.replicas)} is alive"
        raise KafkaError(ErrorCode.eligible_leaders_not_available, message)
    return decided
