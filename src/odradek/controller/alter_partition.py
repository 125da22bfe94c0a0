"""AlterPartition: the leader of a partition asks for another ISR (KIP-497), and the controller decides.

    the leader knows of a newer epoch than the controller      NOT_CONTROLLER: somebody else is, by now
    the leader's epoch is over                                 FENCED_LEADER_EPOCH
    another broker leads, no ISR, one without the leader       INVALID_REQUEST
    the leader recovers, after it had, or with other members   INVALID_REQUEST (KIP-704)
    the partition is what is asked for                         nothing is written: an answer was lost
    the state was changed since the leader heard of it         INVALID_UPDATE_VERSION
    who would join is dead, shutting down, or to be removed    INELIGIBLE_REPLICA (KIP-841, KIP-903)

Only those that join have to be eligible: a member that is about to stop, and to be the leader until then, may still let
others in, so that one of them can lead.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from odradek.controller.reassignment import assignment_of
from odradek.controller.state_change import StateChange
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage
from odradek.metadata.nodes import RECOVERED, PartitionStateNode
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.values import dataclass

ANY_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionItem:
    """What a leader asks for: members with their broker epochs (-1: the leader does not know), in order.

    `partition_epoch` is the version of the state that the leader knows. The first item of one that was elected
    uncleanly says that it has recovered, as there is nothing that it does for it (nor do Kafka's).
    """

    isr: Mapping[int, int]
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """Raise `KafkaError` STALE_BROKER_EPOCH unless a broker that asks is registered, and by this registration."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {broker_id} is not registered in epoch {broker_epoch}")


def topic_name(image: ClusterImage, topic_id: UUID) -> str:
    """The name of a topic. Raises `KafkaError` UNKNOWN_TOPIC_ID."""
    topic = None if topic_id == UNNAMED else image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with the id {topic_id}")
    return topic.name


def alter_partition(
    image: ClusterImage,
    key: TopicPartition,
    broker_id: int,
    item: AlterPartitionItem,
    *,
    shutting_down: Collection[int],
    controller_epoch: int,
) -> StateChange | None:
    """The state that `broker_id` asks for; `None` if it is there already. The leader epoch stays.

    Raises `KafkaError`: the codes above, or UNKNOWN_TOPIC_OR_PARTITION.
    """
    partition = image.partition(key)
    if partition is None or not partition.is_readable:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {key.topic}-{key.partition}")
    isr = tuple(item.isr)
    if item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.state_version:
        raise KafkaError(ErrorCode.not_controller, "the leader knows of a newer epoch than this controller")
    if item.leader_epoch < partition.leader_epoch:
        message = f"leader epoch {item.leader_epoch} is over, {partition.leader_epoch} began"
        raise KafkaError(ErrorCode.fenced_leader_epoch, message)
    _check_members(partition, broker_id, isr, item.leader_recovery_state)
    if set(isr) == set(partition.isr) and item.leader_recovery_state == partition.leader_recovery_state:
        return None
    if item.partition_epoch < partition.state_version:
        message = f"partition epoch {item.partition_epoch} is over, {partition.state_version} began"
        raise KafkaError(ErrorCode.invalid_update_version, message)
    joining = {replica: epoch for replica, epoch in item.isr.items() if replica not in partition.isr}
    if found := _ineligible(partition, joining, image.brokers, shutting_down):
        raise KafkaError(ErrorCode.ineligible_replica, f"brokers {found} can't join the ISR now")
    state = PartitionStateNode(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=item.leader_recovery_state,
    )
    return StateChange(partition=key, state=state, version=partition.state_version)


def _check_members(partition: PartitionImage, broker_id: int, isr: tuple[int, ...], recovery_state: int) -> None:
    problem = None
    if broker_id != partition.leader:
        problem = f"broker {broker_id} does not lead, {partition.leader} does"
    elif broker_id not in isr:
        problem = f"the leader {broker_id} would not be in the ISR {list(isr)}"
    elif not_replicas := [
        replica for replica in isr if replica not in partition.replicas and replica not in partition.isr
    ]:
        problem = f"brokers {not_replicas} are no replicas"
    elif recovery_state not in (RECOVERED, partition.leader_recovery_state):
        problem = "a leader that has recovered does not begin to again"
    elif recovery_state != RECOVERED and len(isr) > 1:
        problem = "nobody is in sync with a leader that recovers"
    if problem is not None:
        raise KafkaError(ErrorCode.invalid_request, problem)


def _ineligible(
    partition: PartitionImage,
    joining: Mapping[int, int],
    brokers: Mapping[int, BrokerImage],
    shutting_down: Collection[int],
) -> list[int]:
    assignment = assignment_of(partition)
    # Until the target is in sync those that are to be removed may still be needed; then they would only hold it up.
    ready = set(assignment.target) <= set(partition.isr)
    leaving = assignment.removing if ready else assignment.withdrawn
    return [
        replica
        for replica, epoch in joining.items()
        if replica not in brokers
        or epoch not in (ANY_EPOCH, brokers[replica].epoch)
        or replica in shutting_down
        or replica in leaving
    ]
