"""Builds an UpdateMetadata request from an image and a broker's pending updates."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from odradek.broker.controller.channels.pending_updates import PendingUpdates
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model import TopicPartition


class ControllerIdentity(Struct, frozen=True, kw_only=True):
    """The controller's broker id and epoch."""

    broker_id: int
    epoch: int


def update_metadata(
    identity: ControllerIdentity, to: BrokerImage, image: ClusterImage, batch: PendingUpdates
) -> dict[str, Any]:
    """Return the request that brings the broker to `image`."""
    return {
        "controller_id": identity.broker_id,
        "controller_epoch": identity.epoch,
        "broker_epoch": to.epoch,
        "is_full": batch.everything,
        "topic_states": [
            *(
                {"topic_name": name, "topic_id": _id(topic), "is_deleted": True, "partition_states": ()}
                for name, topic in batch.deleted.items()
                if name not in image.topics
            ),
            *(
                {
                    "topic_name": topic.name,
                    "topic_id": _id(topic),
                    "partition_states": [_partition(number, topic.partitions[number]) for number in sorted(numbers)],
                }
                for topic, numbers in _topics(image, batch)
            ),
        ],
        "live_brokers": [_broker(broker) for broker in image.brokers.values()],
        "stops": [
            {
                "topic_name": key.topic,
                "partition_index": key.partition,
                "leader_epoch": stop.leader_epoch,
                "delete_partition": stop.delete,
            }
            for key, stop in batch.stops.items()
        ],
    }


def replicas_in(message: Any, broker_id: int) -> set[TopicPartition]:
    """Return the broker's replicas in an UpdateMetadata, given as a dict."""
    return {
        TopicPartition(topic["topic_name"], state["partition_index"])
        for topic in message["topic_states"]
        for state in topic["partition_states"]
        if broker_id in state["replicas"]
    }


def _topics(image: ClusterImage, batch: PendingUpdates) -> Iterator[tuple[TopicImage, Iterable[int]]]:
    if batch.everything:
        yield from ((topic, topic.partitions) for topic in image.topics.values())
        return
    for name, numbers in batch.partitions.items():
        topic = image.topics.get(name)
        if topic is not None:
            yield topic, [number for number in numbers if number in topic.partitions]


def _id(topic: TopicImage) -> Any:
    return None if topic.topic_id == UNNAMED else topic.topic_id


def _partition(number: int, partition: PartitionImage) -> dict[str, Any]:
    return {
        "partition_index": number,
        "controller_epoch": partition.controller_epoch,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "partition_epoch": partition.state_version,
        "replicas": partition.replicas,
        "adding_replicas": partition.adding_replicas,
        "removing_replicas": partition.removing_replicas,
        "leader_recovery_state": partition.leader_recovery_state,
    }


def _broker(broker: BrokerImage) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "epoch": broker.epoch,
        "rack": broker.rack,
        "endpoints": [{"port": each.port, "host": each.host, "listener": each.name} for each in broker.endpoints],
    }
