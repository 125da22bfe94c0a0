"""The replica fetchers of a broker: a task and a connection for each leader broker and fetcher id.

```
positions of all followers ──► Fetch ──► each appends its part ──► all parts are written ──► again
                                          ├─ the logs diverge: truncate, and fetch from there    (KIP-101, 279, 595)
                                          ├─ offset out of range: request the leader's offsets
                                          └─ another error: retry later, or with the next image
```
If partitions are added while the leader delays a fetch, the session's next fetch is sent at once and completes the
delayed one: a producer may wait for the new partition's followers. A fetch costs time per partition of the session on
both brokers; with many partitions, fetches without records are sent at intervals, so that one request adds hundreds of
partitions. A disk error stops the partitions of that disk only.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

from odradek.broker.counters import BrokerCounters
from odradek.broker.log.errors import LogStorageError
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.follower import Follower, PartitionFetchState
from odradek.broker.replication.machine.divergence import Divergence
from odradek.broker.security.quotas.replication_quotas import ReplicationQuotaManager
from odradek.metadata.image import BrokerImage
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.model.probes import LATE_S, perturb, probe
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.fetch import TOPIC_IDS_FROM, FetchedPartition, FetchResponse, decode_fetch_response
from odradek.protocol.messages.fetch_session import FetchRequest, FetchSessionHandler
from odradek.protocol.messages.message_codec import encode_request
from odradek.runtime import Clock
from odradek.wire.client_connection import ClientConnection, RawResponse

_log = logging.getLogger("odradek.broker")
_INITIAL_BACKOFF_S: Final = 0.02
"""The first backoff is short, because brokers get the metadata of a new leader at slightly different times."""
_INTERVAL_FROM_PARTITIONS: Final = 100
"""The number of partitions from which fetches without records are sent at intervals."""
_INTERVAL_PER_PARTITION_S: Final = 150e-6
"""The interval grows by this per partition, several times a fetch's cost, up to `replica.fetch.wait.max.ms`."""
_NOW: Final = float("-inf")
_LATEST: Final = -1
_EARLIEST: Final = -2
_METADATA_ERRORS: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
    }
)
"""Errors that end when the leader and this broker have the same metadata."""


class LeaderConnections(Protocol):
    """Connections to the other brokers (`cluster.requests.broker_connections`)."""

    async def connection(
        self, brokers: Mapping[int, BrokerImage], broker_id: int, *, purpose: str = ""
    ) -> ClientConnection:
        """Return the open connection for `purpose`. Raises `UnavailableError` if the broker cannot be reached."""

    def close_purpose(self, broker_id: int, purpose: str) -> None:
        """Close the connection that was opened for `purpose`, if any."""


class FetcherContext(NamedTuple):
    """The objects that all fetchers of a broker use."""

    metadata: MetadataCache
    clock: Clock
    connections: LeaderConnections
    counters: BrokerCounters
    quota: ReplicationQuotaManager


