"""The log cleaner: selects the next log, compacts it in slices, and retries after passing errors.

```
begin ──► job.run ──► finish_slice ──┬─► job.run …
                                     └─► done
```
`job.run` runs on any thread, `begin` and `finish_slice` on the event loop's. After an error that is not passing, a log
is uncleanable until the broker restarts. Truncation or deletion of a log cancels its compaction. Retention of a log
waits until its compaction has ended, as in Kafka.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from odradek.broker.log.cleaner.cleanable import LogToClean, measure, plan
from odradek.broker.log.cleaner.compaction import Compaction
from odradek.broker.log.cleaner.record_filter import PlainRecordFilter, RecordFilter
from odradek.broker.log.errors import DamagedFileError, LogStorageError, is_passing
from odradek.broker.log.log import Log
from odradek.broker.log.segments.segment_swap import CleanedSegment
from odradek.config.broker import BrokerConfig
from odradek.kernels import LIBRARY, Library
from odradek.model import StorageError, TopicPartition
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime import Disk, Entropy

_logger = logging.getLogger("odradek.log")
_SLICE_BYTES: Final = 2 << 20
_FAST_SLICE_BYTES: Final = 8 << 20
"""For the library, which needs 10 ms for a slice."""
_RETRY_MS: Final = 15_000
"""The delay of a retry after a shortage of disk space or descriptors."""
_SECRET_BYTES: Final = 16
_SLICES_PER_SECOND: Final = 4
"""The least slices per second with `log.cleaner.io.max.bytes.per.second`, to spread the I/O evenly."""


class CleanerSettings(Struct, frozen=True, kw_only=True):
    """The broker's keys `log.cleaner.*`. Up to `threads` logs are compacted at a time, and share the buffers.

    Without a `library`, Python compacts.
    """

    threads: int = 1
    dedupe_buffer_bytes: int = 134_217_728
    load_factor: float = 0.9
    io_buffer_bytes: int = 524_288
    io_bytes_per_second: float = float("inf")
    library: Library | None = LIBRARY

    @classmethod
    def of(cls, config: BrokerConfig) -> "CleanerSettings":
        return cls(
            threads=config.log_cleaner_threads,
            dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_bytes=config.log_cleaner_io_buffer_size,
            io_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        )


class CleanerStats(Struct, kw_only=True):
    """Metrics: four of the last compaction, three of the last measurement of all logs, and totals."""

    clean_ms: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    buffer_utilization: float = 0.0
    max_dirty_ratio: float = 0.0
    max_delay_ms: int = 0
    last_run_ms: int | None = None
    total_read_bytes: int = 0
    total_written_bytes: int = 0
    total_removed_records: int = 0


class CompactionJob:
    """The compaction of one log. `run` does a slice and sets its results.

    `slice_bytes` were read and written; `cleaned` is a finished segment; after an `error` do not run the job again.
    """

    def __init__(
        self, partition: TopicPartition, log: Log, compaction: Compaction, *, begun_ms: int, slice_limit: int
    ) -> None:
        self.partition = partition
        self.log = log
        self.compaction = compaction
        self.begun_ms = begun_ms
        self.slice_bytes = 0
        self.cleaned: CleanedSegment | None = None
        self.is_done = False
        self.is_cancelled = False
        self.error: Exception | None = None
        self._limit = slice_limit
        self._steps: Iterator[int | CleanedSegment] = compaction.steps()

    def run(self) -> None:
        """Run a slice, or until a segment is finished. Raises nothing."""
        self.slice_bytes, self.cleaned = 0, None
        try:
            while self.slice_bytes < self._limit and not self.is_cancelled:
                step = next(self._steps, None)
                if isinstance(step, CleanedSegment):
                    self.cleaned = step
                    return
                if step is None:
                    self.is_done = True
                    return
                self.slice_bytes += step
        except (OSError, StorageError, CorruptBatchError) as error:
            self.error = error
            self.compaction.discard()
        except Exception as error:
            # A bug in the compaction of one log must not end that of the others.
            _logger.exception("Unexpected error in the compaction of %s", self.log.directory)
            self.error = error
            self.compaction.discard()


class LogCleaner:
    """The cleaner of one broker's `logs`."""

    def __init__(self, disk: Disk, entropy: Entropy, logs: Mapping[TopicPartition, Log]) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        """The end offset of each log's compacted part, its checkpoint."""
        self.uncleanable: dict[TopicPartition, str] = {}
        """Logs that are no longer compacted, with the reason."""
        self.stats = CleanerStats()
        self._disk = disk
        self._entropy = entropy
        self._logs = logs
        self._jobs: dict[TopicPartition, CompactionJob] = {}
        self._dirty_bytes: dict[TopicPartition, int] = {}
        self._retry_at_ms: dict[TopicPartition, int] = {}

    # ---- checkpoints and cancellation ---------------------------------------------------------------------------

    def is_busy_with(self, partition: TopicPartition) -> bool:
        """Return whether the partition's log is being compacted."""
        return partition in self._jobs

    def truncate_checkpoint(self, partition: TopicPartition, offset: int) -> bool:
        """Cancel a log's compaction before its truncation to `offset`; return whether its checkpoint was lowered.

        If so, the caller writes the checkpoint before the truncation.
        """
        self._cancel(partition)
        is_lower = self.offsets.get(partition, 0) > offset
        if is_lower:
            self.offsets[partition] = offset
        return is_lower

    def remove(self, partition: TopicPartition) -> None:
        """Cancel the compaction of a deleted log and remove its state."""
        self._cancel(partition)
        self.offsets.pop(partition, None)
        self.uncleanable.pop(partition, None)
        self._retry_at_ms.pop(partition, None)

    def stop(self) -> list[CompactionJob]:
        """Cancel and return all jobs; the caller may `discard` their files."""
        jobs = list(self._jobs.values())
        for job in jobs:
            self._cancel(job.partition)
        return jobs

    def _cancel(self, partition: TopicPartition) -> None:
        job = self._jobs.pop(partition, None)
        if job is not None:
            job.is_cancelled = True

    def compacted_offset(self, partition: TopicPartition) -> int | None:
        """Return a log's checkpoint; None without one, or if the topic is known not to be compacted."""
        policy = self._logs[partition].config.cleanup_policy
        return self.offsets.get(partition) if "compact" in policy or not policy else None

    @property
    def uncleanable_bytes(self) -> int:
        """The dirty bytes of uncleanable logs."""
        return sum(self._dirty_bytes.get(partition, 0) for partition in self.uncleanable)

    # ---- compaction ---------------------------------------------------------------------------------------------

    def begin_in_steps(
        self, now_ms: int, settings: CleanerSettings, *, stable_offset: Callable[[TopicPartition], int | None]
    ) -> Iterator[CompactionJob | None]:
        """Yield None after measuring each log, so that other tasks can run; then yield a job for the dirtiest due log.

        If no log is due, no job is yielded. End the iteration before the next call.
        """
        if len(self._jobs) >= settings.threads:
            return
        max_dirty_ratio, max_delay_ms = 0.0, 0
        dirty_bytes: dict[TopicPartition, int] = {}
        due: list[tuple[float, TopicPartition]] = []
        for partition in tuple(self._logs):
            to_clean = self._measure(partition, stable_offset(partition), now_ms, dirty_bytes)
            if to_clean is not None:
                max_dirty_ratio = max(max_dirty_ratio, to_clean.ratio)
                max_delay_ms = max(max_delay_ms, to_clean.delay_ms)
                if to_clean.is_due:
                    due.append((to_clean.ratio, partition))
            yield None
        self._dirty_bytes = dirty_bytes
        self.stats.last_run_ms = now_ms
        self.stats.max_dirty_ratio, self.stats.max_delay_ms = max_dirty_ratio, max_delay_ms
        for _, partition in sorted(due, key=lambda each: -each[0]):
            to_clean = self._measure(partition, stable_offset(partition), now_ms, dirty_bytes)
            if to_clean is not None and to_clean.is_due:
                yield self._new_job(partition, to_clean, now_ms, settings)
                return

    def _measure(
        self,
        partition: TopicPartition,
        stable_offset: int | None,
        now_ms: int,
        dirty_bytes: dict[TopicPartition, int],
    ) -> LogToClean | None:
        """Measure a log, set its `dirty_bytes`; return None if it cannot be compacted now."""
        log = self._logs.get(partition)
        if log is None or stable_offset is None or log.failure is not None or log.config.discard_writes:
            return None
        if "compact" not in log.config.cleanup_policy:
            if log.config.cleanup_policy:  # else it is unknown, and the checkpoint may be needed
                self.offsets.pop(partition, None)
            return None
        if partition in self._jobs or now_ms < self._retry_at_ms.get(partition, now_ms):
            return None
        try:
            log.roll_for_compaction(now_ms)
            to_clean = measure(log, self.offsets.get(partition), stable_offset=stable_offset, now_ms=now_ms)
        except (OSError, CorruptBatchError) as error:
            self._failed(partition, log, error, now_ms)
            return None
        dirty_bytes[partition] = to_clean.dirty_bytes
        return None if partition in self.uncleanable else to_clean

    def _new_job(
        self, partition: TopicPartition, to_clean: LogToClean, now_ms: int, settings: CleanerSettings
    ) -> CompactionJob | None:
        log = self._logs[partition]
        try:
            what = plan(log, to_clean, now_ms=now_ms, io_bytes=settings.io_buffer_bytes // settings.threads // 2)
        except (OSError, LogStorageError, CorruptBatchError) as error:
            self._failed(partition, log, error, now_ms)
            return None
        secret = self._entropy.randbytes(_SECRET_BYTES)
        compaction = Compaction(self._disk, what, lambda: _new_filter(settings, secret))
        slice_bytes = _SLICE_BYTES if settings.library is None else _FAST_SLICE_BYTES
        limit = int(min(slice_bytes, settings.io_bytes_per_second / _SLICES_PER_SECOND))
        job = self._jobs[partition] = CompactionJob(
            partition, log, compaction, begun_ms=now_ms, slice_limit=max(limit, 1)
        )
        return job

    def finish_slice(self, job: CompactionJob, now_ms: int) -> bool:
        """Process the results of a slice; return whether to run another."""
        if not job.is_cancelled and job.cleaned is not None:
            self._swap_in(job, now_ms)
        if job.is_cancelled:
            job.compaction.discard()
        elif job.error is not None:
            self._failed(job.partition, job.log, job.error, now_ms)
        elif job.is_done:
            self._succeeded(job, now_ms)
        else:
            return True
        if self._jobs.get(job.partition) is job:
            del self._jobs[job.partition]
        return False

    def give_up(self, job: CompactionJob, error: Exception, now_ms: int) -> None:
        """End a job after an unexpected error."""
        if self._jobs.get(job.partition) is job:
            del self._jobs[job.partition]
            job.is_cancelled = True
            self._failed(job.partition, job.log, error, now_ms)
            with suppress(Exception):
                job.compaction.discard()

    def _swap_in(self, job: CompactionJob, now_ms: int) -> None:
        assert job.cleaned is not None
        try:
            job.is_cancelled = not job.log.replace_segments(job.cleaned, now_ms)
        except LogStorageError:
            job.is_cancelled = True  # the log has logged it, and stopped
        except OSError as error:
            job.error = error
            job.compaction.discard()

    def _succeeded(self, job: CompactionJob, now_ms: int) -> None:
        metrics, stats, compaction = self.stats, job.compaction.stats, job.compaction
        first, end = compaction.plan.first_dirty_offset, compaction.next_dirty_offset
        self.offsets[job.partition] = end
        metrics.clean_ms = now_ms - job.begun_ms
        metrics.read_bytes, metrics.written_bytes = stats.read_bytes, stats.written_bytes
        metrics.buffer_utilization = stats.map_utilization
        metrics.total_read_bytes += stats.indexed_bytes + stats.read_bytes
        metrics.total_written_bytes += stats.written_bytes
        metrics.total_removed_records += stats.read_records - stats.written_records
        _logger.info(
            "%s: compacted from offset %d up to %d; %d of %d records and %.1f of %.1f MiB are left, in %.1f s",
            job.log.directory, first, end, stats.written_records, stats.read_records, stats.written_bytes / (1 << 20),
            stats.read_bytes / (1 << 20), metrics.clean_ms / 1000,
        )  # fmt: skip

    def _failed(self, partition: TopicPartition, log: Log, error: Exception, now_ms: int) -> None:
        cause = error.__cause__ if isinstance(error, LogStorageError) else error
        if cause is not None and is_passing(cause):
            self._retry_at_ms[partition] = now_ms + _RETRY_MS
            _logger.warning("Failed to compact %s, will retry: %s", log.directory, error)
            return
        if isinstance(cause, OSError):
            log.writer.report(cause)
        if isinstance(error, DamagedFileError):
            log.suspected.add(error.path)
        self.uncleanable[partition] = str(error) or repr(error)
        _logger.error("%s is uncleanable until the broker restarts: %s", log.directory, error)


def _new_filter(settings: CleanerSettings, secret: bytes) -> RecordFilter:
    """Return the compiled filter, or the plain one without the library.

    Imports numpy only here, because it takes a quarter of a broker's start time and memory.
    """
    from odradek.broker.log.cleaner.offset_map import OffsetMap

    room = settings.dedupe_buffer_bytes // settings.threads
    offsets = OffsetMap(room, settings.load_factor, secret=secret)
    if settings.library is None:
        return PlainRecordFilter(offsets)
    from odradek.broker.log.cleaner.compiled_record_filter import CompiledRecordFilter

    return CompiledRecordFilter(settings.library, offsets)


class Throttle:
    """Limits the rate of I/O."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def wait_s(self, size: int, bytes_per_second: float, now_s: float) -> float:
        """Return the seconds to wait after I/O of `size` bytes."""
        self._free_at = max(self._free_at, now_s) + size / bytes_per_second
        return self._free_at - now_s
