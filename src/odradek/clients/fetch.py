"""Fetch requests, with or without a session, and iteration over the readable batches of the responses.

Batches stay views of the response; only their headers are decoded here.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import ISOLATION_LEVELS
from odradek.clients.settings import ClientSettings
from odradek.model import Buffer, ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches, verify_crc
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError
from odradek.protocol.messages.fetch import TOPIC_IDS_FROM, FetchedPartition, FetchResponse, decode_fetch_response
from odradek.protocol.messages.fetch_session import FetchRequest, fetched_partitions
from odradek.protocol.messages.message_codec import encode_request
from odradek.wire.client_connection import ClientConnection


class FetchPosition(NamedTuple):
    """The offset from which to fetch a partition, and the maximum of bytes.

    `leader_epoch` is the leader's epoch in the client's metadata (KIP-320), -1 if unknown; `topic_id` None if unknown.
    """

    offset: int
    max_bytes: int
    leader_epoch: int = -1
    topic_id: uuid.UUID | None = None


class FetchLimits(Struct, frozen=True, kw_only=True):
    """Limits of a fetch: `fetch.max.wait.ms`, `fetch.min.bytes`, `fetch.max.bytes`, `isolation.level`.

    `rack` is `client.rack`, for which the leader may name a preferred read replica (KIP-392).
    """

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    isolation_level: str = "read_uncommitted"
    rack: str = ""


async def fetch(
    cluster: Cluster,
    connection: ClientConnection,
    positions: Mapping[TopicPartition, FetchPosition],
    limits: FetchLimits,
) -> dict[TopicPartition, FetchedPartition]:
    """Fetch from `positions` without a session; return each partition's response, which may have an error code.

    Leader epochs and topic ids come from the metadata. Raises `KafkaError` for an error of the whole response,
    `UnavailableError` without a response.
    """
    complete = {partition: _with_metadata(cluster, partition, each) for partition, each in positions.items()}
    uses_topic_ids = supports_topic_ids(connection, complete)
    response = await send_fetch(
        connection, FetchRequest(positions=complete, uses_topic_ids=uses_topic_ids), limits, cluster.settings
    )
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    return fetched_partitions(response, complete)


def supports_topic_ids(connection: ClientConnection, positions: Mapping[TopicPartition, FetchPosition]) -> bool:
    """Return whether the broker supports topic ids (KIP-516) and all `positions` have one."""
    return connection.version(ApiKey.FETCH) >= TOPIC_IDS_FROM and all(
        position.topic_id is not None for position in positions.values()
    )


async def send_fetch(
    connection: ClientConnection, request: FetchRequest[FetchPosition], limits: FetchLimits, settings: ClientSettings
) -> FetchResponse:
    """Send one Fetch and return the response, with its error codes. Raises `UnavailableError` without a response."""
    version, body = encode_fetch(connection, request, limits)
    timeout_ms = settings.request_timeout_ms + limits.max_wait_ms
    reply = await connection.exchange(ApiKey.FETCH, version, body, timeout_ms=timeout_ms)
    try:
        return decode_fetch_response(version, reply.frame, reply.offset)
    except MalformedMessageError as error:
        raise connection.malformed(ApiKey.FETCH, error) from error


def encode_fetch(
    connection: ClientConnection, request: FetchRequest[FetchPosition], limits: FetchLimits
) -> tuple[int, tuple[Buffer, ...]]:
    """Return the API version and the encoded body of a Fetch."""
    version = connection.version(ApiKey.FETCH, at_most=None if request.uses_topic_ids else TOPIC_IDS_FROM - 1)
    message = {
        "replica_id": -1,
        "max_wait": limits.max_wait_ms,
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "isolation_level": ISOLATION_LEVELS[limits.isolation_level],
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": _topics(request.positions),
        "forgotten_topics_data": _forgotten(request.forgotten),
        "rack_id": limits.rack,
    }
    return version, (encode_request(ApiKey.FETCH, version, message),)


def _with_metadata(cluster: Cluster, partition: TopicPartition, position: FetchPosition) -> FetchPosition:
    topic = cluster.metadata.topics.get(partition.topic)
    if topic is None or (known := topic.partitions.get(partition.partition)) is None:
        return position
    return position._replace(leader_epoch=known.leader_epoch, topic_id=topic.topic_id)


def _topics(positions: Mapping[TopicPartition, FetchPosition]) -> list[dict[str, Any]]:
    """Return the request's topics in the order of `positions`: `max_bytes` may leave the last ones without records."""
    topics: dict[str, list[dict[str, Any]]] = {}
    ids: dict[str, uuid.UUID | None] = {}
    for (topic, number), position in positions.items():
        ids[topic] = position.topic_id
        topics.setdefault(topic, []).append(
            {
                "partition": number,
                "current_leader_epoch": position.leader_epoch,
                "fetch_offset": position.offset,
                "partition_max_bytes": position.max_bytes,
                "replica_directory_id": None,
            }
        )
    return [{"topic": topic, "topic_id": ids[topic], "partitions": some} for topic, some in topics.items()]


