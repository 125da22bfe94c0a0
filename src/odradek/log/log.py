"""One partition's log: append, read, look up, retain, truncate.

```
append      checks a batch, assigns its offset in place, keeps the buffer      log_end_offset   >=
write       one gathered write of all pending batches                          written_offset   >=
flush       a sync                                                             synced_offset
```
Only what is written can be read. `write` writes at once; `begin_write`, `WriteJob.run` on a writer thread and
`finish_write` do it off the event loop, one job at a time, while appends go on. Everything else runs on one thread.

A `Log` is made of objects that share a `LocalLog`: `LogAppender`, `LogWriter`, `LogReader` and `SegmentDeletion`.
"""

import logging
from collections.abc import Callable, Sequence

from odradek.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.log.durability import FlushJob
from odradek.log.errors import DamagedFileError, LogStorageError, is_passing
from odradek.log.local_log import LocalLog
from odradek.log.log_appender import LogAppender
from odradek.log.log_config import LogConfig
from odradek.log.log_reader import LogReader
from odradek.log.log_writer import LogWriter
from odradek.log.producers.producer_state import ProducerState
from odradek.log.producers.refused_batches import RefusedBatches
from odradek.log.recovery.log_loader import TruncatedBytes, load
from odradek.log.recovery.segment_damage import SuspectedSegments
from odradek.log.recovery.segment_recovery import Watcher
from odradek.log.segment_deletion import SegmentDeletion
from odradek.log.segments.open_files import FilePool
from odradek.log.segments.segment import Segment
from odradek.log.segments.segment_swap import CleanedSegment
from odradek.log.validation import AppendInfo
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.control_records import EndTransactionMarker
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")


