"""Hand-written codec of Produce requests and responses, versions 3 to 13, which does not copy records.

Decoded records are views of the frame, valid as long as its buffer. Version notes: 5 adds `log_start_offset`, 8 record
errors (KIP-467), 9 is flexible, 10 adds the current leader and its endpoint (KIP-951), 13 topic ids instead of names
(KIP-516). Versions 0 to 2 have older message formats and are not supported.
"""

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from odradek.model import Buffer
from odradek.protocol.primitives import (
    DECODE_ERRORS,
    INT32,
    MOST_ENTRIES,
    Meter,
    encode_length,
    encode_string,
    encode_tags,
    encode_uuid,
    malformed,
    read_count,
    read_string,
    read_tags,
    read_text,
    read_uuid,
    read_view,
    skip_tags,
    tag_ended,
)

FLEXIBLE_FROM: Final = 9
LEADERS_FROM: Final = 10
TOPIC_IDS_FROM: Final = 13
VERSIONS: Final = range(3, 14)
MOST_PRODUCE_ENTRIES: Final = 16_384
"""Limit of topics and partitions in a broker: by default, Kafka's clients send at most 12,000 batches in a request."""

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_RESPONSE: Final = struct.Struct(">ihqq")
_RESPONSE_WITH_START: Final = struct.Struct(">ihqqq")
_LEADER: Final = struct.Struct(">ii")
_NO_TAGS: Final = b"\x00"


class NodeEndpoint(NamedTuple):
    """The endpoint of a current leader (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


class ProduceTopic(NamedTuple):
    """Batches for one topic, whose name or id is None, depending on the version; items are `(partition, records)`."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: Sequence[tuple[int, Buffer | None]]


class DecodedTopic(NamedTuple):
    """A `ProduceTopic` whose records are views of the frame."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[tuple[int, memoryview | None]]


class ProduceRequest(NamedTuple):
    """A decoded request; `acks` is 0, 1 or -1 (all in-sync replicas)."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[DecodedTopic]


class RecordError(NamedTuple):
    """A record that caused its batch to be refused; `batch_index` is its position in the batch (KIP-467)."""

    batch_index: int
    message: str | None = None


class PartitionResponse(NamedTuple):
    """The result for one partition. `log_append_time` is in ms, -1 unless the broker sets timestamps."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None
    """`(leader id, leader epoch)`, sent with NOT_LEADER_OR_FOLLOWER."""


class TopicResponse(NamedTuple):
    """The results for one topic; depending on the version, its name or its id is None."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[PartitionResponse]


class ProduceResponse(NamedTuple):
    """A decoded response."""

    topics: list[TopicResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]


def decode_produce_request(
    version: int, frame: Buffer, offset: int = 0, *, meter: Meter | None = None
) -> ProduceRequest:
    """Decode the body at `offset`. Raises `MalformedMessageError`, also for more entries than `meter` allows."""
    view = memoryview(frame)
    flexible = version >= FLEXIBLE_FROM
    meter = meter or Meter(MOST_ENTRIES)
    try:
        transactional_id, offset = read_string(view, offset, flexible=flexible)
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(view, offset)
        count, offset = read_count(view, offset + _ACKS_AND_TIMEOUT.size, flexible=flexible)
        meter.take(count)
        topics = []
        for _ in range(count):
            topic, offset = _decode_topic(version, view, offset, meter)
            topics.append(topic)
        if flexible:
            skip_tags(view, offset, meter)
    except DECODE_ERRORS as error:
        raise malformed("Produce request", error) from error
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_topic(version: int, view: memoryview, offset: int, meter: Meter) -> tuple[DecodedTopic, int]:
    flexible = version >= FLEXIBLE_FROM
    name = topic_id = None
    if version >= TOPIC_IDS_FROM:
        topic_id, offset = read_uuid(view, offset)
    else:
        name, offset = read_text(view, offset, flexible=flexible)
    count, offset = read_count(view, offset, flexible=flexible)
    meter.take(count)
    partitions = []
    for _ in range(count):
        (partition,) = INT32.unpack_from(view, offset)
        records, offset = read_view(view, offset + 4, flexible=flexible)
        if flexible:
            offset = skip_tags(view, offset, meter)
        partitions.append((partition, records))
    return DecodedTopic(name, topic_id, partitions), skip_tags(view, offset, meter) if flexible else offset


