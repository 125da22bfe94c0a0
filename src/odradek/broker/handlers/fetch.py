"""Fetch: return records from an offset on, at once or when `min_bytes` are available, within byte limits.

A fetch that finds less than `min_bytes` waits in the purgatory; appends to its partitions count down the missing
bytes, and at zero it completes. At least one batch is returned, however large (KIP-74).
A read_committed consumer gets records below the last stable offset, and the list of aborted transactions (KIP-98). A
consumer may read a follower, and a leader may redirect it to one in its rack (KIP-392). `broker.replication.reading`
reads the logs, and `broker.serving.fetch_sessions` holds the sessions.

Versions: 4 isolation level, 5 log start offset, 7 sessions (KIP-227), 9 leader epochs (KIP-320), 11 racks, 13 topic ids
(KIP-516), 15 replica state, 16 endpoints of new leaders (KIP-951).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from odradek.broker.counters import TopicTraffic
from odradek.broker.interfaces import BrokerParts
from odradek.broker.replication.follower import Follower
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.reading.delayed_fetch import FetchIsolation
from odradek.broker.replication.reading.partition_reader import FetchParams, PartitionReader, preferred
from odradek.broker.replication.reading.replica_selector import ClientMetadata
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext, decoded_bytes
from odradek.broker.serving.fetch_sessions import MOST_PARTITIONS, FetchContext, FetchTarget, PartitionKey
from odradek.broker.serving.responses import counted_refusal, gathered_frame
from odradek.broker.turns import LARGE_BYTES, TURN, Steps, at_once, in_turns
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import probe
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.fetch import TOPIC_IDS_FROM, FetchedPartition, FetchedTopic, encode_fetch_response
from odradek.protocol.messages.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.message_codec import decode_request, milliseconds, optional
from odradek.protocol.messages.produce import NodeEndpoint
from odradek.protocol.primitives import Meter
from odradek.security import AclOperation, ResourceType
from odradek.wire.reply import Buffers, PendingReply, Reply

if TYPE_CHECKING:
    from kio.schema.fetch.v18.request import FetchRequest as Message

_READ_COMMITTED: Final = 1
_CONSUMER: Final = FetchParams(isolation=FetchIsolation.HIGH_WATERMARK)
_COMMITTED_CONSUMER: Final = FetchParams(isolation=FetchIsolation.TXN_COMMITTED)
_FOLLOWERS_FROM: Final = 11
"""The version from which consumers may read followers."""
_REPLICA_STATE_FROM: Final = 15
_NO_TOPIC_ID: Final = UUID(int=0)
_ENOUGH_BYTES: Final = 4 * 1024 * 1024
"""Limit of the records in a response, whatever the client allows: it bounds the memory of slow readers, and larger
responses are slower (measured)."""
_MOVED: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


def handle(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Return the response, or a pending reply that waits for records."""
    header = context.header
    body = bytes(frame[header.body_offset :])
    meter = Meter(broker.config.most_request_entries)
    if len(body) > LARGE_BYTES and not (header.proof and _is_proven(broker, context, body)):
        return broker.dispatcher.answer_later(context, _serve_large(broker, context, body, meter), meter)
    request = decode_request(ApiKey.FETCH, header.api_version, body, meter=meter)
    try:
        fetch = _open(broker, context, body, meter, request)
    except KafkaError as error:
        return counted_refusal(broker.counters, header, request, error)
    return fetch.begin()


async def _serve_large(broker: BrokerParts, context: RequestContext, body: bytes, meter: Meter) -> Buffers:
    def begin(request: "Message") -> "_Fetch | asyncio.Future[Buffers]":
        try:
            return _open(broker, context, body, meter, request)
        except KafkaError as error:
            refusing = partial(counted_refusal, broker.counters, context.header, request, error)
            return broker.dispatcher.worker.submit(refusing)

    decoding = partial(decode_request, ApiKey.FETCH, context.api_version, body, meter=meter)
    answer = await broker.dispatcher.handle_large(context, meter, decoding, begin)
    return await answer.answer() if isinstance(answer, _Fetch) else answer


def _is_proven(broker: BrokerParts, context: RequestContext, body: bytes) -> bool:
    return broker.proofs.admits(context.header, body, listener=context.listener, host=context.client_host)


