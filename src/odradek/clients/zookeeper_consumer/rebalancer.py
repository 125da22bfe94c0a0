"""Performs the rebalance actions of a `ZookeeperConsumer` on the tree and its streams, and commits offsets."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from odradek.assignors import Assignor
from odradek.clients.average import Average
from odradek.clients.cluster import open_cluster
from odradek.clients.consumer import Consumer
from odradek.clients.zookeeper_consumer.group_tree import GroupTree
from odradek.clients.zookeeper_consumer.machine.membership import (
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
    State,
    Wait,
)
from odradek.clients.zookeeper_consumer.machine.registration import ThreadCounts
from odradek.clients.zookeeper_consumer.machine.view import GroupView, Ownership
from odradek.clients.zookeeper_consumer.offset_storage import (
    DualOffsets,
    KafkaOffsets,
    OffsetStorage,
    SessionOverError,
    ZookeeperOffsets,
)
from odradek.clients.zookeeper_consumer.rebalance_listener import RebalanceListener, log_claims
from odradek.clients.zookeeper_consumer.settings import ZookeeperConsumerSettings
from odradek.clients.zookeeper_consumer.streams import KafkaStream
from odradek.metadata.store import SessionExpired, Store
from odradek.model import AuthenticationError, OdradekError, TopicPartition, UnavailableError
from odradek.runtime import Runtime

ANY_TOPIC: Final = ""
"""The topic under which `Rebalancer.streams` has the streams of a filter."""
_log = logging.getLogger("odradek.clients")


class Rebalancer:
    """The group membership of one consumer, with its streams by topic and thread id."""

    def __init__(
        self,
        consumer_id: str,
        settings: ZookeeperConsumerSettings,
        assignor: Assignor,
        store: Store,
        counts: ThreadCounts,
        listener: RebalanceListener,
        runtime: Runtime,
    ) -> None:
        rules = MembershipSettings(
            max_retries=settings.rebalance_max_retries,
            backoff_ms=settings.rebalance_backoff_ms,
            exclude_internal=settings.exclude_internal_topics,
        )
        self.membership = Membership(consumer_id, assignor, rules)
        self.streams: dict[tuple[str, str], KafkaStream] = {}
        self.commits = Average()
        """The latencies of commits, in ms."""
        self._consumer_id = consumer_id
        self._strategy = assignor.name
        self._settings = settings
        self._store = store
        self._listener = listener
        self._runtime = runtime
        self._has_filter = counts.filter is not None
        self._tree = GroupTree(
            store,
            settings.group_id,
            consumer_id,
            counts,
            self._on_change,
            exclude_internal=rules.exclude_internal,
            security_protocol=settings.security_protocol,
        )
        self._view: GroupView | None = None
        """The last view of the group, for log lines."""
        self._session_id = 0
        """The id of the session in which the partitions were claimed."""
        self._clusters = contextlib.AsyncExitStack()
        self._offsets: OffsetStorage | None = None
        self._servers: tuple[str, ...] = ()
        """The bootstrap addresses of the streams' consumers and of the offset storage."""
        self._tasks: list[asyncio.Task[None]] = []
        self._committing = asyncio.Lock()
        """Held while offsets are committed, claims are released, or `_offsets` is created."""
        self._happened = asyncio.Event()
        self._settled = asyncio.Event()

    async def start(self) -> None:
        """Join the group; return when the first rebalance is over.

        If that fails, leaves the group, so that others can read the partitions, and raises `RebalanceFailedError`.
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
        self.membership.close()
        self._happened.set()
        try:
            await asyncio.wait(self._tasks[:1])
        finally:
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
            bootstrap_servers=self._servers,
            auto_offset_reset=settings.reset,
            max_partition_fetch_bytes=settings.fetch_message_max_bytes,
            fetch_min_bytes=settings.fetch_min_bytes,
            fetch_max_wait_ms=settings.fetch_wait_max_ms,
            runtime=self._runtime,
            **settings.of_all_clients,
        )
        return await consumer.start()

    # ---- actions ----------------------------------------------------------------------------------------------------

    def _on_change(self) -> None:
        self.membership.tree_changed()
        self._happened.set()

    def _on_session_lost(self) -> None:
        self.membership.session_lost()
        self._stop_fetching()
        self._happened.set()

    async def _run(self) -> None:
        try:
            await self._perform_actions()
        except Exception as error:
            trace = None if isinstance(error, OdradekError) else error
            _log.error("%s can't rebalance, and leaves its group: %s", self._consumer_id, error, exc_info=trace)
            for stream in self.streams.values():
                await stream.close(error)
            self.membership.close()
            self._listener = RebalanceListener()  # a callback that has failed is not called again
            await self._perform_actions()
            raise
        finally:
            self._settled.set()

    async def _perform_actions(self) -> None:
        action = self.membership.woken()
        while action is not None or not self.membership.is_closed:
            if action is not None:
                outcome = await self._outcome(action)
                state, attempt = self.membership.state, self.membership.attempts
                action = self.membership.done(action, outcome)
                if state is State.REBALANCING is not self.membership.state:
                    if self.membership.attempts > attempt and isinstance(outcome, GroupView):
                        _log.info("exception during rebalance: %s", self.membership.reason)
                    _log.info("end rebalancing consumer %s try #%d", self._consumer_id, attempt)
            if action is None or self.membership.error is not None:
                self._settled.set()
            if action is None and not self.membership.is_closed:
                await self._happened.wait()
                self._happened.clear()
                action = self.membership.woken()

    async def _outcome(self, action: Action) -> object:
        try:
            return await self._perform(action)
        except AuthenticationError:
            raise  # another attempt does not help
        except OdradekError as error:
            _log.info("exception during rebalance: %s of %s: %s", type(action).__name__, self._consumer_id, error)
            return error

    async def _perform(self, action: Action) -> object:
        match action:
            case Register():
                _log.info("begin registering consumer %s in ZK", self._consumer_id)
                await self._tree.register(self._runtime.clock.now_ms())
                _log.info("end registering consumer %s in ZK", self._consumer_id)
            case Release():
                if self.membership.state is State.REBALANCING:
                    _log.info("begin rebalancing consumer %s try #%d", self._consumer_id, self.membership.attempts)
                await self._release(action.owned)
            case ReadTree():
                self._view = await self._tree.read()
                if not self._view.has_brokers:
                    _log.warning("no brokers found when trying to rebalance.")
                return self._view
            case Claim():
                assert self._view is not None
                exclude_internal, parts = self._settings.exclude_internal_topics, (self._view, action.wanted)
                log_claims(self._consumer_id, *parts, strategy=self._strategy, exclude_internal=exclude_internal)
                self._session_id = self._store.session_id
                return await self._tree.claim(action.wanted)
            case Start():
                await self._listener.starting(action.owned)
                await self._perform_until(lambda: self.membership.is_outdated, self._start_fetching(action.owned))
            case Wait():
                if self.membership.error is not None:
                    _log.error("%s; the next attempt follows in %d ms", self.membership.error, action.ms)
                await self._perform_until(lambda: self.membership.is_interrupted, asyncio.sleep(action.ms / 1000))
            case Abandon():
                self._stop_fetching()
            case Leave():
                await self._tree.unregister()
        return None

    async def _perform_until(self, is_over: Callable[[], bool], work: Coroutine[Any, Any, None]) -> None:
        """Await `work`; cancel it as soon as an event makes `is_over` true."""

        async def watch() -> None:
            while not is_over():
                await self._happened.wait()
                self._happened.clear()

        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(watch())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            watching.cancel()
            await asyncio.wait({working, watching})
        if not working.cancelled():
            working.result()

    def _stop_fetching(self) -> None:
        for stream in self.streams.values():
            stream.stop_fetching()
            stream.forget_consumed()

    async def _release(self, owned: Ownership) -> None:
        async with self._committing:
            consumed = self._consumed()
            for stream in self.streams.values():
                stream.stop_fetching()
            if self._settings.auto_commit_enable:
                await self._try_to_commit(consumed)
        if owned:
            await self._listener.releasing(owned)  # which may commit
        async with self._committing:  # a commit in flight must not set back the next owner's offsets
            self._stop_fetching()
            await self._tree.release(owned)

    async def _start_fetching(self, owned: Ownership) -> None:
        if not owned:
            return
        await self._drop_unreachable_clients()
        async with self._committing:
            storage = await self._storage()
        offsets = await storage.fetch(owned)
        shares: dict[tuple[str, str], dict[TopicPartition, int | None]] = {}
        for place, thread in owned.items():
            topic = ANY_TOPIC if self._has_filter else place.topic
            offset = offsets.get(place, -1)  # negative means none, as in Kafka
            shares.setdefault((topic, thread), {})[place] = offset if offset >= 0 else None
        for key, share in shares.items():
            await self.streams[key].start_fetching(share)

    async def _drop_unreachable_clients(self) -> None:
        """If no bootstrap broker is registered any more, close all clients; new ones use the registered brokers."""
        servers = await self._tree.brokers()
        if not set(servers) & set(self._servers):
            for stream in self.streams.values():
                await stream.drop_client()
            async with self._committing:
                self._offsets = None
                await self._clusters.aclose()
            self._servers = servers  # last, so that after a cancellation the next rebalance repeats all of this

    # ---- offsets ----------------------------------------------------------------------------------------------------

    async def commit_returned(self) -> None:
        for stream in self.streams.values():
            stream.mark_consumed()
        async with self._committing:
            await self._commit(self._consumed())

    def _consumed(self) -> dict[TopicPartition, int]:
        return {place: offset for stream in self.streams.values() for place, offset in stream.consumed.items()}

    async def _commit(self, consumed: Mapping[TopicPartition, int]) -> None:
        """Commit offsets; the caller holds `_committing`, so that no earlier commit sets an offset back.

        Raises `UnavailableError` after `zookeeper.session.timeout.ms`: a rebalance of the group may wait for a commit.
        """
        if not consumed:
            return
        session_id, limit_ms = self._session_id, self._settings.zookeeper_session_timeout_ms
        began = self._runtime.clock.monotonic()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await (await self._storage()).commit(consumed, session_id=session_id)
            self.commits.add((self._runtime.clock.monotonic() - began) * 1000)
        except TimeoutError:
            raise UnavailableError(
                f"offsets could not be committed within {limit_ms:,} ms (zookeeper.session.timeout.ms)"
            ) from None
        except SessionExpired:
            raise SessionOverError(self._consumer_id) from None

    async def _try_to_commit(self, consumed: Mapping[TopicPartition, int]) -> None:
        try:
            await self._commit(consumed)
        except OdradekError as error:
            _log.warning("%s can't commit offsets: %s", self._consumer_id, error)

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_ms / 1000)
            async with self._committing:
                await self._try_to_commit(self._consumed())

    async def _storage(self) -> OffsetStorage:
        if self._offsets is not None:
            return self._offsets
        group = self._settings.group_id
        in_tree = ZookeeperOffsets(self._store, group, self._consumer_id)
        if self._settings.offsets_storage == "zookeeper":
            self._offsets = in_tree
            return in_tree
        opening = open_cluster(self._servers, runtime=self._runtime, **self._settings.of_all_clients)
        cluster = await self._clusters.enter_async_context(opening)
        in_kafka = KafkaOffsets(cluster, self._store, group, self._consumer_id)
        self._offsets = DualOffsets(in_kafka, in_tree) if self._settings.dual_commit_enabled else in_kafka
        return self._offsets
