"""The task that writes the initial states of new partitions, and elects leaders when brokers or logs fail or return.

An old tool that changes a topic writes its node without the topic id (KAFKA-14190). The task restores the id;
otherwise brokers would treat their logs as another topic's.
"""

from uuid import UUID

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.controller.controller_epoch import ControllerEpoch
from odradek.broker.controller.machine import needs_initialization
from odradek.broker.controller.tasks import ControllerTask
from odradek.metadata.image import UNNAMED, MetadataDelta


class LeaderElectionTask(ControllerTask):
    """Checks changed topics, and all topics after a change of brokers or of the broker configuration."""

    def __init__(self, epoch: ControllerEpoch, view: ClusterView) -> None:
        super().__init__(epoch, view)
        self._unchecked = set(view.image.topics)
        self._config = view.config
        self._ids: dict[str, UUID] = {}
        """The former ids of topics whose nodes have lost them."""

    def image_changed(self, delta: MetadataDelta) -> None:
        self._unchecked.update(delta.topics_to_check)
        for name in delta.topics:
            before, topic = delta.old.topics.get(name), delta.new.topics.get(name)
            if before is None or topic is None or topic.topic_id != UNNAMED or before.topic_id == UNNAMED:
                continue
            if any(partition.is_readable for partition in topic.partitions.values()):
                self._ids[name] = before.topic_id

    async def run(self) -> bool:
        """Write missing initial states, then elect leaders, in the topics to check."""
        view, image = self.view, self.view.image
        if view.config is not self._config:
            self._config = view.config
            self._unchecked.update(image.topics)
        self._unchecked |= self.epoch.context.take_changed()
        topics = [image.topics[name] for name in sorted(self._unchecked) if name in image.topics]
        changed = [topic.name for topic in topics if needs_initialization(topic)]
        for name in changed:
            await self.epoch.initialize(image.topics[name], image, topic_id=self._ids.get(name))
        changed += await self.epoch.elect_leaders(image, topics, self._config)
        self._unchecked.clear()
        self._ids.clear()
        if changed:
            view.watcher.mark(topics=changed)
        return bool(changed)
