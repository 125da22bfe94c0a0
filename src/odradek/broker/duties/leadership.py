"""First states for new partitions, and leaders for those whose brokers came or went."""

from odradek.broker.active_controller import ActiveController
from odradek.broker.cluster_view import ClusterView
from odradek.broker.duties import Duty
from odradek.controller import needs_initialization
from odradek.metadata.image import ClusterImage


class LeadershipDuty(Duty):
    """Looks at topics that changed, and at all of them when brokers or the configuration did."""

    def __init__(self, controller: ActiveController, view: ClusterView) -> None:
        super().__init__(controller, view)
        self._unchecked = set(view.image.topics)
        self._config = view.config

    def notice(self, old: ClusterImage, new: ClusterImage) -> None:
        """See `Duty`."""
        self._unchecked.update(new.topics if new.brokers != old.brokers else new.changed_topics(old))

    async def perform(self) -> bool:
        """See `Duty`."""
        view, image = self.view, self.view.image
        if view.config is not self._config:
            self._config = view.config
            self._unchecked.update(image.topics)
        self._unchecked |= self.controller.commands.availability.take_changed()
        topics = [image.topics[name] for name in sorted(self._unchecked) if name in image.topics]
        changed = [topic.name for topic in topics if needs_initialization(topic)]
        for name in changed:
            await self.controller.initialize(image.topics[name], image)
        changed += await self.controller.elect_leaders(image, topics, self._config)
        self._unchecked.clear()
        if changed:
            view.follower.mark(topics=changed)
        return bool(changed)
