"""What a broker knows of the cluster, and from where: the image, the watches that keep it up to date, the load."""

from collections.abc import Callable

from odradek.config import BrokerConfig
from odradek.controller import ClusterLoad
from odradek.metadata.follower import TreeFollower
from odradek.metadata.image import ClusterImage
from odradek.metadata.store import Store

OnImage = Callable[[ClusterImage, ClusterImage], None]


class ClusterView:
    """One broker's. `config` is the broker's configuration in force; `on_image(old, new)` is called by `publish`.

    `wake` has the image brought up to date, the controller's duties and the jobs done.
    """

    def __init__(
        self, store: Store, broker_id: int, config: BrokerConfig, *, on_image: OnImage, wake: Callable[[], None]
    ) -> None:
        self.store = store
        self.broker_id = broker_id
        self.config = config
        self.image = ClusterImage()
        self.load = ClusterLoad()
        """How many replicas and leaders each broker has, by the image."""
        self.follower = TreeFollower(store, wake=wake, deletes=config.delete_topic_enable)
        self.wake = wake
        self._on_image = on_image

    def publish(self, image: ClusterImage) -> None:
        """Let another image be the present one."""
        old = self.image
        if image is old:
            return
        for name in image.changed_topics(old):
            before, after = old.topics.get(name), image.topics.get(name)
            if before is not None:
                self.load.remove(partition.replicas for partition in before.partitions.values())
            if after is not None:
                self.load.add(partition.replicas for partition in after.partitions.values())
        self.image = image
        self._on_image(old, image)