def _forgotten(partitions: Mapping[TopicPartition, uuid.UUID | None]) -> list[dict[str, Any]]:
    topics: dict[tuple[str, uuid.UUID | None], list[int]] = {}
    for (topic, number), topic_id in partitions.items():
        topics.setdefault((topic, topic_id), []).append(number)
    return [
        {"topic": topic, "topic_id": topic_id, "partitions": numbers} for (topic, topic_id), numbers in topics.items()
    ]


def out_of_range(partition: TopicPartition, offset: int, answer: FetchedPartition) -> KafkaError:
    """Return an OFFSET_OUT_OF_RANGE error, with the log's first and end offset if the broker returned them."""
    ends = (answer.log_start_offset, answer.high_watermark)
    known = f"; it starts at {ends[0]} and ends at {ends[1]}" if min(ends) >= 0 else ""
    return KafkaError(
        ErrorCode.offset_out_of_range, f"partition {partition}: the log does not hold offset {offset}{known}"
    )


class CorruptRecordsError(KafkaError):
    """A batch of a partition cannot be read: its checksum or its records are wrong, whoever wrote them.

    The position stays at `offset`. Seek to `next_offset`, the offset after the batch, to skip it; None if its header
    cannot be read either.
    """

    def __init__(self, partition: TopicPartition, offset: int, next_offset: int | None, error: KafkaError) -> None:
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset if next_offset is None or next_offset > offset else offset + 1
        way = "" if self.next_offset is None else f"; seek to {self.next_offset} to skip the batch"
        super().__init__(error.code, f"partition {partition}, at offset {offset}: {error}{way}")


def readable_batches(
    records: memoryview, aborted: Sequence[tuple[int, int]] | None, *, check_crcs: bool
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield each whole batch as `(position, header, readable)`; control and aborted batches are not readable.

    `position` is an index of `records`. `aborted` has `(producer_id, first_offset)` of each aborted transaction, which
    ends at the producer's next marker. Raises `CorruptBatchError` if the first batch is corrupt; a later corrupt batch
    ends the iteration, so that the next fetch begins with it.
    """
    pending_aborts = sorted(aborted or (), key=lambda each: each[1], reverse=True)
    aborted_producers: set[int] = set()
    for position, header in _valid_batches(records, check_crcs=check_crcs):
        while pending_aborts and pending_aborts[-1][1] <= header.last_offset:
            aborted_producers.add(pending_aborts.pop()[0])
        if header.is_control:
            aborted_producers.discard(header.producer_id)
            yield position, header, False
        else:
            yield position, header, not (header.is_transactional and header.producer_id in aborted_producers)


def readable_runs(
    records: memoryview, aborted: Sequence[tuple[int, int]] | None, start: int, end: int, *, check_crcs: bool
) -> tuple[list[memoryview], int]:
    """Return the readable batches of `start` ≤ offset < `end` as contiguous buffers, and the offset to fetch next.

    Nothing is copied: the first batch may begin before `start`, the last one may end after `end`. Raises
    `CorruptBatchError` if the first batch is corrupt.
    """
    runs: list[memoryview] = []
    run_start = run_end = 0
    for position, header, readable in readable_batches(records, aborted, check_crcs=check_crcs):
        if header.base_offset >= end:
            start = end
            break
        is_before = header.next_offset <= start
        start = max(start, header.next_offset)
        if not readable or is_before:
            continue
        if position != run_end and run_end > run_start:
            runs.append(records[run_start:run_end])
        if position != run_end or run_end == run_start:
            run_start = position
        run_end = position + header.size
    if run_end > run_start:
        runs.append(records[run_start:run_end])
    return runs, start


def _valid_batches(records: memoryview, *, check_crcs: bool) -> Iterator[tuple[int, BatchHeader]]:
    is_first = True
    try:
        for position, header in iterate_batches(records):
            if check_crcs and not verify_crc(records, position, header):
                raise CorruptBatchError(
                    f"the batch at offset {header.base_offset} has a wrong checksum", next_offset=header.next_offset
                )
            yield position, header
            is_first = False
    except CorruptBatchError:
        if is_first:
            raise
