"""Measures which part of a log can be compacted, and whether compaction is due, by Kafka's rules.

The dirty part begins where the last compaction ended, and ends with the last finished, synced segment whose records
are stable and older than `min.compaction.lag.ms`. Compaction is due if the dirty share exceeds
`min.cleanable.dirty.ratio`, or a dirty segment is older than `max.compaction.lag.ms`.
"""

from msgspec import Struct

from odradek.broker.log.cleaner.compaction import CompactionPlan, LastBatch
from odradek.broker.log.log import Log
from odradek.broker.log.segments.offset_index import ENTRY as INDEX_ENTRY
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segment_swap import Source
from odradek.broker.log.segments.time_index import ENTRY as TIME_INDEX_ENTRY


class LogToClean(Struct, frozen=True, kw_only=True):
    """The clean and dirty part of one log, in `segments`.

    `delay_ms` is the time by which its oldest dirty segment exceeds `max.compaction.lag.ms`, or 0.
    """

    first_dirty_offset: int
    segments: list[Segment]
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int
    is_due: bool

    @property
    def ratio(self) -> float:
        """The share of dirty bytes, 0 for an empty log."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def measure(log: Log, cleaned_offset: int | None, *, stable_offset: int, now_ms: int) -> LogToClean:
    """Measure how dirty `log` is since `cleaned_offset`, the end of the last compaction or None. Raises `OSError`.

    `stable_offset` is the last stable offset.
    """
    config = log.config
    first_dirty = _first_dirty_offset(log, cleaned_offset)
    limit = min(stable_offset, log.written_offset, log.writer.recovery_point)
    segments = []
    oldest_ms = now_ms
    for segment in log.segments[:-1]:
        is_dirty = segment.next_offset > first_dirty
        is_young = is_dirty and segment.largest_timestamp > now_ms - config.min_compaction_lag_ms
        if (
            segment.next_offset > limit
            or segment.written_size < segment.size
            or (config.min_compaction_lag_ms and is_young)
        ):
            break
        if is_dirty and (begun_ms := segment.first_timestamp()) > 0:
            oldest_ms = min(oldest_ms, begun_ms)
        segments.append(segment)
    clean = sum(segment.size for segment in segments if segment.next_offset <= first_dirty)
    dirty = sum(segment.size for segment in segments) - clean
    delay_ms = max(now_ms - config.max_compaction_lag_ms - oldest_ms, 0)
    return LogToClean(
        first_dirty_offset=first_dirty,
        segments=segments,
        clean_bytes=clean,
        dirty_bytes=dirty,
        delay_ms=delay_ms,
        is_due=dirty > 0 and (delay_ms > 0 or dirty / (clean + dirty) > config.min_cleanable_dirty_ratio),
    )


def _first_dirty_offset(log: Log, cleaned_offset: int | None) -> int:
    if cleaned_offset is None or not log.log_start_offset <= cleaned_offset <= log.log_end_offset:
        return log.log_start_offset
    return cleaned_offset


def plan(log: Log, to_clean: LogToClean, *, now_ms: int, io_bytes: int) -> CompactionPlan:
    """Return the compaction plan for a log, with reads of `io_bytes`.

    Raises `OSError`, `LogStorageError` or `CorruptBatchError` if a file cannot be read.
    """
    first_dirty, segments = to_clean.first_dirty_offset, to_clean.segments
    holder = next(segment for segment in segments if segment.next_offset > first_dirty)
    return CompactionPlan(
        directory=log.directory,
        config=log.config,
        sources=[_source(segment, following) for segment, following in zip(segments, log.segments[1:], strict=False)],
        first_dirty_offset=first_dirty,
        first_position=holder.find(first_dirty),
        aborted=log.aborted_transactions(log.first_base_offset, segments[-1].next_offset),
        last_batches={
            producer_id: LastBatch(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in log.producers.entries.items()
        },
        now_ms=now_ms,
        io_bytes=io_bytes,
    )


def _source(segment: Segment, following: Segment) -> Source:
    return Source(
        base_offset=segment.base_offset,
        next_offset=following.base_offset,
        path=segment.log.path,
        size=segment.size,
        index_bytes=len(segment.offset_index.entries) * INDEX_ENTRY.size,
        time_index_bytes=len(segment.time_index.entries) * TIME_INDEX_ENTRY.size,
        last_append_ms=segment.last_append_ms,
    )
