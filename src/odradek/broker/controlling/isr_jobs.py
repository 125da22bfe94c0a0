"""What leaders ask of the controller about in-sync sets: decided by `controller.change_isr`, and written."""

from collections.abc import Mapping

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.controlling.active_controller import ActiveController
from odradek.broker.replication.isr_requests import IsrResult, WrittenIsr
from odradek.controller import IsrWish, StateChange, change_isr, check_broker_epoch
from odradek.model import ErrorCode, KafkaError, TopicPartition


async def change_isrs(
    controller: ActiveController,
    view: ClusterView,
    broker_id: int,
    broker_epoch: int,
    wishes: Mapping[TopicPartition, IsrWish],
) -> dict[TopicPartition, IsrResult]:
    """Each partition's in-sync set as it is then, or why it is not what was asked for.

    Raises `KafkaError` STALE_BROKER_EPOCH.
    """
    image = view.image
    check_broker_epoch(image, broker_id, broker_epoch)
    results: dict[TopicPartition, IsrResult] = {}
    changes: list[StateChange] = []
    for key, wish in wishes.items():
        try:
            change = change_isr(
                image,
                key,
                broker_id,
                wish,
                shutting_down=controller.shutting_down,
                controller_epoch=controller.epoch,
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
    for key in await controller.change_what_is_unchanged(changes):
        results[key] = KafkaError(ErrorCode.invalid_update_version, "somebody else just changed the state")
    view.follower.mark(topics={change.partition.topic for change in changes})
    return results
