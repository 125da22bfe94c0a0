"""Deleting the topics that somebody wishes deleted, by `/admin/delete_topics/{topic}` or as old tools do."""

from odradek.broker.duties import Duty


class DeletionDuty(Duty):
    """A topic that is to be deleted is in nobody's image any more when this gets to it."""

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
            for name in sorted(follower.deletion_wishes):
                await controller.delete_topic(name)
        follower.mark(names=True)
        return True
