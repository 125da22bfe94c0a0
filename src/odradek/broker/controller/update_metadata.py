"""The changes to send to brokers, and the UpdateMetadata request with their latest state.

everything      the broker has registered, or the controller is new: send the full state
brokers         the set of live brokers has changed
partitions      the changed partitions, by topic
deleted         the deleted topics, by name and id: a name may be deleted twice before a broker answers
stops           the replicas that the broker has to stop
"""

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from msgspec import Struct, field

from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, MetadataDelta, PartitionImage, TopicImage
from odradek.model import TopicPartition


class Stop(Struct, frozen=True, kw_only=True):
    """A request to stop one replica; a broker that knows a newer leader epoch refuses it."""

    leader_epoch: int
    delete: bool


class PendingUpdates(Struct):
    """Updates to send: the difference of two images, or all that one broker has not received yet."""

    everything: bool = False
    brokers: bool = False
    partitions: dict[str, set[int]] = field(default_factory=dict)
    deleted: set[tuple[str, UUID]] = field(default_factory=set)
    stops: dict[TopicPartition, Stop] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.everything or self.brokers or bool(self.partitions) or bool(self.deleted) or bool(self.stops)

    def add(self, newer: "PendingUpdates") -> None:
        self.everything |= newer.everything
        self.brokers |= newer.brokers
        for name, numbers in newer.partitions.items():
            self.partitions.setdefault(name, set()).update(numbers)
        self.deleted |= newer.deleted
        self.stops.update(newer.stops)

    def take(self) -> "PendingUpdates":
        taken = PendingUpdates(self.everything, self.brokers, self.partitions, self.deleted, self.stops)
        self.everything = self.brokers = False
        self.partitions, self.deleted, self.stops = {}, set(), {}
        return taken

    def restore(self, taken: "PendingUpdates") -> None:
        """Add back updates that could not be sent; newer stops of the same replicas stay."""
        newer = self.take()
        self.add(taken)
        self.add(newer)


def compute_changes(delta: MetadataDelta) -> PendingUpdates:
    """Return the differences between two images, without configurations, which brokers watch in the tree."""
    partitions: dict[str, set[int]] = {}
    deleted: set[tuple[str, UUID]] = set()
    for name in delta.topics:
        before, after = delta.old.topics.get(name), delta.new.topics.get(name)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            deleted.add((name, before.topic_id))
            before = None
        if after is not None:
            known = {} if before is None else before.partitions
            changed = {number for number, each in after.partitions.items() if known.get(number) != each}
            if changed:
                partitions[name] = changed
    return PendingUpdates(brokers=delta.brokers_changed, partitions=partitions, deleted=deleted)


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
                {"topic_name": name, "topic_id": _id(topic_id), "is_deleted": True, "partition_states": ()}
                for name, topic_id in sorted(batch.deleted)
                if name not in image.topics
            ),
            *(
                {
                    "topic_name": topic.name,
                    "topic_id": _id(topic.topic_id),
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


def _id(topic_id: UUID) -> UUID | None:
    return None if topic_id == UNNAMED else topic_id


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
