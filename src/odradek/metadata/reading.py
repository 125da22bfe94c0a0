"""Reads the parts of a `ClusterImage` from the metadata tree: brokers, controller, topics, configurations.

Each version of a broken node, and of one with unknown keys, is logged once. A topic with a broken node is not treated
as deleted.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.config.definition import unknown_key
from odradek.config.group import GroupConfig
from odradek.config.topic import TopicConfig
from odradek.metadata import paths
from odradek.metadata.image import NO_CONTROLLER, UNNAMED, BrokerImage, PartitionImage, TopicImage
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import (
    NO_LEADER,
    BrokerNode,
    ConfigNode,
    ControllerNode,
    PartitionStateNode,
    TopicNode,
)
from odradek.metadata.store import Node, NoNode, Reader
from odradek.model import TopicPartition

K = TypeVar("K")

_KEYS: Final = {paths.TOPIC_CONFIGS: TopicConfig.definitions(), paths.GROUP_CONFIGS: GroupConfig.definitions()}
"""The known keys of configurations, by the parent of their nodes; those of brokers and users are checked later."""
_NODES_AT_ONCE: Final = 500
_BYTES_AT_ONCE: Final = 256 * 1024
"""Nodes, and bytes in them, that are read and decoded before other tasks run."""
_log = logging.getLogger("odradek.metadata")


class BrokenNodes:
    """Logs each version of a broken node, or of one with unknown keys, once, however often it is read."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[int, int]] = {}

    def report(self, error: BrokenNodeError, node: Node) -> None:
        """Log that `node` is broken, unless this version was logged before."""
        if self._is_new(error.path, node):
            _log.error("Failed to read metadata: %s", error)

    def report_unknown(self, path: str, node: Node, reasons: Iterable[str]) -> None:
        """Log that keys of `node` are ignored for these `reasons`, unless this version was logged before."""
        if self._is_new(path, node):
            _log.warning("Ignoring a part of the metadata node %s: %s", path, "; ".join(reasons))

    def _is_new(self, path: str, node: Node) -> bool:
        written = node.created, node.version
        if self._logged.get(path) == written:
            return False
        self._logged[path] = written
        return True


async def read_brokers(store: Reader, broken: BrokenNodes) -> dict[int, BrokerImage]:
    """Return the live brokers by id, without broken nodes."""
    return await _read_brokers(store, paths.BROKER_IDS, broken)


async def read_registrations(store: Reader, broken: BrokenNodes) -> dict[int, BrokerImage]:
    """Return the registered brokers by id, live or offline, without broken nodes; their `epoch` is not valid."""
    return await _read_brokers(store, paths.BROKER_REGISTRATIONS, broken)


async def _read_brokers(store: Reader, parent: str, broken: BrokenNodes) -> dict[int, BrokerImage]:
    names = [name for name in await store.children(parent) if name.isascii() and name.isdigit()]
    where = [paths.child(parent, name) for name in names]
    found = zip(names, where, await store.get_many(where), strict=True)
    return {
        int(name): broker for name, path, node in found if node and (broker := _broker(int(name), path, node, broken))
    }


async def read_controller(store: Reader, broken: BrokenNodes) -> int:
    """Return the controller's broker id; -1 if there is none or its node is broken."""
    node = await store.get(paths.CONTROLLER)
    if node is None:
        return NO_CONTROLLER
    try:
        return ControllerNode.decode(paths.CONTROLLER, node.data).broker_id
    except BrokenNodeError as error:
        broken.report(error, node)
        return NO_CONTROLLER


async def read_topics(store: Reader, names: Iterable[str], broken: BrokenNodes) -> dict[str, TopicImage | None]:
    """Return topics by name; None for a deleted topic. A topic with a broken node is omitted.

    A partition without a valid state has no leader, and leader epoch -1.
    """
    known, versions, gone = {}, {}, []
    async for name, _, node in read_nodes(store, names, paths.topic):
        if node is None:
            gone.append(name)
        elif (topic := _topic_node(name, node, broken)) is not None:
            known[name], versions[name] = topic, node.version
    partitions = [TopicPartition(name, number) for name, topic in known.items() for number in topic.replicas]
    states: dict[TopicPartition, PartitionImage] = {}
    async for key, _, node in read_nodes(store, partitions, paths.partition_state):
        states[key] = _partition(known[key.topic], key, node, broken)
    configs = await read_topic_configs(store, known, broken)
    images: dict[str, TopicImage | None] = dict.fromkeys(gone)
    for name, topic in known.items():
        config = configs[name]
        images[name] = TopicImage(
            name=name,
            topic_id=topic.topic_id or UNNAMED,
            partitions={number: states[TopicPartition(name, number)] for number in topic.replicas},
            config=config or {},
            is_config_known=config is not None,
            version=versions[name],
        )
    return images


