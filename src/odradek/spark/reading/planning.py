"""Plans reads: the next offsets, their limit, the split into tasks, and which records were lost. Pure.

Spark's checkpoint stores offsets as JSON in the shape of Spark's own Kafka connector, `{"topic":{"0":42}}`; each is
the *next* offset to read. Before a topic's first partition, the same number with a leading zero has the topic's id, as
a number (`{"topic":{"00":ID,"0":42}}`): of equal numbers Spark's connector takes the last one. Two kinds of offsets
carry more, under a key that no topic can have:

    {"@": "initial", "topic": …}                   returned by `initialOffset()`, never in the checkpoint
    {"@": {"start": {"topic": …}}, "topic": …}     the end of batch 0 or of a group's batch, with the batch's start

Spark does not store the initial offset: after a restart in batch 0 it calls `initialOffset()` again, and `latest` has
moved by then. So the end of batch 0 holds its start. Spark runs batch 0 even if there is nothing to read yet. In
checkpoints of the first builds batch 0 is empty and ends with `{"@": "anchor", "topic": …}`.
"""

import math
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.model import OdradekError, TopicPartition, first_names

Offsets = Mapping[TopicPartition, int]
"""The next offset to read, by partition."""

_MARK: Final = "@"
_INITIAL: Final = "initial"
_ANCHOR: Final = "anchor"
_START: Final = "start"

_ID_NUMBERS: Final = 2**63 - 1
"""Java's connector reads all numbers of a checkpoint as `long`."""

_TASKS: Final = 32
_FEW_OFFSETS: Final = 1_000
_MANY_OFFSETS: Final = 10_000
"""The limits of `group_ranges`; `docs/performance.md` has its figures."""


class DataLossError(OdradekError):
    """Records to read no longer exist, and `failOnDataLoss` is on."""


class StreamOffset(Struct, frozen=True, kw_only=True):
    """An offset of a streaming query: the position in every partition."""

    offsets: Offsets
    is_initial: bool = False
    start: Offsets | None = None
    """The start of the batch that ends here, in batch 0 and a group's batches; None means the previous batch's end."""
    topic_ids: Mapping[str, int] = {}
    """The ids of topics when the offsets were looked up; without those that no broker or another connector gave."""


class OffsetRange(Struct, frozen=True, kw_only=True):
    """A range of a partition's offsets; `end` is exclusive."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; compaction and transactions may leave fewer records."""
        return self.end - self.start