class ReplicaFetcherManager:
    """The fetchers of one broker, by leader and fetcher id."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._fetcher_keys: dict[TopicPartition, tuple[int, int]] = {}

    def add_fetcher(self, follower: Follower) -> None:
        """Fetch `follower` from its current leader, if there is one, until `remove_fetcher`."""
        key = follower.topic_partition
        fetcher_id = crc32(f"{key}".encode()) % self._context.metadata.config.num_replica_fetchers
        fetcher_key = follower.leader, fetcher_id
        if self._fetcher_keys.get(key) != fetcher_key:
            self.remove_fetcher(key)
        if follower.leader < 0:
            return
        self._fetcher_keys[key] = fetcher_key
        fetcher = self._fetchers.get(fetcher_key)
        if fetcher is None:
            fetcher = self._fetchers[fetcher_key] = ReplicaFetcher(self._context, *fetcher_key)
        fetcher.add(follower)

    def remove_fetcher(self, key: TopicPartition) -> None:
        fetcher_key = self._fetcher_keys.pop(key, None)
        if fetcher_key is None:
            return
        fetcher = self._fetchers[fetcher_key]
        fetcher.remove(key)
        if not fetcher.followers:
            del self._fetchers[fetcher_key]
            fetcher.stop()

    @property
    def max_lag(self) -> int:
        """The largest number of offsets by which a follower is behind the high watermark."""
        return max((each.lag for fetcher in self._fetchers.values() for each in fetcher.followers.values()), default=0)

    def stop(self) -> None:
        self._fetcher_keys.clear()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()


class ReplicaFetcher:
    """The task that fetches partitions from one leader."""

    def __init__(self, context: FetcherContext, leader: int, fetcher_id: int) -> None:
        self.followers: dict[TopicPartition, Follower] = {}
        self._metadata, self._clock, self._connections, self._counters, self._quota = context
        self._leader = leader
        self._purpose = f"fetcher-{fetcher_id}"
        self._session = FetchSessionHandler[PartitionFetchState]()
        self._retries: dict[TopicPartition, tuple[float, float]] = {}
        """`(time of the next fetch, backoff in s)` of delayed partitions. Once the time has come, it is `_NOW`."""
        self._backoff_s = 0.0
        self._sent_at = _NOW
        self._has_got_records = False
        """Whether the last response had records."""
        self._changed = asyncio.Event()
        self._early_fetch: asyncio.Future[None] | None = None
        """Set while a response is awaited; done if the next fetch must be sent before it arrives."""
        name = f"{self._purpose} of broker {self._metadata.broker_id} from {leader}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def add(self, follower: Follower) -> None:
        """Add a partition; fetch it at once if it is new, was delayed, or has another leader epoch."""
        key = follower.topic_partition
        known = self._session.positions.get(key)
        self.followers[key] = follower
        was_delayed = self._retries.pop(key, None) is not None
        if was_delayed or known is None or known.leader_epoch != follower.leader_epoch:
            self._changed.set()
            if self._early_fetch is not None and not self._early_fetch.done():
                self._early_fetch.set_result(None)

    def remove(self, key: TopicPartition) -> None:
        """Remove a partition; its records in the current fetch are dropped."""
        self.followers.pop(key, None)
        self._retries.pop(key, None)

    def stop(self) -> None:
        """Cancel the task, and close its connection."""
        self._task.cancel()
        self._connections.close_purpose(self._leader, self._purpose)

    async def _run(self) -> None:
        """Fetch until cancelled; errors are retried with backoff."""
        while True:
            try:
                wanted = self._wanted()
                if wanted:
                    await self._fetch(wanted)
                    self._backoff_s = 0.0
                    if not self._has_got_records and (interval_s := self._remaining_interval_s()):
                        await asyncio.sleep(interval_s)
                else:
                    await self._wait(self._next_retry_s())
                continue
            except OdradekError as error:
                level = logging.DEBUG if self._backoff_s else logging.INFO
                _log.log(level, "Failed to fetch from broker %d, retrying: %s", self._leader, error)
            except Exception:
                _log.exception("Unexpected error while fetching from broker %d", self._leader)
            self._session.handle_error()
            self._backoff_s = self._next_backoff_s(self._backoff_s)
            await self._wait(self._backoff_s)

    async def _wait(self, delay_s: float | None) -> None:
        """Sleep for `delay_s` (None: without limit), or until an added partition must be fetched at once."""
        self._changed.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _next_backoff_s(self, backoff_s: float) -> float:
        return min(max(backoff_s * 2, _INITIAL_BACKOFF_S), self._metadata.config.replica_fetch_backoff_ms / 1000)

    # ---- one fetch ----------------------------------------------------------------------------------------------

    def _wanted(self) -> dict[TopicPartition, PartitionFetchState]:
        now, retries = self._clock.monotonic(), self._retries
        self._delay_throttled(now)
        for key, (at, waited_s) in retries.items():
            if at <= now:
                retries[key] = _NOW, waited_s
        return {
            key: follower.position
            for key, follower in self.followers.items()
            if key not in retries or retries[key][0] == _NOW
        }

    def _delay_throttled(self, now: float) -> None:
        """Delay the throttled partitions whose replica here is out of sync, if the rate is above the limit (KIP-73)."""
        most_s = self._metadata.config.replica_fetch_backoff_ms / 1000 or 1.0
        throttle_s = min(self._quota.throttle_time_s(), most_s)
        if throttle_s > 0:
            for key, follower in self.followers.items():
                if self._is_throttled(follower) and self._metadata.broker_id not in follower.isr:
                    at, waited_s = self._retries.get(key, (_NOW, 0.0))
                    self._retries[key] = max(at, now + throttle_s), waited_s

    def _is_throttled(self, follower: Follower) -> bool:
        throttled = follower.log.config.follower_throttled
        return self._quota.is_throttled(throttled, follower.topic_partition.partition)

    def _next_retry_s(self) -> float | None:
        """Return the seconds until the first delayed partition is fetched again; None if none is delayed."""
        now = self._clock.monotonic()
        due = min((at for at, _ in self._retries.values() if at > _NOW), default=None)
        return None if due is None else max(due - now, 0.001)

    def _delay_partition(self, key: TopicPartition) -> None:
        """Delay the next fetch of a partition, each time longer."""
        if key in self.followers:
            _, waited_s = self._retries.get(key, (0.0, 0.0))
            delay_s = self._next_backoff_s(waited_s)
            self._retries[key] = self._clock.monotonic() + delay_s, delay_s

    async def _fetch(self, wanted: dict[TopicPartition, PartitionFetchState]) -> None:
        await self._wait_for_appends(wanted)
        connection = await self._connection()
        request = self._session.build(wanted)
        in_flight = [(wanted, *self._send(connection, request))]
        try:
            while in_flight:
                wanted, version, reply = in_flight[0]
                if len(in_flight) == 1 and request.is_incremental and await self._must_fetch_before(reply):
                    more = self._wanted()
                    await self._wait_for_appends(more)
                    in_flight.append((more, *self._send(connection, self._session.build(more))))
                await self._receive(wanted, _decode(connection, version, await reply))
                del in_flight[0]
        finally:
            for _, _, reply in in_flight:
                reply.cancel()

    async def _connection(self) -> ClientConnection:
        brokers = self._metadata.image.brokers
        return await self._connections.connection(brokers, self._leader, purpose=self._purpose)

    async def _wait_for_appends(self, wanted: Iterable[TopicPartition]) -> None:
        """Wait until all earlier appends to the partitions' logs are written or have failed."""
        for key in wanted:
            if (follower := self.followers.get(key)) is not None:
                await follower.settle()

    async def _must_fetch_before(self, reply: "asyncio.Future[RawResponse]") -> bool:
        """Wait for a response. Return True if partitions are added, or their delays end, before it arrives."""
        self._early_fetch = asyncio.get_running_loop().create_future()
        try:
            timeout_s = self._next_retry_s()
            await asyncio.wait((reply, self._early_fetch), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done() and (interval_s := self._remaining_interval_s()):
                await asyncio.wait((reply,), timeout=interval_s)
            return not reply.done()
        finally:
            self._early_fetch = None

    def _remaining_interval_s(self) -> float:
        """Return the seconds until the next fetch after one without records; 0 with few partitions."""
        count = len(self.followers)
        if count < _INTERVAL_FROM_PARTITIONS:
            return 0.0
        interval_s = min(count * _INTERVAL_PER_PARTITION_S, self._metadata.config.replica_fetch_wait_max_ms / 1000)
        return max(self._sent_at + interval_s - self._clock.monotonic(), 0.0)

    async def _receive(self, wanted: dict[TopicPartition, PartitionFetchState], response: FetchResponse) -> None:
        """Handle a response partition by partition, or raise its error; return when all records are written."""
        if perturb("replication: a fetch response is handled late"):
            await asyncio.sleep(LATE_S)
        answers = self._session.handle_response(response, wanted)
        self._has_got_records = any(each.records for each in answers.values())
        unwritten: dict[asyncio.Future[KafkaError | None], Follower] = {}
        for key, answer in answers.items():
            follower = self.followers.get(key)
            if follower is None:
                continue
            writing = await self._process_partition_data(follower, wanted[key], answer)
            if writing is not None:
                unwritten[writing] = follower
        if unwritten:
            await asyncio.wait(unwritten)
            for writing, follower in unwritten.items():
                if (error := writing.result()) is not None:
                    self._append_failed(follower, error)
                else:
                    self._retries.pop(follower.topic_partition, None)

    def _send(
        self, connection: ClientConnection, request: FetchRequest[PartitionFetchState]
    ) -> "tuple[int, asyncio.Future[RawResponse]]":
        """Send a fetch, and return its version and the future of the response."""
        config = self._metadata.config
        self._sent_at = self._clock.monotonic()
        version = connection.version(ApiKey.FETCH)
        if version < TOPIC_IDS_FROM:
            raise KafkaError(ErrorCode.unsupported_version, f"broker {self._leader} does not support topic ids")
        me = self._metadata.broker_id
        message = {
            "replica_id": me,
            "replica_state": {"replica_id": me, "replica_epoch": self._metadata.broker_epoch},
            "max_wait": config.replica_fetch_wait_max_ms,
            "min_bytes": config.replica_fetch_min_bytes,
            "max_bytes": config.replica_fetch_response_max_bytes,
            "session_id": request.session_id,
            "session_epoch": request.session_epoch,
            "topics": [
                {"topic_id": topic_id, "partitions": [self._encode(number, position) for number, position in some]}
                for topic_id, some in _by_topic(
                    (position.topic_id, (key.partition, position)) for key, position in request.positions.items()
                )
            ],
            "forgotten_topics_data": [
                {"topic_id": topic_id, "partitions": numbers}
                for topic_id, numbers in _by_topic(
                    (topic_id, key.partition) for key, topic_id in request.forgotten.items()
                )
            ],
        }
        body = encode_request(ApiKey.FETCH, version, message)
        return version, connection.exchange(ApiKey.FETCH, version, (body,))

    def _encode(self, number: int, position: PartitionFetchState) -> dict[str, Any]:
        return {
            "partition": number,
            "current_leader_epoch": position.leader_epoch,
            "fetch_offset": position.offset,
            "last_fetched_epoch": position.last_epoch,
            "log_start_offset": position.log_start_offset,
            "partition_max_bytes": self._metadata.config.replica_fetch_max_bytes,
        }

    # ---- one partition's result ---------------------------------------------------------------------------------

    async def _process_partition_data(
        self, follower: Follower, fetch_state: PartitionFetchState, answer: FetchedPartition
    ) -> "asyncio.Future[KafkaError | None] | None":
        """Handle one partition's result: only its offsets if the follower's position has changed since the request.

        Return the future of the write, if any.
        """
        if not follower.is_current_position(fetch_state):
            if not answer.error_code and answer.diverging_epoch is None:
                probe("replication: a fetch response is late for its follower")
                follower.update_high_watermark(fetch_state, answer)
            return None
        key, now_ms = follower.topic_partition, self._clock.now_ms()
        try:
            if answer.error_code == ErrorCode.offset_out_of_range:
                await self._handle_offset_out_of_range(follower, fetch_state)
            elif answer.error_code:
                self._fetch_failed(key, ErrorCode(answer.error_code))
                return None
            elif answer.diverging_epoch is not None:
                epoch, end_offset = answer.diverging_epoch
                follower.truncate(Divergence(epoch=epoch, end_offset=end_offset), now_ms)
            else:
                self._counters.replication_bytes_in += len(answer.records or b"")
                if self._is_throttled(follower):
                    self._quota.record(len(answer.records or b""))
                writing = follower.append_fetched(answer, now_ms)
                if writing is None:
                    self._retries.pop(key, None)
                return writing
        except KafkaError as error:
            self._append_failed(follower, error)
        return None

    def _append_failed(self, follower: Follower, error: KafkaError) -> None:
        """Handle an error of an append: retry, unless the disk has failed or `follower` was removed or replaced."""
        key = follower.topic_partition
        if self.followers.get(key) is not follower:
            return
        if isinstance(error, LogStorageError) and not error.is_passing:
            probe("replication: a follower's disk fails during an append")
            follower.log_failed(error)
            return
        follower.refused(error)
        level = logging.DEBUG if key in self._retries else logging.WARNING
        _log.log(level, "Failed to append records of %s from broker %d: %s", key, self._leader, error)
        self._delay_partition(key)

    def _fetch_failed(self, key: TopicPartition, code: ErrorCode) -> None:
        if code not in _METADATA_ERRORS:
            level = logging.DEBUG if key in self._retries else logging.WARNING
            _log.log(level, "Fetch of %s from broker %d failed with %s", key, self._leader, code.name.upper())
        self._delay_partition(key)

    async def _handle_offset_out_of_range(self, follower: Follower, fetch_state: PartitionFetchState) -> None:
        """Truncate the log to the leader's end offset if lower, or restart at the leader's start if higher."""
        key = follower.topic_partition
        end = await self._list_offset(key, fetch_state, _LATEST)
        start = await self._list_offset(key, fetch_state, _EARLIEST) if end >= fetch_state.offset else None
        if self.followers.get(key) is not follower or not follower.is_current_position(fetch_state):
            return
        now_ms = self._clock.now_ms()
        if start is None:
            probe("replication: a follower's log is longer than the leader's")
            follower.truncate_to(end, now_ms)
        elif start > fetch_state.offset:
            follower.restart(start, now_ms)
        else:
            probe("replication: offsets in a leader's responses disagree")
            # The leader's responses disagree, for instance if it has no room for a new segment: retry later.
            self._delay_partition(key)

    async def _list_offset(self, key: TopicPartition, fetch_state: PartitionFetchState, timestamp: int) -> int:
        """Return the offset for `_LATEST` or `_EARLIEST`. Raises the leader's `KafkaError`, or `UnavailableError`."""
        wanted = {
            "partition_index": key.partition,
            "current_leader_epoch": fetch_state.leader_epoch,
            "timestamp": timestamp,
        }
        message = {
            "replica_id": self._metadata.broker_id,
            "isolation_level": 0,
            "timeout": self._metadata.config.replica_fetch_wait_max_ms,
            "topics": [{"name": key.topic, "partitions": [wanted]}],
        }
        answer = await (await self._connection()).request(ApiKey.LIST_OFFSETS, message)
        (found,) = answer.topics[0].partitions
        if found.error_code is not ErrorCode.none:
            raise KafkaError(found.error_code)
        return int(found.offset)


def _decode(connection: ClientConnection, version: int, reply: RawResponse) -> FetchResponse:
    try:
        return decode_fetch_response(version, reply.frame, reply.offset)
    except MalformedMessageError as error:
        raise connection.malformed(ApiKey.FETCH, error) from error


def _by_topic(items: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, list[Any]]]:
    grouped: dict[Any, list[Any]] = {}
    for topic, item in items:
        grouped.setdefault(topic, []).append(item)
    return grouped.items()
