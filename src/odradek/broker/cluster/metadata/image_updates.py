"""Computes the next cluster image from the present one and an UpdateMetadata.

Partition states with an older leader epoch or, in the same epoch, an older version are ignored. A topic with another id
is another topic. The requests have no configurations; `configs` has those of topics with replicas on this broker.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.protocol.messages.controller_messages import (
        UpdateMetadataPartitionState,
        UpdateMetadataRequest,
        UpdateMetadataTopicState,
    )

EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of a stop for partitions of a deleted topic."""

Configs = Mapping[str, Mapping[str, str] | None]


def apply_update_metadata(image: ClusterImage, message: "UpdateMetadataRequest", configs: Configs) -> ClusterImage:
    """Return the image after an UpdateMetadata, without its `stops`."""
    brokers = {
        each.id: BrokerImage(
            broker_id=each.id,
            endpoints=tuple(ListenerAddress(there.listener, there.host, there.port) for there in each.endpoints),
            rack=each.rack,
            epoch=each.epoch,
        )
        for each in message.live_brokers
    }
    if brokers != image.brokers:
        image = replace(image, brokers=brokers)
    changed: dict[str, TopicImage | None] = {}
    for state in message.topic_states:
        known = _same_topic(image, state)
        if not state.is_deleted:
            partitions: dict[int, PartitionImage] = {
                each.partition_index: _partition(each, known) for each in state.partition_states
            }
            changed[state.topic_name] = _topic(state, known, partitions, configs)
        elif known is not None:
            changed[state.topic_name] = None
    if message.is_full:
        named = {state.topic_name for state in message.topic_states if not state.is_deleted}
        changed.update(dict.fromkeys(name for name in image.topics if name not in named))
    return image.with_topics(changed) if changed else image


def replicas_to_stop(image: ClusterImage, message: "UpdateMetadataRequest") -> dict[TopicPartition, bool]:
    """Return the replicas that an UpdateMetadata stops, and whether it deletes them (KIP-570).

    Replicas whose leader epoch in the image is newer are not among them, unless the topic is being deleted.
    """
    stops = {}
    for each in message.stops:
        key = TopicPartition(each.topic_name, each.partition_index)
        known = image.partition(key)
        if known is None or each.leader_epoch == EPOCH_DURING_DELETE or each.leader_epoch >= known.leader_epoch:
            stops[key] = bool(each.delete_partition)
    return stops


def without_replicas(image: ClusterImage, stopped: Iterable[TopicPartition], broker_id: int) -> ClusterImage:
    """Return the image without the broker's `stopped` replicas; partitions that it led have no leader."""
    changed: dict[str, TopicImage | None] = {}
    for key in stopped:
        topic = changed.get(key.topic) or image.topics.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        if topic is None or partition is None or broker_id not in partition.replicas:
            continue
        rest = replace(
            partition,
            leader=-1 if partition.leader == broker_id else partition.leader,
            replicas=tuple(replica for replica in partition.replicas if replica != broker_id),
        )
        changed[key.topic] = replace(topic, partitions={**topic.partitions, key.partition: rest})
    return image.with_topics(changed) if changed else image


def local_topics(image: ClusterImage, broker_id: int) -> set[str]:
    """Return the names of topics with a replica on the broker."""
    return {
        name
        for name, topic in image.topics.items()
        if any(broker_id in partition.replicas for partition in topic.partitions.values())
    }


def _same_topic(image: ClusterImage, state: "UpdateMetadataTopicState") -> TopicImage | None:
    known = image.topics.get(state.topic_name)
    return known if known is not None and known.topic_id == (state.topic_id or UNNAMED) else None


def _topic(
    state: "UpdateMetadataTopicState",
    known: TopicImage | None,
    partitions: Mapping[int, PartitionImage],
    configs: Configs,
) -> TopicImage:
    name = state.topic_name
    before = {} if known is None else known.partitions
    topic = TopicImage(name=name, topic_id=state.topic_id or UNNAMED, partitions={**before, **partitions})
    if name in configs:
        config = configs[name]
        return replace(topic, config=config or {}, is_config_known=config is not None)
    if known is not None:
        return replace(topic, config=known.config, is_config_known=known.is_config_known)
    return topic


def _partition(state: "UpdateMetadataPartitionState", topic: TopicImage | None) -> PartitionImage:
    known = None if topic is None else topic.partitions.get(state.partition_index)
    if known is not None and (state.leader_epoch, state.partition_epoch) < (known.leader_epoch, known.state_version):
        return known
    received = PartitionImage(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=tuple(state.replicas),
        isr=tuple(state.isr),
        controller_epoch=state.controller_epoch,
        state_version=state.partition_epoch,
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
    )
    return known if known == received else received