def encode_produce_request(
    version: int,
    topics: Sequence[ProduceTopic],
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Encode the body as buffers to send in order; records are not copied."""
    flexible = version >= FLEXIBLE_FROM
    piece = bytearray(encode_string(transactional_id, flexible=flexible))
    piece += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    piece += encode_length(len(topics), flexible=flexible)
    pieces: list[Buffer] = []
    for name, topic_id, partitions in topics:
        piece += _encode_topic_name(version, name, topic_id)
        piece += encode_length(len(partitions), flexible=flexible)
        for partition, records in partitions:
            piece += INT32.pack(partition)
            piece += encode_length(-1 if records is None else len(records), flexible=flexible)
            if records:
                pieces += (piece, records)
                piece = bytearray()
            if flexible:
                piece.append(0)
        if flexible:
            piece.append(0)
    if flexible:
        piece.append(0)
    pieces.append(piece)
    return pieces


def encode_produce_response(
    version: int,
    topics: Sequence[TopicResponse],
    *,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode the body; fields that the version lacks are left out."""
    flexible = version >= FLEXIBLE_FROM
    body = bytearray(encode_length(len(topics), flexible=flexible))
    for name, topic_id, partitions in topics:
        body += _encode_topic_name(version, name, topic_id)
        body += encode_length(len(partitions), flexible=flexible)
        for response in partitions:
            _encode_partition(version, body, response)
        if flexible:
            body.append(0)
    body += INT32.pack(throttle_time_ms)
    if flexible:
        body += encode_node_endpoints(node_endpoints) if version >= LEADERS_FROM and node_endpoints else b"\x00"
    return bytes(body)


def _encode_partition(version: int, body: bytearray, response: PartitionResponse) -> None:
    partition, error_code, base_offset, log_append_time, log_start_offset, record_errors, message, leader = response
    if version < 5:
        body += _RESPONSE.pack(partition, error_code, base_offset, log_append_time)
        return
    body += _RESPONSE_WITH_START.pack(partition, error_code, base_offset, log_append_time, log_start_offset)
    if version < 8:
        return
    flexible = version >= FLEXIBLE_FROM
    body += encode_length(len(record_errors), flexible=flexible)
    for batch_index, text in record_errors:
        body += INT32.pack(batch_index)
        body += encode_string(text, flexible=flexible)
        if flexible:
            body.append(0)
    body += encode_string(message, flexible=flexible)
    if flexible:
        body += encode_tags([(0, _LEADER.pack(*leader) + _NO_TAGS)]) if leader and version >= LEADERS_FROM else b"\x00"


def decode_produce_response(version: int, frame: Buffer, offset: int = 0) -> ProduceResponse:
    """Decode the body at `offset`. Raises `MalformedMessageError`."""
    view = memoryview(frame)
    flexible = version >= FLEXIBLE_FROM
    endpoints: list[NodeEndpoint] = []
    try:
        count, offset = read_count(view, offset, flexible=flexible)
        topics = []
        for _ in range(count):
            topic, offset = _decode_topic_response(version, view, offset)
            topics.append(topic)
        (throttle_time_ms,) = INT32.unpack_from(view, offset)
        if flexible:
            tags, _ = read_tags(view, offset + 4, (0,))
            if 0 in tags and version >= LEADERS_FROM:
                endpoints = decode_node_endpoints(view, tags[0])
    except DECODE_ERRORS as error:
        raise malformed("Produce response", error) from error
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _decode_topic_response(version: int, view: memoryview, offset: int) -> tuple[TopicResponse, int]:
    flexible = version >= FLEXIBLE_FROM
    name = topic_id = None
    if version >= TOPIC_IDS_FROM:
        topic_id, offset = read_uuid(view, offset)
    else:
        name, offset = read_text(view, offset, flexible=flexible)
    count, offset = read_count(view, offset, flexible=flexible)
    partitions = []
    for _ in range(count):
        partition, offset = _decode_partition_response(version, view, offset)
        partitions.append(partition)
    return TopicResponse(name, topic_id, partitions), skip_tags(view, offset) if flexible else offset


def _decode_partition_response(version: int, view: memoryview, offset: int) -> tuple[PartitionResponse, int]:
    if version < 5:
        return PartitionResponse(*_RESPONSE.unpack_from(view, offset)), offset + _RESPONSE.size
    response = PartitionResponse(*_RESPONSE_WITH_START.unpack_from(view, offset))
    offset += _RESPONSE_WITH_START.size
    if version < 8:
        return response, offset
    flexible = version >= FLEXIBLE_FROM
    count, offset = read_count(view, offset, flexible=flexible)
    errors = []
    for _ in range(count):
        (batch_index,) = INT32.unpack_from(view, offset)
        text, offset = read_string(view, offset + 4, flexible=flexible)
        if flexible:
            offset = skip_tags(view, offset)
        errors.append(RecordError(batch_index, text))
    message, offset = read_string(view, offset, flexible=flexible)
    leader = None
    if flexible:
        tags, offset = read_tags(view, offset, (0,))
        leader = decode_pair(view, tags.get(0)) if version >= LEADERS_FROM else None
    if errors or message is not None or leader:
        response = response._replace(record_errors=errors, error_message=message, current_leader=leader)
    return response, offset


def decode_pair(
    view: memoryview, span: tuple[int, int] | None, layout: struct.Struct = _LEADER
) -> tuple[int, int] | None:
    """Return the two numbers of the tagged field in `span`; None if `span` is None."""
    if span is None:
        return None
    start, end = span
    first, second = layout.unpack_from(view, start)
    tag_ended(skip_tags(view, start + layout.size), end)
    return first, second


def encode_node_endpoints(endpoints: Iterable[NodeEndpoint]) -> bytes:
    """Encode the tagged fields of a Produce or Fetch response, with the endpoints as tag 0."""
    items = [
        INT32.pack(node_id)
        + encode_string(host, flexible=True)
        + INT32.pack(port)
        + encode_string(rack, flexible=True)
        + b"\x00"
        for node_id, host, port, rack in endpoints
    ]
    return encode_tags([(0, encode_length(len(items), flexible=True) + b"".join(items))])


def decode_node_endpoints(view: memoryview, span: tuple[int, int]) -> list[NodeEndpoint]:
    """Decode the endpoints in tag 0 of a response; `span` is the start and end of its bytes."""
    offset, end = span
    count, offset = read_count(view, offset, flexible=True)
    endpoints = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(view, offset)
        host, offset = read_text(view, offset + 4, flexible=True)
        (port,) = INT32.unpack_from(view, offset)
        rack, offset = read_string(view, offset + 4, flexible=True)
        offset = skip_tags(view, offset)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    tag_ended(offset, end)
    return endpoints


def _encode_topic_name(version: int, name: str | None, topic_id: uuid.UUID | None) -> bytes:
    if version >= TOPIC_IDS_FROM:
        return encode_uuid(topic_id)
    return encode_string(name or "", flexible=version >= FLEXIBLE_FROM)
