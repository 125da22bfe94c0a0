"""Deleting the topics that tools and clients want deleted, by `/admin/delete_topics/{topic}` or as old tools do.

A topic that is to be deleted is in nobody's image any more when this gets to it. Its replicas are deleted by all
brokers that live before the tree forgets them: all that the topic's node names, whether it is being reassigned or not.
A broker that is dead then is not waited for, as with KRaft and unlike with ZooKeeper, where a name could not be used
again until every broker had come back. The tree notes its id and the topic's, and it deletes its logs when it is back.
"""

from odradek.broker.cluster.controller_commands import EPOCH_DURING_DELETE
from odradek.broker.controlling.tasks import ControllerTask
from odradek.controller import StopReplicas
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.model import TopicPartition


class TopicDeletionTask(ControllerTask):
    """See the module."""

    async def run(self) -> bool:
        """See `ControllerTask`."""
        follower, epoch = self.view.follower, self.epoch
        if follower.listed_deletions is not None:
            names, version = follower.listed_deletions
            await epoch.request_deletions(names, listed_version=version)
        elif not follower.deletion_wishes:
            return False
        elif not self.view.config.delete_topic_enable:
            await epoch.refuse_deletions(follower.deletion_wishes)
        else:
            stopped = [name for name in sorted(follower.deletion_wishes) if await self._is_deleted_on_brokers(name)]
            if not stopped:
                return False
            for name in stopped:
                await epoch.delete_topic(name)
        follower.mark(names=True)
        return True

    async def _is_deleted_on_brokers(self, name: str) -> bool:
        """Whether no live broker has replicas of the topic any more; they are told to delete them."""
        topic = (await read_topics(self.view.store, [name], BrokenNodes())).get(name)
        partitions = {} if topic is None else topic.partitions
        return self.epoch.channels.ensure_stopped(
            StopReplicas(
                partition=TopicPartition(name, number), brokers=partition.replicas, leader_epoch=EPOCH_DURING_DELETE
            )
            for number, partition in partitions.items()
        )
