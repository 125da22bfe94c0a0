"""A group of generation 1 keeps its offsets in the tree, in `__consumer_offsets`, or in both (SPEC 7).

A commit is refused when the consumer's session is over: its partitions may have another owner by then, whose offsets
it would set back.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from odradek.clients.cluster import Cluster
from odradek.clients.group_offsets import (
    NO_MEMBER,
    OffsetAndMetadata,
    commit_once,
    fetch_group_offsets,
    find_coordinator,
)
from odradek.clients.retry import retrying
from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.metadata import paths
from odradek.metadata.nodes import decode_integer, encode_integer
from odradek.metadata.store import Check, Create, NoNode, Operation, SetData, Store
from odradek.model import OdradekError, TopicPartition

Offsets = Mapping[TopicPartition, int]


class SessionOverError(OdradekError):
    """A commit by a consumer whose session with the tree is over, so that its partitions are no longer its own."""

    def __init__(self, consumer_id: str) -> None:
        super().__init__(f"{consumer_id} has lost its session with the tree: its offsets are not committed")


class OffsetStorage(Protocol):
    """One group's committed offsets: of each partition the next to read."""

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of those partitions that have one."""

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        """Store offsets of partitions that were claimed in a session. Raises `SessionOverError`."""


class ZookeeperOffsets:
    """Offsets in `/consumers/{group}/offsets`, written while the consumer's node exists."""

    def __init__(self, store: Store, group: str, consumer_id: str) -> None:
        self._store = store
        self._group = group
        self._consumer_id = consumer_id

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        places = {place: paths.consumer_offset(self._group, place) for place in partitions}
        nodes = zip(places.items(), await self._store.get_many(places.values()), strict=True)
        return {place: decode_integer(path, node.data) for (place, path), node in nodes if node is not None}

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        places = {place: paths.consumer_offset(self._group, place) for place in offsets}
        topics = sorted({paths.parent(path) for path in places.values()})
        await create_persistent(self._store, [paths.parent(topic) for topic in topics[:1]] + topics)
        known = await self._store.get_many(places.values())
        own_node = paths.consumer_id(self._group, self._consumer_id)
        changes: list[Operation] = [Check(path=own_node)]
        for (place, path), node in zip(places.items(), known, strict=True):
            data = encode_integer(offsets[place])
            changes.append(Create(path=path, data=data) if node is None else SetData(path=path, data=data))
        if session_id != self._store.session_id:
            raise SessionOverError(self._consumer_id)
        try:
            await self._store.multi(changes)
        except NoNode as error:
            if error.path != own_node:
                raise
            raise SessionOverError(self._consumer_id) from None


class KafkaOffsets:
    """Offsets in `__consumer_offsets`, committed without membership while the session certainly lives.

    The coordinator cannot see the session: a commit that is under way when it ends may still be stored.
    """

    def __init__(self, cluster: Cluster, store: Store, group: str, consumer_id: str) -> None:
        self._cluster = cluster
        self._store = store
        self._group = group
        self._consumer_id = consumer_id

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        timeout_ms = self._cluster.settings.default_api_timeout_ms
        found = await fetch_group_offsets(self._cluster, self._group, partitions, timeout_ms=timeout_ms)
        return {place: each.offset for place, each in found.items()}

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        values = {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}

        async def attempt() -> None:
            connection = await self._cluster.connection(await find_coordinator(self._cluster, self._group))
            if (
                session_id != self._store.session_id
                or self._store.alive_until <= self._cluster.runtime.clock.monotonic()
            ):
                raise SessionOverError(self._consumer_id)
            await commit_once(connection, self._group, NO_MEMBER, values)

        await retrying(self._cluster, attempt, timeout_ms=self._cluster.settings.default_api_timeout_ms)


class DualOffsets:
    """Offsets in both, for a migration: the later one of a partition is right, as some members write only to one."""

    def __init__(self, first: OffsetStorage, second: OffsetStorage) -> None:
        self._first = first
        self._second = second

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = await self._first.fetch(partitions)
        for place, offset in (await self._second.fetch(partitions)).items():
            found[place] = max(offset, found.get(place, offset))
        return found

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        await self._first.commit(offsets, session_id=session_id)
        await self._second.commit(offsets, session_id=session_id)
