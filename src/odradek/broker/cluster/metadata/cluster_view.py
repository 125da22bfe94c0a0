"""A broker's view of the cluster: the image, the watchers of the tree that update it, and the load of brokers.

The controller follows the whole tree. The other brokers get commands, and follow only what commands do not have.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from odradek.config import BrokerConfig
from odradek.controller import ClusterLoad
from odradek.metadata.image import ClusterImage
from odradek.metadata.reading import BrokenNodes, read_topic_configs
from odradek.metadata.store import Store
from odradek.metadata.tree_watchers import BrokerTreeWatcher, ControllerTreeWatcher

OnImage = Callable[[ClusterImage, ClusterImage], None]


class ClusterView:
    """One broker's view. `config` is the broker's configuration in force; `publish` calls `on_image(old, new)`.

    `wake` makes the metadata loop update the image and run tasks and jobs.
    """

    def __init__(
        self, store: Store, broker_id: int, config: BrokerConfig, *, on_image: OnImage, wake: Callable[[], None]
    ) -> None:
        self.store = store
        self.broker_id = broker_id
        self.config = config
        self.image = ClusterImage()
        self.load = ClusterLoad()
        """The number of replicas and leaders of each broker, by the image."""
        self.broker_watcher = BrokerTreeWatcher(store, wake=wake, on_controller=self._note_controller)
        """The watcher of the tree while this broker is not the controller."""
        self.is_election_due = True
        """Whether there may be another controller. Standing for election resets it; reading who the controller is does
        not."""
        self.wake = wake
        self._tree: ControllerTreeWatcher | None = None
        self._on_image = on_image
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def watcher(self) -> ControllerTreeWatcher:
        """The watcher of the whole tree, which only the controller has."""
        assert self._tree is not None, "only the controller watches the whole tree"
        return self._tree

    def start(self) -> None:
        """Start watching as a broker that is not the controller."""
        self.broker_watcher.start()

    def stop(self) -> None:
        """Stop watching."""
        self.watch_tree(enabled=False)
        self.broker_watcher.stop()

    def watch_tree(self, *, enabled: bool) -> None:
        """Watch the whole tree, as the controller, or no longer; when this begins, the tree is read once."""
        if enabled == (self._tree is not None):
            return
        if self._tree is None:
            self.broker_watcher.stop()
            self._tree = ControllerTreeWatcher(
                self.store,
                wake=self.wake,
                on_controller=self._note_controller,
                deletes=self.config.delete_topic_enable,
            )
            self._tree.start()
        else:
            self._tree.stop()
            self._tree = None
            self.broker_watcher.start()
            self.broker_watcher.mark_all_changed()

    def on_controller_changed(self) -> None:
        """Have an election held, as there may be another controller."""
        self._note_controller()
        self.request_controller_read()

    def mark_all_changed(self) -> None:
        """Have everything read again."""
        self._note_controller()
        (self._tree or self.broker_watcher).mark_all_changed()

    def mark_configs(self, topics: Iterable[str]) -> None:
        """Have the configurations of brokers, groups and of these topics read again."""
        (self._tree or self.broker_watcher).mark(configs=True, topics=topics)

    async def refresh(self) -> None:
        """Read what changed, and publish it. Raises the store's errors."""
        if self._tree is not None:
            self.publish(await self._tree.refresh(self.image))
        else:
            await self.broker_watcher.refresh()
            self.publish(self.broker_watcher.patch(self.image))

    def request_controller_read(self) -> None:
        """Read who the controller is with the next `refresh`."""
        (self._tree or self.broker_watcher).mark(controller=True)

    async def read_controller(self) -> None:
        """Read now who the controller is, unless this broker is it. Raises the store's errors."""
        if self._tree is None:
            self.request_controller_read()
            await self.refresh()

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return a topic's configuration, read now if this broker does not follow it. Raises the store's errors."""
        known = self.image.topics.get(topic)
        if known is not None and (self._tree is not None or topic in self.broker_watcher.configs):
            return known.config
        return (await read_topic_configs(self.store, [topic], BrokenNodes()))[topic] or {}

    def publish(self, image: ClusterImage) -> None:
        """Make another image the present one."""
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
        waiting, self._waiting = self._waiting, []
        for condition, future in waiting:
            if not condition():
                self._waiting.append((condition, future))
            elif not future.done():
                future.set_result(None)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when the present image makes `condition` true; this never ends if none does."""
        if not condition():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, future))
            try:
                await future
            finally:
                self._waiting = [each for each in self._waiting if each[1] is not future]

    def _note_controller(self) -> None:
        self.is_election_due = True