class Plan(Struct, frozen=True, kw_only=True):
    """Ranges to read, and a sentence for each loss of records."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[str, ...]


def encode_offset(offset: StreamOffset) -> dict[str, Any]:
    """Return JSON for the checkpoint, sorted, so that equal offsets are equal texts."""
    encoded = _encode_offsets(offset.offsets, offset.topic_ids)
    if offset.is_initial:
        return {_MARK: _INITIAL, **encoded}
    return encoded if offset.start is None else {_MARK: {_START: _encode_offsets(offset.start)}, **encoded}


def decode_offset(encoded: Mapping[str, Any]) -> StreamOffset:
    """Decode `encode_offset`'s JSON, or that of Spark's own connector. Raise `OdradekError` for anything else."""
    mark = encoded.get(_MARK)
    try:
        topics = {topic: partitions for topic, partitions in encoded.items() if topic != _MARK}
        offsets = _decode_offsets(topics)
        ids = {topic: each[key] for topic, each in topics.items() for key in each if _is_topic_id(key)}
        if mark is None or mark == _INITIAL:
            return StreamOffset(offsets=offsets, is_initial=mark is not None, topic_ids=ids)
        start = offsets if mark == _ANCHOR else _decode_offsets(mark[_START])
        return StreamOffset(offsets=offsets, start=start, topic_ids=ids)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise OdradekError(f"the checkpoint holds an offset that this source did not write: {error}") from None


def plan_batch(start: Offsets, end: Offsets, earliest: Offsets, latest: Offsets) -> Plan:
    """Return the ranges of a batch read, and its losses. All four arguments must have every partition."""
    ranges, losses = [], []
    for partition in sorted(end):
        log_end_offset = latest[partition]
        for what, offset in (("begin", start[partition]), ("end", end[partition])):
            if offset > log_end_offset:
                losses.append(
                    f"{partition} ends at offset {log_end_offset}, before {offset} where reading is to {what}"
                )
        wanted = OffsetRange(
            partition=partition, start=min(start[partition], log_end_offset), end=min(end[partition], log_end_offset)
        )
        some, lost = _remaining(wanted, earliest[partition])
        ranges.append(some)
        losses.extend(lost)
    return Plan(ranges=_non_empty(ranges), losses=tuple(losses))


def id_numbers(topic_ids: Mapping[str, uuid.UUID]) -> dict[str, int]:
    """Return topic ids as a checkpoint has them: numbers of 63 bits."""
    return {topic: topic_id.int % _ID_NUMBERS for topic, topic_id in topic_ids.items()}


def recreated_topics(topic_ids: Mapping[str, int], now: Mapping[str, int]) -> set[str]:
    """Return the topics whose id is now another one."""
    return {topic for topic, topic_id in topic_ids.items() if now.get(topic, topic_id) != topic_id}


def recreation_losses(topics: Iterable[str]) -> tuple[str, ...]:
    """Return a loss for each of `recreated_topics`."""
    text = (
        "was deleted and created again: unread records of the old one are lost, the new one is read from its beginning"
    )
    return tuple(f"topic {topic} {text}" for topic in sorted(topics))


def without_topics(offsets: Offsets, topics: Collection[str]) -> Offsets:
    return {partition: offset for partition, offset in offsets.items() if partition.topic not in topics}


def plan_micro_batch(start: Offsets, end: Offsets, earliest: Offsets) -> Plan:
    """Return the ranges between two offsets of a stream.

    A partition missing in `start` was added. It is read from its log start offset, which is a loss unless it is 0. A
    loss is also a partition that is missing in `end` or `earliest` (deleted), that ends before its start, or whose log
    start offset is after its start. `earliest` has the log start offset of every partition of `end` that still exists.
    """
    ranges, losses = [], []
    gone = sorted(set(start) - set(end))
    if gone:
        losses.append(f"{first_names(gone)} {_is_or_are(gone)} gone, with all that was not yet read")
    for partition in sorted(end):
        if partition not in earliest:
            losses.append(f"{partition} was deleted before offsets up to {end[partition]} were read")
            continue
        if partition not in start:
            if earliest[partition] > 0:
                losses.append(f"{partition} was added and begins at offset {earliest[partition]}, not at 0")
            ranges.append(OffsetRange(partition=partition, start=earliest[partition], end=end[partition]))
            continue
        if end[partition] < start[partition]:
            losses.append(
                f"{partition} ends at offset {end[partition]}, before {start[partition]} where reading stopped: "
                "it was deleted and created again, or lost its tail"
            )
            continue
        some, lost = _remaining(
            OffsetRange(partition=partition, start=start[partition], end=end[partition]), earliest[partition]
        )
        ranges.append(some)
        losses.extend(lost)
    return Plan(ranges=_non_empty(ranges), losses=tuple(losses))


def limit_offsets(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Return the end of a batch of about `limit` offsets, divided in proportion to each partition's backlog.

    As in the JVM connector, a share below 1 counts as 1, so that small partitions progress; other shares are rounded
    down. A partition missing in `start` is not limited.
    """
    backlogs = {partition: end[partition] - start[partition] for partition in end if partition in start}
    total = sum(backlog for backlog in backlogs.values() if backlog > 0)
    if total <= limit:
        return dict(end)
    limited = dict(end)
    for partition, backlog in backlogs.items():
        if backlog > 0:
            share = limit * backlog / total
            limited[partition] = start[partition] + min(backlog, 1 if share < 1 else math.floor(share))
    return limited


def split_ranges(
    ranges: Sequence[OffsetRange], *, min_partitions: int | None, max_records_per_partition: int | None
) -> list[OffsetRange]:
    """Split ranges into about `min_partitions`, none longer than `max_records_per_partition`.

    With neither, all ranges stay whole. A range whose share of `min_partitions` rounds to at most one piece stays
    whole; the others divide the remaining pieces by size.
    """
    pieces = list(ranges)
    if max_records_per_partition is not None:
        pieces = [
            piece
            for range_ in pieces
            for piece in _cut(range_, math.ceil(range_.size / max_records_per_partition) if range_.size else 1)
        ]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    whole = {piece for piece in pieces if _parts(piece.size, total, min_partitions) == 1}
    total_of_others = total - sum(piece.size for piece in whole)
    parts_for_others = max(min_partitions - len(whole), 1)
    return [
        part
        for piece in pieces
        for part in _cut(piece, 1 if piece in whole else _parts(piece.size, total_of_others, parts_for_others))
    ]


