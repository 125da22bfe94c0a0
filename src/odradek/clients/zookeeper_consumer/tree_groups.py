"""Groups of generation 1 as the tree shows them, for tools: members, owners and offsets (SPEC 8)."""

from collections.abc import Collection, Mapping

from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.metadata import paths
from odradek.metadata.nodes import ConsumerNode, decode_integer, encode_integer
from odradek.metadata.store import Create, NoNode, Reader, SetData, Store
from odradek.model import TopicPartition
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeGroup:
    """One group; `owners` has thread ids, `offsets` the next offsets to read."""

    group_id: str
    consumers: Mapping[str, ConsumerNode]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, int]


async def list_groups(tree: Reader) -> list[str]:
    """Return the ids of all groups in the tree, sorted."""
    return await _children(tree, paths.CONSUMERS)


async def describe_group(tree: Reader, group_id: str) -> TreeGroup:
    """Return a group; one that does not exist has nothing. Raises `BrokenNodeError`."""
    ids = paths.parent(paths.consumer_id(group_id, "-"))
    places = [paths.child(ids, name) for name in await _children(tree, ids)]
    nodes = zip(places, await tree.get_many(places), strict=True)
    sample = TopicPartition("-", 0)
    owners = await _by_partition(tree, paths.parent(paths.parent(paths.consumer_owner(group_id, sample))))
    offsets = await _by_partition(tree, paths.parent(paths.parent(paths.consumer_offset(group_id, sample))))
    return TreeGroup(
        group_id=group_id,
        consumers={paths.name_of(path): ConsumerNode.decode(path, node.data) for path, node in nodes if node},
        owners={place: data.decode(errors="replace") for place, (_, data) in owners.items()},
        offsets={place: decode_integer(path, data) for place, (path, data) in offsets.items()},
    )


async def set_offsets(store: Store, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a group's offsets into the tree, for a group without consumers."""
    places = {place: paths.consumer_offset(group_id, place) for place in offsets}
    topics = sorted({paths.parent(path) for path in places.values()})
    await create_persistent(store, [*_ancestors(topics[:1]), *topics])
    known = await store.get_many(places.values())
    changes: list[Create | SetData] = []
    for (place, path), node in zip(places.items(), known, strict=True):
        data = encode_integer(offsets[place])
        changes.append(Create(path=path, data=data) if node is None else SetData(path=path, data=data))
    await store.multi(changes)


def _ancestors(nodes: Collection[str]) -> list[str]:
    above = [paths.parent(node) for node in nodes]
    return [*_ancestors(above), *above] if above and above[0] != "/" else []


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
