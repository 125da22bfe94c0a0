"""Lists and describes `ZookeeperConsumer` groups in the metadata tree, and sets their offsets, for tools (SPEC 8)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from odradek.clients.zookeeper_consumer.group_tree import batches
from odradek.clients.zookeeper_consumer.machine.registration import validate_node_name
from odradek.clients.zookeeper_consumer.offset_storage import offset_changes
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import ConsumerNode, decode_integer
from odradek.metadata.store import NoNode, Reader, Store
from odradek.model import TopicPartition

K = TypeVar("K")
T = TypeVar("T")


class TreeGroup(Struct, frozen=True, kw_only=True):
    """One group: consumers by id, the thread id that owns each partition, and the next offset to read of each."""

    group_id: str
    consumers: Mapping[str, ConsumerNode]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, int]
    broken: Sequence[BrokenNodeError]
    """The errors of registrations and offsets that cannot be decoded."""


async def list_groups(tree: Reader) -> list[str]:
    """Return the ids of all groups in the tree, sorted."""
    return await _children(tree, paths.CONSUMERS)


async def describe_group(tree: Reader, group_id: str) -> TreeGroup:
    """Return a group; an unknown group is empty."""
    ids = paths.parent(paths.consumer_id(group_id, "-"))
    places = [paths.child(ids, name) for name in await _children(tree, ids)]
    nodes = zip(places, await tree.get_many(places), strict=True)
    broken: list[BrokenNodeError] = []
    consumers = _decoded({path: (path, node.data) for path, node in nodes if node}, ConsumerNode.decode, broken)
    sample = TopicPartition("-", 0)
    owners = await _by_partition(tree, paths.parent(paths.parent(paths.consumer_owner(group_id, sample))))
    offsets = await _by_partition(tree, paths.parent(paths.parent(paths.consumer_offset(group_id, sample))))
    return TreeGroup(
        group_id=group_id,
        consumers={paths.name_of(path): node for path, node in consumers.items()},
        owners={place: data.decode(errors="replace") for place, (_, data) in owners.items()},
        offsets={place: offset for place, offset in _decoded(offsets, decode_integer, broken).items() if offset >= 0},
        broken=broken,
    )


async def set_offsets(store: Store, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets of a group, which must have no consumers. Raises `ConfigurationError` for an invalid id."""
    validate_node_name("a group's id", group_id)
    for changes in batches(await offset_changes(store, group_id, offsets)):
        await store.multi(changes)


def _decoded(
    nodes: Mapping[K, tuple[str, bytes]], decode: Callable[[str, bytes], T], broken: list[BrokenNodeError]
) -> dict[K, T]:
    """Return the decoded values of `(path, data)` nodes; append the errors of malformed ones to `broken`."""
    values: dict[K, T] = {}
    for key, (path, data) in nodes.items():
        try:
            values[key] = decode(path, data)
        except BrokenNodeError as error:
            broken.append(error)
    return values


async def _by_partition(tree: Reader, folder: str) -> dict[TopicPartition, tuple[str, bytes]]:
    places = {
        TopicPartition(topic, int(number)): f"{folder}/{topic}/{number}"
        for topic in await _children(tree, folder)
        for number in await _children(tree, f"{folder}/{topic}")
        if number.isdecimal()
    }
    nodes = zip(sorted(places), await tree.get_many(places[each] for each in sorted(places)), strict=True)
    return {place: (places[place], node.data) for place, node in nodes if node is not None}


async def _children(tree: Reader, path: str) -> list[str]:
    try:
        return await tree.children(path)
    except NoNode:
        return []
