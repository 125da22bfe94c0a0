"""AlterPartition from the leader's side: many wishes in one request, to the controller wherever it is (KIP-497)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.controller import AlterPartitionItem
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import RECOVERED
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.replication import IsrChange

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker


class WrittenIsr(NamedTuple):
    """An in-sync set as it is in the tree."""

    leader_id: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    leader_recovery_state: int = RECOVERED


IsrResult = WrittenIsr | KafkaError


class IsrRequests:
    """One broker's; `ask` sends one request."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    async def ask(self, changes: Mapping[TopicPartition, IsrChange]) -> dict[TopicPartition, IsrResult]:
        """What became of each change; of partitions without a result nobody knows.

        Raises `KafkaError` if the request was refused, and `UnavailableError`.
        """
        broker = self._broker
        image = broker.image
        wishes = {
            key: AlterPartitionItem(
                isr=dict(zip(change.isr, change.broker_epochs, strict=True)),
                leader_epoch=change.leader_epoch,
                partition_epoch=change.partition_epoch,
            )
            for key, change in changes.items()
            if key.topic in image.topics
        }
        if not wishes:
            return {}
        if broker.metadata_loop.is_controller:
            return await broker.controller.alter_partitions(broker.broker_id, broker.broker_epoch, wishes)
        message = {
            "broker_id": broker.broker_id,
            "broker_epoch": broker.broker_epoch,
            "topics": _encode(image, wishes),
        }
        answer = await broker.controller_requests.ask(ApiKey.ALTER_PARTITION, message)
        if answer.error_code is not ErrorCode.none:
            raise KafkaError(answer.error_code)
        return _decode(image, answer)


def _encode(image: ClusterImage, wishes: Mapping[TopicPartition, AlterPartitionItem]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for key, wish in wishes.items():
        topic = topics.setdefault(key.topic, {"topic_id": image.topics[key.topic].topic_id, "partitions": []})
        topic["partitions"].append(
            {
                "partition_index": key.partition,
                "leader_epoch": wish.leader_epoch,
                "new_isr": list(wish.isr),
                "new_isr_with_epochs": [
                    {"broker_id": broker_id, "broker_epoch": epoch} for broker_id, epoch in wish.isr.items()
                ],
                "leader_recovery_state": wish.leader_recovery_state,
                "partition_epoch": wish.partition_epoch,
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