def _open(broker: BrokerParts, context: RequestContext, body: bytes, meter: Meter, request: "Message") -> "_Fetch":
    """Find the request's partitions. Raises `KafkaError` if the request as a whole is refused."""
    version = context.header.api_version
    params = _fetch_params(broker, request, version)
    if params.is_from_follower and not _is_proven(broker, context, body):
        raise authorization_error(ResourceType.TOPIC)
    if context.session.admission.may_refuse:
        context.check_request(request)
    epoch = optional(request, "session_epoch", FINAL_EPOCH)
    if epoch == INITIAL_EPOCH and not _may_open_session(broker, context, request, params):
        epoch = FINAL_EPOCH
    fetched = broker.fetch_sessions.open(
        optional(request, "session_id", 0),
        epoch,
        _wanted(request, version),
        _forgotten(request, version),
        uses_topic_ids=version >= TOPIC_IDS_FROM,
        now=broker.runtime.clock.monotonic(),
        most=broker.config.most_session_partitions if params.is_from_follower else MOST_PARTITIONS,
    )
    return _Fetch(broker, context, request, fetched, meter, params)


def _may_open_session(broker: BrokerParts, context: RequestContext, request: "Message", params: FetchParams) -> bool:
    """Return whether the principal may fetch any of the partitions; if not, no other client's session is evicted."""
    if not context.session.admission.may_refuse:
        return True
    if params.is_from_follower:
        return context.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, quietly=True)
    by_id, ids = context.api_version >= TOPIC_IDS_FROM, broker.image.topic_names
    names = {
        ids.get(topic.topic_id or _NO_TOPIC_ID, "") if by_id else optional(topic, "topic", "")
        for topic in request.topics
    }
    if len(names) > MOST_PARTITIONS:
        return False
    return len(at_once(context.denied(AclOperation.READ, ResourceType.TOPIC, sorted(names), quietly=True))) < len(names)


def _wanted(request: "Message", version: int) -> Iterable[FetchTarget]:
    for topic in request.topics:
        key = topic.topic_id or _NO_TOPIC_ID if version >= TOPIC_IDS_FROM else optional(topic, "topic", "")
        for partition in topic.partitions:
            yield FetchTarget(
                PartitionKey(key, partition.partition),
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch if version >= 9 else -1,
                partition.last_fetched_epoch if version >= 12 else -1,
                partition.log_start_offset if version >= 5 else -1,
            )


def _forgotten(request: "Message", version: int) -> Iterable[PartitionKey]:
    """Yield the partitions that the request removes from its session."""
    forgotten: Iterable[Any] = optional(request, "forgotten_topics_data", ())
    for topic in forgotten:
        key = topic.topic_id or _NO_TOPIC_ID if version >= TOPIC_IDS_FROM else optional(topic, "topic", "")
        for number in topic.partitions:
            yield PartitionKey(key, number)


_Results: TypeAlias = list[tuple[FetchTarget, FetchedPartition]]


