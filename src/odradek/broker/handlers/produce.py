"""Produce: append one record batch per partition, and respond when the records are as safe as `acks` requires.

With acks=1 that is when they are in the leader's file, with acks=-1 (all) when every in-sync replica has them. With
acks=0 there is no response; an error closes the connection, so that the client refreshes its metadata. A request that
waits for followers longer than its timeout gets REQUEST_TIMED_OUT, though its records may still be replicated.
Versions: 3 record batches only, 5 log start offset, 7 zstd, 8 record errors (KIP-467), 10 the new leader (KIP-951), 12
transactions that a Produce begins (KIP-890), 13 topic ids (KIP-516). 0 to 2 are refused (KIP-896).

The first batch of a transaction in a partition has been verified before the handler is called
(`broker.transactions.partition_verification`).
"""

import asyncio
from collections.abc import Callable, Container
from typing import Final
from uuid import UUID

from odradek.broker.handlers.delayed_produce import DelayedProduce, Place, Terms
from odradek.broker.handlers.produce_fast_path import ProduceFastPath
from odradek.broker.handlers.produce_rejections import count_rejection
from odradek.broker.interfaces import BrokerParts
from odradek.broker.log.batch_contents import InvalidRecordsError
from odradek.broker.log.validation import UncheckedBatchError
from odradek.broker.replication.partition import Partition
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext, decoded_bytes
from odradek.broker.serving.responses import frame as response_frame
from odradek.broker.transactions.partition_verification import ADDS_FROM
from odradek.broker.turns import TURN, TURN_S, Steps, in_turns, one_turn
from odradek.model import ErrorCode, KafkaError
from odradek.model.names import ADMIN_CLIENT_ID, INTERNAL_TOPICS
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import TRANSACTIONAL
from odradek.protocol.messages.produce import (
    MOST_PRODUCE_ENTRIES,
    TOPIC_IDS_FROM,
    NodeEndpoint,
    PartitionResponse,
    ProduceRequest,
    TopicResponse,
    decode_produce_request,
    encode_produce_response,
)
from odradek.protocol.primitives import Meter
from odradek.security import AclOperation, ResourceType
from odradek.wire.reply import NO_REPLY, Buffers, Reply

_ZSTD_FROM: Final = 7
_LATER_MS: Final = 100
"""After this time, an unfinished request is looked at again whose timeout has passed."""
_NOT_LED: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
    }
)
"""Errors for a partition that this broker does not lead, and may lead soon."""


def handle(broker: BrokerParts, context: RequestContext, frame: memoryview) -> Reply:
    """Append the records; the reply completes when they are as safe as `acks` requires."""
    version = context.header.api_version
    verified, context.session.verified = context.session.verified, None
    if verified is None:
        meter = Meter(min(broker.config.most_request_entries, MOST_PRODUCE_ENTRIES))
        request = decode_produce_request(version, frame, context.header.body_offset, meter=meter)
    else:
        request, meter = verified
    transactional = request.transactional_id is not None
    produce = _Produce(broker, context, request.acks, request.timeout_ms, transactional=transactional)
    produce.decoded_bytes = decoded_bytes(meter)
    appending = _append_all(broker, context, request, produce)
    if one_turn(appending) is None:
        produce.append_later(appending)
    else:
        produce.learn(frame)
    return produce.begin()


def _append_all(
    broker: BrokerParts, context: RequestContext, request: ProduceRequest, produce: "_Produce"
) -> Steps[None]:
    refusal, monotonic = _refusal(context, request), broker.runtime.clock.monotonic
    named = (_topic_name(broker, context, name, topic_id) for name, topic_id, _ in request.topics)
    names = (name for name in named if name is not None)
    denied = yield from context.denied(AclOperation.WRITE, ResourceType.TOPIC, names)
    for name, topic_id, partitions in request.topics:
        produce.add_topic(name, topic_id)
        topic = _topic_name(broker, context, name, topic_id)
        topic_refusal = refusal or _topic_refusal(context, topic, denied, acks=request.acks)
        for number, records in partitions:
            began = monotonic()
            try:
                if topic is None or topic_refusal is not None:
                    raise topic_refusal or KafkaError(ErrorCode.unknown_topic_id)
                produce.append_to_partition(topic, number, records)
            except UncheckedBatchError as unchecked:
                assert topic is not None
                produce.check_first(topic, number, unchecked)
            except KafkaError as error:
                produce.refuse_partition(name or topic_id, number, error, records, is_readable=topic_refusal is None)
            yield 8 + int((monotonic() - began) / TURN_S * TURN)  # a batch whose records are checked may take a turn


