"""From an image and what a broker has yet to be told to the requests that tell it."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.broker.cluster.commands import ALL, LEADER_OF_DELETED, SOME
from odradek.broker.controlling.commands.outbox import Outbox
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model import TopicPartition
from odradek.model.values import dataclass

_PLAINTEXT: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who commands: the controller, and its epoch."""

    broker_id: int
    epoch: int

    def to(self, broker: BrokerImage) -> dict[str, Any]:
        """What every command begins with."""
        return {"controller_id": self.broker_id, "controller_epoch": self.epoch, "broker_epoch": broker.epoch}


def update_metadata(sender: Sender, to: BrokerImage, image: ClusterImage, batch: Outbox) -> dict[str, Any] | None:
    """What the broker tells clients; `None` if nothing of that is new."""
    if not (batch.everything or batch.brokers or batch.partitions or batch.gone):
        return None
    gone = [_gone(topic) for name, topic in batch.gone.items() if name not in image.topics]
    return {
        **sender.to(to),
        "type": ALL if batch.everything else SOME,
        "topic_states": [
            *gone,
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


def leader_and_isr(sender: Sender, to: BrokerImage, image: ClusterImage, batch: Outbox) -> dict[str, Any] | None:
    """What the broker leads and follows; `None` if nothing of that is new."""
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
        **sender.to(to),
        "type": ALL if batch.everything else SOME,
        "topic_states": states,
        "live_leaders": [
            {"broker_id": each.broker_id, "host_name": each.endpoints[0].host, "port": each.endpoints[0].port}
            for each in live
        ],
    }


def stop_replica(sender: Sender, to: BrokerImage, batch: Outbox) -> dict[str, Any] | None:
    """Which replicas the broker stops having; `None` if there are none."""
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
    return {**sender.to(to), "topic_states": states}


def partitions_of(message: Any) -> set[TopicPartition]:
    """The partitions that a LeaderAndIsr, as a dict, names."""
    return {
        TopicPartition(topic["topic_name"], state["partition_index"])
        for topic in message["topic_states"]
        for state in topic["partition_states"]
    }


def _topics(image: ClusterImage, batch: Outbox) -> Iterator[tuple[TopicImage, Iterable[int]]]:
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


def _gone(topic: TopicImage) -> dict[str, Any]:
    return {
        "topic_name": topic.name,
        "topic_id": _id(topic),
        "partition_states": [
            {
                "partition_index": number,
                "controller_epoch": partition.controller_epoch,
                "leader": LEADER_OF_DELETED,
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
