"""Writing and syncing a log, and the failures of both.

A write that fails for lack of room, descriptors, memory or threads loses its batches and all later ones; the log is
truncated to `written_offset`, and appends go on. A failed sync or any other error stops the log until recovery.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from odradek.broker.log.errors import LogStorageError, describe, is_disk_failure, is_passing
from odradek.broker.log.flush_job import FlushJob, make_flush_job
from odradek.broker.log.names import SNAPSHOT, offset_file, parent_of
from odradek.broker.log.pending_writes import PendingWrites, WriteJob, WritePart
from odradek.broker.log.producers.producer_snapshot import encode_snapshot
from odradek.broker.log.producers.refused_batches import RefusedBatches
from odradek.broker.log.segments.open_files import write_file
from odradek.runtime.shortages import is_out_of_descriptors

if TYPE_CHECKING:
    from odradek.broker.log.log import Log

_logger = logging.getLogger("odradek.log")


class State(Enum):
    """LOST: segments, epochs and producers still have what is lost or truncated; an append truncates it first."""

    RUNNING = auto()
    LOST = auto()
    STOPPED = auto()


class Event(Enum):
    """SHORTAGE is of room, descriptors, memory or threads, FAILURE any other error."""

    SHORTAGE = auto()
    TRUNCATION_BEGINS = auto()
    TRUNCATION_ENDS = auto()
    FAILURE = auto()


NEXT: Final[Mapping[State, Mapping[Event, State]]] = {
    State.RUNNING: {
        Event.SHORTAGE: State.LOST,
        Event.TRUNCATION_BEGINS: State.LOST,
        Event.FAILURE: State.STOPPED,
    },
    State.LOST: {
        Event.TRUNCATION_ENDS: State.RUNNING,
        Event.FAILURE: State.STOPPED,
    },
    State.STOPPED: {},
}
"""The next state by event; other events change nothing."""
_RUNNING: Final = State.RUNNING
"""Looking a member up in its class takes as long as the rest of `make_appendable`."""


class LogWriter:
    """The write and flush jobs of one log, at most one of each under way. Methods raise `LogStorageError`.

    Batches below `synced_offset` and indexes below `recovery_point` are synced. The next flush also syncs
    `unsynced_paths`: changed directories, and files outside segments. `failure` says why the log stopped. `on_failure`
    is called when the log stops (except by `stop`), and for each read or flush error that means a failed disk.
    """

    __slots__ = (
        "_closed_at",
        "_flush",
        "_log",
        "_unreported",
        "_write",
        "failure",
        "last_flush_ms",
        "on_failure",
        "pending",
        "recovery_point",
        "refused",
        "state",
        "synced_offset",
        "unsynced_paths",
    )

    def __init__(self, log: "Log", *, is_clean: bool, recovery_point: int, now_ms: int) -> None:
        """`is_clean` is whether the log is as a clean shutdown left it."""
        end = log.log_end_offset
        self._log = log
        self._write: WriteJob | None = None
        self._flush: FlushJob | None = None
        self._unreported: LogStorageError | None = None
        """The error of lost pending batches, which the next `begin_write` raises for waiting producers."""
        self._closed_at = end if is_clean else None
        self.pending = PendingWrites()
        self.unsynced_paths = set() if is_clean else {log.directory, parent_of(log.directory)}
        self.synced_offset = end if is_clean else min(recovery_point, end)
        self.recovery_point = end if is_clean else min(recovery_point, log.segments.active.base_offset)
        self.last_flush_ms = now_ms
        self.refused = RefusedBatches()
        self.state = State.RUNNING
        self.failure: str | None = None
        self.on_failure: Callable[[Exception], None] | None = None

    # ---- writing ------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        return self._write is not None

    @property
    def is_settled(self) -> bool:
        """Whether the log runs, and everything appended is written."""
        log = self._log
        is_idle = self._write is None and not self.pending.size
        return is_idle and self.state is _RUNNING and log.written_offset == log.log_end_offset

    def begin_write(self) -> WriteJob | None:
        """Return a job that writes all pending batches; None without any, or while a job is under way.

        Pass the job to `finish_write` after its run. Raises `LogStorageError` if pending batches were lost.
        """
        if self._write is not None:
            return None
        if self._unreported is not None:
            lost, self._unreported = self._unreported, None
            self._try_to_truncate()
            raise lost
        if not self.pending.size:
            return None
        try:
            self._write = self._new_write()
        except Exception as error:
            raise self._lose_written(error) from error
        return self._write

    def _new_write(self) -> WriteJob:
        log, config, size = self._log, self._log.config, self.pending.size
        parts: list[WritePart] = []
        if config.discard_writes:
            self.pending.clear()
        else:
            parts = self.pending.take(log.segments.active)
        sync = config.flush_group or log.log_end_offset - self.synced_offset >= config.flush_messages
        sync = sync and bool(parts)
        if any(part.file is None for part in parts):
            self.unsynced_paths.add(log.directory)
        names = sorted(self.unsynced_paths) if sync else []
        self.unsynced_paths.difference_update(names)
        job = WriteJob(log.pool.disk, parts, names, size=size, end_offset=log.log_end_offset, sync=sync)
        if sync and self.synced_offset < parts[0].segment.base_offset:
            older = log.segments[: log.segments.find(parts[0].segment.base_offset)]
            job.behind = [segment.log.path for segment in older if segment.next_offset > self.synced_offset]
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
        if job.error is not None:
            self.unsynced_paths.update(job.names)
            raise self._lose_written(job.error, may_go_on=not job.failed_sync) from job.error
        self._log.written_offset = job.end_offset
        for part in job.parts:
            part.segment.written_size += part.size
        if job.sync:
            self.synced_offset = job.end_offset
        for part in job.parts:
            try:
                part.segment.flush_full_pages()
            except Exception as error:
                path = part.segment.log.path
                _logger.warning("Index entries of %s stay in memory until the next flush: %s", path, describe(error))

    def abandon(self) -> None:
        """Drop pending batches and ignore the current jobs, as if the process were killed."""
        self._write = self._flush = None
        self.pending.clear()

    # ---- syncing ------------------------------------------------------------------------------------------------

    def begin_flush(self, *, now_ms: int | None = None, include_active: bool = False) -> FlushJob | None:
        """Return a job that syncs written batches; None without unsynced segments, during a job, or after an error.

        Pass the job to `finish_flush` after its run. The active segment is synced only with `include_active`.
        """
        log = self._log
        if self._flush is not None or self.failure is not None or log.config.discard_writes:
            return None
        if now_ms is not None and include_active:
            self.last_flush_ms = now_ms
        try:
            self._flush = make_flush_job(
                log.pool.disk,
                log.segments,
                log.epochs,
                [log.directory, *self.unsynced_paths],
                recovery_point=self.recovery_point,
                written_offset=log.written_offset,
                include_active=include_active,
            )
        except Exception as error:
            _logger.warning("Failed to flush %s, will retry: %s", log.directory, describe(error))
            self.report(error)
            return None
        if self._flush is not None:
            self.unsynced_paths.clear()
        return self._flush

    def finish_flush(self, job: FlushJob) -> None:
        """Record the synced offsets, unless the log was truncated. Stop the log if a sync failed, and raise."""
        error, is_current = job.error, self._flush is job
        if error is not None:
            job.give_back_epochs()
            self.unsynced_paths.update(job.names)
        if is_current:
            self._flush = None
            if error is None:
                self.synced_offset = max(self.synced_offset, job.synced_offset)
                self.recovery_point = max(self.recovery_point, job.recovery_point)
        if error is None or not (is_current or job.failed_sync):
            return
        if is_passing(error) and not job.failed_sync:
            _logger.warning("Failed to flush %s, will retry: %s", self._log.directory, describe(error))
        else:
            raise self.fail(f"Failed to sync {self._log.directory}: {describe(error)}", error) from error

    def begin_close(self) -> FlushJob | None:
        """Write everything; return the job that syncs, None if nothing has changed since a clean shutdown."""
        log = self._log
        assert self._write is None, "closing waits for the writer thread"
        self.make_appendable(log.last_append_ms)
        is_untouched = self._closed_at == log.log_end_offset and not self.unsynced_paths and not log.epochs.is_dirty
        if is_untouched or log.config.discard_writes:
            return None
        log.write()
        log.segments.active.finish()
        end = log.log_end_offset
        snapshot = offset_file(log.directory, end, SNAPSHOT)
        try:
            write_file(log.pool.disk, snapshot, encode_snapshot(log.producers))
            self._flush = make_flush_job(
                log.pool.disk,
                log.segments,
                log.epochs,
                [snapshot, log.directory, *self.unsynced_paths],
                recovery_point=min(self.recovery_point, log.segments.active.base_offset) - 1,
                written_offset=end,
                include_active=True,
                is_last=True,
            )
        except OSError as error:
            raise self.fail(f"Failed to close {log.directory}: {error}", error) from error
        if self._flush is not None:
            self._flush.recovery_point = self._flush.synced_offset = end
        return self._flush

    # ---- truncation ---------------------------------------------------------------------------------------------

    def begin_truncation(self, offset: int, base_offset: int) -> None:
        """Record that the log is about to end at `offset`, in the segment that begins at `base_offset`."""
        directory = self._log.directory
        self.pending.clear()
        self._flush = self._closed_at = None
        self.unsynced_paths.update((directory, parent_of(directory)))
        self.synced_offset = min(self.synced_offset, offset)
        self.recovery_point = min(self.recovery_point, base_offset)
        self._handle(Event.TRUNCATION_BEGINS)

    def end_truncation(self) -> None:
        self._handle(Event.TRUNCATION_ENDS)

    def make_appendable(self, now_ms: int) -> None:
        """Truncate the batches that a failed write lost, once the failure is reported.

        Raises `LogStorageError` until then, and if the log has stopped.
        """
        if self.state is _RUNNING and self._unreported is None:
            return
        if self.failure is not None:
            raise LogStorageError(self.failure)
        if self._unreported is not None:
            raise self._unreported
        self._truncate_lost_batches(now_ms)

    def _truncate_lost_batches(self, now_ms: int) -> None:
        """Truncate the log to `written_offset`, and record the lost batches as refused.

        Raises `LogStorageError` if a write is under way or the truncation fails. After a passing error appends retry.
        """
        log = self._log
        if self._write is not None:
            raise LogStorageError(f"{log.directory} cannot be appended to until a write has ended", is_passing=True)
        what = f"Batches of {log.directory} from offset {log.written_offset} on are lost"
        try:
            batches = log.producers.batches_since(log.written_offset)
            log.truncate_unsynced(log.written_offset)
            refusal = LogStorageError(what, is_passing=True)
            for producer_id, epoch, sequence in batches:
                self.refused.note(producer_id, epoch, sequence, refusal, now_ms)
        except Exception as error:
            message = f"{what}, and truncating the log failed: {describe(error)}"
            raise self.fail(message, error, may_go_on=True) from error

    def _try_to_truncate(self) -> None:
        if self.state is State.LOST:
            with suppress(LogStorageError):
                self._truncate_lost_batches(self._log.last_append_ms)

    def moved(self, recovery_point: int) -> None:
        """Record that the log goes on in another folder, in which it is synced; ignore a flush under way."""
        log = self._log
        assert self._write is None, "a log moves between writes"
        self._flush = self._closed_at = None
        self.unsynced_paths = {log.directory, parent_of(log.directory)}
        self.synced_offset, self.recovery_point = log.log_end_offset, recovery_point

    # ---- failures -----------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self.state = NEXT[self.state].get(event, self.state)

    def lose(self, error: Exception, *, first: int = 0, may_go_on: bool = True) -> LogStorageError:
        """Drop all pending batches after `error`; return the error for their producers.

        `first` is the offset of a failed append: producers of batches before it get the error from `begin_write`.
        """
        log, end = self._log, self._end_of_writes
        message = (
            f"Failed to write {log.log_end_offset - end} offsets from {end} on to {log.directory}: {describe(error)}"
        )
        self._drop_pending()
        lost = self.fail(message, error, may_go_on=may_go_on)
        self._unreported = lost if first > end else None
        return lost

    def _lose_written(self, error: Exception, *, may_go_on: bool = True) -> LogStorageError:
        lost = self.lose(error, may_go_on=may_go_on)
        self._try_to_truncate()
        return lost

    def _drop_pending(self) -> None:
        self.pending.clear()
        self._log.log_end_offset = self._end_of_writes

    @property
    def _end_of_writes(self) -> int:
        """The end offset of the current write, or `written_offset`."""
        return self._log.written_offset if self._write is None else self._write.end_offset

    def fail(self, message: str, error: Exception, *, may_go_on: bool = False) -> LogStorageError:
        """Return the error to raise; the log is LOST after a shortage with `may_go_on`, otherwise STOPPED."""
        if is_out_of_descriptors(error):
            self._log.pool.give_back()
        if may_go_on and is_passing(error) and self.state is not State.STOPPED:
            self._handle(Event.SHORTAGE)
            return LogStorageError(message, is_passing=True)
        is_first, self.failure = self.failure is None, message
        self._handle(Event.FAILURE)
        _logger.error("%s; appends are refused until the broker restarts and recovers the log", message)
        if is_first and self.on_failure is not None:
            self.on_failure(error)
        return LogStorageError(message)

    def stop(self, message: str) -> None:
        """Stop the log because its disk has failed, without calling `on_failure`; pending batches are lost."""
        if self.failure is None:
            self.failure = message
            self._handle(Event.FAILURE)
            self._drop_pending()

    def report(self, error: Exception) -> None:
        """Call `on_failure` if `error` shows that the disk has failed."""
        if is_disk_failure(error) and self.on_failure is not None:
            self.on_failure(error)