def group_ranges(ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task: small neighbouring ranges share one.

    A task costs about as much as 10,000 records, and more tasks than cores gain nothing. So ranges share a task if they
    have together at most a 32nd of all offsets; this limit is at least 1,000 and at most 10,000 offsets.
    """
    most = min(max(sum(each.size for each in ranges) // _TASKS, _FEW_OFFSETS), _MANY_OFFSETS)
    groups: list[tuple[OffsetRange, ...]] = []
    size = 0
    for each in ranges:
        if groups and size + each.size <= most:
            groups[-1] += (each,)
            size += each.size
        else:
            groups.append((each,))
            size = each.size
    return groups


def advance(start: StreamOffset, end: Offsets) -> StreamOffset:
    """Return the next offset of a query, or `start` itself if nothing is new, so that Spark starts no batch.

    After the initial offset always return a new one: the end of batch 0 stores where the query begins.
    """
    if start.is_initial:
        return StreamOffset(offsets=end, start=start.offsets)
    return start if dict(start.offsets) == dict(end) else StreamOffset(offsets=end)


def cap_offsets(end: Offsets, target: Offsets) -> dict[TopicPartition, int]:
    """Return `end` limited to `target`, without later records and partitions (AvailableNow)."""
    return {partition: min(offset, target[partition]) for partition, offset in end.items() if partition in target}


def raise_target(target: Offsets, start: Offsets) -> dict[TopicPartition, int]:
    """Return `target` raised to at least `start`, which is newer with `startingOffsets=latest` (AvailableNow)."""
    return {**target, **{partition: max(offset, target.get(partition, offset)) for partition, offset in start.items()}}


def missing_partitions(given: Collection[TopicPartition], existing: Iterable[TopicPartition]) -> str | None:
    """Return why a user's offsets do not fit the partitions to read, or None if they do."""
    existing = set(existing)
    unnamed, unknown = sorted(existing - set(given)), sorted(set(given) - existing)
    if unnamed:
        return f"every partition needs an entry, and {first_names(unnamed)} {_is_or_are(unnamed, 'has', 'have')} none"
    if unknown:
        return f"{first_names(unknown)} {_is_or_are(unknown)} not among the partitions that are read"
    return None


def _encode_offsets(offsets: Offsets, topic_ids: Mapping[str, int] = {}) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for topic, number in sorted(offsets):
        if topic not in encoded:
            encoded[topic] = {f"0{number}": topic_ids[topic]} if topic in topic_ids else {}
        encoded[topic][str(number)] = offsets[TopicPartition(topic, number)]
    return encoded


def _is_topic_id(number: str) -> bool:
    return len(number) > 1 and number.startswith("0")


def _decode_offsets(encoded: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(number)): int(value)
        for topic, partitions in encoded.items()
        for number, value in partitions.items()
        if not _is_topic_id(number)
    }


def _remaining(wanted: OffsetRange, log_start_offset: int) -> tuple[OffsetRange, list[str]]:
    if log_start_offset <= wanted.start or wanted.size <= 0:
        return wanted, []
    start = min(log_start_offset, wanted.end)
    loss = f"offsets {wanted.start} to {start - 1} of {wanted.partition} were deleted before they were read"
    return replace(wanted, start=start), [loss]


def _non_empty(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    return tuple(range_ for range_ in ranges if range_.size > 0)


def _parts(size: int, total: int, parts: int) -> int:
    """Return how many of `parts` pieces a range of `size` out of `total` gets, at least 1; half rounds up."""
    return max(1, math.floor(parts * size / total + 0.5)) if total else 1


def _cut(range_: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return at most `parts` pieces in order, whose sizes differ by at most one."""
    parts = max(1, min(parts, range_.size))
    edges = [range_.start + range_.size * number // parts for number in range(parts + 1)]
    return [replace(range_, start=start, end=end) for start, end in pairwise(edges)]


def _is_or_are(partitions: Sequence[TopicPartition], one: str = "is", more: str = "are") -> str:
    return one if len(partitions) == 1 else more
