"""The controller's jobs for CreateTopics, CreatePartitions and DeleteTopics. Each topic is written atomically."""

from collections.abc import Mapping, Sequence, Set
from uuid import UUID

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import (
    ExistingTopicNames,
    NewPartitions,
    PartitionLimit,
    TopicCreation,
    TopicDeletion,
    TopicPlan,
    plan_partitions,
    plan_topic,
)
from odradek.broker.turns import HEAVY, cooperatively, in_turns
from odradek.metadata.image import BrokerImage
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.reading import BrokenNodes, read_registrations
from odradek.model import ErrorCode, KafkaError
from odradek.runtime import Entropy, new_id


async def create_topics(
    epoch: ControllerEpoch,
    view: ClusterView,
    wanted: Sequence[NewTopic],
    entropy: Entropy,
    *,
    validate_only: bool,
) -> list[TopicCreation]:
    """Create topics, and return the results in the order of `wanted`."""
    image, load = view.image, view.load.copy()
    brokers, away = await _registered_brokers(epoch, view)
    taken = ExistingTopicNames((*image.topics, *image.deleting))
    room = PartitionLimit()
    results = []
    async for topic in cooperatively(
        wanted, lambda each: HEAVY + max(each.num_partitions, len(each.assignment), view.config.num_partitions)
    ):
        plan: TopicPlan | None = None
        try:
            steps = plan_topic(
                topic,
                topic_id=new_id(entropy),
                existing=taken,
                brokers=brokers,
                away=away,
                load=load,
                config=view.config,
                room=room,
            )
            plan = await in_turns(steps)
            if not validate_only:
                await epoch.create_topic(plan)
                view.watcher.mark(topics=(topic.name,), names=True)
        except KafkaError as error:
            results.append(TopicCreation(name=topic.name, error=error.with_traceback(None)))
        else:
            taken.add(topic.name)
            results.append(TopicCreation(name=topic.name, plan=plan))
    return results


async def create_partitions(
    epoch: ControllerEpoch, view: ClusterView, wanted: Sequence[NewPartitions], *, validate_only: bool
) -> list[KafkaError | None]:
    """Add partitions to topics, and return each topic's error or None, in the order of `wanted`."""
    image, load = view.image, view.load.copy()
    brokers, away = await _registered_brokers(epoch, view)
    room = PartitionLimit()
    results: list[KafkaError | None] = []
    async for each in cooperatively(wanted, lambda each: HEAVY + max(each.count, len(each.assignment or ()))):
        try:
            topic = image.topics.get(each.topic)
            added = await in_turns(plan_partitions(each, topic, brokers=brokers, away=away, load=load, room=room))
            if not validate_only:
                await epoch.add_partitions(each.topic, added)
            results.append(None)
        except KafkaError as error:
            results.append(error.with_traceback(None))
    view.watcher.mark(topics=[each.topic for each, error in zip(wanted, results, strict=True) if error is None])
    return results


async def _registered_brokers(epoch: ControllerEpoch, view: ClusterView) -> tuple[Mapping[int, BrokerImage], Set[int]]:
    """Return all registered brokers, and the ids of those that are not `eligible_leaders`."""
    live = view.image.brokers
    brokers = {**await read_registrations(view.store, BrokenNodes()), **live}
    return brokers, brokers.keys() - epoch.eligible_leaders(view.image)


async def delete_topics(epoch: ControllerEpoch, view: ClusterView, wanted: Sequence[str | UUID]) -> list[TopicDeletion]:
    """Write requests for `TopicDeletionTask`, and return a result for each of `wanted`, in order."""
    results = [_find(view, name_or_id) async for name_or_id in cooperatively(wanted)]
    await epoch.request_deletions(sorted({each.name for each in results if each.name and not each.error}))
    view.watcher.mark(names=True)
    return results


def _find(view: ClusterView, name_or_id: str | UUID) -> TopicDeletion:
    """Return the topic's name and id, with an error if it cannot be deleted."""
    name, topic_id = (name_or_id, None) if isinstance(name_or_id, str) else (None, name_or_id)
    image = view.image
    topic = image.topics.get(name_or_id) if isinstance(name_or_id, str) else image.topic_by_id(name_or_id)
    error: KafkaError | None = None
    if not view.config.delete_topic_enable:
        error = KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")
    elif topic is None and name is not None:
        error = KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
    elif topic is None:
        error = KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with the id {name_or_id}")
    if topic is None:
        return TopicDeletion(name=name, topic_id=topic_id, error=error)
    return TopicDeletion(name=topic.name, topic_id=topic.topic_id, error=error)
