"""Keeps a `ClusterImage` up to date: watches record which nodes changed, and only these are read again.

A watch is set before its node is read, so no change is missed. The controller watches the tree
(`ControllerTreeWatcher`), except partition states: it applies those that it writes. A broker that writes a state before
its registration (`broker.cluster.registration.unclean_registration`) therefore also writes the topic's node. Other
brokers get topics by the controller's requests, and watch only configurations and the controller (`BrokerTreeWatcher`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from odradek.metadata import paths
from odradek.metadata.acl_nodes import AclNodes
from odradek.metadata.config_watchers import ConfigNodes, QuotaNodes
from odradek.metadata.feature_node import FinalizedFeatures
from odradek.metadata.image import ClusterImage, TopicImage
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import DeleteTopicsNode, PartitionStateNode, decode_integer
from odradek.metadata.reading import (
    BrokenNodes,
    is_broker_config,
    read_brokers,
    read_controller,
    read_topic_configs,
    read_topics,
)
from odradek.metadata.store import Create, Operation, Result, SetData, Store, Watch
from odradek.model import TopicPartition

_TOPICS_AT_ONCE: Final = 100
"""How many topics are read together: few round trips, but pauses for other tasks."""


def _ignore() -> None:
    """Ignore changes of the controller, in a process without elections."""


def _broker_of_config(name: str) -> str | None:
    return name if is_broker_config(name) else None


class _BaseTreeWatcher:
    """The watches of every broker: on the controller, on configurations except those of topics, and on ACLs."""

    def __init__(
        self, store: Store, *, wake: Callable[[], None], on_controller: Callable[[], None], reads_acls: bool
    ) -> None:
        self._store = store
        self._wake = wake
        self._on_controller = on_controller
        self._broken = BrokenNodes()
        self._roots: list[Watch] = []
        self._broker_configs = ConfigNodes(store, paths.BROKER_CONFIGS, _broker_of_config, self._broken, wake)
        self._group_configs = ConfigNodes(store, paths.GROUP_CONFIGS, paths.group_of_config, self._broken, wake)
        self._quotas = QuotaNodes(store, self._broken, wake)
        self._acls = AclNodes(store, self._broken, wake) if reads_acls else None
        self._nodes: list[ConfigNodes[Any] | QuotaNodes | AclNodes] = [
            self._broker_configs,
            self._group_configs,
            self._quotas,
        ]
        if self._acls is not None:
            self._nodes.append(self._acls)
        self._controller_changed = True
        self._features_changed = True
        self._changed: set[str] = set()

    def start(self) -> None:
        """Set the permanent watches; the first `refresh` reads everything."""
        store = self._store
        for nodes in self._nodes:
            nodes.start()
        self._roots = [
            store.watch_data(paths.CONTROLLER, self._mark_controller),
            store.watch_data(paths.CONTROLLER_EPOCH, self._mark_controller),
            store.watch_data(paths.FEATURE, self._mark_features),
        ]

    def stop(self) -> None:
        for watch in self._roots:
            watch.cancel()
        self._roots.clear()
        for nodes in self._nodes:
            nodes.stop()

    def _mark_controller(self) -> None:
        self._on_controller()
        self.mark(controller=True)

    def _mark_features(self) -> None:
        self._features_changed = True
        self._wake()

    def mark(self, *, configs: bool = False, controller: bool = False, topics: Iterable[str] = ()) -> None:
        """Make the next `refresh` read these parts."""
        for nodes in self._nodes if configs else ():
            nodes.mark_changed()
        self._features_changed |= configs
        self._controller_changed |= controller
        self._changed.update(topics)
        self._wake()

    async def _read_common(self) -> dict[str, Any]:
        """Read what changed, and return it as fields of `ClusterImage`."""
        parts: dict[str, Any] = {}
        if self._broker_configs.has_changed:
            found = await self._broker_configs.read()
            parts["broker_configs"] = {
                None if name == paths.ALL_BROKERS else int(name): config for name, config in found.items()
            }
        if self._group_configs.has_changed:
            parts["group_configs"] = await self._group_configs.read()
        if self._quotas.has_changed:
            parts["user_configs"], parts["quota_configs"] = await self._quotas.read()
        if self._acls is not None and self._acls.has_changed:
            parts["acls"] = await self._acls.read()
        if self._features_changed:
            self._features_changed = False
            parts |= await self._read_features()
        if self._controller_changed:
            self._controller_changed = False
            parts["controller_id"] = await read_controller(self._store, self._broken)
            node = await self._store.get(paths.CONTROLLER_EPOCH)
            try:
                parts["controller_epoch"] = 0 if node is None else decode_integer(paths.CONTROLLER_EPOCH, node.data)
            except BrokenNodeError as error:
                assert node is not None
                self._broken.report(error, node)
        return parts

    async def _read_features(self) -> dict[str, Any]:
        """Return the field of `ClusterImage` for `/feature`; none if the node is broken."""
        node = await self._store.get(paths.FEATURE)
        if node is None:
            return {"features": FinalizedFeatures()}
        try:
            return {"features": FinalizedFeatures.decode(paths.FEATURE, node.data, node_version=node.version)}
        except BrokenNodeError as error:
            self._broken.report(error, node)
            return {}


class ControllerTreeWatcher(_BaseTreeWatcher):
    """The controller's watches. `wake` is called when `refresh` has changes to read.

    `on_controller` is called as soon as the controller or its epoch changes, even during a `refresh`. If `deletes`,
    topics below `/admin/delete_topics` are moved from the image's `topics` to `deleting` at once.
    """

    def __init__(
        self,
        store: Store,
        *,
        wake: Callable[[], None],
        on_controller: Callable[[], None] = _ignore,
        deletes: bool = True,
        reads_acls: bool = False,
    ) -> None:
        super().__init__(store, wake=wake, on_controller=on_controller, reads_acls=reads_acls)
        self.requested_deletions: frozenset[str] = frozenset()
        """The names below `/admin/delete_topics`, also of topics that do not exist."""
        self.listed_deletions: tuple[tuple[str, ...], int] | None = None
        """The existing topics that old tools listed in the data of `/admin/delete_topics`, and the node's version."""
        self._deletes = deletes
        self._topics: dict[str, dict[str, Watch]] = {}
        self._brokers_changed = True
        self._names_changed = True
        self._written: dict[TopicPartition, tuple[PartitionStateNode, int]] = {}
        """Partition states that the controller has written since the last `refresh`, and their versions."""

    def start(self) -> None:
        super().start()
        store = self._store
        self._roots += [
            store.watch_children(paths.BROKER_IDS, self._mark_brokers),
            store.watch_children(paths.TOPICS, self.mark_names),
            store.watch_children(paths.DELETE_TOPICS, self.mark_names),
            store.watch_data(paths.DELETE_TOPICS, self.mark_names),
        ]

    def stop(self) -> None:
        super().stop()
        for name in list(self._topics):
            self._forget(name)

    def _mark_brokers(self) -> None:
        self._brokers_changed = True
        self._wake()

    def mark_names(self) -> None:
        """Make the next `refresh` read which topics there are, and which have to be deleted."""
        self._names_changed = True
        self._wake()

    def mark_all_changed(self) -> None:
        """Make the next `refresh` read everything."""
        self._brokers_changed = self._names_changed = True
        self.mark(configs=True, controller=True, topics=self._topics)

    def wrote(self, operations: Sequence[Operation], results: Sequence[Result]) -> None:
        """Note a transaction of the controller; its results are None if it failed or may not have been done.

        The next `refresh` applies the partition states that were written, and reads the topics of all other writes, and
        of writes whose outcome is unknown.
        """
        topics = set()
        for operation, result in zip(operations, results, strict=True):
            path = operation.path
            key = paths.partition_of_state(path)
            if key is not None and result is not None and isinstance(operation, Create | SetData):
                version = result if isinstance(result, int) else 0
                self._written[key] = PartitionStateNode.decode(path, operation.data), version
            elif (topic := paths.topic_of(path)) is not None:
                topics.add(topic)
            self._names_changed |= path.startswith(paths.DELETE_TOPICS)
        self.mark(topics=topics)

    async def refresh(self, image: ClusterImage) -> ClusterImage:
        """Return `image` with the changes since the last call; after an error the next call reads everything."""
        wanted = frozenset(self._changed)
        try:
            return await self._refresh(image)
        except BaseException:
            self._changed |= wanted
            self.mark_all_changed()
            raise

    async def _refresh(self, image: ClusterImage) -> ClusterImage:
        if self._written:  # before anything is read, which may be newer
            written, self._written = self._written, {}
            image = image.with_states(written)
        if self._brokers_changed:
            self._brokers_changed = False
            brokers = await read_brokers(self._store, self._broken)
            image = image if brokers == image.brokers else replace(image, brokers=brokers)
        image = patched(image, await self._read_common())
        if self._names_changed:
            self._names_changed = False
            image = await self._refresh_names(image)
        while self._changed:
            image = await self._refresh_topics(image)
        return image

    async def _refresh_names(self, image: ClusterImage) -> ClusterImage:
        """Mark topics that were created or deleted, or whose deletion was requested; return `image` with `deleting`."""
        names = set(await self._store.children(paths.TOPICS))
        self.requested_deletions = frozenset(await self._store.children(paths.DELETE_TOPICS))
        self.listed_deletions = await self._read_listed_deletions(names)
        deleting = self.requested_deletions & names if self._deletes else frozenset()
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
        topics: dict[str, TopicImage | None] = {}
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            topics |= await read_topics(self._store, names[start : start + _TOPICS_AT_ONCE], self._broken)
        changed: dict[str, TopicImage | None] = {}
        for name in names:
            if name not in topics and name not in image.deleting:
                continue  # the topic's node is broken: its last valid image stays
            topic = topics.get(name)
            before = image.topics.get(name)
            visible = None if name in image.deleting or topic is None else _with_known_config(topic, before)
            if visible != before:
                changed[name] = visible
            if topic is None and await self._store.get(paths.topic(name)) is None:
                self._forget(name)
        return image.with_topics(changed) if changed else image

    def _watch(self, name: str, path: str) -> None:
        watches = self._topics.setdefault(name, {})
        if path not in watches:
            watches[path] = self._store.watch_data(path, lambda: self.mark(topics=(name,)))

    def _forget(self, name: str) -> None:
        for watch in self._topics.pop(name, {}).values():
            watch.cancel()


