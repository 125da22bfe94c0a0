"""One fetch request, and iteration over the readable batches of its response.

Records stay views of the response frame; only batch headers are decoded here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.offsets import ISOLATION_LEVELS, by_topic
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.values import dataclass
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError
from odradek.protocol.fetch import TOPIC_IDS_FROM, FetchedPartition, decode_fetch_response
from odradek.protocol.messages import encode_request
from odradek.protocol.record_batch import BatchHeader, iterate_batches, verify_crc
from odradek.wire.client_connection import ClientConnection

_NO_SESSION: Final = {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": ()}


class FetchPosition(NamedTuple):
    """The offset to fetch a partition from, and the maximum of bytes."""

    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Limits of a fetch: `fetch.max.wait.ms`, `fetch.min.bytes`, `fetch.max.bytes`, `isolation.level`."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    isolation_level: str = "read_uncommitted"


async def fetch(
    cluster: Cluster,
    connection: ClientConnection,
    positions: Mapping[TopicPartition, FetchPosition],
    limits: FetchLimits,
) -> dict[TopicPartition, FetchedPartition]:
    """Fetch from `positions`; errors of partitions are part of the result.

    Raises `KafkaError` for an error of the whole response, `UnavailableError` without a response.
    """
    metadata = cluster.metadata
    topic_ids = {topic: metadata.topics[topic].topic_id for topic, _ in by_topic(positions) if topic in metadata.topics}
    named = any(topic_ids.get(partition.topic) is None for partition in positions)
    version = connection.version(ApiKey.FETCH, at_most=TOPIC_IDS_FROM - 1 if named else None)
    topics = [
        {
            "topic": topic,
            "topic_id": topic_ids.get(topic),
            "partitions": [_position(cluster, partition, positions[partition]) for partition in some],
        }
        for topic, some in by_topic(positions)
    ]
    message = _NO_SESSION | {
        "replica_id": -1,
        "max_wait": limits.max_wait_ms,
        "min_bytes": limits.min_bytes,
        "max_bytes": limits.max_bytes,
        "isolation_level": ISOLATION_LEVELS[limits.isolation_level],
        "topics": topics,
    }
    body = encode_request(ApiKey.FETCH, version, message)
    timeout_ms = cluster.settings.request_timeout_ms + limits.max_wait_ms
    reply = await connection.exchange(ApiKey.FETCH, version, (body,), timeout_ms=timeout_ms)
    try:
        response = decode_fetch_response(version, reply.frame, reply.offset)
    except MalformedMessageError as error:
        raise connection.malformed(ApiKey.FETCH, error) from error
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    return {
        TopicPartition(topic.name or names[topic.topic_id], partition.partition): partition
        for topic in response.topics
        if topic.name or topic.topic_id in names
        for partition in topic.partitions
    }


def _position(cluster: Cluster, partition: TopicPartition, position: FetchPosition) -> dict[str, int | None]:
    known = cluster.metadata.partition(partition)
    return {
        "partition": partition.partition,
        "current_leader_epoch": known.leader_epoch if known is not None else -1,
        "fetch_offset": position.offset,
        "partition_max_bytes": position.max_bytes,
        "replica_directory_id": None,
    }


def out_of_range(partition: TopicPartition, offset: int, answer: FetchedPartition) -> KafkaError:
    """Return the error of an offset out of range, with the log's first and last offset if the broker returned them."""
    ends = (answer.log_start_offset, answer.high_watermark)
    known = f"; it starts at {ends[0]} and ends at {ends[1]}" if min(ends) >= 0 else ""
    return KafkaError(
        ErrorCode.offset_out_of_range, f"partition {partition}: the log does not hold offset {offset}{known}"
    )


def readable_batches(
    records: memoryview, aborted: Sequence[tuple[int, int]] | None, *, check_crcs: bool
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Yield `(position, header, readable)` of each whole batch; markers and aborted transactions are not readable.

    `aborted` is the response's `(producer_id, first_offset)`; such a transaction ends at its producer's next marker.
    Raises `CorruptBatchError` if the first batch is damaged. A later damaged batch ends the iteration: the next fetch
    starts with it, and the broker checks it too.
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
    """Return the readable batches of `start` ≤ offset < `end` as contiguous buffers, and the offset after all batches.

    Nothing is copied: the first batch may begin before `start`, the last one may end after `end`. Raises
    `CorruptBatchError` if the first batch is damaged.
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
                raise CorruptBatchError(f"the batch at offset {header.base_offset} has a wrong checksum")
            yield position, header
            is_first = False
    except CorruptBatchError:
        if is_first:
            raise
