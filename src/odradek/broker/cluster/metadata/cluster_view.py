"""The `ClusterView` of a broker: its cluster image, the tree watchers that update it, and the load of brokers.

The controller watches the whole tree. The other brokers watch only what the controller's commands do not contain.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from odradek.config.broker import BrokerConfig
from odradek.metadata.cluster_load import ClusterLoad
from odradek.metadata.image import ClusterImage, MetadataDelta
from odradek.metadata.reading import BrokenNodes, read_topic_configs
from odradek.metadata.store import Store
from odradek.metadata.tree_watchers import BrokerTreeWatcher, ControllerTreeWatcher

OnImage = Callable[[MetadataDelta], None]


class ClusterView:
    """One broker's view. `publish` calls `on_image`; `wake` makes the metadata loop run."""

    def __init__(
        self, store: Store, broker_id: int, config: BrokerConfig, *, on_image: OnImage, wake: Callable[[], None]
    ) -> None:
        self.store = store
        self.broker_id = broker_id
        self.config = config
        self.image = ClusterImage()
        self.load = ClusterLoad()
        """The number of replicas and preferred leaderships of each broker in the image."""
        self.broker_watcher = BrokerTreeWatcher(
            store, wake=wake, on_controller=self._note_controller, reads_acls=bool(config.authorizer_class_name)
        )
        """The watcher of the tree while this broker is not the controller."""
        self.is_election_due = True
        """Whether the controller may have changed. The metadata loop resets it and tries to become the controller."""
        self.wake = wake
        self._tree: ControllerTreeWatcher | None = None
        self._broken = BrokenNodes()
        self._on_image = on_image
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    @property
    def watcher(self) -> ControllerTreeWatcher:
        assert self._tree is not None, "only the controller watches the whole tree"
        return self._tree

    def start(self) -> None:
        """Start watching as a broker that is not the controller."""
        self.broker_watcher.start()

    def stop(self) -> None:
        self.watch_tree(enabled=False)
        self.broker_watcher.stop()

    def watch_tree(self, *, enabled: bool) -> None:
        """Start or stop watching the whole tree, as only the controller does; the next `refresh` reads everything."""
        if enabled == (self._tree is not None):
            return
        if self._tree is None:
            self.broker_watcher.stop()
            self._tree = ControllerTreeWatcher(
                self.store,
                wake=self.wake,
                on_controller=self._note_controller,
                deletes=self.config.delete_topic_enable,
                reads_acls=bool(self.config.authorizer_class_name),
            )
            self._tree.start()
        else:
            self._tree.stop()
            self._tree = None
            self.broker_watcher.start()
            self.broker_watcher.mark_all_changed()
            if self.image.deleting:  # which only the controller's watcher keeps up to date
                self.publish(replace(self.image, deleting=frozenset()))

    def on_controller_changed(self) -> None:
        """Make the metadata loop read the controller, and try to become it."""
        self._note_controller()
        self.request_controller_read()

    def mark_all_changed(self) -> None:
        """Make the next `refresh` read everything, and the metadata loop try to become the controller."""
        self._note_controller()
        (self._tree or self.broker_watcher).mark_all_changed()

    def mark_configs(self, topics: Iterable[str]) -> None:
        """Mark ACLs and the configurations of brokers, groups and these topics as changed, for the next `refresh`."""
        (self._tree or self.broker_watcher).mark(configs=True, topics=topics)

    async def refresh(self) -> MetadataDelta:
        """Read what has changed in the tree, and publish a new image. Raises the store's errors."""
        if self._tree is not None:
            return self.publish(await self._tree.refresh(self.image))
        await self.broker_watcher.refresh()
        return self.publish(self.broker_watcher.patch(self.image))

    def request_controller_read(self) -> None:
        """Make the next `refresh` read who the controller is."""
        (self._tree or self.broker_watcher).mark(controller=True)

    async def read_controller(self) -> None:
        """Read now who the controller is, unless this broker is it. Raises the store's errors."""
        if self._tree is None:
            self.request_controller_read()
            await self.refresh()

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return a topic's configuration, empty if unreadable; read it if not watched. Raises the store's errors."""
        known = self.image.topics.get(topic)
        if known is not None and (self._tree is not None or topic in self.broker_watcher.configs):
            return known.config
        return (await read_topic_configs(self.store, [topic], self._broken))[topic] or {}

    def publish(self, image: ClusterImage) -> MetadataDelta:
        """Replace the image, update `load`, call `on_image`, and evaluate the conditions of `wait_until`."""
        delta = MetadataDelta.between(self.image, image)
        if image is delta.old:
            return delta
        for name in delta.topics:
            before, after = delta.old.topics.get(name), image.topics.get(name)
            if before is not None:
                self.load.remove(partition.replicas for partition in before.partitions.values())
            if after is not None:
                self.load.add(partition.replicas for partition in after.partitions.values())
        self.image = image
        self._on_image(delta)
        waiting, self._waiting = self._waiting, []
        for condition, future in waiting:
            if not condition():
                self._waiting.append((condition, future))
            elif not future.done():
                future.set_result(None)
        return delta

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition()` is true; it is evaluated after each new image."""
        if not condition():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, future))
            try:
                await future
            finally:
                self._waiting = [each for each in self._waiting if each[1] is not future]

    def _note_controller(self) -> None:
        self.is_election_due = True
