"""Hand-written codec of Fetch responses, versions 4 to 18, which does not copy records.

Requests use the compiled codec.

Version notes: 5 adds `log_start_offset`, 7 sessions (KIP-227), 11 the preferred replica (KIP-392), 12 is flexible and
adds diverging epochs and the current leader (KIP-595), 13 topic ids instead of names (KIP-516), 16 endpoints
(KIP-951).
"""

import struct
import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.model import Buffer
from odradek.protocol.messages.produce import (
    NodeEndpoint,
    decode_node_endpoints,
    decode_pair,
    encode_node_endpoints,
)
from odradek.protocol.primitives import (
    DECODE_ERRORS,
    INT32,
    encode_length,
    encode_string,
    encode_tags,
    encode_uuid,
    malformed,
    read_count,
    read_tags,
    read_text,
    read_uuid,
    read_view,
    skip_tags,
)

FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
ENDPOINTS_FROM: Final = 16
VERSIONS: Final = range(4, 19)

_HEAD: Final = struct.Struct(">ihi")
_PARTITION: Final = struct.Struct(">ihqq")
_PARTITION_WITH_START: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_EPOCH_END: Final = struct.Struct(">iq")
_LEADER: Final = struct.Struct(">ii")
_SNAPSHOT: Final = struct.Struct(">qi")
_NO_TAGS: Final = b"\x00"


class FetchedPartition(NamedTuple):
    """One partition of a response. Fields that the version lacks have their defaults.

    `aborted_transactions` are `(producer_id, first_offset)`; None if the isolation level is read-uncommitted.
    `diverging_epoch` is `(epoch, end_offset)`, `current_leader` `(leader_id, leader_epoch)`, `snapshot_id`
    `(end_offset, epoch)`.
    """

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Buffer | None = b""
    diverging_epoch: tuple[int, int] | None = None
    current_leader: tuple[int, int] | None = None
    snapshot_id: tuple[int, int] | None = None


class FetchedTopic(NamedTuple):
    """One topic of a response; depending on the version, its name or its id is None."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    """A decoded response, whose records are views of the frame."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]
    node_endpoints: list[NodeEndpoint]


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """Encode the body as buffers to send in order; records are not copied."""
    flexible = version >= FLEXIBLE_FROM
    piece = bytearray(
        _HEAD.pack(throttle_time_ms, error_code, session_id) if version >= 7 else INT32.pack(throttle_time_ms)
    )
    piece += encode_length(len(topics), flexible=flexible)
    pieces: list[Buffer] = []
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_FROM:
            piece += encode_uuid(topic_id)
        else:
            piece += encode_string(name or "", flexible=flexible)
        piece += encode_length(len(partitions), flexible=flexible)
        for partition in partitions:
            _encode_partition(version, piece, partition)
            if partition.records:
                pieces += (piece, partition.records)
                piece = bytearray()
            if flexible:
                piece += _partition_tags(partition)
        if flexible:
            piece.append(0)
    if flexible:
        piece += encode_node_endpoints(node_endpoints) if version >= ENDPOINTS_FROM and node_endpoints else b"\x00"
    pieces.append(piece)
    return pieces


def _encode_partition(version: int, piece: bytearray, partition: FetchedPartition) -> None:
    """Append the partition's fields up to and including the length of the records."""
    flexible = version >= FLEXIBLE_FROM
    number, error_code, high_watermark, last_stable_offset, start, aborted, replica, records, *_ = partition
    if version >= 5:
        piece += _PARTITION_WITH_START.pack(number, error_code, high_watermark, last_stable_offset, start)
    else:
        piece += _PARTITION.pack(number, error_code, high_watermark, last_stable_offset)
    piece += encode_length(-1 if aborted is None else len(aborted), flexible=flexible)
    for producer_id, first_offset in aborted or ():
        piece += _ABORTED.pack(producer_id, first_offset)
        if flexible:
            piece.append(0)
    if version >= 11:
        piece += INT32.pack(replica)
    piece += encode_length(-1 if records is None else len(records), flexible=flexible)