class _Fetch(PendingReply):
    """One Fetch request, and its pending reply while it waits. One of many partitions is read in turns (`answer`)."""

    def __init__(
        self,
        broker: BrokerParts,
        context: RequestContext,
        request: "Message",
        fetched: FetchContext,
        meter: Meter,
        params: FetchParams,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._fetched = fetched
        self._meter = meter
        self.decoded_bytes = decoded_bytes(meter)
        self._charge = None if params.is_from_follower else broker.quotas.begin_fetch(context)
        self._is_refused = False
        """Whether the principal may not fetch as a follower."""
        may_refuse = context.session.admission.may_refuse
        self._denied: frozenset[str] | None = frozenset() if params.is_from_follower or not may_refuse else None
        """The topics that a consumer may not read; None before the first read."""
        if params.is_from_follower and may_refuse:
            self._is_refused = not context.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
            counts = params.counts_as_follower and not self._is_refused
            params = params._replace(counts_as_follower=counts)
        if params.counts_as_follower:
            broker.fence.check()  # a follower's fetch offset may commit records, which are then acknowledged
        self._params = params
        self._reader = PartitionReader(params, broker.server.response_buffers.lend)
        self._most_bytes = min(request.max_bytes, broker.config.fetch_max_bytes, _ENOUGH_BYTES)
        if self._charge is not None:
            self._most_bytes = min(self._most_bytes, self._charge.most_fetch_bytes)
        self._partitions: list[Partition | Follower] = []
        self._client: ClientMetadata | None = None
        """The consumer, if it may be redirected to a follower."""
        if broker.preferred_read_replicas is not None and not params.is_from_follower and self._may_read_followers:
            self._client = ClientMetadata(request.rack_id, context.client_id, context.client_host, context.listener)
        self._missing_bytes = 0
        self._throttled_s: dict[PartitionKey, float] = {}
        """For how long the partitions that were left out are throttled."""
        self._throttled_bytes = 0
        """The bytes that the last read found of throttled partitions; those of a response are recorded."""
        self._is_overtaken = self._is_abandoned = False
        self._is_over: asyncio.Event | None = None
        """Set when a fetch that is read in turns ceases to wait; None for a fetch that is read at once."""

    @property
    def _may_read_followers(self) -> bool:
        return self._context.api_version >= _FOLLOWERS_FROM and not self._params.is_from_follower

    def begin(self) -> Reply:
        """Return the response if it has enough bytes or must not wait, else a pending reply."""
        if 2 * len(self._fetched.targets) > TURN and not self._params.is_from_follower:
            return self._broker.dispatcher.answer_later(self._context, self.answer(), self._meter)
        results = self._first_results(at_once(self._read()))
        return self if results is None else self._response(results)()

    async def answer(self) -> Buffers:
        """Return the response when it has enough bytes, or must not wait any longer. Read in turns."""
        self._is_over, session = asyncio.Event(), self._fetched.session
        if session is not None:
            session.waiting = self  # the next fetch of the session may arrive between turns
        try:
            found = await self._read_in_turns()
            results = self._first_results(found)
            if results is None:
                if any(map(_has_advanced, found[0], self._partitions)):
                    self._is_over.set()
                await self._is_over.wait()
                self._release()
                self._resume()
                results = [] if self._is_overtaken else (await self._read_in_turns(again=True))[0]
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            self._end_wait()
        if self._is_overtaken:
            results = []
        response = self._response(results)
        return await self._broker.dispatcher.worker.submit(response) if 2 * len(results) > TURN else response()

    async def _read_in_turns(self, *, again: bool = False) -> tuple[_Results, int, bool]:
        if self._params.is_from_follower:  # its offsets count only while the fence is open
            return at_once(self._read(again=again))
        async with self._broker.dispatcher.few_large:
            return await in_turns(self._read(again=again))

    def _first_results(self, found: tuple[_Results, int, bool]) -> _Results | None:
        """Return the results of the first read, or None if the fetch now waits for more."""
        results, size, is_final = found
        if self._params.counts_as_follower:  # the read after the wait must not count as a second fetch
            params = self._params._replace(counts_as_follower=False)
            self._reader = PartitionReader(params, self._broker.server.response_buffers.lend)
        missing = min(self._request.min_bytes, max(self._most_bytes, 1)) - size
        wait_ms = milliseconds(self._request.max_wait)
        may_wait = self._params.is_from_follower or self._broker.server.may_wait
        if missing <= 0 or is_final or wait_ms <= 0 or not self._fetched.targets or not may_wait:
            return results
        self._missing_bytes = missing
        throttled_s = self._throttled_s
        if throttled_s:
            wait_ms = min(wait_ms, ceil(min(throttled_s.values()) * 1000))
        try:
            partitions = [self._partition(key) for key in self._fetched.targets if key not in throttled_s]
        except KafkaError:  # between turns, this broker has ceased to have one of them
            return results
        for partition in partitions:
            partition.add_delayed_fetch(self, self._params.isolation)
        self._partitions = partitions
        if self._fetched.session is not None and self._is_over is None:
            self._fetched.session.waiting = self
        self._broker.purgatory.park(self, wait_ms)
        if self._charge is not None:
            self._charge.pause()
        return None

    # Waiting

    def advanced(self, size: int) -> None:
        """Count down the missing bytes: a partition has `size` more bytes."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.interrupted()

    def interrupted(self) -> None:
        """Send the response now: enough bytes are available, or waiting is pointless, as after an election."""
        if self._is_over is None:
            self._release()
        self.expire()

    def overtaken(self) -> None:
        """Send the response: the next fetch of its session has arrived. If incremental, it has no records."""
        self._is_overtaken = self._fetched.incremental
        self.interrupted()
        self._answer()  # now: it must not see what the next fetch has changed in the session

    def expire(self) -> None:
        """Complete with the records that are available."""
        if self._is_over is not None:
            self._is_over.set()
            return
        self._unsubscribe()
        if self._params.is_from_follower:
            self._answer()
            return
        self._broker.purgatory.answer(self._answer, 2 + 2 * len(self._fetched.targets))

    def _answer(self) -> None:
        if self.settled or self._is_abandoned or self._is_over is not None:
            return
        self._end_wait()
        self._resume()
        results = [] if self._is_overtaken else at_once(self._read(again=True))[0]
        self.complete(self._response(results)())

    def _resume(self) -> None:
        """Go on counting the handler's time, which the wait for records and for a turn is not."""
        if self._charge is not None:
            self._charge.resume()

    def abandon(self) -> None:
        self._is_abandoned = True
        self._release()
        self._end_wait()
        if not self._fetched.incremental:  # no client has the id of a session that this fetch opened
            self._broker.fetch_sessions.forget(self._fetched.session_id)

    force_complete = interrupted

    def _release(self) -> None:
        self._broker.purgatory.release(self)
        self._unsubscribe()

    def _end_wait(self) -> None:
        """Remove this fetch from its session as the waiting one, unless a newer fetch has replaced it."""
        session = self._fetched.session
        if session is not None and session.waiting is self:
            session.waiting = None

    def _unsubscribe(self) -> None:
        for partition in self._partitions:
            partition.remove_delayed_fetch(self)
        self._partitions.clear()

    # Reading

    def _read(self, *, again: bool = False) -> Steps[tuple[_Results, int, bool]]:
        """Read the partitions; return `([(target, result)], bytes of records, whether the response is final)`.

        A response with an error, a redirection, a divergence or all bytes that fit is final: it must not wait. A
        session's partitions without changes are skipped, by a consumer's fetch only `again`, after the wait. While
        unread responses exhaust the memory, a consumer's fetch finds no records and waits.
        """
        if self._denied is None:
            names = map(self._known_name, self._fetched.targets)
            self._denied = yield from self._context.denied(AclOperation.READ, ResourceType.TOPIC, names)
        pressure = self._broker.server.memory_pressure
        room = self._most_bytes if self._params.is_from_follower else pressure.response_room()
        left, total, is_final = min(self._most_bytes, room), 0, False
        results = []
        self._throttled_s.clear()
        self._throttled_bytes = 0
        counts = self._params.counts_as_follower and not again
        may_skip = self._fetched.incremental and (again or counts)
        now_ms = int(self._broker.runtime.clock.monotonic() * 1000) if counts else None
        for target in tuple(self._fetched.targets.values()):
            yield 2
            try:
                partition, at_least_one = self._partition(target.key), total == 0 and room > 0
                if may_skip and self._is_quiet(partition, target, now_ms):
                    continue
                target.is_changed = False
                result, has_more = self._preferred(partition, target), False
                if result is None:
                    result, has_more = self._read_partition(partition, target, left, at_least_one=at_least_one)
                else:
                    is_final = True
            except KafkaError as error:
                result, has_more = self._failure(target, error.code), False
                is_final = True
                yield 6
            size = len(result.records or b"")
            total += size
            left -= size
            is_final = is_final or result.diverging_epoch is not None or (total > 0 and not size and has_more)
            results.append((target, result))
        pressure.answered(total)
        return results, total, is_final or (left <= 0 < room)

    def _read_partition(
        self, partition: Partition | Follower, target: FetchTarget, left: int, *, at_least_one: bool
    ) -> tuple[FetchedPartition, bool]:
        """Read one partition: no records for a follower out of sync while a throttle is exceeded (KIP-73)."""
        quota, replica = self._broker.replication_quotas.leader, self._params.replica_id
        throttled = partition.log.config.leader_throttled
        if replica < 0 or not quota.is_throttled(throttled, target.key.partition):
            return self._reader.read(partition, target, left, at_least_one=at_least_one)
        if isinstance(partition, Partition) and replica not in partition.isr and (wait_s := quota.throttle_time_s()):
            probe("replication: a leader throttles a follower")
            self._throttled_s[target.key] = wait_s
            return self._reader.read(partition, target, 0, at_least_one=False)[0], False
        result, has_more = self._reader.read(partition, target, left, at_least_one=at_least_one)
        self._throttled_bytes += len(result.records or b"")
        return result, has_more

    def _preferred(self, partition: Partition | Follower, target: FetchTarget) -> FetchedPartition | None:
        """Return a result that redirects this consumer to a follower, None if it should read here."""
        if self._client is None or self._broker.preferred_read_replicas is None or isinstance(partition, Follower):
            return None
        partition.check_leader_epoch(target.current_leader_epoch)
        now_ms = int(self._broker.runtime.clock.monotonic() * 1000)
        replica = self._broker.preferred_read_replicas.find(partition, target.fetch_offset, self._client, now_ms)
        return None if replica is None else preferred(partition, replica)

    def _is_quiet(self, partition: Partition | Follower, target: FetchTarget, now_ms: int | None) -> bool:
        """Return whether an incremental response has nothing new of a partition.

        With `now_ms` the fetch counts as one of a follower, which is recorded.
        """
        log, params = partition.log, self._params
        if (
            target.fetch_offset != log.written_offset
            or target.high_watermark != partition.high_watermark
            or target.current_leader_epoch != partition.leader_epoch
            or target.log_start_offset != log.log_start_offset
        ):
            return False
        if not params.is_from_follower:
            return True
        assert isinstance(partition, Partition)
        if now_ms is None:
            return params.replica_id in partition.replication.remotes
        return not target.is_changed and partition.replication.fetched_again(
            params.replica_id, target.fetch_offset, broker_epoch=params.broker_epoch, now_ms=now_ms
        )

    def _partition(self, key: PartitionKey) -> Partition | Follower:
        """Return a partition that this broker leads or, for a consumer from version 11 on, follows.

        Raises `KafkaError` if it does neither, or the principal may not read.
        """
        topic = "" if self._is_refused else self._topic_name(key)
        if self._is_refused or (self._denied and topic in self._denied):
            raise authorization_error(ResourceType.TOPIC)
        partitions = self._broker.partitions
        find = partitions.replica if self._may_read_followers else partitions.leader
        return find(topic, key.partition)

    def _known_name(self, key: PartitionKey) -> str:
        """Return the name of the topic, or an empty one for an unknown topic id."""
        return key.topic if isinstance(key.topic, str) else self._broker.image.topic_names.get(key.topic, "")

    def _topic_name(self, key: PartitionKey) -> str:
        """Return the topic's name. Raises `KafkaError` UNKNOWN_TOPIC_ID."""
        if isinstance(key.topic, str):
            return key.topic
        name = self._broker.image.topic_names.get(key.topic)
        if name is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        return name

    def _failure(self, target: FetchTarget, code: ErrorCode) -> FetchedPartition:
        """Count an error and return it; from version 16 on, with the current leader if the client's is wrong or old."""
        traffic = self._broker.partitions.traffic.get(self._known_name(target.key))
        (traffic or self._broker.counters.elsewhere).failed_fetches += 1
        self._broker.counters.erred(ApiKey.FETCH, int(code))
        leader = None
        if code in _MOVED and self._context.api_version >= 16:
            leader = self._broker.partitions.current_leader(self._topic_name(target.key), target.key.partition)
        return FetchedPartition(target.key.partition, int(code), current_leader=leader)

    # Responses

    def _response(self, results: _Results) -> Callable[[], Buffers]:
        """Return a function that encodes the response."""
        throttle_ms = 0
        if self._charge is not None:
            throttle_ms = self._charge.throttle_fetch(sum(len(result.records or b"") for _, result in results))
        if results and self._throttled_bytes:
            self._broker.replication_quotas.leader.record(self._throttled_bytes)
        session = self._fetched.session
        if throttle_ms:
            results = []
            if not self._fetched.incremental:  # clients forget a session whose first response is empty (KIP-219)
                self._broker.fetch_sessions.forget(self._fetched.session_id)
        topics: dict[Any, list[FetchedPartition]] = {}
        for target, result in results:
            if self._fetched.incremental and not _has_changed(target, result):
                continue
            # A follower that must truncate its log ignores these offsets: the next response has to repeat them.
            target.high_watermark = result.high_watermark if result.diverging_epoch is None else -1
            target.log_start_offset = result.log_start_offset
            topics.setdefault(target.key.topic, []).append(result)
            if result.records:
                self._count(target.key, len(result.records))
                if session is not None:
                    session.served(target.key)
        header = self._context.header
        session_id = self._fetched.session_id if self._fetched.incremental or not throttle_ms else NO_SESSION
        endpoints = self._endpoints(topics.values()) if header.api_version >= 16 else ()
        return lambda: _frame(header, topics, throttle_ms, session_id, endpoints)

    def _count(self, key: PartitionKey, size: int) -> None:
        if self._params.is_from_follower:
            self._broker.counters.replication_bytes_out += size
        else:
            traffic = self._broker.partitions.traffic.setdefault(self._topic_name(key), TopicTraffic())
            traffic.bytes_out += size
            traffic.fetches += 1

    def _endpoints(self, topics: Iterable[list[FetchedPartition]]) -> list[NodeEndpoint]:
        """Return the endpoints of the current leaders that the results in `topics` contain."""
        leaders = {each.current_leader[0] for partitions in topics for each in partitions if each.current_leader}
        return [
            NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for leader in sorted(leaders)
            if (broker := self._broker.image.brokers.get(leader)) is not None
            and (endpoint := broker.endpoint(self._context.listener)) is not None
        ]


def _frame(
    header: RequestHeader,
    topics: Mapping[Any, list[FetchedPartition]],
    throttle_ms: int,
    session_id: int,
    endpoints: Sequence[NodeEndpoint],
) -> Buffers:
    has_ids = header.api_version >= TOPIC_IDS_FROM
    fetched = [
        FetchedTopic(None, topic, partitions) if has_ids else FetchedTopic(topic, None, partitions)
        for topic, partitions in topics.items()
    ]
    pieces = encode_fetch_response(
        header.api_version,
        fetched,
        throttle_time_ms=throttle_ms,
        session_id=session_id,
        node_endpoints=endpoints,
    )
    return gathered_frame(header, pieces)


def _replica(request: "Message", version: int) -> int:
    """Return the broker id of a follower; a negative number for a consumer."""
    state = request.replica_state if version >= _REPLICA_STATE_FROM else None
    return optional(request, "replica_id", -1) if state is None else state.replica_id


def _fetch_params(broker: BrokerParts, request: "Message", version: int) -> FetchParams:
    """Return whether the reader is a follower or a consumer, and which records it may read.

    A follower's fetches can advance the high watermark only if it is registered, and the broker epochs of request and
    registration are equal or one is -1, unknown.
    """
    state = request.replica_state if version >= _REPLICA_STATE_FROM else None
    replica = _replica(request, version)
    if replica < 0:
        return _COMMITTED_CONSUMER if request.isolation_level == _READ_COMMITTED else _CONSUMER
    epoch = -1 if state is None else int(state.replica_epoch)
    registered = broker.image.brokers.get(replica)
    counts = registered is not None and (-1 in (epoch, registered.epoch) or epoch == registered.epoch)
    return FetchParams(replica, FetchIsolation.LOG_END, counts_as_follower=counts, broker_epoch=epoch)


def _has_advanced(found: tuple[FetchTarget, FetchedPartition], partition: Partition | Follower) -> bool:
    """Return whether a consumer can read more than between turns."""
    offsets = found[1].high_watermark, found[1].last_stable_offset
    return offsets != (partition.high_watermark, partition.last_stable_offset)


def _has_changed(target: FetchTarget, result: FetchedPartition) -> bool:
    """Return whether an incremental response must include this partition."""
    return bool(
        result.records
        or result.error_code
        or result.diverging_epoch is not None
        or result.preferred_read_replica >= 0
        or result.high_watermark != target.high_watermark
        or result.log_start_offset != target.log_start_offset
    )
