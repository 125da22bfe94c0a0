"""The controller's job for AlterPartition: writes the ISR changes that the machine's `alter_partition` accepts."""

from collections.abc import Mapping

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import alter_partition, check_broker_epoch
from odradek.broker.replication.alter_partition_requests import IsrResult, WrittenIsr
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.state_change import StateChange
from odradek.model import ErrorCode, KafkaError, TopicPartition


async def alter_partitions(
    epoch: ControllerEpoch,
    view: ClusterView,
    broker_id: int,
    broker_epoch: int,
    items: Mapping[TopicPartition, AlterPartitionItem],
) -> dict[TopicPartition, IsrResult]:
    """Write the changes that the leader `broker_id` requests; return each partition's ISR or error.

    Raises `KafkaError` unless `broker_epoch` is the leader's current one.
    """
    image = view.image
    check_broker_epoch(image, broker_id, broker_epoch)
    full = epoch.context.full
    results: dict[TopicPartition, IsrResult] = {}
    changes: list[StateChange] = []
    for key, item in items.items():
        try:
            change = alter_partition(
                image,
                key,
                broker_id,
                item,
                ineligible={*epoch.context.shutting_down, *(each for each, keys in full.items() if key in keys)},
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
    for key in await epoch.try_change_states(changes):
        results[key] = KafkaError(ErrorCode.invalid_update_version, "the partition state was changed concurrently")
    view.watcher.mark(topics={change.partition.topic for change in changes})
    return results
