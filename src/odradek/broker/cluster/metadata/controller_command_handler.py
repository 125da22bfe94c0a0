"""Handles the controller's LeaderAndIsr, UpdateMetadata and StopReplica requests, on every broker.

Connections are not authenticated, so each request is checked against the tree: its sender must be the broker in
`/controller`, in the epoch of `/controller_epoch`, and name this broker's epoch, which clients do not know.
"""

from collections.abc import Callable
from typing import Any, Final

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.cluster.metadata.controller_commands import FULL, LocalReplicas
from odradek.broker.cluster.metadata.image_updates import (
    apply_leader_and_isr,
    apply_update_metadata,
    local_topics,
    replicas_to_stop,
    without_replicas,
)
from odradek.broker.cluster.registration.broker_session import BrokerSession
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition

_BROKER_EPOCH: Final = slice(9, 17)
"""The bytes of the broker epoch in all three commands, after the controller's id and epoch."""


class ControllerCommandHandler:
    """One broker's handler. `wake` is called when the controller has sent its full state."""

    def __init__(
        self, view: ClusterView, broker_session: BrokerSession, replicas: LocalReplicas, *, wake: Callable[[], None]
    ) -> None:
        self._view = view
        self._broker_session = broker_session
        self._replicas = replicas
        self._wake = wake
        self._full_metadata_from = self._full_leadership_from = -1, -1
        """`(broker epoch, controller epoch)` of the last full UpdateMetadata, and of the full LeaderAndIsr after it."""

    @property
    def is_initialized(self) -> bool:
        """Whether the current controller has sent its full state since this broker registered."""
        return self._full_leadership_from == (self._broker_session.epoch, self._known_controller[1])

    def is_addressed_here(self, body: bytes) -> bool:
        """Return whether a request's undecoded `body` has this broker's epoch."""
        return body[_BROKER_EPOCH] == self._broker_session.epoch.to_bytes(8, "big", signed=True)

    async def update_metadata(self, message: Any) -> ErrorCode:
        """Apply an UpdateMetadata to the image, and return the error code."""
        view = self._view
        try:
            await self._validate_controller(message)
            await self._publish(
                lambda: apply_update_metadata(view.image, message, view.broker_watcher.configs), message
            )
        except KafkaError as error:
            return error.code
        if message.type == FULL:
            self._full_metadata_from = message.broker_epoch, message.controller_epoch
        return ErrorCode.none

    async def leader_and_isr(self, message: Any) -> dict[str, Any]:
        """Apply a LeaderAndIsr; return the response when it is done. Offline logs get KAFKA_STORAGE_ERROR."""
        view = self._view
        try:
            await self._validate_controller(message)
            await self._publish(lambda: apply_leader_and_isr(view.image, message, view.broker_watcher.configs), message)
        except KafkaError as error:
            return {"error_code": error.code, "topics": []}
        await self._replicas.wait_until_applied()
        sent = message.broker_epoch, message.controller_epoch
        if message.type == FULL and self._full_metadata_from == sent:
            self._full_leadership_from = sent
            self._wake()
        return {"topics": [self._errors(topic) for topic in message.topic_states]}

    async def stop_replica(self, message: Any) -> dict[str, Any]:
        """Stop replicas, and delete them if requested. Replicas with a newer leader epoch get FENCED_LEADER_EPOCH."""
        view = self._view
        try:
            await self._validate_controller(message)
        except KafkaError as error:
            return {"error_code": error.code, "partition_errors": []}
        stops = list(replicas_to_stop(view.image, message))
        stopped = {key for key, is_stopped, _ in stops if is_stopped}
        view.publish(without_replicas(view.image, stopped, view.broker_id))
        for key, is_stopped, delete in stops:
            if is_stopped:
                self._replicas.stop_replica(key, delete=delete)
        return {
            "partition_errors": [
                {
                    "topic_name": key.topic,
                    "partition_index": key.partition,
                    "error_code": ErrorCode.none if is_stopped else ErrorCode.fenced_leader_epoch,
                }
                for key, is_stopped, _ in stops
            ]
        }

    async def _validate_controller(self, message: Any) -> None:
        """Raise `KafkaError` for a wrong sender or broker epoch. Read `/controller` first if it may have changed."""
        sender = message.controller_id, message.controller_epoch
        if sender != self._known_controller and message.controller_epoch >= self._known_controller[1]:
            try:
                await self._view.read_controller()
            except OdradekError as error:
                raise KafkaError(ErrorCode.stale_controller_epoch, str(error)) from error
        self._check_epochs(message)

    @property
    def _known_controller(self) -> tuple[int, int]:
        image = self._view.image
        return image.controller_id, image.controller_epoch

    def _check_epochs(self, message: Any) -> None:
        """Raise `KafkaError` STALE_CONTROLLER_EPOCH unless the known controller, another broker, has sent the message.

        Raise STALE_BROKER_EPOCH if the message has another broker epoch than this broker's registration.
        """
        sender = message.controller_id, message.controller_epoch
        if sender != self._known_controller or message.controller_id == self._view.broker_id:
            raise KafkaError(ErrorCode.stale_controller_epoch)
        if message.broker_epoch != self._broker_session.epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)

    async def _publish(self, update: Any, message: Any) -> None:
        """Read missing configurations of this broker's topics, then publish the image that `update` returns."""
        view = self._view
        image: ClusterImage = update()
        while missing := local_topics(image, view.broker_id) - view.broker_watcher.configs.keys():
            try:
                await view.broker_watcher.read_configs(missing)
            except OdradekError as error:
                raise KafkaError(ErrorCode.unknown_server_error, str(error)) from error
            self._check_epochs(message)
            image = update()
        view.broker_watcher.follow_only(local_topics(image, view.broker_id))
        view.publish(image)

    def _errors(self, topic: Any) -> dict[str, Any]:
        return {
            "topic_id": topic.topic_id,
            "partition_errors": [
                {
                    "partition_index": each.partition_index,
                    "error_code": self._replicas.replica_error(TopicPartition(topic.topic_name, each.partition_index)),
                }
                for each in topic.partition_states
            ],
        }