def _with_known_config(topic: TopicImage, before: TopicImage | None) -> TopicImage:
    """Return `topic`, with its last valid configuration if the configuration node is broken."""
    if topic.is_config_known or before is None or before.topic_id != topic.topic_id:
        return topic
    return replace(topic, config=before.config, is_config_known=before.is_config_known)


class BrokerTreeWatcher(_BaseTreeWatcher):
    """The watches of a broker that is not the controller; `read_configs` adds watches on topic configurations.

    `refresh` only reads, since the controller's requests may change the image meanwhile; `patch` updates the image.
    """

    def __init__(
        self,
        store: Store,
        *,
        wake: Callable[[], None],
        on_controller: Callable[[], None] = _ignore,
        reads_acls: bool = False,
    ) -> None:
        super().__init__(store, wake=wake, on_controller=on_controller, reads_acls=reads_acls)
        self.configs: dict[str, Mapping[str, str] | None] = {}
        """The configurations of watched topics; None if the node is broken and was never read before."""
        self._watches: dict[str, Watch] = {}
        self._parts: dict[str, Any] = {}
        self._reading = asyncio.Lock()
        """Serializes reads, which the controller's requests also cause."""

    def stop(self) -> None:
        super().stop()
        self.follow_only(())

    def mark_all_changed(self) -> None:
        """Make the next `refresh` read everything."""
        self.mark(configs=True, controller=True, topics=self._watches)

    async def read_configs(self, names: Collection[str]) -> None:
        """Watch the configurations of these topics, and read them now."""
        for name in names:
            if name not in self._watches:
                path = paths.topic_config(name)
                self._watches[name] = self._store.watch_data(path, lambda name=name: self.mark(topics=(name,)))  # type: ignore[misc]
        async with self._reading:
            for name, config in (await read_topic_configs(self._store, names, self._broken)).items():
                if name in self._watches:  # skip a topic that is no longer watched: its changes would be missed
                    self.configs[name] = self.configs.get(name) if config is None else config

    def follow_only(self, names: Collection[str]) -> None:
        """Stop watching the configurations of topics not in `names`, and drop them."""
        for name in [name for name in self._watches if name not in names]:
            self._watches.pop(name).cancel()
            self.configs.pop(name, None)

    async def refresh(self) -> None:
        """Read the changes since the last call; after an error the next call reads everything."""
        try:
            async with self._reading:
                self._parts |= await self._read_common()
            # Read also topics whose first read is running: it may precede the change.
            changed, self._changed = self._changed & self._watches.keys(), set()
            if changed:
                await self.read_configs(changed)
        except BaseException:
            self.mark_all_changed()
            raise

    def patch(self, image: ClusterImage) -> ClusterImage:
        """Return `image` with the parts that were read; `image` itself if they are equal."""
        image = patched(image, self._parts)
        changed: dict[str, TopicImage | None] = {}
        for name, config in self.configs.items():
            topic = image.topics.get(name)
            if topic is not None:
                updated = replace(topic, config=config or {}, is_config_known=config is not None)
                if updated != topic:
                    changed[name] = updated
        return image.with_topics(changed) if changed else image


def patched(image: ClusterImage, parts: Mapping[str, Any]) -> ClusterImage:
    """Return `image` with these fields replaced; `image` itself if they are equal."""
    different = {name: value for name, value in parts.items() if getattr(image, name) != value}
    return replace(image, **different) if different else image
