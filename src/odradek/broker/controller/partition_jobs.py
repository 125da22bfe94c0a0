"""The controller's jobs for ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments."""

from collections.abc import Collection, Iterable, Mapping

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import (
    Assignment,
    ElectionType,
    ReassignPartitionsRequest,
    elect_on_demand,
    plan_reassignments,
    reassignments,
)
from odradek.metadata import paths
from odradek.metadata.cluster_load import Replicas
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import ReassignPartitionsNode
from odradek.metadata.state_change import StateChange
from odradek.metadata.store import BadVersion, NoNode
from odradek.model import ErrorCode, KafkaError, TopicPartition


async def alter_reassignments(
    epoch: ControllerEpoch,
    view: ClusterView,
    targets: Mapping[TopicPartition, Replicas | None],
    *,
    allow_replication_factor_change: bool,
) -> dict[TopicPartition, KafkaError]:
    """Begin reassignments, or cancel them with the target `None`, and return the errors.

    For partitions without an error, the entries of `/admin/reassign_partitions` are removed. Raises `KafkaError`
    REQUEST_TIMED_OUT after a concurrent change of the tree.
    """
    plan = plan_reassignments(
        view.image,
        targets,
        controller_epoch=epoch.number,
        allow_replication_factor_change=allow_replication_factor_change,
    )
    view.watcher.mark(topics={step.topic for step in plan.steps})
    try:
        await _remove_overridden_entries(epoch, view, targets.keys() - plan.errors.keys())
        for step in plan.steps:
            await epoch.write(step.operations)
    except (BadVersion, NoNode):
        raise _concurrent_change(view, targets) from None
    return dict(plan.errors)


async def list_reassignments(
    view: ClusterView, wanted: Mapping[str, Collection[int]] | None
) -> dict[TopicPartition, Assignment]:
    """Return the reassignments in progress, of all partitions or of `wanted` (partition numbers by topic)."""
    return reassignments(view.image, wanted)


async def elect_leaders(
    epoch: ControllerEpoch,
    view: ClusterView,
    wanted: Iterable[TopicPartition] | None,
    election_type: ElectionType,
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders of the `wanted` partitions (None: all that need it), and return the error of each, or `None`.

    Raises `KafkaError` REQUEST_TIMED_OUT after a concurrent change of the tree.
    """
    decided = elect_on_demand(
        view.image,
        wanted,
        election_type,
        shutting_down=epoch.context.shutting_down,
        offline=epoch.context.offline,
        controller_epoch=epoch.number,
    )
    changes = [each for each in decided.values() if isinstance(each, StateChange)]
    view.watcher.mark(topics={change.partition.topic for change in changes})
    try:
        await epoch.change_states(changes)
    except (BadVersion, NoNode):
        raise _concurrent_change(view, decided) from None
    return {key: each if isinstance(each, KafkaError) else None for key, each in decided.items()}


async def _remove_overridden_entries(
    epoch: ControllerEpoch, view: ClusterView, keys: Collection[TopicPartition]
) -> None:
    node = await view.store.get(paths.REASSIGN_PARTITIONS)
    if node is None:
        return
    try:
        requested = ReassignPartitionsNode.decode(paths.REASSIGN_PARTITIONS, node.data)
    except BrokenNodeError:
        return  # `ReassignmentTask` logs the error
    gone = ReassignPartitionsRequest(node=requested, version=node.version).without(keys)
    if gone is not None:
        await epoch.write([gone])


def _concurrent_change(view: ClusterView, keys: Iterable[TopicPartition]) -> KafkaError:
    """Mark the partitions' states to be read again, and return the error, after which clients retry."""
    view.watcher.mark(topics={key.topic for key in keys if key.topic in view.image.topics})
    return KafkaError(ErrorCode.request_timed_out, "the metadata tree was changed concurrently; retry")
