"""Deleting the topics that somebody wishes deleted, by `/admin/delete_topics/{topic}` or as old tools do.

A topic that is to be deleted is in nobody's image any more when this gets to it. Its replicas are deleted by all
brokers that live before the tree forgets them: all that the topic's node names, whether it is being reassigned or not.
A broker that is dead then is not waited for, as with KRaft and unlike with ZooKeeper, where a name could not be used
again until every broker had come back. The tree notes its id and the topic's, and it deletes its logs when it is back.
"""

from odradek.broker.cluster.commands import WHATEVER_EPOCH
from odradek.broker.controlling.duties import Duty
from odradek.controller import StopReplicas
from odradek.metadata.reading import BrokenNodes, read_topics
from odradek.model import TopicPartition


class DeletionDuty(Duty):
    """See the module."""

    async def perform(self) -> bool:
        """See `Duty`."""
        follower, controller = self.view.follower, self.controller
        if follower.listed_deletions is not None:
            names, version = follower.listed_deletions
            await controller.request_deletions(names, listed_version=version)
        elif not follower.deletion_wishes:
            return False
        elif not self.view.config.delete_topic_enable:
            await controller.refuse_deletions(follower.deletion_wishes)
        else:
            stopped = [name for name in sorted(follower.deletion_wishes) if await self._is_stopped(name)]
            if not stopped:
                return False
            for name in stopped:
                await controller.delete_topic(name)
        follower.mark(names=True)
        return True

    async def _is_stopped(self, name: str) -> bool:
        """Whether no live broker has replicas of the topic any more; they are told to delete them."""
        topic = (await read_topics(self.view.store, [name], BrokenNodes())).get(name)
        partitions = {} if topic is None else topic.partitions
        return self.controller.commands.stopped(
            StopReplicas(
                partition=TopicPartition(name, number), brokers=partition.replicas, leader_epoch=WHATEVER_EPOCH
            )
            for number, partition in partitions.items()
        )
