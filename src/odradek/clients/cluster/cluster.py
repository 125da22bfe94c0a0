"""`Cluster`: the metadata of a client's cluster, and when it is refreshed.

Every client has one `Cluster`, which refreshes the metadata of the topics in use. A hung broker still accepts
connections. So if a metadata response is late, another broker gets the request too.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from math import inf
from typing import Any

from odradek.clients.arguments import addresses_of
from odradek.clients.backoff import Backoff
from odradek.clients.cluster.connections import BrokerConnections, NoBrokerError
from odradek.clients.cluster.tasks import ClientTasks
from odradek.clients.metadata import TOPIC_NOT_READY, ClusterMetadata, TopicMetadata, merge, topic_error, with_topics
from odradek.clients.settings import ClientSettings, make_settings
from odradek.model import AuthenticationError, ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.runtime import Runtime, system_runtime
from odradek.wire.client_connection import LATE_MS, WAITING_LOG_S, ClientConnection, log_waiting, waiting_log

_log = logging.getLogger("odradek.clients")


class Cluster:
    """Metadata and connections of one client, in one event loop; call `start` before use and `close` after."""

    def __init__(self, settings: ClientSettings, runtime: Runtime, *, allow_auto_topic_creation: bool = False) -> None:
        self.settings = settings
        self.runtime = runtime
        self.tasks = ClientTasks()
        self.connections = BrokerConnections(
            settings, runtime, self.tasks, on_late=self._on_late, on_authentication_error=self._on_authentication_error
        )
        self.metadata = ClusterMetadata()
        self.on_metadata: list[Callable[[], None]] = []
        self.on_authentication_error: list[Callable[[], None]] = []
        self.authentication_error: AuthenticationError | None = None
        """The last one; a client that raises it to its user sets None."""
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._topics: set[str] = set()
        self._all_topics = False
        self._requested_topics: frozenset[str] | None = frozenset()
        """The topics of the last metadata request; None means all topics."""
        self._last_refresh_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self._scheduled_refresh: asyncio.Task[None] | None = None
        self._needs_refresh = False
        """Whether another refresh was requested since `_scheduled_refresh` sent its request."""
        self._refresh_backoff = self.backoff()
        self._not_ready_since: dict[str, float] = {}
        """Since when each topic is missing or has no leader; infinite after its line in the log."""

    @property
    def timeout_ms(self) -> int:
        """The limit of a call's retries by `default.api.timeout.ms`."""
        return self.settings.default_api_timeout_ms

    async def start(self, *, timeout_ms: int | None = None) -> None:
        """Connect to one broker and fetch the metadata.

        Raises `UnavailableError` if no broker responds within `timeout_ms` (`default.api.timeout.ms` by default).
        """
        await self.refresh(timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms)

    async def close(self) -> None:
        """Close all connections; requests in flight fail. Raises `UnusableClientError` in the wrong event loop."""
        await self.tasks.close()
        await self.connections.close()

    def backoff(self) -> Backoff:
        """Create a backoff with `retry.backoff.ms` and `retry.backoff.max.ms`."""
        return Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, self.runtime.entropy)

    def set_topics(self, topics: Iterable[str] | None) -> None:
        """Set the topics whose metadata is refreshed; None means all topics."""
        self._all_topics = topics is None
        self._topics = set() if topics is None else set(topics)

    def add_topics(self, topics: Iterable[str]) -> None:
        """Add topics to those whose metadata is refreshed, until the next `set_topics`."""
        self._topics.update(topics)

    async def topic(self, name: str, *, timeout_ms: int | None = None) -> TopicMetadata:
        """Return a topic with its partitions, refreshing the metadata until it exists.

        Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE after `timeout_ms`, other errors of the
        topic at once; `UnavailableError` if no broker responds within `timeout_ms`.
        """
        known = self.metadata.topics.get(name)
        if known is not None and known.partitions:
            return known
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        deadline = self.runtime.clock.monotonic() + limit_ms / 1000
        backoff = self.backoff()
        while True:
            remaining_ms = max(0, round((deadline - self.runtime.clock.monotonic()) * 1000))
            self._topics.add(name)  # each time: `set_topics` may have been called meanwhile
            await self.refresh(create=True, timeout_ms=remaining_ms)
            known = self.metadata.topics.get(name)
            if known is not None and known.partitions:
                return known
            # A topic without partitions has no error code.
            code = (known.error_code if known is not None else None) or ErrorCode.unknown_topic_or_partition
            pause = backoff.failed()
            if code not in TOPIC_NOT_READY or self.runtime.clock.monotonic() + pause > deadline:
                # Later refreshes must not request this topic.
                self._topics.discard(name)
                raise KafkaError(code, topic_error(name, code))
            await asyncio.sleep(pause)

    async def leader(self, partition: TopicPartition, *, timeout_ms: int | None = None) -> int:
        """Return the broker id of a partition's leader; refresh the metadata if the topic or partition is unknown.

        Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION for an unknown topic, INVALID_PARTITIONS if the topic lacks the
        partition, the retriable LEADER_NOT_AVAILABLE without a leader, and `UnavailableError` if no broker responds.
        """
        leader = self.metadata.leader(partition)
        if leader is None:
            topic = await self.topic(partition.topic, timeout_ms=timeout_ms)
            if partition.partition not in topic.partitions:
                # The partition may be newer than the metadata.
                await self.refresh(timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms)
                topic = self.metadata.topics.get(partition.topic, topic)
            if topic.partitions and partition.partition not in topic.partitions:
                raise KafkaError(
                    ErrorCode.invalid_partitions,
                    f"topic {partition.topic!r} has no partition {partition.partition}, "
                    f"only {len(topic.partitions)} of them",
                )
            leader = self.metadata.leader(partition)
        if leader is None:
            raise KafkaError(ErrorCode.leader_not_available, f"partition {partition} has no leader now")
        return leader

    async def refresh(self, *, create: bool = False, timeout_ms: int = 0) -> None:
        """Refresh the metadata from any broker. Raises `UnavailableError` if none responds within `timeout_ms`.

        Makes at least one attempt. With `allow_auto_topic_creation`, the broker may create topics, but only with
        `create` or at a topic's first request: a refresh must not recreate a deleted topic.
        """
        deadline = self.runtime.clock.monotonic() + timeout_ms / 1000
        backoff = self.backoff()
        while True:
            try:
                servers = ", ".join(self.settings.bootstrap_servers)
                with log_waiting(f"an answer of {servers}", wanted=backoff.failures == 0):
                    return await self._refresh_once(create=create)
            except UnavailableError as error:
                is_first = backoff.failures == 0
                pause = backoff.failed()
                remaining = deadline - self.runtime.clock.monotonic()
                if pause >= remaining or self.tasks.closed or not error.retriable:
                    raise
                if is_first:
                    _log.warning("%s; trying again for %.0f s", error, remaining)
            await asyncio.sleep(pause)

    async def _refresh_once(self, *, create: bool) -> None:
        self.tasks.check_usable()
        running = self._refreshing
        if running is not None:
            # The running refresh may lack topics that were added after it was sent.
            with contextlib.suppress(OdradekError):
                await asyncio.shield(running)
        if self._refreshing is None or self._refreshing is running:
            self._refreshing = self.tasks.spawn(self._refresh(create=create), "metadata refresh")
        await asyncio.shield(self._refreshing)

    def request_refresh(self, *, at_once: bool = False) -> None:
        """Schedule a refresh after a backoff (none if `at_once`), unless one is scheduled already."""
        self._needs_refresh = True
        if self._scheduled_refresh is None and not self.tasks.closed:
            pause = 0.0 if at_once else self._refresh_backoff.failed()
            self._scheduled_refresh = self.tasks.spawn(self._refresh_soon(pause), "metadata refresh, later")

    def refresh_if_old(self) -> None:
        """Schedule a refresh if the metadata is older than `metadata.max.age.ms`."""
        now = self.runtime.clock.monotonic()
        if now >= self.next_refresh_at:
            self._last_refresh_at = now
            self.request_refresh()

    @property
    def next_refresh_at(self) -> float:
        """Return the monotonic second from which `refresh_if_old` schedules a refresh."""
        return self._last_refresh_at + self.settings.metadata_max_age_ms / 1000

    def metadata_age_s(self, now: float) -> float:
        """Return the seconds since the last refresh, or since `refresh_if_old` scheduled one."""
        return now - self._last_refresh_at

    @property
    def _has_unrequested_topics(self) -> bool:
        return self._requested_topics is not None and (self._all_topics or not self._topics <= self._requested_topics)

    async def _refresh_soon(self, pause: float) -> None:
        """Refresh, retrying without limit: no other task notices that the cluster is available again."""
        try:
            while True:
                await asyncio.sleep(pause)
                self._needs_refresh = False
                try:
                    await self.refresh()
                except AuthenticationError:
                    return  # `_on_authentication_error` has stored it
                except OdradekError as error:  # another broker may answer without this error
                    _log.warning("Failed to refresh metadata, will retry: %s", error)
                    pause = self._refresh_backoff.failed()
                else:
                    break
        finally:
            self._scheduled_refresh = None
        if self._has_unrequested_topics:
            self.request_refresh(at_once=True)
        elif self._needs_refresh or any(topic.error_code in TOPIC_NOT_READY for topic in self.metadata.topics.values()):
            # A topic is still being created, or a caller needs a newer leader; no other task requests this refresh.
            self.request_refresh()

    async def _refresh(self, *, create: bool) -> None:
        wanted = None if self._all_topics else frozenset(self._topics)
        before = self.metadata
        create = create or (wanted is not None and not wanted <= before.topics.keys())
        response = await self.fetch_metadata(None if wanted is None else sorted(wanted), create=create)
        self._requested_topics, self._last_refresh_at = wanted, self.runtime.clock.monotonic()
        self.metadata = merge(before, response)
        if self._has_unrequested_topics:
            # The response lacks topics that were added since the request: keep their previous metadata for now.
            kept = (topic for name, topic in before.topics.items() if self._all_topics or name in self._topics)
            self.metadata = with_topics(self.metadata, kept)
            self.request_refresh(at_once=True)
        if all(topic.error_code == ErrorCode.none for topic in self.metadata.topics.values()):
            self._refresh_backoff.succeeded()
        self._log_topics_not_ready(self._last_refresh_at)
        self.connections.update(self.metadata.nodes)
        for listener in self.on_metadata:
            listener()

    def _log_topics_not_ready(self, now: float) -> None:
        topics = [(name, topic.error_code) for name, topic in self.metadata.topics.items()]
        since = {name: self._not_ready_since.get(name, now) for name, code in topics if code in TOPIC_NOT_READY}
        for name, code in topics:
            if name in since and now - since[name] >= WAITING_LOG_S:
                waiting_log.info("%s; trying again", topic_error(name, code))
                since[name] = inf
        self._not_ready_since = since

    async def fetch_metadata(
        self, names: Iterable[str] | None, *, create: bool = False, controller: bool = False
    ) -> Any:
        """Return the Metadata response (kio's) for `names` (None: all topics) without storing it.

        `controller` sends the request to the controller, which learns of changes before other brokers.
        """
        message = {
            "topics": None if names is None else [{"name": name, "topic_id": None} for name in names],
            "allow_auto_topic_creation": self._allow_auto_topic_creation and create,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return await self.request_any(ApiKey.METADATA, message, controller=controller)

    async def request_any(self, api: ApiKey, message: dict[str, Any], *, controller: bool = False) -> Any:
        """Send a request to any broker (`controller`: to the controller, if known); return the response (kio's)."""
        try:
            async with asyncio.timeout(LATE_MS / 1000 if controller else None):
                connection = await (self.controller() if controller else self.connections.least_loaded())
            return await self._request_twice_if_late(connection, api, message)
        except NoBrokerError:
            raise  # all addresses have failed: the caller decides about another attempt
        except (UnavailableError, TimeoutError):
            # The connection is closed, or the controller hangs: send the request to another broker.
            return await self._request_twice_if_late(await self.connections.least_loaded(), api, message)

    async def _request_twice_if_late(self, connection: ClientConnection, api: ApiKey, message: dict[str, Any]) -> Any:
        """Send a request; if the response is late, also to another broker. Return the first response."""
        asking = {self.tasks.spawn(connection.request(api, message), "metadata")}
        done, asking = await asyncio.wait(asking, timeout=LATE_MS / 1000)
        if not done:
            with contextlib.suppress(UnavailableError):
                other = await self.connections.least_loaded(exclude=connection)
                if other is not connection:
                    asking.add(self.tasks.spawn(other.request(api, message), "metadata of another broker"))
        while asking:
            done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            if any(each.exception() is None for each in done):
                break
        return next((each for each in done if each.exception() is None), next(iter(done))).result()

    async def controller(self) -> ClientConnection:
        """Return a connection to the controller, or to any broker if the controller is unknown (KRaft forwards)."""
        if self.metadata.controller_id in self.metadata.nodes:
            return await self.connections.to_broker(self.metadata.controller_id)
        return await self.connections.least_loaded()

    def _on_authentication_error(self, error: AuthenticationError) -> None:
        self.authentication_error = error
        for listener in self.on_authentication_error:
            listener()

    def _on_late(self) -> None:
        """Request a metadata refresh, because the late broker may have left the cluster."""
        if self.metadata_age_s(self.runtime.clock.monotonic()) >= LATE_MS / 1000:
            self.request_refresh()


@contextlib.asynccontextmanager
async def open_cluster(
    bootstrap_servers: str | Iterable[str] = "localhost:9092", *, runtime: Runtime | None = None, **settings: object
) -> AsyncIterator[Cluster]:
    """Open a `Cluster` for the block, for requests that no client class has.

    `settings` are those of `ClientSettings`. Raises `UnavailableError` if no broker responds within
    `default_api_timeout_ms`.
    """
    made = make_settings(ClientSettings, settings | {"bootstrap_servers": addresses_of(bootstrap_servers)})
    cluster = Cluster(made, runtime or system_runtime())
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()
