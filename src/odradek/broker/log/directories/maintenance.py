"""Periodic maintenance of a broker's logs: retention, expiry of producers, flushes, removal of files, checkpoints."""

import logging
from collections.abc import Callable, Iterator, Mapping

from odradek.broker.log.cleaner.log_cleaner import LogCleaner
from odradek.broker.log.directories.deleted_logs import DeletedLogs
from odradek.broker.log.directories.directory_loading import remove_tree
from odradek.broker.log.directories.log_checkpoints import CheckpointPlan, LogCheckpoints
from odradek.broker.log.errors import CheckpointError, LogStorageError
from odradek.broker.log.flush_job import FlushJob
from odradek.broker.log.log import Log
from odradek.model import TopicPartition
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")


class MaintenanceJob:
    """Flushes, and files and folders to remove; `run` may be called on any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.flushes: list[tuple[Log, FlushJob]] = []
        self.files: list[str] = []
        self.folders: list[str] = []
        self.errors: list[tuple[str, OSError]] = []
        self.flush_times_ms: list[float] = []
        """The duration of each flush, by the `monotonic` of `run`."""

    @property
    def is_empty(self) -> bool:
        return not (self.flushes or self.files or self.folders)

    def run(self, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        """Flush and remove; the next start removes files that could not be removed. `monotonic` returns seconds."""
        for _, flush in self.flushes:
            began = monotonic()
            flush.run()
            self.flush_times_ms.append((monotonic() - began) * 1000)
        for path in self.files:
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self.errors.append((path, error))
        for path in self.folders:
            try:
                remove_tree(self._disk, path)
            except OSError as error:
                self.errors.append((path, error))


class LogMaintenance:
    """The maintenance of `logs`, one job at a time. After a failure of one log the others continue."""

    def __init__(
        self,
        disk: Disk,
        logs: Mapping[TopicPartition, Log],
        cleaner: LogCleaner,
        deleted: DeletedLogs,
        checkpoints: LogCheckpoints,
    ) -> None:
        self._disk = disk
        self._logs = logs
        self._cleaner = cleaner
        self._deleted = deleted
        self._checkpoints = checkpoints
        self._job: MaintenanceJob | None = None

    def begin_in_steps(
        self, now_ms: int, *, high_watermark: Callable[[TopicPartition], int | None]
    ) -> tuple[MaintenanceJob, Iterator[None]] | None:
        """Return a job and an iterator that adds one log's work per step; other tasks can run between steps.

        Retention deletes nothing beyond the `high_watermark` of a partition.

        Returns None if a job is under way. Run the job after any number of steps, before the logs are closed.
        """
        if self._job is not None:
            return None
        job = self._job = MaintenanceJob(self._disk)
        return job, self._prepare(job, now_ms, high_watermark)

    def _prepare(
        self, job: MaintenanceJob, now_ms: int, high_watermark: Callable[[TopicPartition], int | None]
    ) -> Iterator[None]:
        for partition, log in tuple(self._logs.items()):
            if self._logs.get(partition) is log:  # not deleted meanwhile
                try:
                    self._maintain(partition, log, job, now_ms, high_watermark(partition))
                except Exception:
                    _logger.exception("Unexpected error in the maintenance of %s, will retry", log.directory)
            yield
        try:
            job.folders = self._deleted.take_due(now_ms)
        except Exception:  # the caller must get the job, which has the pending flushes
            _logger.exception("Unexpected error in the removal of deleted logs, will retry")

    def _maintain(
        self, partition: TopicPartition, log: Log, job: MaintenanceJob, now_ms: int, high_watermark: int | None
    ) -> None:
        if log.failure is not None:
            return
        try:
            if not self._cleaner.is_busy_with(partition):
                log.delete_old_segments(now_ms, high_watermark=high_watermark)
        except LogStorageError:
            return  # the log has logged it, and stopped
        log.expire_producers(now_ms)
        job.files.extend(log.take_deleted_files(now_ms))
        flush = log.writer.begin_flush(
            now_ms=now_ms, include_active=now_ms - log.writer.last_flush_ms >= log.config.flush_ms
        )
        if flush is not None:
            job.flushes.append((log, flush))

    def finish(self, job: MaintenanceJob) -> CheckpointPlan | None:
        """Record the results of a finished job; return the checkpoints to write, None if they cannot be planned."""
        if self._job is not job:
            return None
        self._job = None
        for path, error in job.errors:
            _logger.warning("Failed to remove %s: %s", path, error)
        for log, flush in job.flushes:
            try:
                log.writer.finish_flush(flush)
            except LogStorageError:
                continue  # the log has logged it, and stopped
        try:
            return self._checkpoints.plan()
        except CheckpointError as error:
            _logger.warning("Failed to write checkpoints: %s; recovery after a crash takes longer", error)
            return None

    def abandon(self) -> None:
        """Ignore the job that is under way."""
        self._job = None
