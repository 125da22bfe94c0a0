"""Fetches partitions from their leaders for `reader` and `simple_consumer`, with retries and a check of topic ids.

Callers keep offsets, so they could use the offsets of a deleted topic for a new topic of that name; the topic id
reveals that.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from odradek.clients.cluster import Cluster, ConnectionPurpose
from odradek.clients.fetch import FetchLimits, FetchPosition, fetch, out_of_range
from odradek.clients.offsets import EARLIEST, LATEST, list_offsets
from odradek.clients.retry import retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError, explained
from odradek.protocol.messages.fetch import FetchedPartition

_RANGE_TIMEOUT_MS = 5_000
"""The time limit for finding the log's first and end offset for an `OffsetOutOfRangeError`."""


class LeaderAnswer(NamedTuple):
    """A leader's response for a partition, and the topic's id in the metadata, None if unknown."""

    fetched: FetchedPartition
    topic_id: uuid.UUID | None


class OffsetOutOfRangeError(KafkaError):
    """The offset is not in the log, whose records have `beginning_offset` ≤ offset < `end_offset`."""

    def __init__(self, partition: TopicPartition, offset: int, beginning_offset: int, end_offset: int) -> None:
        self.beginning_offset = beginning_offset
        self.end_offset = end_offset
        known = FetchedPartition(partition.partition, log_start_offset=beginning_offset, high_watermark=end_offset)
        super().__init__(ErrorCode.offset_out_of_range, out_of_range(partition, offset, known).message)


class TopicRecreatedError(KafkaError):
    """The topic was deleted and created again, so that offsets of the old topic are meaningless."""

    retriable = False

    def __init__(self, topic: str, expected: uuid.UUID, found: uuid.UUID) -> None:
        super().__init__(
            ErrorCode.inconsistent_topic_id,
            f"topic {topic!r} was deleted and created again: its id was {expected} and is {found}; "
            "offsets of the old topic are of no use in the new one",
        )


async def fetch_from_leaders(
    cluster: Cluster,
    positions: Mapping[TopicPartition, FetchPosition],
    limits: FetchLimits,
    *,
    topic_ids: Mapping[str, uuid.UUID | None],
    purpose: ConnectionPurpose = ConnectionPurpose.DATA,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, LeaderAnswer]:
    """Fetch each partition once from its leader, retrying after retriable errors for `timeout_ms`.

    `topic_ids` has the expected topic ids by name, None or absent if unknown. Raises `TopicRecreatedError` for another
    id, `OffsetOutOfRangeError` (a plain `KafkaError` if ListOffsets fails), or another error of one partition.
    """
    found: dict[TopicPartition, LeaderAnswer] = {}

    async def attempt() -> None:
        by_leader: dict[int, dict[TopicPartition, FetchPosition]] = {}
        for partition, position in positions.items():
            if partition not in found:
                leader = await cluster.leader(partition, timeout_ms=timeout_ms)
                by_leader.setdefault(leader, {})[partition] = position
        answers = await asyncio.gather(
            *(_fetch(cluster, leader, some, limits, topic_ids, purpose) for leader, some in by_leader.items()),
            return_exceptions=True,
        )
        failures: list[BaseException] = [answer for answer in answers if isinstance(answer, BaseException)]
        for answer in answers:
            if not isinstance(answer, BaseException):
                for partition, one in answer.items():
                    if one.fetched.error_code:
                        failures.append(
                            await _error(cluster, partition, positions[partition].offset, one.fetched, limits)
                        )
                    else:
                        found[partition] = one
        if failures:
            # An error that is not retriable ends the retries.
            raise min(failures, key=lambda failure: getattr(failure, "retriable", False))

    await retrying(cluster, attempt, timeout_ms=timeout_ms)
    return {partition: found[partition] for partition in positions}


async def _fetch(
    cluster: Cluster,
    leader: int,
    positions: Mapping[TopicPartition, FetchPosition],
    limits: FetchLimits,
    topic_ids: Mapping[str, uuid.UUID | None],
    purpose: ConnectionPurpose,
) -> dict[TopicPartition, LeaderAnswer]:
    connection = await cluster.connections.to_broker(leader, purpose)
    # `fetch` reads the topic ids from the metadata before its first await, so it requests the ids checked here.
    known = {name: topic.topic_id for name, topic in cluster.metadata.topics.items()}
    for name in dict.fromkeys(partition.topic for partition in positions):
        check_topic_id(name, topic_ids.get(name), known.get(name))
    answer = await fetch(cluster, connection, positions, limits)
    missing = FetchedPartition(-1, error_code=ErrorCode.unknown_topic_or_partition.value)
    return {
        partition: LeaderAnswer(answer.get(partition, missing), known.get(partition.topic)) for partition in positions
    }


def check_topic_id(topic: str, expected: uuid.UUID | None, found: uuid.UUID | None) -> None:
    """Raise `TopicRecreatedError` if both ids are known and different; brokers before Kafka 2.8 have none."""
    if expected is not None and found is not None and expected != found:
        raise TopicRecreatedError(topic, expected, found)


async def _error(
    cluster: Cluster, partition: TopicPartition, offset: int, fetched: FetchedPartition, limits: FetchLimits
) -> KafkaError:
    code = ErrorCode(fetched.error_code)
    if code != ErrorCode.offset_out_of_range:
        return KafkaError(code, f"partition {partition}: {explained(code)}")
    try:
        beginning, end = [
            (await list_offsets(cluster, {partition: which}, timeout_ms=_RANGE_TIMEOUT_MS))[partition].offset
            for which in (EARLIEST, LATEST)
        ]
    except (KafkaError, UnavailableError):
        return out_of_range(partition, offset, fetched)
    if beginning <= offset <= end:
        # The leader or its log has changed since the response: retry.
        return KafkaError(ErrorCode.offset_not_available, f"partition {partition}: OFFSET_NOT_AVAILABLE")
    return OffsetOutOfRangeError(partition, offset, beginning, end)