class Log:
    """One partition's log on this broker. Methods raise `LogStorageError` (see `log_writer`)."""

    def __init__(self, local: LocalLog, truncated: TruncatedBytes) -> None:
        self._local = local
        self._writer = LogWriter(local)
        self._appender = LogAppender(local, self._writer)
        self._deletion = SegmentDeletion(local, self._writer)
        self.truncated = truncated
        """Bytes that recovery removed when the log was opened."""
        self.suspected = SuspectedSegments(local.segments)
        self.reader = LogReader(local, self._writer, self.suspected)
        # Called for every request, so without another call between.
        self.append = self._appender.append
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
        """Open the log in `directory`, which is created if it does not exist; recover it unless it was closed `clean`.

        The parent directory is synced. Logs share a `FilePool`; the offsets come from checkpoints. `watch` is called
        while recovery reads, and may end it by raising.
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
        """Set what is called when the log or its disk fails, and to check a segment for damage."""
        self._writer.on_failure = on_failure
        self.suspected.on_suspected = on_suspected

    # ---- what the log is ----------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The log's folder."""
        return self._local.directory

    @property
    def config(self) -> LogConfig:
        """The configuration that holds now."""
        return self._local.config

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the log; read only."""
        return self._local.epochs

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent producers and transactions; read only, except for `committed`."""
        return self._local.producers

    @property
    def refused(self) -> RefusedBatches:
        """The batches of idempotent producers that were refused for a passing reason."""
        return self._writer.refused

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._local.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record to be appended; pending batches count."""
        return self._local.log_end_offset

    @property
    def written_offset(self) -> int:
        """The end of what can be read."""
        return self._local.written_offset

    @property
    def synced_offset(self) -> int:
        """The end of what survives a power failure."""
        return self._local.durability.synced_offset

    @property
    def recovery_point(self) -> int:
        """The end of the segments that are synced with their indexes; recovery starts here."""
        return self._local.durability.recovery_point

    @property
    def high_watermark(self) -> int:
        """The end of the committed records, as far as the log knows."""
        return self._local.high_watermark

    @property
    def last_flush_ms(self) -> int:
        """The time of the last flush of the active segment."""
        return self._local.durability.last_flush_ms

    @property
    def pending_bytes(self) -> int:
        """The bytes that are appended and wait to be written."""
        return self._local.pending.size

    @property
    def size(self) -> int:
        """The bytes of all batches, pending ones included."""
        return self._local.segments.size

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in the order of their offsets, the active one last; read only."""
        return self._local.segments

    @property
    def segment_base_offsets(self) -> list[int]:
        """The base offsets of the segments."""
        return list(self._local.segments.bases)

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first segment; `log_start_offset` may lie behind it."""
        return self._local.first_base_offset

    @property
    def failure(self) -> str | None:
        """Why the log stopped; None while it runs."""
        return self._writer.failure

    @property
    def damage(self) -> DamagedFileError | None:
        """Known damage of a file of the log."""
        return self.suspected.damage

    @property
    def may_be_damaged(self) -> bool:
        """Whether a segment of the log is damaged, or is being checked."""
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
        """Append the marker that ends a producer's transaction (see `LogAppender.append_marker`)."""
        return self._appender.append_marker(
            marker,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_version=transaction_version,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> int:
        """Append batches that were fetched from the leader (see `LogAppender.append_as_follower`)."""
        return self._appender.append_as_follower(records, now_ms=now_ms)

    def find_duplicate(self, batch: Buffer) -> AppendInfo | None:
        """Return where a producer's `batch` was appended before; None if it is new (see `LogAppender`)."""
        return self._appender.find_duplicate(batch)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Record that `leader_epoch` begins at the log end offset (KIP-101)."""
        self._appender.begin_epoch(leader_epoch)

    def write(self) -> None:
        """Write all that is pending, at once."""
        job = self.begin_write()
        if job is not None:
            job.run()
            self.finish_write(job)

    def begin_flush(self, *, now_ms: int | None = None, include_active: bool = False) -> FlushJob | None:
        """Return a job that syncs what is written, or None (see `LogWriter.begin_flush`)."""
        return self._writer.begin_flush(now_ms=now_ms, include_active=include_active)

    def finish_flush(self, job: FlushJob) -> None:
        """Record what `job` has synced."""
        self._writer.finish_flush(job)

    def flush(self) -> None:
        """Write and sync everything, at once."""
        self.write()
        job = self.begin_flush(include_active=True)
        if job is not None:
            job.run()
            self.finish_flush(job)

    def sync_with_next_flush(self, path: str) -> None:
        """Sync another file in the log's folder with the next flush."""
        self._local.durability.unsynced_paths.add(path)

    def halt(self, message: str) -> None:
        """Stop the log because its disk has failed; pending batches are lost."""
        self._writer.halt(message)

    def report_disk_failure(self, error: Exception) -> None:
        """Call the failure listener if `error` shows that the disk has failed."""
        self._writer.report_disk_failure(error)

    # ---- truncation and retention -------------------------------------------------------------------------------

    def lower_recovery_point(self, offset: int) -> None:
        """Let recovery start at `offset` if it would start behind it."""
        self._local.durability.recovery_point = min(self._local.durability.recovery_point, offset)

    def lower_high_watermark(self, offset: int) -> None:
        """Count nothing from `offset` on as committed, before a truncation."""
        self.producers.committed(min(self.high_watermark, offset))

    def lower_log_start_offset(self, offset: int) -> None:
        """Set the log start offset to `offset` if it lies behind it."""
        self._local.lower_log_start_offset(offset)

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on, pending batches too; return whether there was anything. Synced on return.

        A batch that contains `offset` is removed whole. No write may be under way. Use `LogManager.truncate_to`, which
        writes checkpoints first.
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
        """Remove everything, and begin at `offset`. Synced on return.

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
        """Hide all records before `offset` (DeleteRecords). Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the end."""
        local = self._local
        end = local.committed_offset(high_watermark)
        if offset > end:
            raise KafkaError(ErrorCode.offset_out_of_range, f"offset {offset} is beyond the high watermark {end}")
        if offset > local.log_start_offset:
            local.log_start_offset = offset
            local.epochs.truncate_from_start(offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Delete the segments that retention selects (see `retention`); return how many."""
        return self._deletion.delete_old_segments(now_ms, high_watermark=high_watermark)

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Replace segments by a compacted one (see `SegmentDeletion.replace_segments`)."""
        return self._deletion.replace_segments(cleaned, now_ms)

    def take_deleted_files(self, now_ms: int) -> list[str]:
        """Return the files of deleted segments that the caller must remove now."""
        return self._deletion.take_deleted_files(now_ms)

    def roll_for_compaction(self, now_ms: int) -> None:
        """Begin a new segment if the active one, which cannot be compacted, is older than `max.compaction.lag.ms`."""
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
        """Forget producers that were silent for `producer.id.expiration.ms`; return how many."""
        self.refused.expire(now_ms)
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def update_config(self, config: LogConfig) -> None:
        """Apply another configuration from now on."""
        self._local.config = config
        self._appender.update_config(config)
        self._local.segments.active.update_config(config)

    # ---- closing ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync everything, so that the log can be opened `clean`. No job may be under way."""
        try:
            job = self.begin_close() if self.failure is None else None
            if job is not None:
                job.run()
                self.finish_flush(job)
        finally:
            self.abandon()

    def begin_close(self) -> FlushJob | None:
        """Write everything, and return the job that syncs it (see `LogWriter.begin_close`)."""
        return self._writer.begin_close()

    def close_files(self) -> None:
        """Close all file descriptors; the next use opens the files again."""
        self._local.segments.close()

    def abandon(self) -> None:
        """Close all file descriptors and write nothing, as if the process were killed."""
        self._writer.abandon()
        self._local.segments.close()


__all__ = ["AppendInfo", "Log"]
