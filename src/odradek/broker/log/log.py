"""`Log`, the log of one partition: append, read, find offsets by time, delete old segments, truncate.

```
append_as_leader   checks a batch, assigns its offset in place, keeps the buffer      log_end_offset   >=
write              one gathered write of all pending batches                          written_offset   >=
flush              a sync                                                             synced_offset
```
Only written batches can be read. `write` writes on the caller's thread. To write on another thread, call `begin_write`,
run its `WriteJob` there, then call `finish_write`: one job at a time, while appends go on. All other methods run on one
thread. The parts of a `Log` share a `LocalLog`: `LogAppender`, `LogWriter`, `LogReader` and `SegmentDeletion`.
"""

import logging
from collections.abc import Callable, Sequence

from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.durability import FlushJob
from odradek.broker.log.errors import DamagedFileError, LogStorageError, is_passing
from odradek.broker.log.local_log import LocalLog
from odradek.broker.log.log_appender import LogAppender
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.log_reader import LogReader
from odradek.broker.log.log_writer import LogWriter
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.producers.refused_batches import RefusedBatches
from odradek.broker.log.recovery.log_loader import TruncatedBytes, load
from odradek.broker.log.recovery.segment_damage import SuspectedSegments
from odradek.broker.log.recovery.segment_recovery import Watcher
from odradek.broker.log.segment_deletion import SegmentDeletion
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segment_swap import CleanedSegment
from odradek.broker.log.validation import AppendInfo
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.control_records import EndTransactionMarker
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")


