"""Builds UpdateMetadata, LeaderAndIsr and StopReplica requests from an image and a broker's pending updates."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from odradek.broker.cluster.metadata.controller_commands import FULL, INCREMENTAL, LEADER_DURING_DELETE
from odradek.broker.controlling.channels.pending_updates import PendingUpdates
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model import TopicPartition

_PLAINTEXT: Final = 0


class ControllerIdentity(Struct, frozen=True, kw_only=True):
    """The controller's broker id and epoch."""

    broker_id: int
    epoch: int

    def header(self, broker: BrokerImage) -> dict[str, Any]:
        """Return the fields of all three requests: the sender, and the receiver's broker epoch."""
        return {"controller_id": self.broker_id, "controller_epoch": self.epoch, "broker_epoch": broker.epoch}


def update_metadata(
    identity: ControllerIdentity, to: BrokerImage, image: ClusterImage, batch: PendingUpdates
) -> dict[str, Any] | None:
    """Return the UpdateMetadata; `None` if it would have nothing new."""
    if not (batch.everything or batch.brokers or batch.partitions or batch.deleted):
        return None
    deleted = [_deleted_topic(topic) for name, topic in batch.deleted.items() if name not in image.topics]
    return {
        **identity.header(to),
        "type": FULL if batch.everything else INCREMENTAL,
        "topic_states": [
            *deleted,
            *(
                {
                    "topic_name": topic.name,
                    "topic_id": _id(topic),
                    "partition_states": [
                        _for_clients(image, number, topic.partitions[number]) for number in sorted(numbers)
                    ],
                }
                for topic, numbers in _topics(image, batch)
            ),
        ],
        "live_brokers": [_broker(broker) for broker in image.brokers.values()],
    }


def leader_and_isr(
    identity: ControllerIdentity, to: BrokerImage, image: ClusterImage, batch: PendingUpdates
) -> dict[str, Any] | None:
    """Return the LeaderAndIsr for the broker's own replicas; `None` if it would have nothing new."""
    states: list[dict[str, Any]] = []
    leaders: set[int] = set()
    for topic, numbers in _topics(image, batch):
        own = [number for number in sorted(numbers) if to.broker_id in topic.partitions[number].replicas]
        if own:
            leaders.update(topic.partitions[number].leader for number in own)
            partition_states = [_for_replica(number, topic.partitions[number]) for number in own]
            states.append({"topic_name": topic.name, "topic_id": _id(topic), "partition_states": partition_states})
    if not states and not batch.everything:
        return None
    live = [image.brokers[leader] for leader in sorted(leaders) if leader in image.brokers]
    return {
        **identity.header(to),
        "type": FULL if batch.everything else INCREMENTAL,
        "topic_states": states,
        "live_leaders": [
            {"broker_id": each.broker_id, "host_name": each.endpoints[0].host, "port": each.endpoints[0].port}
            for each in live
        ],
    }


def stop_replica(identity: ControllerIdentity, to: BrokerImage, batch: PendingUpdates) -> dict[str, Any] | None:
    """Return the StopReplica; `None` if there are no replicas to stop."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for key, stop in batch.stops.items():
        state = {
            "partition_index": key.partition,
            "leader_epoch": stop.leader_epoch,
            "delete_partition": stop.delete,
        }
        by_topic.setdefault(key.topic, []).append(state)
    if not by_topic:
        return None
    states = [{"topic_name": name, "partition_states": states} for name, states in by_topic.items()]
    return {**identity.header(to), "topic_states": states}


def partitions_of(message: Any) -> set[TopicPartition]:
    """Return the partitions of a LeaderAndIsr, given as a dict."""
    return {
        TopicPartition(topic["topic_name"], state["partition_index"])
        for topic in message["topic_states"]
        for state in topic["partition_states"]
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


def _for_clients(image: ClusterImage, number: int, partition: PartitionImage) -> dict[str, Any]:
    return {
        "partition_index": number,
        "controller_epoch": partition.controller_epoch,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "zk_version": partition.state_version,
        "replicas": partition.replicas,
        "offline_replicas": [replica for replica in partition.replicas if replica not in image.brokers],
    }


def _for_replica(number: int, partition: PartitionImage) -> dict[str, Any]:
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
        "is_new": partition.state_version <= 0,
        "leader_recovery_state": partition.leader_recovery_state,
    }


def _deleted_topic(topic: TopicImage) -> dict[str, Any]:
    return {
        "topic_name": topic.name,
        "topic_id": _id(topic),
        "partition_states": [
            {
                "partition_index": number,
                "controller_epoch": partition.controller_epoch,
                "leader": LEADER_DURING_DELETE,
                "leader_epoch": partition.leader_epoch,
                "isr": (),
                "zk_version": partition.state_version,
                "replicas": (),
                "offline_replicas": (),
            }
            for number, partition in topic.partitions.items()
        ],
    }


def _broker(broker: BrokerImage) -> dict[str, Any]:
    return {
        "id": broker.broker_id,
        "epoch": broker.epoch,
        "rack": broker.rack,
        "endpoints": [
            {"port": each.port, "host": each.host, "listener": each.name, "security_protocol": _PLAINTEXT}
            for each in broker.endpoints
        ],
    }
