"""Committed offsets of `ZookeeperConsumer` groups: in the tree, in `__consumer_offsets`, or in both (SPEC 7).

A commit is refused when the consumer's session is over, because it could set back the offsets of another owner.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from odradek.clients.cluster import Cluster
from odradek.clients.coordinators import find_coordinator
from odradek.clients.group_offsets import (
    NO_MEMBER,
    OffsetAndMetadata,
    commit_each,
    fetch_group_offsets,
)
from odradek.clients.retry import retrying
from odradek.clients.zookeeper_consumer.group_tree import batches, create_persistent, decoded
from odradek.metadata import paths
from odradek.metadata.nodes import decode_integer, encode_integer
from odradek.metadata.store import Check, Create, NoNode, SetData, Store
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, explained

_log = logging.getLogger("odradek.clients")
Offsets = Mapping[TopicPartition, int]


class SessionOverError(OdradekError):
    """A commit was refused, because the consumer's session is over and its partitions may have other owners."""

    def __init__(self, consumer_id: str) -> None:
        super().__init__(f"{consumer_id} has lost its session with the tree: its offsets are not committed")


class OffsetStorage(Protocol):
    """One group's committed offsets, which are the next to read."""

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets, without partitions that have none."""

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        """Store offsets of partitions claimed in session `session_id`. Raises `SessionOverError` after its end."""


class ZookeeperOffsets:
    """Offsets in `/consumers/{group}/offsets`; each transaction checks that the consumer's own node exists.

    A large commit takes several transactions; a failure does not undo earlier ones.
    """

    def __init__(self, store: Store, group: str, consumer_id: str) -> None:
        self._store = store
        self._group = group
        self._consumer_id = consumer_id

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        places = {paths.consumer_offset(self._group, place): place for place in partitions}
        nodes = zip(places, await self._store.get_many(places), strict=True)
        found = decoded(nodes, decode_integer, self._consumer_id)
        return {places[path]: offset for path, offset in found if offset >= 0}

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        own_node = paths.consumer_id(self._group, self._consumer_id)
        for changes in batches(await offset_changes(self._store, self._group, offsets)):
            if session_id != self._store.session_id:
                raise SessionOverError(self._consumer_id)
            try:
                await self._store.multi([Check(path=own_node), *changes])
            except NoNode as error:
                if error.path != own_node:
                    raise
                raise SessionOverError(self._consumer_id) from None


async def offset_changes(store: Store, group: str, offsets: Offsets) -> list[Create | SetData]:
    """Create the parent nodes of a group's offsets; return the operations that write the offsets."""
    places = {paths.consumer_offset(group, place): offset for place, offset in offsets.items()}
    topics = sorted({paths.parent(path) for path in places})
    await create_persistent(
        store, [*(f"{paths.CONSUMERS}{each}" for each in ("", f"/{group}", f"/{group}/offsets")), *topics]
    )
    return [
        (Create if node is None else SetData)(path=path, data=encode_integer(offset))
        for (path, offset), node in zip(places.items(), await store.get_many(places), strict=True)
    ]


class KafkaOffsets:
    """Offsets in `__consumer_offsets`, committed without membership.

    The session is checked before each request; if it ends after that, the coordinator may still store the commit.
    Partitions that do not exist are logged and left out.
    """

    def __init__(self, cluster: Cluster, store: Store, group: str, consumer_id: str) -> None:
        self._cluster = cluster
        self._store = store
        self._group = group
        self._consumer_id = consumer_id

    async def fetch(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found = await fetch_group_offsets(self._cluster, self._group, partitions)
        return {place: each.offset for place, each in found.items()}

    async def commit(self, offsets: Offsets, *, session_id: int) -> None:
        values = {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}

        async def attempt() -> None:
            connection = await self._cluster.connections.to_broker(await find_coordinator(self._cluster, self._group))
            if (
                session_id != self._store.session_id
                or self._store.alive_until <= self._cluster.runtime.clock.monotonic()
            ):
                raise SessionOverError(self._consumer_id)
            for place, code in (await commit_each(connection, self._group, NO_MEMBER, values)).items():
                if code is ErrorCode.unknown_topic_or_partition:
                    _log.warning("%s can't commit an offset: there is no partition %s", self._consumer_id, place)
                elif code is not ErrorCode.none:
                    raise KafkaError(code, f"group {self._group!r}, {place}: {explained(code)}")

        await retrying(self._cluster, attempt)


class DualOffsets:
    """Offsets in two storages, for a migration. `fetch` returns the higher offset: some members write only to one."""

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
