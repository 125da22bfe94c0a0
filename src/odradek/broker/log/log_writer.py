"""Writing and syncing a log, and the failures of both.

A write that fails for lack of room, descriptors, memory or threads loses its batches and all later ones; the log is
truncated to `written_offset`, and appends go on. A failed sync or any other error stops the log until recovery.

```
                      no room, descriptor, memory, thread             truncation succeeds
appended, not written ───────────────────────────────────► lost ─────────────────────────────► appends go on
                      anything else ──► stopped            └ each append tries the truncation again
```
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from odradek.broker.log.durability import FlushJob
from odradek.broker.log.errors import LogStorageError, describe, is_disk_failure, is_passing
from odradek.broker.log.local_log import LocalLog
from odradek.broker.log.names import SNAPSHOT, offset_file
from odradek.broker.log.pending_writes import WriteJob, WritePart
from odradek.broker.log.producers.producer_snapshot import encode_snapshot
from odradek.broker.log.producers.refused_batches import RefusedBatches
from odradek.broker.log.segments.open_files import write_file
from odradek.runtime.shortages import is_out_of_descriptors

_logger = logging.getLogger("odradek.log")


class LogWriter:
    """The write and flush jobs of one log. Methods raise `LogStorageError`.

    `failure` says why the log stopped, None while it runs. `on_failure` is called when the log stops (except by
    `halt`), and for each read or flush error that means a failed disk.
    """

    __slots__ = ("_local", "_lost", "_write", "failure", "on_failure", "refused")

    def __init__(self, local: LocalLog) -> None:
        self._local = local
        self._write: WriteJob | None = None
        self._lost: LogStorageError | None = None
        """The error of lost pending batches, which the next `begin_write` raises for waiting producers."""
        self.failure: str | None = None
        self.refused = RefusedBatches()
        self.on_failure: Callable[[Exception], None] | None = None

    # ---- writing ------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        return self._write is not None

    def begin_write(self) -> WriteJob | None:
        """Return a job that writes all pending batches; None without any, or while a job is under way.

        Pass the job to `finish_write` after its run. Raises `LogStorageError` if pending batches were lost.
        """
        if self._write is not None:
            return None
        if self._lost is not None:
            lost, self._lost = self._lost, None
            if self._local.needs_truncation:
                with suppress(LogStorageError):
                    self.truncate_lost_batches(self._local.last_append_ms)
            raise lost
        if not self._local.pending.size:
            return None
        try:
            self._write = self._new_write()
        except Exception as error:
            raise self._fail_write(error) from error
        return self._write

    def _new_write(self) -> WriteJob:
        local = self._local
        config, size, synced_offset = local.config, local.pending.size, local.durability.synced_offset
        parts: list[WritePart] = []
        if config.discard_writes:
            local.pending.clear()
        else:
            parts = local.pending.take(local.segments.active)
        sync = config.flush_group or local.log_end_offset - synced_offset >= config.flush_messages
        sync = sync and bool(parts)
        unsynced = local.durability.unsynced_paths
        if any(part.file is None for part in parts):
            unsynced.add(local.directory)
        names = sorted(unsynced) if sync else []
        unsynced.difference_update(names)
        job = WriteJob(local.pool.disk, parts, names, size=size, end_offset=local.log_end_offset, sync=sync)
        if sync and synced_offset < parts[0].segment.base_offset:
            older = local.segments[: local.segments.find(parts[0].segment.base_offset)]
            job.behind = [segment.log.path for segment in older if segment.next_offset > synced_offset]
        return job

    def finish_write(self, job: WriteJob) -> None:
        """Make the batches that `job` wrote readable.

        Raises `LogStorageError` if the job failed: then all batches from `written_offset` on are lost, even later ones.
        """
        for part in job.parts:
            try:
                part.give_back(keep=job.error is None and self._write is job)
            except Exception as error:
                job.error = job.error or error
        if self._write is not job:
            return
        self._write = None
        durability = self._local.durability
        if job.error is not None:
            durability.unsynced_paths.update(job.names)
            raise self._fail_write(job.error, may_go_on=not job.failed_sync) from job.error
        self._local.written_offset = job.end_offset
        for part in job.parts:
            part.segment.written_size += part.size
        if job.sync:
            durability.synced_offset = job.end_offset
        for part in job.parts:
            try:
                part.segment.flush_full_pages()
            except Exception as error:
                path = part.segment.log.path
                _logger.warning("Index entries of %s stay in memory until the next flush: %s", path, describe(error))

    def _fail_write(self, error: Exception, *, may_go_on: bool = True) -> LogStorageError:
        lost = self._lose_pending(error, may_go_on=may_go_on)
        self._lost = None
        with suppress(LogStorageError):
            self.truncate_lost_batches(self._local.last_append_ms)
        return lost

    def abandon(self) -> None:
        """Drop pending batches and ignore the current jobs, as if the process were killed."""
        self._write = None
        self._local.durability.abandon()
        self._local.pending.clear()

    # ---- syncing ------------------------------------------------------------------------------------------------

    def begin_flush(self, *, now_ms: int | None = None, include_active: bool = False) -> FlushJob | None:
        """Return a job that syncs written batches; None without unsynced segments, during a job, or after an error.

        Pass the job to `finish_flush` after its run. The active segment is synced only with `include_active`.
        """
        local, durability = self._local, self._local.durability
        if durability.is_flushing or self.failure is not None or local.config.discard_writes:
            return None
        if now_ms is not None and include_active:
            durability.last_flush_ms = now_ms
        try:
            return durability.begin(
                local.segments, local.epochs, written_offset=local.written_offset, include_active=include_active
            )
        except Exception as error:
            _logger.warning("Failed to flush %s, will retry: %s", local.directory, describe(error))
            self.report_disk_failure(error)
            return None

    def finish_flush(self, job: FlushJob) -> None:
        """Record the synced offsets. If a sync failed or the error is not passing, stop the log and raise."""
        error, directory = self._local.durability.finish(job), self._local.directory
        if error is not None and is_passing(error) and not job.failed_sync:
            _logger.warning("Failed to flush %s, will retry: %s", directory, describe(error))
        elif error is not None:
            self.stop(f"Failed to sync {directory}: {describe(error)}", error)

    def begin_close(self) -> FlushJob | None:
        """Write everything; return the job that syncs, None if nothing has changed since a clean shutdown."""
        local = self._local
        assert self._write is None, "closing waits for the writer thread"
        self.check_may_append(local.last_append_ms)
        is_untouched = local.durability.is_untouched(local.log_end_offset) and not local.epochs.is_dirty
        if is_untouched or local.config.discard_writes:
            return None
        job = self.begin_write()
        if job is not None:
            job.run()
            self.finish_write(job)
        local.segments.active.finish()
        snapshot = offset_file(local.directory, local.log_end_offset, SNAPSHOT)
        try:
            write_file(local.pool.disk, snapshot, encode_snapshot(local.producers))
            return local.durability.begin_close(local.segments, local.epochs, end_offset=local.log_end_offset)
        except OSError as error:
            self.stop(f"Failed to close {local.directory}: {error}", error)

    # ---- failures -----------------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether the log has not stopped and needs no truncation of lost batches."""
        return self.failure is None and not self._local.needs_truncation

    def check_may_append(self, now_ms: int) -> None:
        """Raise `LogStorageError` if the log has stopped, or lost batches are not yet reported and truncated."""
        if self.failure is not None:
            raise LogStorageError(self.failure)
        if self._lost is not None:
            raise self._lost
        if self._local.needs_truncation:
            self.truncate_lost_batches(now_ms)

    def truncate_lost_batches(self, now_ms: int) -> None:
        """Truncate the log to `written_offset`, and record the lost batches as refused.

        Raises `LogStorageError` if a write is under way or the truncation fails. After a passing error appends retry.
        """
        local = self._local
        if self._write is not None:
            raise LogStorageError(f"{local.directory} cannot be appended to until a write has ended", is_passing=True)
        what = f"Batches of {local.directory} from offset {local.written_offset} on are lost"
        try:
            batches = local.producers.batches_since(local.written_offset)
            local.truncate(local.written_offset)
            refusal = LogStorageError(what, is_passing=True)
            for producer_id, epoch, sequence in batches:
                self.refused.note(producer_id, epoch, sequence, refusal, now_ms)
        except Exception as error:
            message = f"{what}, and truncating the log failed: {describe(error)}"
            if not is_passing(error):
                self.stop(message, error)
            raise LogStorageError(message, is_passing=True) from error

    def _lose_pending(self, error: Exception, *, may_go_on: bool = True) -> LogStorageError:
        """Drop all pending batches and return the error for their producers.

        Without `may_go_on`, or unless `error` is passing, stop the log and raise.
        """
        local, end = self._local, self._end_of_writes
        message = (
            f"Failed to write {local.log_end_offset - end} offsets from {end} on to {local.directory}: "
            f"{describe(error)}"
        )
        local.drop_pending(end)
        if is_out_of_descriptors(error):
            local.pool.give_back()
        if not (may_go_on and is_passing(error)):
            self.stop(message, error)
        local.needs_truncation = True
        return LogStorageError(message, is_passing=True)

    def lose_append(self, error: Exception, first: int) -> LogStorageError:
        """Drop pending batches and the partial append at offset `first`; return the error, even if the log stops."""
        has_others = first > self._end_of_writes
        try:
            lost = self._lose_pending(error)
        except LogStorageError as stopped:
            lost = stopped
        if has_others:
            self._lost = lost
        return lost

    @property
    def _end_of_writes(self) -> int:
        """The end offset of the current write, or `written_offset`."""
        return self._local.written_offset if self._write is None else self._write.end_offset

    def report_disk_failure(self, error: Exception) -> None:
        """Call `on_failure` if `error` shows that the disk has failed."""
        if is_disk_failure(error) and self.on_failure is not None:
            self.on_failure(error)

    def give_up(self, message: str, error: OSError) -> NoReturn:
        """Raise `LogStorageError`, and stop the log, except for lack of descriptors, after which the caller retries."""
        if is_out_of_descriptors(error):
            self._local.pool.give_back()
            raise LogStorageError(message, is_passing=True) from error
        self.stop(message, error)

    def stop(self, message: str, error: Exception) -> NoReturn:
        """Stop the log, which refuses appends until recovery, and raise `LogStorageError`."""
        is_first, self.failure = self.failure is None, message
        _logger.error("%s; appends are refused until the broker restarts and recovers the log", message)
        if is_first and self.on_failure is not None:
            self.on_failure(error)
        raise LogStorageError(message)

    def halt(self, message: str) -> None:
        """Stop the log because its disk has failed, without calling `on_failure`."""
        if self.failure is None:
            self.failure = message
            self._local.drop_pending(self._end_of_writes)
