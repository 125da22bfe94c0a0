"""What a broker does with commands: believes those of the controller, of its present epoch, to its own registration.

Nobody proves who he is here, so the tree is asked: who commands must be who `/controller` says, in the epoch that
`/controller_epoch` says, and know the epoch of this broker's registration, which no client is told.
"""

from collections.abc import Callable
from typing import Any, Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.commands import ALL, OwnReplicas
from odradek.broker.cluster.membership import Membership
from odradek.broker.cluster.merging import (
    merge_leadership,
    merge_metadata,
    obeyed_stops,
    own_topics,
    without_replicas,
)
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition

_BROKER_EPOCH: Final = slice(9, 17)
"""Where it is in all three commands, behind the controller's id and epoch."""


class Obedience:
    """One broker's. `wake` is called when the controller has said everything."""

    def __init__(
        self, view: ClusterView, membership: Membership, replicas: OwnReplicas, *, wake: Callable[[], None]
    ) -> None:
        self._view = view
        self._membership = membership
        self._replicas = replicas
        self._wake = wake
        self._metadata_of = self._everything_of = -1, -1
        """The registration, and the controller's epoch, in which all metadata were said, and all that is to be led."""

    @property
    def informed(self) -> bool:
        """Whether the controller that is known has said everything once to this registration of the broker."""
        return self._everything_of == (self._membership.epoch, self._known[1])

    def is_addressed(self, body: bytes) -> bool:
        """Whether the undecoded body of a command names the registration of this broker, which no client is told."""
        return body[_BROKER_EPOCH] == self._membership.epoch.to_bytes(8, "big", signed=True)

    async def update_metadata(self, message: Any) -> ErrorCode:
        """What clients are to be told."""
        view = self._view
        try:
            await self._believe(message)
            await self._publish(lambda: merge_metadata(view.image, message, view.member.configs), message)
        except KafkaError as error:
            return error.code
        if message.type == ALL:
            self._metadata_of = message.broker_epoch, message.controller_epoch
        return ErrorCode.none

    async def leader_and_isr(self, message: Any) -> dict[str, Any]:
        """What to lead and to follow. The answer says which logs can't be used."""
        view = self._view
        try:
            await self._believe(message)
            await self._publish(lambda: merge_leadership(view.image, message, view.member.configs), message)
        except KafkaError as error:
            return {"error_code": error.code, "topics": []}
        await self._replicas.settled()
        said = message.broker_epoch, message.controller_epoch
        if message.type == ALL and self._metadata_of == said:
            self._everything_of = said
            self._wake()
        return {"topics": [self._errors(topic) for topic in message.topic_states]}

    async def stop_replica(self, message: Any) -> dict[str, Any]:
        """What to have no more."""
        view = self._view
        try:
            await self._believe(message)
        except KafkaError as error:
            return {"error_code": error.code, "partition_errors": []}
        stops = list(obeyed_stops(view.image, message))
        stopped = {key for key, obeyed, _ in stops if obeyed}
        view.publish(without_replicas(view.image, stopped, view.broker_id))
        for key, obeyed, delete in stops:
            if obeyed:
                self._replicas.stop_replica(key, delete=delete)
        return {
            "partition_errors": [
                {
                    "topic_name": key.topic,
                    "partition_index": key.partition,
                    "error_code": ErrorCode.none if obeyed else ErrorCode.fenced_leader_epoch,
                }
                for key, obeyed, _ in stops
            ]
        }

    async def _believe(self, message: Any) -> None:
        """Raises `KafkaError` STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, and what the tree did not do."""
        commander = message.controller_id, message.controller_epoch
        if commander != self._known and message.controller_epoch >= self._known[1]:
            try:
                await self._view.read_controller()
            except OdradekError as error:
                raise KafkaError(ErrorCode.stale_controller_epoch, str(error)) from error
        self._check(message)

    @property
    def _known(self) -> tuple[int, int]:
        image = self._view.image
        return image.controller_id, image.controller_epoch

    def _check(self, message: Any) -> None:
        """The same, by what is known."""
        commander = message.controller_id, message.controller_epoch
        if commander != self._known or message.controller_id == self._view.broker_id:
            raise KafkaError(ErrorCode.stale_controller_epoch)
        if message.broker_epoch != self._membership.epoch:
            raise KafkaError(ErrorCode.stale_broker_epoch)

    async def _publish(self, merged: Any, message: Any) -> None:
        """Publish an image, when what is set for the topics that this broker has replicas of is known."""
        view = self._view
        image: ClusterImage = merged()
        while missing := own_topics(image, view.broker_id) - view.member.configs.keys():
            try:
                await view.member.read_configs(missing)
            except OdradekError as error:
                raise KafkaError(ErrorCode.unknown_server_error, str(error)) from error
            self._check(message)
            image = merged()
        view.member.follow_only(own_topics(image, view.broker_id))
        view.publish(image)

    def _errors(self, topic: Any) -> dict[str, Any]:
        return {
            "topic_id": topic.topic_id,
            "partition_errors": [
                {"partition_index": each.partition_index, "error_code": self._error(topic.topic_name, each)}
                for each in topic.partition_states
            ],
        }

    def _error(self, topic: str, state: Any) -> ErrorCode:
        offline = self._replicas.is_offline(TopicPartition(topic, state.partition_index))
        return ErrorCode.kafka_storage_error if offline else ErrorCode.none