async def read_topic_configs(
    store: Reader, names: Iterable[str], broken: BrokenNodes
) -> dict[str, Mapping[str, str] | None]:
    """Return the topics' configurations by topic, without unknown keys; None if the node is broken."""
    nodes = read_nodes(store, names, paths.topic_config)
    return {name: _config(path, node, broken) async for name, path, node in nodes}


async def read_configs(
    store: Reader, where: Mapping[K, str], broken: BrokenNodes, known: Mapping[K, Mapping[str, str]]
) -> dict[K, Mapping[str, str]]:
    """Return the non-empty configurations at the paths `where`, for a broken node the one in `known`.

    A node without data, which tools create as a parent, has no configuration.
    """
    present: dict[K, Mapping[str, str]] = {}
    async for each, path, node in read_nodes(store, where, where.__getitem__):
        config = _config(path, node if node and node.data else None, broken)
        present[each] = known.get(each, {}) if config is None else config
    return {each: config for each, config in present.items() if config}


def is_broker_config(name: str) -> bool:
    """Return whether `name` below `/config/brokers` is a broker id or the default."""
    return name == paths.ALL_BROKERS or re.fullmatch("0|[1-9][0-9]{0,9}", name) is not None


async def read_nodes(
    store: Reader, keys: Iterable[K], path_of: Callable[[K], str]
) -> AsyncIterator[tuple[K, str, Node | None]]:
    """Yield each key with its path and node; let other tasks run between reads of 500 nodes, and after 256 KiB."""
    wanted, size = [(key, path_of(key)) for key in keys], 0
    for start in range(0, len(wanted), _NODES_AT_ONCE):
        some = wanted[start : start + _NODES_AT_ONCE]
        for (key, path), node in zip(some, await store.get_many([path for _, path in some]), strict=True):
            if size > _BYTES_AT_ONCE:
                await asyncio.sleep(0)
                size = 0
            size += 0 if node is None else len(node.data)
            yield key, path, node


async def read_subtree(store: Reader, path: str) -> list[str]:
    """Return the paths of a node and all nodes below it, parents first; empty if there is no node."""
    try:
        names = await store.children(path)
    except NoNode:
        return []
    found = [path]
    for name in names:
        found += await read_subtree(store, paths.child(path, name))
    return found


def _broker(broker_id: int, path: str, node: Node, broken: BrokenNodes) -> BrokerImage | None:
    try:
        broker = BrokerNode.decode(path, node.data)
    except BrokenNodeError as error:
        broken.report(error, node)
        return None
    return BrokerImage(broker_id=broker_id, endpoints=broker.endpoints, rack=broker.rack, epoch=node.created)


def _topic_node(name: str, node: Node, broken: BrokenNodes) -> TopicNode | None:
    try:
        topic = TopicNode.decode(paths.topic(name), node.data)
        if (gap := next((number for number, each in enumerate(topic.replicas) if each != number), None)) is not None:
            # Clients take n partitions for those from 0 to n - 1; only consumers of Kafka 0.8 read the ids.
            reason = (
                f"partition {gap} is missing: clients need the numbers 0 to {len(topic.replicas) - 1}, without gaps"
            )
            raise BrokenNodeError(paths.topic(name), reason)
        return topic
    except BrokenNodeError as error:
        broken.report(error, node)
        return None


def _partition(topic: TopicNode, key: TopicPartition, node: Node | None, broken: BrokenNodes) -> PartitionImage:
    number = key.partition
    partition = PartitionImage(
        leader=NO_LEADER,
        leader_epoch=-1,
        replicas=topic.replicas[number],
        isr=topic.replicas[number],
        state_version=-1 if node is None else node.version,
        adding_replicas=topic.adding_replicas.get(number, ()),
        removing_replicas=topic.removing_replicas.get(number, ()),
    )
    if node is not None:
        try:
            return partition.with_state(PartitionStateNode.decode(paths.partition_state(key), node.data), node.version)
        except BrokenNodeError as error:
            broken.report(error, node)
    return partition


def _config(path: str, node: Node | None, broken: BrokenNodes) -> Mapping[str, str] | None:
    """Return the configuration in a node, without unknown keys: empty if there is no node, None if it is broken."""
    if node is None:
        return {}
    try:
        config = ConfigNode.decode(path, node.data).config
    except BrokenNodeError as error:
        broken.report(error, node)
        return None
    keys = _KEYS.get(paths.parent(path), config)
    if unknown := [str(unknown_key(name, keys)) for name in config if name not in keys]:
        broken.report_unknown(path, node, unknown)
    return {name: text for name, text in config.items() if name in keys}
