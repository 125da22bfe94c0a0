"""Sends AlterPartition requests to the controller, which may be this broker (KIP-497)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.machine import IsrChange
from odradek.metadata.image import ClusterImage
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.metadata.nodes import RECOVERED
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.schemas import Message


class WrittenIsr(NamedTuple):
    """A partition's ISR and leader as the controller wrote them to the metadata tree."""

    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


IsrResult = WrittenIsr | KafkaError


class LocalController(Protocol):
    """The controller that runs in this broker."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, items: Mapping[TopicPartition, AlterPartitionItem]
    ) -> dict[TopicPartition, IsrResult]:
        """Decide on each partition's ISR, and return the results. Raises `KafkaError` if the request is refused."""


class ControllerChannel(Protocol):
    """Sends requests to the controller, whichever broker it is (`cluster.requests.controller_requests`)."""

    def local_controller(self) -> LocalController | None:
        """Return the controller if this broker is elected, else None."""

    async def send(self, api_key: ApiKey, message: Message) -> Any:
        """Send a request and return the response. Raises `UnavailableError` if there is none."""

    async def back_off(self, seconds: float) -> None:
        """Sleep, but not past the election of another controller."""


class AlterPartitionRequests:
    """Sends AlterPartition requests for one broker."""

    def __init__(self, metadata: MetadataCache, controller: ControllerChannel) -> None:
        self._metadata = metadata
        self._controller = controller

    async def send(self, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
        """Send one request, and return the results by partition; a change without a result must be sent again.

        Raises `KafkaError` if the request was refused, and `UnavailableError` without a response.
        """
        metadata = self._metadata
        image = metadata.image
        items = {
            key: AlterPartitionItem(
                isr=dict(zip(change.isr, change.broker_epochs, strict=True)),
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            for key, change in changes.items()
            if key.topic in image.topics
        }
        if not items:
            return {}
        controller = self._controller.local_controller()
        if controller is not None:
            return await controller.alter_partitions(metadata.broker_id, metadata.broker_epoch, items)
        message = {
            "broker_id": metadata.broker_id,
            "broker_epoch": metadata.broker_epoch,
            "topics": _encode(image, items),
        }
        answer = await self._controller.send(ApiKey.ALTER_PARTITION, message)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code)
        return _decode(image, answer)


def _encode(image: ClusterImage, items: Mapping[TopicPartition, AlterPartitionItem]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for key, item in items.items():
        topic = topics.setdefault(key.topic, {"topic_id": image.topics[key.topic].topic_id, "partitions": []})
        topic["partitions"].append(
            {
                "partition_index": key.partition,
                "leader_epoch": item.leader_epoch,
                "new_isr": list(item.isr),
                "new_isr_with_epochs": [
                    {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in item.isr.items()
                ],
                "leader_recovery_state": item.leader_recovery_state,
                "partition_epoch": item.partition_epoch,
            }
        )
    return list(topics.values())


def _decode(image: ClusterImage, answer: Any) -> dict[TopicPartition, IsrResult]:
    results: dict[TopicPartition, IsrResult] = {}
    for topic in answer.topics:
        name = image.topic_names.get(topic.topic_id)
        for each in topic.partitions if name is not None else ():
            key = TopicPartition(name or "", each.partition_index)
            if each.error_code is ErrorCode.none:
                results[key] = WrittenIsr(each.leader_id, each.leader_epoch, tuple(each.isr), each.partition_epoch)
            else:
                results[key] = KafkaError(each.error_code)
    return results
