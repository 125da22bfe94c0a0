"""The controller's jobs: requests that the metadata loop handles in turn. Each topic is written atomically."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Final
from uuid import UUID

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine.alter_partition import alter_partition, check_broker_epoch
from odradek.broker.controller.machine.elections import ControlledShutdownPlan, ElectionType, elect_on_demand, shut_down
from odradek.broker.controller.machine.reassignment import (
    ReassignPartitionsRequest,
    plan_reassignments,
)
from odradek.broker.controller.machine.topic_creation import (
    ExistingTopicNames,
    NewPartitions,
    PartitionLimit,
    TopicCreation,
    TopicPlan,
    plan_partitions,
    plan_topic,
)
from odradek.broker.controller.machine.topic_deletion import TopicDeletion
from odradek.broker.replication.alter_partition_manager import IsrResult, WrittenIsr
from odradek.broker.turns import HEAVY, cooperatively, in_turns
from odradek.metadata import paths
from odradek.metadata.cluster_load import Replicas
from odradek.metadata.image import BrokerImage, StateChange
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.reading import BrokenNodes, read_registrations
from odradek.metadata.store import BadVersion, NoNode
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime import Entropy, new_id

_ELECTION: Final = 2
"""The weight of a partition that is decided on."""


async def create_topics(
    epoch: ControllerEpoch, wanted: Sequence[NewTopic], entropy: Entropy, *, validate_only: bool
) -> list[TopicCreation]:
    """Create topics, and return the results in the order of `wanted`."""
    view, image, load = epoch.view, epoch.view.image, epoch.view.load.copy()
    brokers, away = await _registered_brokers(epoch)
    taken = ExistingTopicNames((*image.topics, *image.deleting))
    room = PartitionLimit()
    results = []
    async for topic in cooperatively(
        wanted, lambda each: HEAVY + max(each.num_partitions, len(each.assignment), view.config.num_partitions)
    ):
        plan: TopicPlan | None = None
        try:
            steps = plan_topic(
                topic,
                topic_id=new_id(entropy),
                existing=taken,
                brokers=brokers,
                away=away,
                load=load,
                config=view.config,
                room=room,
            )
            plan = await in_turns(steps)
            if not validate_only:
                await epoch.create_topic(plan)
        except KafkaError as error:
            results.append(TopicCreation(name=topic.name, error=error.with_traceback(None)))
        else:
            taken.add(topic.name)
            results.append(TopicCreation(name=topic.name, plan=plan))
    return results


async def create_partitions(
    epoch: ControllerEpoch, wanted: Sequence[NewPartitions], *, validate_only: bool
) -> list[KafkaError | None]:
    """Add partitions to topics, and return each topic's error or None, in the order of `wanted`."""
    image, load = epoch.view.image, epoch.view.load.copy()
    brokers, away = await _registered_brokers(epoch)
    room = PartitionLimit()
    results: list[KafkaError | None] = []
    async for each in cooperatively(wanted, lambda each: HEAVY + max(each.count, len(each.assignment or ()))):
        try:
            topic = image.topics.get(each.topic)
            added = await in_turns(plan_partitions(each, topic, brokers=brokers, away=away, load=load, room=room))
            if not validate_only:
                await epoch.add_partitions(each.topic, added)
            results.append(None)
        except KafkaError as error:
            results.append(error.with_traceback(None))
    return results


async def _registered_brokers(epoch: ControllerEpoch) -> tuple[Mapping[int, BrokerImage], Set[int]]:
    """Return all registered brokers, and the ids of those that are not `eligible_leaders`."""
    live = epoch.view.image.brokers
    brokers = {**await read_registrations(epoch.view.store, BrokenNodes()), **live}
    return brokers, brokers.keys() - epoch.eligible_leaders()


async def delete_topics(epoch: ControllerEpoch, wanted: Sequence[str | UUID]) -> list[TopicDeletion]:
    """Write requests for `TopicDeletionTask`, and return a result for each of `wanted`, in order."""
    results = [_find(epoch.view, name_or_id) async for name_or_id in cooperatively(wanted)]
    await epoch.request_deletions(sorted({each.name for each in results if each.name and not each.error}))
    return results


def _find(view: ClusterView, name_or_id: str | UUID) -> TopicDeletion:
    """Return the topic's name and id, with an error if it cannot be deleted."""
    name, topic_id = (name_or_id, None) if isinstance(name_or_id, str) else (None, name_or_id)
    image = view.image
    topic = image.topics.get(name_or_id) if isinstance(name_or_id, str) else image.topic_by_id(name_or_id)
    error: KafkaError | None = None
    if not view.config.delete_topic_enable:
        error = KafkaError(ErrorCode.topic_deletion_disabled)
    elif topic is None and name is not None:
        error = KafkaError(ErrorCode.unknown_topic_or_partition)
    elif topic is None:
        error = KafkaError(ErrorCode.unknown_topic_id)
    if topic is None:
        return TopicDeletion(name=name, topic_id=topic_id, error=error)
    return TopicDeletion(name=topic.name, topic_id=topic.topic_id, error=error)


