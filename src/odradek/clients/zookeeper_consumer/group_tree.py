"""`GroupTree` reads, writes and watches a group's nodes in the metadata tree for one consumer."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from odradek.clients.zookeeper_consumer.machine.registration import ThreadCounts
from odradek.clients.zookeeper_consumer.machine.view import GroupView, Ownership
from odradek.metadata import paths
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import BrokerNode, ConsumerNode, TopicNode
from odradek.metadata.store import Create, Delete, Node, NodeExists, Store, Watch
from odradek.model import ConfigurationError, TopicPartition, UnavailableError, address_text

T = TypeVar("T")
_AT_ONCE: Final = 500
"""The nodes in one transaction: ZooKeeper closes a connection after a request over 1 MiB (`jute.maxbuffer`)."""
_log = logging.getLogger("odradek.clients")


class GroupTree:
    """The nodes of one consumer's group. `on_change` is called when a change may need a rebalance."""

    def __init__(
        self,
        store: Store,
        group: str,
        consumer_id: str,
        counts: ThreadCounts,
        on_change: Callable[[], None],
        *,
        exclude_internal: bool,
        security_protocol: str,
    ) -> None:
        self._store = store
        self._security_protocol = security_protocol
        self._group = group
        self._consumer_id = consumer_id
        self._counts = counts
        self._on_change = on_change
        self._exclude_internal = exclude_internal
        self._watches: dict[str, Watch] = {}

    async def register(self, timestamp_ms: int) -> None:
        """Create the consumer's node and watch the group. Raises `UnavailableError` if another consumer has this id."""
        ids = paths.parent(paths.consumer_id(self._group, self._consumer_id))
        await create_persistent(self._store, [paths.parent(ids), ids])
        node = paths.consumer_id(self._group, self._consumer_id)
        try:
            await self._store.create(node, self._counts.node(timestamp_ms).encode(), ephemeral=True)
        except NodeExists:
            found = await self._store.get(node)
            if found is None or found.owner != self._store.session_id:
                raise UnavailableError(
                    f"group {self._group} has another consumer {self._consumer_id}: "
                    "choose another consumer.id, or wait until its session ends"
                ) from None
        # Watch only now, so that the consumer's own registration causes no second rebalance.
        self._watch_children(ids)
        self._watch_children(paths.BROKER_IDS)
        if self._counts.filter is not None:
            self._watch_children(paths.TOPICS)

    async def unregister(self) -> None:
        """Cancel all watches, and delete the consumer's node if this session created it."""
        self._cancel(self._watches)
        node = paths.consumer_id(self._group, self._consumer_id)
        found = await self._store.get(node)
        if found is not None and found.owner == self._store.session_id:
            await self._store.delete(node)

    async def read(self) -> GroupView:
        """Read the group's state, without a transaction; watch the consumer's topics. Log and skip malformed nodes."""
        consumers = await self._read_consumers()
        has_filter = any(counts.filter is not None for counts in consumers.values())
        names = frozenset(await self._store.children(paths.TOPICS)) if has_filter else frozenset()
        self._watch_topics(self._topics_of(self._counts, names))
        # Other consumers' topics, too: zookeeper-roundrobin compares the threads of all topics of the group.
        wanted = sorted({topic for counts in consumers.values() for topic in self._topics_of(counts, names)})
        nodes = await self._read(map(paths.topic, wanted), TopicNode.decode)
        partitions = {paths.name_of(path): tuple(sorted(node.replicas)) for path, node in nodes.items()}
        has_brokers = bool(await self._store.children(paths.BROKER_IDS))
        return GroupView(consumers=consumers, partitions=partitions, topics=names, has_brokers=has_brokers)

    async def brokers(self) -> tuple[str, ...]:
        """Return each registered broker's endpoint of the client's security protocol, as `host:port`.

        Raises `UnavailableError` without brokers, and `ConfigurationError` if no endpoint has this protocol.
        """
        places = [paths.child(paths.BROKER_IDS, name) for name in await self._store.children(paths.BROKER_IDS)]
        known = (await self._read(places, BrokerNode.decode)).values()
        if not known:
            raise UnavailableError(f"no broker is registered in {paths.BROKER_IDS}")
        offered = [node.endpoint_of_protocols() for node in known]
        found = [each[self._security_protocol] for each in offered if self._security_protocol in each]
        if not found:
            raise ConfigurationError(
                f"no broker has a listener of security.protocol {self._security_protocol}: set it to "
                f"{' or '.join(sorted(set().union(*offered)))}"
            )
        return tuple(address_text(each.host, each.port) for each in found)

    async def claim(self, wanted: Ownership) -> bool:
        """Create an owner node with the thread id for each partition, and return True.

        If another consumer owns one of them, delete the nodes created and return False.
        """
        owners = [paths.consumer_owner(self._group, place) for place in wanted]
        topics = sorted({paths.parent(owner) for owner in owners})
        await create_persistent(self._store, [paths.parent(topic) for topic in topics[:1]] + topics)
        for some in batches(wanted):
            try:
                await self._store.multi(
                    [
                        Create(
                            path=paths.consumer_owner(self._group, place), data=wanted[place].encode(), ephemeral=True
                        )
                        for place in some
                    ]
                )
            except NodeExists as error:
                topic, number = error.path.split("/")[-2:]
                text = "[%s], waiting for the partition ownership to be deleted: %s (topic %s)"
                _log.info(text, self._consumer_id, number, topic)
                await self.release(wanted)
                return False
        for place, thread in wanted.items():
            _log.info("%s successfully owned partition %d for topic %s", thread, place.partition, place.topic)
        return True

    async def release(self, claims: Collection[TopicPartition]) -> None:
        """Delete the owner nodes of these partitions that this session created."""
        for some in batches(claims):
            owners = [paths.consumer_owner(self._group, place) for place in some]
            nodes = zip(owners, await self._store.get_many(owners), strict=True)
            own = [owner for owner, node in nodes if node is not None and node.owner == self._store.session_id]
            if own:
                await self._store.multi([Delete(path=owner) for owner in own])

    async def _read_consumers(self) -> dict[str, ThreadCounts]:
        ids = paths.parent(paths.consumer_id(self._group, self._consumer_id))
        names = await self._store.children(ids)
        nodes = await self._read([paths.child(ids, name) for name in names], _thread_counts)
        return {paths.name_of(path): counts for path, counts in nodes.items()}

    async def _read(self, places: Iterable[str], decode: Callable[[str, bytes], T]) -> dict[str, T]:
        wanted = list(places)
        return dict(decoded(zip(wanted, await self._store.get_many(wanted), strict=True), decode, self._consumer_id))

    def _topics_of(self, counts: ThreadCounts, names: Collection[str]) -> Collection[str]:
        return counts.threads_of(names, exclude_internal=self._exclude_internal)

    def _watch_children(self, path: str) -> None:
        if path not in self._watches:
            self._watches[path] = self._store.watch_children(path, self._on_change)

    def _watch_topics(self, names: Collection[str]) -> None:
        wanted = {paths.topic(name) for name in names}
        self._cancel([path for path in self._watches if paths.parent(path) == paths.TOPICS and path not in wanted])
        for path in wanted:
            if path not in self._watches:
                self._watches[path] = self._store.watch_data(path, self._on_change)

    def _cancel(self, some: Iterable[str]) -> None:
        for path in list(some):
            self._watches.pop(path).cancel()


async def create_persistent(store: Store, nodes: Iterable[str]) -> None:
    """Create empty nodes for those of `nodes` that do not exist; parents must be before their children."""
    wanted = list(dict.fromkeys(nodes))
    for path, node in zip(wanted, await store.get_many(wanted), strict=True):
        if node is None:
            try:
                await store.create(path)
            except NodeExists:
                continue


def decoded(
    nodes: Iterable[tuple[str, Node | None]], decode: Callable[[str, bytes], T], reader: str
) -> Iterator[tuple[str, T]]:
    """Yield path and decoded value of each node that exists; log malformed nodes, with `reader`, and skip them."""
    for path, node in nodes:
        if node is None:
            continue
        try:
            yield path, decode(path, node.data)
        except BrokenNodeError as error:
            _log.warning("%s ignores a node: %s; mend or delete it", reader, error)


def _thread_counts(path: str, data: bytes) -> ThreadCounts:
    try:
        return ThreadCounts.of(ConsumerNode.decode(path, data))
    except ConfigurationError as error:
        raise BrokenNodeError(path, str(error)) from None


def batches(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield the items in lists of at most `_AT_ONCE`, the size of a transaction."""
    rest = iter(items)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
