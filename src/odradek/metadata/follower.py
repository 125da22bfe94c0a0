"""Keeps an image up to date: watches the tree, remembers what changed, and reads only that again.

A watch is set before what it watches is read, so no change is missed. Whoever writes the states of partitions, the
controller, reads them after writing and needs no watches on them; every other reader has one per partition.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from odradek.metadata import paths
from odradek.metadata.image import ClusterImage, TopicImage
from odradek.metadata.nodes import BrokenNodeError, DeleteTopicsNode, decode_integer
from odradek.metadata.reading import (
    BrokenNodes,
    is_broker_config,
    read_broker_configs,
    read_brokers,
    read_controller,
    read_topics,
)
from odradek.metadata.store import Store, Watch
from odradek.model import TopicPartition


class TreeFollower:
    """Watches of one session. `wake` is called whenever there is something for `refresh` to read.

    `deletes`: whether a wish to delete a topic hides it at once.
    """

    def __init__(self, store: Store, *, wake: Callable[[], None], deletes: bool = True) -> None:
        self.deletion_wishes: frozenset[str] = frozenset()
        """Names below `/admin/delete_topics`, of topics that are there and of others."""
        self.listed_deletions: tuple[tuple[str, ...], int] | None = None
        """Existing topics that the data of `/admin/delete_topics` lists, as old tools do, and the data's version."""
        self._store = store
        self._broken = BrokenNodes()
        self._deletes = deletes
        self._wake = wake
        self._roots: list[Watch] = []
        self._topics: dict[str, dict[str, Watch]] = {}
        self._broker_configs: dict[str, Watch] = {}
        self._watches_states = True
        self._brokers_changed = True
        self._broker_configs_changed = True
        self._controller_changed = True
        self._names_changed = True
        self._changed: set[str] = set()

    def start(self) -> None:
        """Set the watches that are always there; the first `refresh` reads everything."""
        store = self._store
        self._roots = [
            store.watch_children(paths.BROKER_IDS, lambda: self.mark(brokers=True)),
            store.watch_children(paths.BROKER_CONFIGS, lambda: self.mark(broker_configs=True)),
            store.watch_data(paths.CONTROLLER, lambda: self.mark(controller=True)),
            store.watch_data(paths.CONTROLLER_EPOCH, lambda: self.mark(controller=True)),
            store.watch_children(paths.TOPICS, lambda: self.mark(names=True)),
            store.watch_children(paths.DELETE_TOPICS, lambda: self.mark(names=True)),
            store.watch_data(paths.DELETE_TOPICS, lambda: self.mark(names=True)),
        ]

    def stop(self) -> None:
        """Watch nothing any more."""
        for watch in (*self._roots, *self._broker_configs.values()):
            watch.cancel()
        self._roots.clear()
        self._broker_configs.clear()
        for name in list(self._topics):
            self._forget(name)

    def mark(
        self,
        *,
        brokers: bool = False,
        broker_configs: bool = False,
        controller: bool = False,
        names: bool = False,
        topics: Iterable[str] = (),
    ) -> None:
        """Have these parts read by the next `refresh`."""
        self._brokers_changed |= brokers
        self._broker_configs_changed |= broker_configs
        self._controller_changed |= controller
        self._names_changed |= names
        self._changed.update(topics)
        self._wake()

    def mark_all(self) -> None:
        """Have everything read by the next `refresh`."""
        self.mark(brokers=True, broker_configs=True, controller=True, names=True, topics=self._topics)

    def watch_states(self, *, enabled: bool) -> None:
        """Whether to watch every partition's state; a change of this reads all topics again."""
        if self._watches_states == enabled:
            return
        self._watches_states = enabled
        for name in list(self._topics):
            self._forget(name)
        self.mark(names=True)

    @property
    def controller_changed(self) -> bool:
        """Whether `/controller` is to be read again."""
        return self._controller_changed

    @property
    def has_changes(self) -> bool:
        """Whether `refresh` would read anything."""
        flags = self._brokers_changed, self._broker_configs_changed, self._controller_changed, self._names_changed
        return any(flags) or bool(self._changed)

    async def refresh(self, image: ClusterImage) -> ClusterImage:
        """`image` with what changed since the last call; the same object if that is nothing.

        After an error the next call reads everything.
        """
        wanted = frozenset(self._changed)
        try:
            return await self._refresh(image)
        except BaseException:
            self._changed |= wanted
            self.mark_all()
            raise

    async def _refresh(self, image: ClusterImage) -> ClusterImage:
        if self._brokers_changed:
            self._brokers_changed = False
            brokers = await read_brokers(self._store, self._broken)
            image = image if brokers == image.brokers else replace(image, brokers=brokers)
        if self._broker_configs_changed:
            self._broker_configs_changed = False
            image = await self._refresh_broker_configs(image)
        if self._controller_changed:
            self._controller_changed = False
            image = await self._refresh_controller(image)
        if self._names_changed:
            self._names_changed = False
            image = await self._refresh_names(image)
        while self._changed:
            image = await self._refresh_topics(image)
        return image

    async def _refresh_broker_configs(self, image: ClusterImage) -> ClusterImage:
        names = set(filter(is_broker_config, await self._store.children(paths.BROKER_CONFIGS)))
        for name in names - self._broker_configs.keys():
            path = f"{paths.BROKER_CONFIGS}/{name}"
            self._broker_configs[name] = self._store.watch_data(path, lambda: self.mark(broker_configs=True))
        for name in self._broker_configs.keys() - names:
            self._broker_configs.pop(name).cancel()
        configs = await read_broker_configs(self._store, sorted(names), self._broken, image.broker_configs)
        return image if configs == image.broker_configs else replace(image, broker_configs=configs)

    async def _refresh_controller(self, image: ClusterImage) -> ClusterImage:
        controller = await read_controller(self._store, self._broken)
        node = await self._store.get(paths.CONTROLLER_EPOCH)
        epoch = image.controller_epoch
        try:
            epoch = 0 if node is None else decode_integer(paths.CONTROLLER_EPOCH, node.data)
        except BrokenNodeError as error:
            assert node is not None
            self._broken.report(error, node)
        if (controller, epoch) == (image.controller_id, image.controller_epoch):
            return image
        return replace(image, controller_id=controller, controller_epoch=epoch)

    async def _refresh_names(self, image: ClusterImage) -> ClusterImage:
        """Notice topics that came, went, or are to be deleted."""
        names = set(await self._store.children(paths.TOPICS))
        self.deletion_wishes = frozenset(await self._store.children(paths.DELETE_TOPICS))
        self.listed_deletions = await self._read_listed_deletions(names)
        deleting = self.deletion_wishes & names if self._deletes else frozenset()
        known = self._topics.keys() | image.topics.keys()
        self._changed |= (names - self._topics.keys()) | (known - names) | (deleting ^ image.deleting)
        return image if deleting == image.deleting else replace(image, deleting=deleting)

    async def _read_listed_deletions(self, names: set[str]) -> tuple[tuple[str, ...], int] | None:
        node = await self._store.get(paths.DELETE_TOPICS)
        if node is None or not node.data:
            return None
        try:
            listed = DeleteTopicsNode.decode(paths.DELETE_TOPICS, node.data).topics
        except BrokenNodeError as error:
            self._broken.report(error, node)
            return None
        return tuple(name for name in listed if name in names), node.version

    async def _refresh_topics(self, image: ClusterImage) -> ClusterImage:
        names, self._changed = sorted(self._changed), set()
        for name in names:
            self._watch(name, paths.topic(name))
            self._watch(name, paths.topic_config(name))
        topics = await read_topics(self._store, names, self._broken)
        changed: dict[str, TopicImage | None] = {}
        for name in names:
            if name not in topics and name not in image.deleting:
                continue  # it is broken: what was known of it stays
            topic = topics.get(name)
            before = image.topics.get(name)
            visible = None if name in image.deleting or topic is None else _with_known_config(topic, before)
            if visible != before:
                changed[name] = visible
            if topic is None and await self._store.get(paths.topic(name)) is None:
                self._forget(name)
            elif topic is not None and self._watches_states:
                self._watch_states_of(topic)
        return image.with_topics(changed) if changed else image

    def _watch_states_of(self, topic: TopicImage) -> None:
        """States that were not watched when they were read are read once more."""
        before = len(self._topics[topic.name])
        for number in topic.partitions:
            self._watch(topic.name, paths.partition_state(TopicPartition(topic.name, number)))
        if len(self._topics[topic.name]) != before:
            self._changed.add(topic.name)

    def _watch(self, name: str, path: str) -> None:
        watches = self._topics.setdefault(name, {})
        if path not in watches:
            watches[path] = self._store.watch_data(path, lambda: self.mark(topics=(name,)))

    def _forget(self, name: str) -> None:
        for watch in self._topics.pop(name, {}).values():
            watch.cancel()


def _with_known_config(topic: TopicImage, before: TopicImage | None) -> TopicImage:
    """`topic` with what was last known to be set for it, if that is broken now."""
    if topic.is_config_known or before is None or before.topic_id != topic.topic_id:
        return topic
    return replace(topic, config=before.config, is_config_known=before.is_config_known)