def _refusal(context: RequestContext, request: ProduceRequest) -> KafkaError | None:
    """Return the error of the whole request, which the response has for every partition, or None."""
    try:
        context.check_request(request)
        if request.transactional_id is not None and _has_transactional_records(request):
            context.check(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    except KafkaError as error:
        return error
    return None


def _has_transactional_records(request: ProduceRequest) -> bool:
    """Return whether a batch is transactional: as in Kafka, only these need rights on the transactional id."""
    partitions = (partition for *_, partitions in request.topics for partition in partitions)
    return any(records and records[22:23] and records[22] & TRANSACTIONAL for _, records in partitions)


def _topic_refusal(
    context: RequestContext, topic: str | None, denied: Container[str], *, acks: int
) -> KafkaError | None:
    """Return the error of a topic, which the response has for each of its partitions, or None."""
    if topic in denied:
        return authorization_error(ResourceType.TOPIC)
    if topic is not None and not -1 <= acks <= 1:
        return KafkaError(ErrorCode.invalid_required_acks, f"acks is -1, 0 or 1, not {acks}")
    if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        return KafkaError(ErrorCode.invalid_topic_exception, f"clients can't append to the internal topic {topic}")
    return None


def _topic_name(broker: BrokerParts, context: RequestContext, name: str | None, topic_id: UUID | None) -> str | None:
    """Return the name of a topic, or None for an unknown topic id."""
    if context.header.api_version < TOPIC_IDS_FROM:
        return name
    return None if topic_id is None else broker.image.topic_names.get(topic_id)


class _Produce(DelayedProduce):
    """One Produce request, and its response as far as it is known."""

    def __init__(
        self, broker: BrokerParts, context: RequestContext, acks: int, timeout_ms: int, *, transactional: bool
    ) -> None:
        self._terms = Terms(acks, timeout_ms, broker.counters, broker.purgatory)
        self._awaited = {}
        self._broker = broker
        self._context = context
        self._transactional = transactional
        must_verify = broker.config.transaction_partition_verification_enable or context.api_version >= ADDS_FROM
        self._needs_verification = transactional and must_verify
        self._now_ms = broker.runtime.clock.now_ms()
        self._last: tuple[Partition, memoryview] | None = None
        self._topics: list[TopicResponse] = []
        self._moved: set[int] = set()
        self._unfinished = 0
        """Pieces of work on the request; until it is 0, the connection serves nothing, and the reply is incomplete."""

    def add_topic(self, name: str | None, topic_id: UUID | None) -> None:
        """Begin a topic of the response, to which later partitions belong."""
        self._topics.append(TopicResponse(name, topic_id, []))

    def check_first(self, topic: str, number: int, unchecked: UncheckedBatchError) -> None:
        """Append to one partition when the batch is checked; until then, the connection serves nothing."""
        responses = self._topics[-1].partitions
        responses.append(PartitionResponse(number))
        place = len(self._topics) - 1, len(responses) - 1
        self._awaited[place] = self._broker.partitions.leader(topic, number)
        self._begin_work()
        self._broker.dispatcher.run(self._append_checked(topic, number, place, unchecked.check))

    async def _append_checked(
        self, topic: str, number: int, place: Place, check: Callable[[], memoryview | KafkaError]
    ) -> None:
        found: memoryview | KafkaError
        try:
            async with self._broker.dispatcher.client_semaphore("check", self._context, 1):
                found = await self._broker.runtime.checker.submit(check)
        except Exception as failure:
            found = KafkaError(ErrorCode.unknown_server_error, str(failure))
        self._awaited.pop(place)
        if not isinstance(found, KafkaError):
            try:
                self.append_to_partition(topic, number, found, place=place)
            except KafkaError as refused:
                found = refused.with_traceback(None)  # else a cycle: its traceback has this frame
        if isinstance(found, KafkaError):
            self.refuse_partition(topic, number, found, None, is_readable=True)
            self.set_response(place, self._topics[-1].partitions.pop())
        self._end_work()

    def append_later(self, appending: Steps[None]) -> None:
        """Append to the other partitions in turns."""
        self._begin_work()
        self._broker.dispatcher.run(in_turns(appending)).add_done_callback(self._appended)

    def _appended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._context.session.connection.exception("PRODUCE failed", error)
        self._end_work()

    def _begin_work(self) -> None:
        self._unfinished += 1
        self._context.session.connection.hold()

    def _end_work(self) -> None:
        self._unfinished -= 1
        if not self._unfinished:
            if not self._awaited:
                self.respond()
            self._context.session.connection.release()

    def expire(self) -> None:
        if self._unfinished:
            self._terms.purgatory.park(self, _LATER_MS)
        else:
            super().expire()

    def append_to_partition(
        self, topic: str, number: int, records: memoryview | None, *, place: Place | None = None
    ) -> None:
        """Append to one partition. Raises `KafkaError` if `records` are refused. `place`: that of a checked batch."""
        partition = self._broker.partitions.leader(topic, number)
        if not records:
            raise KafkaError(ErrorCode.invalid_record, "a partition's records must be exactly one batch")
        if self._context.header.api_version < _ZSTD_FROM and records[22:23] and records[22] & 7 == Codec.ZSTD:
            raise KafkaError(ErrorCode.unsupported_compression_type, "zstd needs Produce version 7")
        info = partition.append_records(
            records,
            acks=self._terms.acks,
            now_ms=self._now_ms,
            transactional=self._transactional,
            needs_verification=self._needs_verification,
            is_checked=place is not None,
        )
        response = PartitionResponse(number, 0, info.first_offset, info.log_append_time, info.log_start_offset)
        if place is None:
            responses = self._topics[-1].partitions
            place = len(self._topics) - 1, len(responses)
            responses.append(response)
        else:
            self.set_response(place, response)
        self._last = partition, records
        self.wait_for(info, partition, place)

    def refuse_partition(
        self,
        topic: str | UUID | None,
        number: int,
        error: KafkaError,
        records: memoryview | None,
        *,
        is_readable: bool,
    ) -> None:
        """Count the error of a partition whose records were not appended, and add its response.

        Without `is_readable` the response does not show where the log begins: the principal may not know it.
        """
        broker = self._broker
        name = broker.image.topic_names.get(topic) if isinstance(topic, UUID) else topic
        count_rejection(broker.counters, broker.partitions.traffic.get(name or ""), error, records)
        partition = None
        if name is not None and is_readable:
            partition = broker.partitions.leader_or_none(name, number)
        if partition is None and records and topic is not None and error.code in _NOT_LED:
            broker.partitions.refused.note((topic, number), records, error, self._now_ms)
        leader = None
        if error.code == ErrorCode.not_leader_or_follower and name is not None:
            leader = broker.partitions.current_leader(name, number)
            if leader is not None:
                self._moved.add(leader[0])
        record_errors = error.record_errors if isinstance(error, InvalidRecordsError) else ()
        self._topics[-1].partitions.append(
            PartitionResponse(
                number,
                int(error.code),
                log_start_offset=-1 if partition is None else partition.log.log_start_offset,
                record_errors=record_errors,
                error_message=str(error),
                current_leader=leader,
            )
        )

    def learn(self, frame: memoryview) -> None:
        """Store the request's prefix for the fast path.

        The request has version 7 or later, one partition, no transaction, and acks is not 0; others are ignored.
        """
        if (
            self._last is None
            or self._terms.acks == 0
            or self._transactional
            or len(self._topics) != 1
            or len(self._topics[0].partitions) != 1
        ):
            return
        session = self._context.session
        if self._context.api_version >= _ZSTD_FROM:
            fast_path = session.fast_path
            if not isinstance(fast_path, ProduceFastPath):
                clock = self._broker.runtime.clock
                fast_path = session.fast_path = ProduceFastPath(session, self._broker.quotas, clock)
            fast_path.learn(frame, self._context, *self._last, self._terms)
        self._last = None

    def begin(self) -> Reply:
        """Return this reply, which is complete already if no append is awaited."""
        if not self._awaited:
            self.respond()
        return self

    def set_response(self, place: Place, response: PartitionResponse) -> None:
        topic, index = place
        self._topics[topic].partitions[index] = response

    def respond(self) -> None:
        if self._unfinished or self.settled:
            return
        if self._terms.acks == 0 and (reason := self._first_error()) is not None:
            self.refuse(reason)
        elif sum(len(topic.partitions) for topic in self._topics) > TURN:
            encoding = self._broker.runtime.worker.submit(self._encode)
            encoding.add_done_callback(
                lambda done: self.complete(self._encode() if done.exception() else done.result())
            )
        else:
            self.complete(self._encode())

    def _first_error(self) -> str | None:
        for _, _, responses in self._topics:
            for response in responses:
                if response.error_code:
                    return f"produce with acks=0 failed: {response.error_message}"
        return None

    def _encode(self) -> Buffers:
        if self._terms.acks == 0:
            return NO_REPLY
        version = self._context.header.api_version
        endpoints = [
            NodeEndpoint(broker.broker_id, endpoint.host, endpoint.port, broker.rack)
            for leader in sorted(self._moved)
            if (broker := self._broker.image.brokers.get(leader)) is not None
            and (endpoint := broker.endpoint(self._context.listener)) is not None
        ]
        return response_frame(
            self._context.header, encode_produce_response(version, self._topics, node_endpoints=endpoints)
        )