def _partition_tags(partition: FetchedPartition) -> bytes:
    diverging, leader, snapshot = partition[-3:]
    if diverging is leader is snapshot is None:
        return b"\x00"
    tags = []
    if diverging is not None:
        tags.append((0, _EPOCH_END.pack(*diverging) + _NO_TAGS))
    if leader is not None:
        tags.append((1, _LEADER.pack(*leader) + _NO_TAGS))
    if snapshot is not None:
        tags.append((2, _SNAPSHOT.pack(*snapshot) + _NO_TAGS))
    return encode_tags(tags)


def decode_fetch_response(version: int, frame: Buffer, offset: int = 0) -> FetchResponse:
    """Decode the body at `offset`. Raises `MalformedMessageError`."""
    view = memoryview(frame)
    flexible = version >= FLEXIBLE_FROM
    error_code = session_id = 0
    endpoints: list[NodeEndpoint] = []
    try:
        if version >= 7:
            throttle_time_ms, error_code, session_id = _HEAD.unpack_from(view, offset)
            offset += _HEAD.size
        else:
            (throttle_time_ms,) = INT32.unpack_from(view, offset)
            offset += 4
        count, offset = read_count(view, offset, flexible=flexible)
        topics = []
        for _ in range(count):
            topic, offset = _decode_topic(version, view, offset)
            topics.append(topic)
        if flexible:
            tags, _ = read_tags(view, offset, (0,))
            if 0 in tags and version >= ENDPOINTS_FROM:
                endpoints = decode_node_endpoints(view, tags[0])
    except DECODE_ERRORS as error:
        raise malformed("Fetch response", error) from error
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _decode_topic(version: int, view: memoryview, offset: int) -> tuple[FetchedTopic, int]:
    flexible = version >= FLEXIBLE_FROM
    name = topic_id = None
    if version >= TOPIC_IDS_FROM:
        topic_id, offset = read_uuid(view, offset)
    else:
        name, offset = read_text(view, offset, flexible=flexible)
    count, offset = read_count(view, offset, flexible=flexible)
    partitions = []
    for _ in range(count):
        partition, offset = _decode_partition(version, view, offset)
        partitions.append(partition)
    return FetchedTopic(name, topic_id, partitions), skip_tags(view, offset) if flexible else offset


def _decode_partition(version: int, view: memoryview, offset: int) -> tuple[FetchedPartition, int]:
    flexible = version >= FLEXIBLE_FROM
    start, replica = -1, -1
    if version >= 5:
        number, error_code, high_watermark, last_stable_offset, start = _PARTITION_WITH_START.unpack_from(view, offset)
        offset += _PARTITION_WITH_START.size
    else:
        number, error_code, high_watermark, last_stable_offset = _PARTITION.unpack_from(view, offset)
        offset += _PARTITION.size
    count, offset = read_count(view, offset, flexible=flexible, nullable=True)
    aborted: list[tuple[int, int]] | None = None if count < 0 else []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(view, offset)
        offset += _ABORTED.size
        if flexible:
            offset = skip_tags(view, offset)
        if aborted is not None:
            aborted.append((producer_id, first_offset))
    if version >= 11:
        (replica,) = INT32.unpack_from(view, offset)
        offset += 4
    records, offset = read_view(view, offset, flexible=flexible)
    diverging = leader = snapshot = None
    if flexible:
        tags, offset = read_tags(view, offset, (0, 1, 2))
        if tags:
            diverging = decode_pair(view, tags.get(0), _EPOCH_END)
            leader = decode_pair(view, tags.get(1), _LEADER)
            snapshot = decode_pair(view, tags.get(2), _SNAPSHOT)
    return FetchedPartition(
        number,
        error_code,
        high_watermark,
        last_stable_offset,
        start,
        aborted,
        replica,
        records,
        diverging,
        leader,
        snapshot,
    ), offset
