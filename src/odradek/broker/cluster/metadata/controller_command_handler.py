"""Handles the controller's UpdateMetadata requests, on every broker.

Connections are not authenticated, so a request is checked against the tree: its sender must be the broker in
`/controller`, in the epoch of `/controller_epoch`, and name this broker's epoch, which clients do not know.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.cluster.metadata.image_updates import (
    apply_update_metadata,
    local_topics,
    replicas_to_stop,
    without_replicas,
)
from odradek.broker.cluster.registration.broker_session import BrokerSession
from odradek.broker.turns import cooperatively
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.model.probes import LATE_S, perturb

if TYPE_CHECKING:
    from odradek.protocol.messages.controller_messages import UpdateMetadataRequest

_BROKER_EPOCH: Final = slice(8, 16)
"""The bytes of the broker epoch in a request's body, after the controller's id and epoch."""


class LocalReplicas(Protocol):
    """The methods of `ReplicaManager` that the controller and its commands use."""

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop a replica, if there is one, and delete its log if `delete`."""

    async def sync_deleted(self) -> None:
        """Return when each deletion is on the disk, or noted in the tree. Raises `OdradekError` if the tree fails."""

    def replica_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return KAFKA_STORAGE_ERROR if the replica's log cannot be used, INELIGIBLE_REPLICA on a full disk."""

    async def wait_until_applied(self) -> None:
        """Return when the replicas lead and follow as in the present image."""


class ControllerCommandHandler:
    """One broker's handler. `wake` is called when the controller has sent its full state."""

    def __init__(
        self, view: ClusterView, broker_session: BrokerSession, replicas: LocalReplicas, *, wake: Callable[[], None]
    ) -> None:
        self._view = view
        self._broker_session = broker_session
        self._replicas = replicas
        self._wake = wake
        self._full_state_from = -1, -1
        """`(broker epoch, controller epoch)` of the last full UpdateMetadata that is applied."""

    @property
    def is_initialized(self) -> bool:
        """Whether the current controller has sent its full state since this broker registered."""
        return self._full_state_from == (self._broker_session.epoch, self._known_controller[1])

    def is_addressed_here(self, body: bytes) -> bool:
        """Return whether a request's undecoded `body` has this broker's epoch."""
        return body[_BROKER_EPOCH] == self._broker_session.epoch.to_bytes(8, "big", signed=True)

    async def update_metadata(self, message: "UpdateMetadataRequest") -> dict[str, object]:
        """Update the image, lead, follow and stop as it says, and return the response when all logs are open.

        The response has the errors of `LocalReplicas.replica_error`.
        """
        try:
            await self._validate_controller(message)
            await self._apply(message)
        except KafkaError as error:
            return {"error_code": error.code, "partition_errors": []}
        await self._replicas.wait_until_applied()
        if message.is_full:
            self._full_state_from = max(self._full_state_from, (message.broker_epoch, message.controller_epoch))
            self._wake()
        return {"partition_errors": list(self._errors(message))}

    async def _validate_controller(self, message: "UpdateMetadataRequest") -> None:
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

    def _check_epochs(self, message: "UpdateMetadataRequest") -> None:
        """Raise `KafkaError` STALE_CONTROLLER_EPOCH unless the known controller, another broker, has sent the message.

        Raise STALE_BROKER_EPOCH if the message has another broker epoch than this broker's registration.
        """
        sender = message.controller_id, message.controller_epoch
        if sender != self._known_controller or message.controller_id == self._view.broker_id:
            raise KafkaError(ErrorCode.stale_controller_epoch)
        if message.broker_epoch != self._broker_session.epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)

    async def _apply(self, message: "UpdateMetadataRequest") -> None:
        """Read missing configurations of this broker's topics, then publish the new image and stop replicas."""
        view, me = self._view, self._view.broker_id
        configs = view.broker_watcher.configs
        image = apply_update_metadata(view.image, message, configs)
        while missing := local_topics(image, me) - configs.keys():
            try:
                await view.broker_watcher.read_configs(missing)
            except OdradekError as error:
                raise KafkaError(ErrorCode.unknown_server_error, str(error)) from error
            if perturb("controller: a broker has configurations late"):
                await asyncio.sleep(LATE_S)
            self._check_epochs(message)
            image = apply_update_metadata(view.image, message, configs)
        view.broker_watcher.follow_only(local_topics(image, me))
        stops = replicas_to_stop(image, message)
        view.publish(without_replicas(image, stops, me))
        async for key, delete in cooperatively(stops.items()):
            self._check_epochs(message)  # a newer controller may have created the topic again
            self._replicas.stop_replica(key, delete=delete)
        if stops:
            try:
                await self._replicas.sync_deleted()
            except OdradekError as error:
                raise KafkaError(ErrorCode.unknown_server_error, str(error)) from error

    def _errors(self, message: "UpdateMetadataRequest") -> Iterator[dict[str, object]]:
        for topic in message.topic_states:
            for state in topic.partition_states:
                key = TopicPartition(topic.topic_name, state.partition_index)
                if self._view.broker_id in state.replicas:
                    error = self._replicas.replica_error(key)
                    if error is not ErrorCode.none:
                        yield {"topic_name": key.topic, "partition_index": key.partition, "error_code": error}
