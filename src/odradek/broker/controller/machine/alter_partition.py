"""AlterPartition: the controller's decision on an ISR change that a partition's leader requests (KIP-497).

    the request has a newer epoch than the controller's image   NOT_CONTROLLER: another broker is the controller
    the request's leader epoch is older                         FENCED_LEADER_EPOCH
    another broker leads, or the ISR lacks the leader           INVALID_REQUEST
    a joining member is not a replica                           INVALID_REQUEST
    recovering again, or recovering with other members          INVALID_REQUEST (KIP-704)
    the partition has this state already                        nothing is written, as after a lost response
    the state has changed since the leader read it              INVALID_UPDATE_VERSION
    a joining broker is dead, `ineligible`, or being removed    INELIGIBLE_REPLICA (KIP-841, KIP-903)

Only joining members have to be eligible: a leader that shuts down may still add other members, so that one of them can
become the next leader.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from odradek.broker.controller.machine.reassignment import assignment_of
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage, StateChange
from odradek.metadata.isr_request import ANY_EPOCH, AlterPartitionItem
from odradek.metadata.nodes import RECOVERED, PartitionStateNode
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.probes import probe


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """Raise `KafkaError` STALE_BROKER_EPOCH unless the requesting broker is registered with this broker epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {broker_id} is not registered in epoch {broker_epoch}")


def topic_name(image: ClusterImage, topic_id: UUID) -> str:
    """Return the name of a topic. Raises `KafkaError` UNKNOWN_TOPIC_ID if no topic has the id."""
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
    ineligible: Collection[int],
    controller_epoch: int,
) -> StateChange | None:
    """Return the state change that `broker_id` requests, or `None` if the partition has this state already.

    The leader epoch stays. `ineligible` brokers shut down, or their disk is full. Raises `KafkaError` with the codes of
    this module's table, or UNKNOWN_TOPIC_OR_PARTITION for a partition without a readable state.
    """
    partition = image.partition(key)
    if partition is None or not partition.is_readable:
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no partition {key.topic}-{key.partition}")
    isr = tuple(item.isr)
    if item.leader_epoch > partition.leader_epoch or item.partition_epoch > partition.state_version:
        probe("controller: a leader knows a newer epoch")
        raise KafkaError(ErrorCode.not_controller, "the leader knows of a newer epoch than this controller")
    if item.leader_epoch < partition.leader_epoch:
        probe("controller: an ISR change of an old leader epoch is fenced")
        message = f"leader epoch {item.leader_epoch} is over, {partition.leader_epoch} began"
        raise KafkaError(ErrorCode.fenced_leader_epoch, message)
    _check_members(partition, broker_id, isr, item.leader_recovery_state)
    if set(isr) == set(partition.isr) and item.leader_recovery_state == partition.leader_recovery_state:
        probe("controller: a repeated ISR change changes nothing")
        return None
    if item.partition_epoch < partition.state_version:
        probe("controller: an ISR change of an old partition epoch is refused")
        message = f"partition epoch {item.partition_epoch} is over, {partition.state_version} began"
        raise KafkaError(ErrorCode.invalid_update_version, message)
    joining = {replica: epoch for replica, epoch in item.isr.items() if replica not in partition.isr}
    if found := _ineligible(partition, joining, image.brokers, ineligible):
        probe("controller: a replica is ineligible for the ISR")
        raise KafkaError(ErrorCode.ineligible_replica, f"brokers {found} can't join the ISR now")
    state = PartitionStateNode(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=isr,
        controller_epoch=controller_epoch,
        leader_recovery_state=item.leader_recovery_state,
    )
    return StateChange(partition=key, state=state, version=partition.state_version, joining=tuple(joining))


def _check_members(partition: PartitionImage, broker_id: int, isr: tuple[int, ...], recovery_state: int) -> None:
    problem = None
    if broker_id != partition.leader:
        problem = f"broker {broker_id} does not lead, {partition.leader} does"
    elif broker_id not in isr:
        problem = f"the leader {broker_id} would not be in the ISR {list(isr)}"
    elif not_replicas := [
        replica for replica in isr if replica not in partition.replicas and replica not in partition.isr
    ]:
        problem = f"brokers {not_replicas} are not replicas"
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
    ineligible: Collection[int],
) -> list[int]:
    assignment = assignment_of(partition)
    # Replicas that are being removed may be needed until the target is in sync; after that they only delay the removal.
    ready = set(assignment.target) <= set(partition.isr)
    leaving = assignment.removing if ready else assignment.withdrawn
    return [
        replica
        for replica, epoch in joining.items()
        if replica not in brokers
        or epoch not in (ANY_EPOCH, brokers[replica].epoch)
        or replica in ineligible
        or replica in leaving
    ]
