"""Deletion of segments by retention, and their replacement by a compacted one.

Files are renamed to `*.deleted` and removed after `file.delete.delay.ms`, because a reader may have them open.
"""

import logging
from collections.abc import Sequence
from contextlib import closing

from odradek.broker.log.errors import is_passing
from odradek.broker.log.local_log import LocalLog
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.log_writer import LogWriter
from odradek.broker.log.names import CLEANED, DELETED, SNAPSHOT, offset_file
from odradek.broker.log.recovery.log_loader import remove_snapshots
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segment_swap import CleanedSegment, swap
from odradek.broker.log.segments.segments import Segments
from odradek.runtime import Disk
from odradek.runtime.shortages import is_out_of_descriptors

_logger = logging.getLogger("odradek.log")


class SegmentDeletion:
    """Deletes and replaces segments of one log. After a `LogStorageError` the log has stopped."""

    __slots__ = ("_files", "_local", "_writer")

    def __init__(self, local: LocalLog, writer: LogWriter) -> None:
        self._local = local
        self._writer = writer
        self._files = DeletedFiles()

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Delete the segments selected by `count_expired`; return their number."""
        local = self._local
        if not self._writer.is_whole or local.config.discard_writes:
            return 0
        count = count_expired(
            local.segments,
            local.config,
            now_ms=now_ms,
            committed_offset=local.committed_offset(high_watermark),
            log_start_offset=local.log_start_offset,
        )
        if not count:
            return 0
        try:
            if count == len(local.segments) and not self._has_rolled(now_ms):
                count -= 1
            expired = local.segments.drop_first(count)
            local.log_start_offset = max(local.log_start_offset, local.first_base_offset)
            local.epochs.truncate_from_start(local.log_start_offset)
            self._files.add(local.pool.disk, expired, now_ms + local.config.file_delete_delay_ms)
            self._remove_old_snapshots()
        except OSError as error:
            self._writer.stop(f"Failed to delete old segments of {local.directory}: {error}", error)
        if count:
            start = local.first_base_offset
            _logger.info("%s: retention deleted %d segments, up to offset %d", local.directory, count, start)
        return count

    def _has_rolled(self, now_ms: int) -> bool:
        """Roll to an empty segment; return False after a passing error."""
        try:
            self._local.roll_empty(now_ms)
        except OSError as error:
            if not is_passing(error):
                raise
            return False
        return True

    def _remove_old_snapshots(self) -> None:
        local = self._local
        try:
            remove_snapshots(local.pool, local.directory, before=local.first_base_offset)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            _logger.warning("Failed to remove old snapshots of %s, will retry: %s", local.directory, error)

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Replace the sources of `cleaned`; return False if they, or `cleaned`, have changed.

        Raises `OSError` if resources are short; nothing is replaced then. Raises `LogStorageError` if the log stops.
        """
        local, sources = self._local, cleaned.sources
        first = local.segments.find(sources[0].base_offset)
        old = local.segments[first : first + len(sources)]
        if self._writer.failure is not None or local.segments.active in old:
            return False
        if [(each.base_offset, each.size) for each in old] != [(each.base_offset, each.size) for each in sources]:
            return False
        base_offset, due_ms = old[0].base_offset, now_ms + local.config.file_delete_delay_ms
        times = self._times_of_cleaned(base_offset)
        if times is None:
            return False
        disk = local.pool.disk
        try:
            swap(disk, local.directory, base_offset, lambda: self._files.add(disk, old, due_ms))
            for path in [offset_file(local.directory, each.base_offset, SNAPSHOT) for each in old[1:]]:
                if disk.exists(path):
                    disk.remove(path)
            segment = Segment.open(
                local.pool, local.directory, base_offset, local.config, now_ms=sources[-1].last_append_ms
            )
            segment.load_finished(sources[-1].next_offset, times)
        except OSError as error:
            self._writer.stop(f"Failed to swap in compacted segments of {local.directory}: {error}", error)
        local.durability.unsynced_paths.add(local.directory)
        local.segments.replace(first, len(old), [segment])
        return True

    def _times_of_cleaned(self, base_offset: int) -> tuple[int, int] | None:
        local = self._local
        try:
            with closing(
                Segment.open(local.pool, local.directory, base_offset, local.config, now_ms=0, suffix=CLEANED)
            ) as cleaned:
                return cleaned.time_index.last_entry()
        except FileNotFoundError:
            return None  # another compaction of the log has removed it; it is not part of the log yet
        except OSError as error:
            if is_passing(error):
                raise
            self._writer.stop(f"Failed to swap in compacted segments of {local.directory}: {error}", error)

    def take_deleted_files(self, now_ms: int) -> list[str]:
        """Return files of deleted segments after `file.delete.delay.ms`, for the caller to remove."""
        return self._files.take_due(now_ms)


class DeletedFiles:
    """The renamed files of deleted segments until they are removed."""

    def __init__(self) -> None:
        self._files: list[tuple[int, str]] = []

    def add(self, disk: Disk, segments: Sequence[Segment], due_ms: int) -> None:
        """Rename the files of deleted segments, to be removed at `due_ms`. Raises `OSError`."""
        for segment in segments:
            segment.close()
            for path in segment.paths:
                if disk.exists(path):
                    disk.rename(path, path + DELETED)
                    self._files.append((due_ms, path + DELETED))

    def take_due(self, now_ms: int) -> list[str]:
        """Return the files whose `due_ms` has passed, for the caller to remove."""
        due = [path for due_ms, path in self._files if due_ms <= now_ms]
        self._files = [(due_ms, path) for due_ms, path in self._files if due_ms > now_ms]
        return due


def count_expired(
    segments: Segments, config: LogConfig, *, now_ms: int, committed_offset: int, log_start_offset: int
) -> int:
    """Return the number of segments to delete; the next segment, if any, has a file, which keeps the log end offset."""
    by_policy = "delete" in config.cleanup_policy
    excess = segments.size - config.retention_bytes
    count = 0
    for segment in segments:
        is_empty_end = segment is segments.active and not segment.size
        if is_empty_end or segment.next_offset > committed_offset or segment.written_size < segment.size:
            break
        too_large = by_policy and config.retention_bytes >= 0 and excess >= segment.size
        too_old = by_policy and _is_too_old(segment, config.retention_ms, now_ms)
        if not (too_large or too_old or segment.next_offset <= log_start_offset):
            break
        excess -= segment.size
        count += 1
    while 0 < count < len(segments) and not segments[count].is_created:
        count -= 1
    return count


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    """Return whether the latest record is too old, after confirming its indexed timestamp."""
    if retention_ms < 0 or now_ms - segment.largest_timestamp <= retention_ms:
        return False
    segment.confirm_times()
    return now_ms - segment.largest_timestamp > retention_ms
