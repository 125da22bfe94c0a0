"""The state shared by the parts of a log: segments, offsets, leader epochs, producers, pending batches.

Methods raise `OSError`; `LogWriter` decides whether the log then stops.
"""

from contextlib import suppress

from odradek.broker.log.durability import Durability
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import LOG, SNAPSHOT, offset_file
from odradek.broker.log.pending_writes import PendingWrites
from odradek.broker.log.producers.producer_snapshot import encode_snapshot
from odradek.broker.log.recovery.log_loader import (
    LoadedLog,
    create_segment,
    load_producers,
    remove_segment_files,
    remove_snapshots,
)
from odradek.broker.log.segments.open_files import FilePool, write_file
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segments import Segments


class LocalLog:
    """The state shared by the parts of one log.

    `log_start_offset` is the first readable offset, `log_end_offset` the next to be appended, `written_offset` the end
    of readable records. With `needs_truncation` lost batches are still in segments, epochs and producers.
    """

    __slots__ = (
        "config",
        "directory",
        "durability",
        "epochs",
        "last_append_ms",
        "log_end_offset",
        "log_start_offset",
        "needs_truncation",
        "pending",
        "pool",
        "producers",
        "segments",
        "written_offset",
    )

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        self.pool = pool
        self.directory = directory
        self.config = config
        self.segments = Segments(loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.written_offset = end = self.segments.active.next_offset
        self.pending = PendingWrites()
        self.durability = Durability(
            pool.disk,
            directory,
            closed_at=end if loaded.is_clean else None,
            synced_offset=end if loaded.is_clean else min(recovery_point, end),
            recovery_point=end if loaded.is_clean else min(recovery_point, self.segments.active.base_offset),
            now_ms=now_ms,
        )
        self.needs_truncation = False
        self.last_append_ms = 0

    @property
    def high_watermark(self) -> int:
        """The high watermark last passed to `producers.committed`, at most `written_offset`."""
        return min(self.producers.high_watermark, self.written_offset)

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first segment; `log_start_offset` may be higher."""
        return self.segments.bases[0]

    def committed_offset(self, high_watermark: int | None) -> int:
        """Return the smaller of `high_watermark` and `written_offset`; `written_offset` for None."""
        return self.written_offset if high_watermark is None else min(high_watermark, self.written_offset)

    def add_pending(
        self, batch: memoryview, first: int, last: int, timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Add a checked batch with the offsets `first` to `last` to the pending batches."""
        size = len(batch)
        if not self.config.discard_writes:
            segment = self.segments.active
            if segment.must_roll(size, last, timestamp, now_ms):
                segment = self.roll(now_ms)
            segment.add(first, last, size, timestamp, now_ms)
        pending = self.pending
        pending.buffers.append(batch)
        pending.size += size
        self.log_end_offset = last + 1
        self.last_append_ms = now_ms
        if leader_epoch > self.epochs.recorded:
            self.epochs.assign(leader_epoch, first)

    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the log end offset; the first write creates its file."""
        old = self.segments.active
        old.finish()
        segment = Segment(self.pool, self.directory, self.log_end_offset, self.config, now_ms=now_ms)
        self.segments.add(segment)
        self.pending.roll(old, segment, encode_snapshot(self.producers))
        return segment

    def roll_empty(self, now_ms: int) -> None:
        """Begin a new segment and create its file, which keeps the log end offset if all other segments are deleted.

        The log is unchanged after an `OSError`.
        """
        assert not self.pending.size, "a segment with pending batches cannot be deleted"
        end = self.log_end_offset
        write_file(self.pool.disk, offset_file(self.directory, end, SNAPSHOT), encode_snapshot(self.producers))
        self.durability.unsynced_paths.add(self.directory)
        try:
            segment = create_segment(self.pool, self.directory, end, self.config, now_ms=now_ms)
        except OSError:
            # Appends go on in the old segment, whose offsets would overlap this file at the next start.
            with suppress(OSError):
                self.pool.disk.remove(offset_file(self.directory, end, LOG))
            raise
        self.segments.add(segment)

    def lower_log_start_offset(self, offset: int) -> None:
        self.log_start_offset = min(self.log_start_offset, offset)

    def drop_pending(self, end_offset: int) -> None:
        """Drop the pending batches; the log then ends at `end_offset`."""
        self.pending.clear()
        self.log_end_offset = end_offset

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on (at least `first_base_offset`). If an error is raised, call again."""
        assert offset >= self.first_base_offset, "a log that begins later is truncated fully"
        self.pending.clear()
        self.needs_truncation = True
        self.log_end_offset = self.written_offset = offset
        while len(self.segments) > 1 and self.segments.active.base_offset >= offset:
            remove_segment_files(self.pool, self.segments.active)
            self.segments.drop_from(self.segments.active.base_offset)
        active = self.segments.active
        self.durability.truncate(offset, active)
        active.truncate(offset)
        self.lower_log_start_offset(offset)
        self.epochs.truncate_from_end(offset)
        remove_snapshots(self.pool, self.directory, after=offset)
        self._reload_producers(offset)
        self.needs_truncation = False

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove everything and begin an empty segment at `offset`; synced on return."""
        self.pending.clear()
        for segment in reversed(self.segments):
            remove_segment_files(self.pool, segment)
        remove_snapshots(self.pool, self.directory, after=-1)
        segment = create_segment(self.pool, self.directory, offset, self.config, now_ms=now_ms)
        self.segments.replace(0, len(self.segments), [segment])
        self.durability.truncate(offset, segment)
        self.epochs.truncate_from_end(-1)
        self._reload_producers(offset)
        self.log_start_offset = self.log_end_offset = self.written_offset = offset
        self.needs_truncation = False
        self.pool.disk.sync_directory(self.directory)

    def _reload_producers(self, offset: int) -> None:
        committed = min(self.producers.high_watermark, offset)
        self.producers = load_producers(self.pool, self.directory, self.segments)
        self.producers.committed(committed)