async def alter_reassignments(
    epoch: ControllerEpoch, targets: Mapping[TopicPartition, Replicas | None], *, allow_replication_factor_change: bool
) -> dict[TopicPartition, KafkaError]:
    """Begin reassignments, or cancel them with the target `None`, and return the errors.

    For partitions without an error, the entries of `/admin/reassign_partitions` are removed. Raises `KafkaError`
    REQUEST_TIMED_OUT after a concurrent change of the tree.
    """
    plan = plan_reassignments(
        epoch.view.image,
        targets,
        controller_epoch=epoch.number,
        allow_replication_factor_change=allow_replication_factor_change,
    )
    try:
        await _remove_overridden_entries(epoch, targets.keys() - plan.errors.keys())
        for step in plan.steps:
            await epoch.write(step.operations)
    except (BadVersion, NoNode):
        raise _concurrent_change() from None
    return dict(plan.errors)


async def elect_leaders(
    epoch: ControllerEpoch, wanted: Iterable[TopicPartition] | None, election_type: ElectionType
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders of the `wanted` partitions (None: all that need it), and return the error of each, or `None`.

    Raises `KafkaError` REQUEST_TIMED_OUT after a concurrent change of the tree.
    """
    image, context = epoch.view.image, epoch.election_context()
    decided: dict[TopicPartition, StateChange | KafkaError] = {}
    if wanted is None:
        decided = elect_on_demand(image, None, election_type, context)
    async for key in cooperatively(wanted or (), lambda _: _ELECTION):
        decided |= elect_on_demand(image, [key], election_type, context)
    try:
        await epoch.change_states(each for each in decided.values() if isinstance(each, StateChange))
    except (BadVersion, NoNode):
        raise _concurrent_change() from None
    return {key: each if isinstance(each, KafkaError) else None for key, each in decided.items()}


async def shut_down_broker(epoch: ControllerEpoch, broker_id: int, broker_epoch: int) -> ControlledShutdownPlan:
    """Move leaderships off a broker that shuts down, and return the plan."""
    image = epoch.view.image
    plan = shut_down(image, broker_id, broker_epoch, epoch.election_context())
    epoch.context.add_shutting_down(image.brokers[broker_id])
    try:
        await epoch.change_states(plan.changes)
    except (BadVersion, NoNode):
        raise _concurrent_change() from None
    return plan


async def _remove_overridden_entries(epoch: ControllerEpoch, keys: Collection[TopicPartition]) -> None:
    node = await epoch.view.store.get(paths.REASSIGN_PARTITIONS)
    if node is None:
        return
    try:
        requested = ReassignPartitionsNode.decode(paths.REASSIGN_PARTITIONS, node.data)
    except BrokenNodeError:
        return  # `ReassignmentTask` logs the error
    gone = ReassignPartitionsRequest(node=requested, version=node.version).without(keys)
    if gone is not None:
        await epoch.write([gone])


def _concurrent_change() -> KafkaError:
    return KafkaError(ErrorCode.request_timed_out, "the metadata tree was changed concurrently; retry")


async def alter_partitions(
    epoch: ControllerEpoch,
    broker_id: int,
    broker_epoch: int,
    items: Mapping[TopicPartition, AlterPartitionItem],
) -> dict[TopicPartition, IsrResult]:
    """Write the changes that the leader `broker_id` requests; return each partition's ISR or error.

    Raises `KafkaError` unless `broker_epoch` is the leader's current one.
    """
    image = epoch.view.image
    check_broker_epoch(image, broker_id, broker_epoch)
    context = epoch.election_context()
    results: dict[TopicPartition, IsrResult] = {}
    changes: list[StateChange] = []
    for key, item in items.items():
        try:
            change = alter_partition(
                image,
                key,
                broker_id,
                item,
                ineligible=context.on_full_disks(key).union(context.shutting_down),
                controller_epoch=epoch.number,
            )
        except KafkaError as error:
            results[key] = error
            continue
        if change is not None:
            changes.append(change)
            state, version = change.state, change.version + 1
            results[key] = WrittenIsr(
                state.leader, state.leader_epoch, tuple(state.isr), version, state.leader_recovery_state
            )
        else:
            known = image.topics[key.topic].partitions[key.partition]
            results[key] = WrittenIsr(
                known.leader, known.leader_epoch, known.isr, known.state_version, known.leader_recovery_state
            )
    return {**results, **await epoch.try_change_states(changes)}
