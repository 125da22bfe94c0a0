"""Performs a membership's actions on the tree and on the streams, and commits offsets."""

import asyncio
import contextlib
import logging
from typing import Final

from odradek.assignors import Assignor
from odradek.clients.cluster import open_cluster
from odradek.clients.consumer import Consumer
from odradek.clients.zookeeper_consumer.group_tree import GroupTree
from odradek.clients.zookeeper_consumer.offset_storage import DualOffsets, KafkaOffsets, OffsetStorage, ZookeeperOffsets
from odradek.clients.zookeeper_consumer.settings import ZookeeperConsumerSettings
from odradek.clients.zookeeper_consumer.streams import KafkaStream
from odradek.groups.zookeeper.membership import (
    Abandon,
    Action,
    Claim,
    Leave,
    Membership,
    MembershipSettings,
    ReadTree,
    Register,
    Release,
    Start,
    Wait,
)
from odradek.groups.zookeeper.registration import ThreadCounts
from odradek.groups.zookeeper.view import Ownership
from odradek.metadata.store import Store
from odradek.model import OdradekError, TopicPartition
from odradek.runtime import Runtime

ANY_TOPIC: Final = ""
"""The topic of a filter's streams."""
_log = logging.getLogger("odradek.clients")


class Rebalancer:
    """One consumer at work. `streams` are by topic and thread id, and stay the same as long as it lives."""

    def __init__(
        self,
        consumer_id: str,
        settings: ZookeeperConsumerSettings,
        assignor: Assignor,
        store: Store,
        counts: ThreadCounts,
        runtime: Runtime,
    ) -> None:
        rules = MembershipSettings(
            max_retries=settings.rebalance_max_retries,
            backoff_ms=settings.rebalance_backoff_ms,
            exclude_internal=settings.exclude_internal_topics,
        )
        self.membership = Membership(consumer_id, assignor, rules)
        self.streams: dict[tuple[str, str], KafkaStream] = {}
        self._consumer_id = consumer_id
        self._settings = settings
        self._store = store
        self._runtime = runtime
        self._has_filter = counts.filter is not None
        self._tree = GroupTree(
            store, settings.group_id, consumer_id, counts, self._on_change, exclude_internal=rules.exclude_internal
        )
        self._session_id = 0
        """The session of the present claims."""
        self._clusters = contextlib.AsyncExitStack()
        self._offsets: OffsetStorage | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._committing = asyncio.Lock()
        self._happened = asyncio.Event()
        self._settled = asyncio.Event()

    async def start(self) -> None:
        """Join the group; return when the first rebalance is over.

        Raises `RebalanceFailedError`, after leaving the group: it must not own what nobody reads.
        """
        self._store.on_session_lost(self._on_session_lost)
        running = asyncio.create_task(self._run(), name=f"rebalances of {self._consumer_id}")
        self._tasks.append(running)
        if self._settings.auto_commit_enable:
            self._tasks.append(asyncio.create_task(self._auto_commit(), name=f"commits of {self._consumer_id}"))
        try:
            await self._settled.wait()
            if running.done():
                running.result()
            if self.membership.error is not None:
                raise self.membership.error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit if commits are automatic, release the partitions, leave the group, and end the streams."""
        self.membership.close()
        self._happened.set()
        for running in self._tasks[:1]:
            await asyncio.wait([running])
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in self.streams.values():
            await stream.close()
        await self._clusters.aclose()

    async def new_consumer(self) -> Consumer:
        """Return a started consumer without a group, for one stream."""
        settings = self._settings
        consumer = Consumer(
            bootstrap_servers=await self._tree.brokers(),
            client_id=settings.client_id,
            auto_offset_reset=settings.reset,
            max_partition_fetch_bytes=settings.fetch_message_max_bytes,
            fetch_min_bytes=settings.fetch_min_bytes,
            fetch_max_wait_ms=settings.fetch_wait_max_ms,
            request_timeout_ms=settings.request_timeout_ms,
            runtime=self._runtime,
        )
        return await consumer.start()

    # ---- actions ----------------------------------------------------------------------------------------------------

    def _on_change(self) -> None:
        self.membership.tree_changed()
        self._happened.set()

    def _on_session_lost(self) -> None:
        self.membership.session_lost()
        self._happened.set()

    async def _run(self) -> None:
        try:
            action = self.membership.woken()
            while action is not None or not self.membership.is_closed:
                if action is None:
                    self._settled.set()
                    await self._happened.wait()
                    self._happened.clear()
                    action = self.membership.woken()
                else:
                    action = self.membership.done(action, await self._outcome(action))
        except Exception as error:
            _log.exception("%s can't rebalance", self._consumer_id)
            for stream in self.streams.values():
                await stream.close(error)
            raise
        finally:
            self._settled.set()

    async def _outcome(self, action: Action) -> object:
        try:
            return await self._perform(action)
        except OdradekError as error:
            _log.info("%s: %s failed: %s", self._consumer_id, type(action).__name__, error)
            return error

    async def _perform(self, action: Action) -> object:
        match action:
            case Register():
                await self._tree.register(self._runtime.clock.now_ms())
            case Release():
                await self._release(action.owned)
            case ReadTree():
                return await self._tree.read()
            case Claim():
                self._session_id = self._store.session_id
                return await self._tree.claim(action.wanted)
            case Start():
                await self._start_fetching(action.owned)
            case Wait():
                await self._wait(action.ms)
            case Abandon():
                self._stop_fetching()
            case Leave():
                await self._tree.unregister()
        return None

    async def _wait(self, ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ms / 1000):
                while not self.membership.is_interrupted:
                    await self._happened.wait()
                    self._happened.clear()

    def _stop_fetching(self) -> None:
        for stream in self.streams.values():
            stream.stop_fetching()

    async def _release(self, owned: Ownership) -> None:
        if self._settings.auto_commit_enable:
            await self._try_to_commit(stop_fetching=True)
        self._stop_fetching()
        await self._tree.release(owned)

    async def _start_fetching(self, owned: Ownership) -> None:
        offsets = await (await self._storage()).fetch(owned) if owned else {}
        shares: dict[tuple[str, str], dict[TopicPartition, int | None]] = {}
        for place, thread in owned.items():
            topic = ANY_TOPIC if self._has_filter else place.topic
            shares.setdefault((topic, thread), {})[place] = offsets.get(place)
        for key, share in shares.items():
            await self.streams[key].start_fetching(share)

    # ---- offsets ----------------------------------------------------------------------------------------------------

    async def commit_returned(self) -> None:
        """Commit what the streams have returned. Raises `SessionOverError`, `KafkaError`, `UnavailableError`."""
        for stream in self.streams.values():
            stream.mark_consumed()
        await self._commit()

    async def _commit(self, *, stop_fetching: bool = False) -> None:
        """Commit what was consumed. Commits are one after another, so that none sets an offset back."""
        async with self._committing:
            storage = await self._storage()
            streams = self.streams.values()
            consumed = {place: offset for stream in streams for place, offset in stream.consumed.items()}
            if stop_fetching:
                self._stop_fetching()
            if consumed:
                await storage.commit(consumed, session_id=self._session_id)

    async def _try_to_commit(self, *, stop_fetching: bool = False) -> None:
        try:
            await self._commit(stop_fetching=stop_fetching)
        except OdradekError as error:
            _log.warning("%s can't commit offsets: %s", self._consumer_id, error)

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_ms / 1000)
            await self._try_to_commit()

    async def _storage(self) -> OffsetStorage:
        if self._offsets is not None:
            return self._offsets
        group = self._settings.group_id
        in_tree = ZookeeperOffsets(self._store, group, self._consumer_id)
        if self._settings.offsets_storage == "zookeeper":
            self._offsets = in_tree
            return in_tree
        servers = await self._tree.brokers()
        cluster = await self._clusters.enter_async_context(open_cluster(servers, runtime=self._runtime))
        in_kafka = KafkaOffsets(cluster, self._store, group, self._consumer_id)
        self._offsets = DualOffsets(in_kafka, in_tree) if self._settings.dual_commit_enabled else in_kafka
        return self._offsets