class Log:
    """One partition's log on this broker. Methods raise `LogStorageError` if a file fails or the log has stopped."""

    def __init__(self, local: LocalLog, truncated: TruncatedBytes) -> None:
        self._local = local
        self._writer = LogWriter(local)
        self._appender = LogAppender(local, self._writer)
        self._deletion = SegmentDeletion(local, self._writer)
        self.truncated = truncated
        """Bytes that recovery removed when the log was opened."""
        self.suspected = SuspectedSegments(local.segments)
        self.reader = LogReader(local, self._writer, self.suspected)
        # Bound directly, to save a call for every request.
        self.append_as_leader = self._appender.append_as_leader
        self.begin_write = self._writer.begin_write
        self.finish_write = self._writer.finish_write
        self.read = self.reader.read

    @classmethod
    def open(
        cls,
        disk: Disk | FilePool,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        cleaned_offset: int = 0,
        watch: Watcher = lambda size: None,
    ) -> "Log":
        """Open the log in `directory`, created if missing; recover it unless it was closed `clean`.

        The offsets come from checkpoints. Recovery calls `watch` with the bytes of each read; an exception from `watch`
        ends it. A new directory is synced with the next flush.
        """
        pool = disk if isinstance(disk, FilePool) else FilePool(disk)
        try:
            loaded = load(
                pool,
                directory,
                config,
                now_ms=now_ms,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                cleaned_offset=cleaned_offset,
                watch=watch,
            )
        except OSError as error:
            message = f"Failed to open the log in {directory}: {error}"
            raise LogStorageError(message, is_passing=is_passing(error)) from error
        local = LocalLog(pool, directory, config, loaded, recovery_point=recovery_point, now_ms=now_ms)
        return cls(local, loaded.truncated)

    def set_listeners(
        self,
        *,
        on_failure: Callable[[Exception], None] | None = None,
        on_suspected: Callable[[Segment], bool] | None = None,
    ) -> None:
        """Set `on_failure`, called when the log stops or its disk fails, and `on_suspected`, which checks a segment."""
        self._writer.on_failure = on_failure
        self.suspected.on_suspected = on_suspected

    # ---- what the log is ----------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the log; read only."""
        return self._local.epochs

    @property
    def producers(self) -> ProducerState:
        """The idempotent producers and transactions; read only, except for `committed`."""
        return self._local.producers

    @property
    def refused(self) -> RefusedBatches:
        """Batches of idempotent producers that were refused with a retriable error."""
        return self._writer.refused

    @property
    def log_start_offset(self) -> int:
        return self._local.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record to be appended, after pending batches."""
        return self._local.log_end_offset

    @property
    def written_offset(self) -> int:
        """The end of the written batches; only records below can be read."""
        return self._local.written_offset

    @property
    def synced_offset(self) -> int:
        """The end of the synced batches, which survive a power failure."""
        return self._local.durability.synced_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which segments and indexes are synced; recovery starts here."""
        return self._local.durability.recovery_point

    @property
    def high_watermark(self) -> int:
        """The high watermark last passed to `producers.committed`, at most `written_offset`."""
        return self._local.high_watermark

    @property
    def last_flush_ms(self) -> int:
        """The time of the last flush of the active segment."""
        return self._local.durability.last_flush_ms

    @property
    def pending_bytes(self) -> int:
        """The bytes of appended batches that are not written yet."""
        return self._local.pending.size

    @property
    def size(self) -> int:
        """The bytes of all batches, including pending ones."""
        return self._local.segments.size

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in offset order, the active one last; read only."""
        return self._local.segments

    @property
    def segment_base_offsets(self) -> list[int]:
        return list(self._local.segments.bases)

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first segment; `log_start_offset` may be higher."""
        return self._local.first_base_offset

    @property
    def failure(self) -> str | None:
        """Why the log stopped; None while it runs."""
        return self._writer.failure

    @property
    def damage(self) -> DamagedFileError | None:
        return self.suspected.damage

    @property
    def may_be_damaged(self) -> bool:
        """Whether a segment is damaged or being checked."""
        return self.suspected.may_be_damaged

    # ---- appending and writing ----------------------------------------------------------------------------------

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction (see `LogAppender`)."""
        return self._appender.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> int:
        """Append batches fetched from the leader; return the number of appended bytes (see `LogAppender`)."""
        return self._appender.append_as_follower(records, now_ms=now_ms)

    def find_duplicate(self, batch: Buffer) -> AppendInfo | None:
        """Return the first append of an idempotent producer's `batch`; None if unknown, or if `batch` is damaged."""
        return self._appender.find_duplicate(batch)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Record that `leader_epoch` begins at the log end offset (KIP-101)."""
        self._appender.begin_epoch(leader_epoch)

    def write(self) -> None:
        """Write all pending batches on this thread."""
        job = self.begin_write()
        if job is not None:
            job.run()
            self.finish_write(job)

    def begin_flush(self, *, now_ms: int | None = None, include_active: bool = False) -> FlushJob | None:
        """Return a job that syncs written batches, None if there is nothing to sync now (see `LogWriter`)."""
        return self._writer.begin_flush(now_ms=now_ms, include_active=include_active)

    def finish_flush(self, job: FlushJob) -> None:
        """Record the offsets that `job` has synced."""
        self._writer.finish_flush(job)

    def flush(self) -> None:
        """Write and sync everything on this thread."""
        self.write()
        job = self.begin_flush(include_active=True)
        if job is not None:
            job.run()
            self.finish_flush(job)

    def sync_with_next_flush(self, path: str) -> None:
        self._local.durability.unsynced_paths.add(path)

    def halt(self, message: str) -> None:
        """Stop the log because its disk has failed; pending batches are lost."""
        self._writer.halt(message)

    def report_disk_failure(self, error: Exception) -> None:
        """Call `on_failure` if `error` shows that the disk has failed."""
        self._writer.report_disk_failure(error)

    # ---- truncation and retention -------------------------------------------------------------------------------

    def lower_recovery_point(self, offset: int) -> None:
        self._local.durability.recovery_point = min(self._local.durability.recovery_point, offset)

    def lower_high_watermark(self, offset: int) -> None:
        self.producers.committed(min(self.high_watermark, offset))

    def lower_log_start_offset(self, offset: int) -> None:
        self._local.lower_log_start_offset(offset)

    def truncate_to(self, offset: int) -> bool:
        """Remove all batches from `offset` on, also pending ones, and sync; return False if there were none.

        `offset` must not be below `first_base_offset`. A batch that contains it is removed whole. No write may be under
        way. Use `LogManager.truncate_to`, which writes checkpoints first.
        """
        local = self._local
        assert not self._writer.is_writing, "truncation waits for the writer thread"
        if offset >= local.log_end_offset and not local.needs_truncation:
            local.epochs.truncate_from_end(offset)  # an epoch without records may begin there
            return False
        try:
            local.truncate(min(offset, local.written_offset))
            local.segments.active.log.sync()
            local.pool.disk.sync_directory(local.directory)
        except OSError as error:
            self._writer.give_up(f"Failed to truncate {local.directory} to offset {offset}: {error}", error)
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove all records and begin an empty log at `offset`; synced on return.

        No write may be under way. Use `LogManager.truncate_fully_and_start_at`, which writes checkpoints first.
        """
        assert not self._writer.is_writing, "truncation waits for the writer thread"
        directory = self._local.directory
        try:
            self._local.truncate_fully_and_start_at(offset, now_ms)
        except OSError as error:
            self._writer.give_up(f"Failed to truncate {directory} and start at offset {offset}: {error}", error)
        _logger.info("%s: truncated fully, starts at offset %d", directory, offset)

    def advance_log_start_offset(self, offset: int, *, high_watermark: int | None = None) -> None:
        """Raise the log start offset to `offset` (DeleteRecords).

        Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the smaller of `high_watermark` and `written_offset`.
        """
        local = self._local
        end = local.committed_offset(high_watermark)
        if offset > end:
            raise KafkaError(ErrorCode.offset_out_of_range, f"offset {offset} is beyond the high watermark {end}")
        if offset > local.log_start_offset:
            local.log_start_offset = offset
            local.epochs.truncate_from_start(offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Delete the segments beyond the retention; return their number."""
        return self._deletion.delete_old_segments(now_ms, high_watermark=high_watermark)

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Replace segments by a compacted one (see `SegmentDeletion`)."""
        return self._deletion.replace_segments(cleaned, now_ms)

    def take_deleted_files(self, now_ms: int) -> list[str]:
        """Return files of deleted segments after `file.delete.delay.ms`, for the caller to remove."""
        return self._deletion.take_deleted_files(now_ms)

    def roll_for_compaction(self, now_ms: int) -> None:
        """Roll a compacted log's active segment if it is older than `max.compaction.lag.ms`. Raises `OSError`."""
        local = self._local
        active = local.segments.active
        if "compact" not in local.config.cleanup_policy or not active.size or not self._writer.is_whole:
            return
        if not 0 < active.first_timestamp() < now_ms - local.config.max_compaction_lag_ms:
            return
        if local.pending.size or self._writer.is_writing:
            local.roll(now_ms)
        else:
            active.finish()
            local.roll_empty(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Remove expired refusals and producers; return the number of removed producers."""
        self.refused.expire(now_ms)
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def update_config(self, config: LogConfig) -> None:
        self._local.config = config
        self._appender.update_config(config)
        self._local.segments.active.update_config(config)

    # ---- closing ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync everything, so that the next `open` may be `clean`. No job may be under way."""
        try:
            job = self.begin_close() if self.failure is None else None
            if job is not None:
                job.run()
                self.finish_flush(job)
        finally:
            self.abandon()

    def begin_close(self) -> FlushJob | None:
        """Write everything; return the job that syncs, None if nothing has changed since a clean shutdown."""
        return self._writer.begin_close()

    def close_files(self) -> None:
        """Close all file descriptors; the next use reopens them."""
        self._local.segments.close()

    def abandon(self) -> None:
        """Close all file descriptors without writing, as if the process were killed."""
        self._writer.abandon()
        self._local.segments.close()


__all__ = ["AppendInfo", "Log"]
