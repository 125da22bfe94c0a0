"""The task that deletes topics whose deletion is requested by a node `/admin/delete_topics/{topic}`.

Old tools list the topics in the data of `/admin/delete_topics` instead. A topic with a request is not in images any
more. All live brokers that the topic's node names delete their replicas before the nodes are removed. As in KRaft, dead
brokers are not waited for: they delete their logs when they are back.
"""

from odradek.broker.cluster.metadata.controller_commands import EPOCH_DURING_DELETE
from odradek.broker.controller.machine import StopReplicas
from odradek.broker.controller.tasks import ControllerTask
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.model import TopicPartition


class TopicDeletionTask(ControllerTask):
    """Deletes topics once their replicas are deleted."""

    async def run(self) -> bool:
        """Delete requested topics whose replicas are deleted; remove requests if `delete.topic.enable` is false."""
        watcher, epoch = self.view.watcher, self.epoch
        if watcher.listed_deletions is not None:
            names, version = watcher.listed_deletions
            await epoch.request_deletions(names, listed_version=version)
        elif not watcher.requested_deletions:
            return False
        elif not self.view.config.delete_topic_enable:
            await epoch.refuse_deletions(watcher.requested_deletions)
        else:
            stopped = [name for name in sorted(watcher.requested_deletions) if await self._is_deleted_on_brokers(name)]
            if not stopped:
                return False
            for name in stopped:
                await epoch.delete_topic(name)
        watcher.mark(names=True)
        return True

    async def _is_deleted_on_brokers(self, name: str) -> bool:
        """Return whether no live broker has replicas of the topic; stop them on brokers that have some."""
        topic = (await read_topics(self.view.store, [name], BrokenNodes())).get(name)
        partitions = {} if topic is None else topic.partitions
        stops = [
            StopReplicas(
                partition=TopicPartition(name, number), brokers=partition.replicas, leader_epoch=EPOCH_DURING_DELETE
            )
            for number, partition in partitions.items()
        ]
        await self.epoch.channels.delete_own(stops)
        return self.epoch.channels.ensure_stopped(stops)
