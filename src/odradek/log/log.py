"""One partition's log: append, read, look up, retain, truncate.

```
append      checks a batch, gives it its offset in place, keeps the view       log_end_offset   >=
write       one gathered write of all that is pending                          written_offset   >=
flush       a sync                                                             synced_offset
```
Only what is written can be read. `write` does it at once; `begin_write`, `WriteJob.run` on a writer thread and
`finish_write` do it off the event loop, one job at a time, while appends go on. All else happens on one thread.

When the disk is full, or the process out of descriptors, memory or threads, the failed write and all that was appended
after it are lost, appends go on failing until that is over, and reads go on; to say so is the caller's, who knows how
often it happened. Any other failed write, every failed sync, and every error that is not expected stops the log for
good: nobody knows what is on the disk then, and only recovery can find out. Either is a `LogStorageError`.

```
                      no room, descriptor, memory, thread                the books can be cut
appended, not written ───────────────────────────────────► lost ─────────────────────────────► appends go on
                      anything else ──► stopped            └ an append tries again each time
```
"""

import logging
from collections.abc import Container
from contextlib import suppress
from typing import NoReturn

from odradek.log.appending import AppendableLog
from odradek.log.durability import FlushJob
from odradek.log.errors import LogStorageError, is_disk_failure, is_out_of_descriptors, is_passing, told
from odradek.log.log_config import LogConfig
from odradek.log.names import CLEANED, LOG, SNAPSHOT, offset_file
from odradek.log.pending_writes import WriteJob, WritePart
from odradek.log.producers.producer_snapshot import encode_snapshot
from odradek.log.recovery.log_loader import create_segment, load, load_producers, remove_segment_files, remove_snapshots
from odradek.log.recovery.segment_recovery import Watcher
from odradek.log.retention import count_expired
from odradek.log.segments.open_files import FilePool, write_file
from odradek.log.segments.segment import Segment
from odradek.log.segments.segment_swap import CleanedSegment, swap
from odradek.log.validation import AppendInfo, MessageRules
from odradek.model import ErrorCode, KafkaError
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")


class Log(AppendableLog):
    """See the module; what can be asked of a log is in `LogView`, and appending is `AppendableLog`'s.

    Everything may raise `LogStorageError`.
    """

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
        """The log in `directory`, which is created if it is not there, recovered unless it was closed `clean`.

        The directory above is the caller's, and synced. A `FilePool` is shared by logs; the offsets are checkpoints'.
        `watch` is told how many bytes recovery has read, and may end it by raising.
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
            message = f"the log in {directory} cannot be opened: {error}"
            raise LogStorageError(message, is_passing=is_passing(error)) from error
        log = cls(pool, directory, config, loaded, now_ms=now_ms)
        if not loaded.is_clean:
            log._durability.synced_offset = min(recovery_point, log.log_end_offset)
            log._durability.recovery_point = min(recovery_point, log._segments.active.base_offset)
        return log

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write all that is pending, at once."""
        job = self.begin_write()
        if job is not None:
            job.run()
            self.finish_write(job)

    def begin_write(self) -> WriteJob | None:
        """All that is pending, to be run and given to `finish_write`; None if nothing is, or if a job is under way."""
        if self._write is not None:
            return None
        if self._lost is not None:
            lost, self._lost = self._lost, None
            if self._is_cut_due:
                with suppress(LogStorageError):
                    self._cut_what_is_lost(self._last_append_ms)
            raise lost
        if not self._pending.size:
            return None
        try:
            self._write = self._new_write()
        except Exception as error:
            raise self._fail_write(error) from error
        return self._write

    def _new_write(self) -> WriteJob:
        config, size = self.config, self._pending.size
        parts: list[WritePart] = []
        if config.discard_writes:
            self._pending.clear()
        else:
            parts = self._pending.take(self._segments.active)
        sync = config.flush_group or self.log_end_offset - self.synced_offset >= config.flush_messages
        sync = sync and bool(parts)
        unsynced = self._durability.names
        if any(part.file is None for part in parts):
            unsynced.add(self.directory)
        names = sorted(unsynced) if sync else []
        unsynced.difference_update(names)
        job = WriteJob(self._pool.disk, parts, names, size=size, end_offset=self.log_end_offset, sync=sync)
        if sync and self.synced_offset < parts[0].segment.base_offset:
            older = self._segments[: self._segments.find(parts[0].segment.base_offset)]
            job.behind = [segment.log.path for segment in older if segment.next_offset > self.synced_offset]
        return job

    def finish_write(self, job: WriteJob) -> None:
        """Make what `job` wrote readable.

        Raises `LogStorageError` if it failed: everything from `written_offset` on is lost then, also what was appended
        while the job ran, and whoever waits for it must be told.
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
            self._durability.names.update(job.names)
            raise self._fail_write(job.error, may_go_on=not job.failed_sync) from job.error
        self.written_offset = job.end_offset
        for part in job.parts:
            part.segment.written_size += part.size
        if job.sync:
            self._durability.synced_offset = job.end_offset
        for part in job.parts:
            try:
                part.segment.flush_full_pages()
            except Exception as error:
                _logger.warning("%s: index entries stay in memory for now: %s", part.segment.log.path, told(error))

    def _fail_write(self, error: Exception, *, may_go_on: bool = True) -> LogStorageError:
        lost = self._lose_unwritten(error, may_go_on=may_go_on)
        self._lost = None
        with suppress(LogStorageError):
            self._cut_what_is_lost(self._last_append_ms)
        return lost

    # ---- flushing, cutting, retaining ---------------------------------------------------------------------------

    def begin_flush(self, *, now_ms: int | None = None, include_active: bool = False) -> FlushJob | None:
        """What is written and not synced, to be run and given to `finish_flush`: finished segments, or all.

        None if there is nothing, or if a job is under way.
        """
        durability = self._durability
        if durability.is_flushing or self._failure is not None or self.config.discard_writes:
            return None
        if now_ms is not None and include_active:
            durability.last_flush_ms = now_ms
        try:
            return durability.begin(
                self._segments, self.epochs, written_offset=self.written_offset, include_active=include_active
            )
        except Exception as error:
            _logger.warning("%s cannot be flushed for now: %s", self.directory, told(error))
            if is_disk_failure(error) and self.when_failed is not None:
                self.when_failed(error)
            return None

    def sync_too(self, path: str) -> None:
        """Sync a file in the log's folder, of which the log knows nothing, with what is synced next."""
        self._durability.names.add(path)

    def finish_flush(self, job: FlushJob) -> None:
        """Know what is synced. Raises `LogStorageError` if a sync failed: the log stops then."""
        error = self._durability.finish(job)
        if error is not None and is_passing(error) and not job.failed_sync:
            _logger.warning("%s cannot be flushed for now: %s", self.directory, told(error))
        elif error is not None:
            self._stop(f"{self.directory} could not be synced: {told(error)}", error)

    def lower_recovery_point(self, offset: int) -> None:
        """Let recovery begin at `offset`, or where it would begin already."""
        self._durability.recovery_point = min(self._durability.recovery_point, offset)

    def lower_high_watermark(self, offset: int) -> None:
        """Count nothing from `offset` on as committed: the log is about to be cut there."""
        self.producers.committed(min(self.high_watermark, offset))

    def flush(self) -> None:
        """Write and sync everything, at once."""
        self.write()
        job = self.begin_flush(include_active=True)
        if job is not None:
            job.run()
            self.finish_flush(job)

    def truncate(self, offset: int) -> bool:
        """Cut everything from `offset` on, also what is pending; whether there was anything. Synced on return.

        A batch that begins before `offset` and ends after it goes whole. No write may be under way. See
        `LogManager.truncate`: no checkpoint may say that what is cut here is synced.
        """
        assert self._write is None, "a truncation waits for the writer thread"
        if offset >= self.log_end_offset and not self._is_cut_due:
            self.epochs.truncate_from_end(offset)  # of an epoch in which nothing was written
            return False
        try:
            self._truncate(min(offset, self.written_offset))
            self._segments.active.log.sync()
            self._pool.disk.sync_directory(self.directory)
        except OSError as error:
            self._give_up(f"{self.directory} could not be cut at offset {offset}: {error}", error)
        return True

    def _give_up(self, message: str, error: OSError) -> NoReturn:
        """Raise `LogStorageError` for what is asked for again, which does not stop the log without a descriptor."""
        if is_out_of_descriptors(error):
            self._pool.give_back()
            raise LogStorageError(message, is_passing=True) from error
        self._stop(message, error)

    def _truncate(self, offset: int) -> None:
        """See `AppendableLog`: readers of what is before `offset` go on after an error, too."""
        self._pending.clear()
        self._is_cut_due = True
        self.log_end_offset = self.written_offset = offset
        while len(self._segments) > 1 and self._segments.active.base_offset >= offset:
            remove_segment_files(self._pool, self._segments.active)
            self._segments.drop_from(self._segments.active.base_offset)
        active = self._segments.active
        self._durability.cut(offset, active)
        active.truncate(offset)
        self.lower_log_start_offset(offset)
        self.epochs.truncate_from_end(offset)
        remove_snapshots(self._pool, self.directory, after=offset)
        committed = min(self.producers.high_watermark, offset)
        self.producers = load_producers(self._pool, self.directory, self._segments)
        self.producers.committed(committed)
        self._is_cut_due = False

    def restart(self, offset: int, now_ms: int) -> None:
        """Drop everything, and go on at `offset`, which may be anywhere. Synced on return.

        No write may be under way; see `LogManager.restart`: the checkpoints come first.
        """
        assert self._write is None, "a new beginning waits for the writer thread"
        disk = self._pool.disk
        try:
            self._pending.clear()
            for segment in reversed(self._segments):
                remove_segment_files(self._pool, segment)
            remove_snapshots(self._pool, self.directory, after=-1)
            segment = create_segment(self._pool, self.directory, offset, self.config, now_ms=now_ms)
            self._segments.replace(0, len(self._segments), [segment])
            self._durability.cut(offset, segment)
            self.epochs.truncate_from_end(-1)
            committed = min(self.producers.high_watermark, offset)
            self.producers = load_producers(self._pool, self.directory, self._segments)
            self.producers.committed(committed)
            self.log_start_offset = self.log_end_offset = self.written_offset = offset
            self._is_cut_due = False
            disk.sync_directory(self.directory)
        except OSError as error:
            self._give_up(f"{self.directory} could not begin anew at offset {offset}: {error}", error)
        _logger.info("%s: begins anew at offset %d", self.directory, offset)

    def advance_log_start_offset(self, offset: int, *, high_watermark: int | None = None) -> None:
        """Hide all records before `offset` (DeleteRecords). Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the end."""
        end = self.written_offset if high_watermark is None else min(high_watermark, self.written_offset)
        if offset > end:
            raise KafkaError(ErrorCode.offset_out_of_range, f"offset {offset} is beyond the high watermark {end}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def lower_log_start_offset(self, offset: int) -> None:
        """Begin at `offset` at the latest: the log is cut there, or about to be."""
        self.log_start_offset = min(self.log_start_offset, offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Delete the segments that retention takes (see `retention`); how many.

        Their files are renamed now, and removed after `file.delete.delay.ms` by whoever calls `take_trash`.
        """
        if not self._is_whole or self.config.discard_writes:
            return 0
        committed = self.written_offset if high_watermark is None else min(high_watermark, self.written_offset)
        count = count_expired(
            self._segments,
            self.config,
            now_ms=now_ms,
            committed_offset=committed,
            log_start_offset=self.log_start_offset,
        )
        if not count:
            return 0
        try:
            if count == len(self._segments) and not self._has_rolled(now_ms):
                count -= 1
            expired = self._segments.drop_first(count)
            self.log_start_offset = max(self.log_start_offset, self.first_base_offset)
            self.epochs.truncate_from_start(self.log_start_offset)
            self._trash.put_all(self._pool.disk, expired, now_ms + self.config.file_delete_delay_ms)
            self._remove_old_snapshots()
        except OSError as error:
            self._stop(f"old segments of {self.directory} could not be deleted: {error}", error)
        if count:
            _logger.info(
                "%s: retention took %d segments, up to offset %d", self.directory, count, self.first_base_offset
            )
        return count

    def _remove_old_snapshots(self, of: Container[int] = ()) -> None:
        """Remove those of deleted segments; without a descriptor it is done with the next ones."""
        try:
            remove_snapshots(self._pool, self.directory, before=self.first_base_offset, of=of)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            _logger.warning("snapshots of %s that are not needed stay for now: %s", self.directory, error)

    def swap_in(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Put a compacted segment in the place of those it was made of; whether they are still there as they were.

        The old files are renamed now, as those that retention takes; the directory is still to be synced.
        """
        sources = cleaned.sources
        first = self._segments.find(sources[0].base_offset)
        old = self._segments[first : first + len(sources)]
        if self._failure is not None or self._segments.active in old:
            return False
        if [(each.base_offset, each.size) for each in old] != [(each.base_offset, each.size) for each in sources]:
            return False
        base_offset, due_ms = old[0].base_offset, now_ms + self.config.file_delete_delay_ms
        times = self._times_of_cleaned(base_offset)
        if times is None:
            return False
        try:
            swap(
                self._pool.disk,
                self.directory,
                base_offset,
                lambda: self._trash.put_all(self._pool.disk, old, due_ms),
            )
            self._remove_old_snapshots(of=[segment.base_offset for segment in old[1:]])
            segment = Segment.open(
                self._pool, self.directory, base_offset, self.config, now_ms=sources[-1].last_append_ms
            )
            segment.load_finished(sources[-1].next_offset, times)
        except OSError as error:
            self._stop(f"compacted segments of {self.directory} could not be put in: {error}", error)
        self._durability.names.add(self.directory)
        self._segments.replace(first, len(old), [segment])
        return True

    def _times_of_cleaned(self, base_offset: int) -> tuple[int, int] | None:
        """The last entry of a compacted segment's time index; None without a descriptor to read it."""
        cleaned = Segment.open(self._pool, self.directory, base_offset, self.config, now_ms=0, suffix=CLEANED)
        try:
            return cleaned.time_index.last_entry()
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise LogStorageError(f"{cleaned.log.path} cannot be put in: {error}") from error
            _logger.warning("%s is put in later: %s", cleaned.log.path, error)
            return None
        finally:
            cleaned.close()

    def roll_for_compaction(self, now_ms: int) -> None:
        """Begin a new segment if the active one is older than `max.compaction.lag.ms` allows: as it is, it stays.

        An append does that too; this is for logs that nobody writes to.
        """
        active = self._segments.active
        if "compact" not in self.config.cleanup_policy or not active.size or not self._is_whole:
            return
        if not 0 < active.first_timestamp() < now_ms - self.config.max_compaction_lag_ms:
            return
        if self._pending.size or self._write is not None:
            self._roll(now_ms)
        else:
            active.finish()
            self._roll_empty(now_ms)

    def _has_rolled(self, now_ms: int) -> bool:
        """`_roll_empty`, or False where there is no room for it: what goes without that makes some."""
        try:
            self._roll_empty(now_ms)
        except OSError as error:
            if not is_passing(error):
                raise
            return False
        return True

    def _roll_empty(self, now_ms: int) -> None:
        """Begin a segment that has nothing: its name keeps the log's end offset when all others are gone.

        Raises `OSError`; nothing has changed then.
        """
        assert not self._pending.size, "a segment that waits to be written is not deleted"
        end = self.log_end_offset
        write_file(self._pool.disk, offset_file(self.directory, end, SNAPSHOT), encode_snapshot(self.producers))
        self._durability.names.add(self.directory)
        try:
            segment = create_segment(self._pool, self.directory, end, self.config, now_ms=now_ms)
        except OSError:
            # The segment before it goes on, and would overlap it at the next start.
            with suppress(OSError):
                self._pool.disk.remove(offset_file(self.directory, end, LOG))
            raise
        self._segments.add(segment)

    def take_trash(self, now_ms: int) -> list[str]:
        """Files that may be removed now, by whoever asks; large ones take the disk a while."""
        return self._trash.take(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for `producer.id.expiration.ms`; how many."""
        self.refused.expire(now_ms)
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def update_config(self, config: LogConfig) -> None:
        """Let another configuration hold from now on."""
        self.config = config
        self._rules = MessageRules(config)
        self._segments.active.update_config(config)

    # ---- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write and sync everything, so that opening it `clean` finds it as it is. No job may be under way."""
        try:
            job = self.begin_close() if self._failure is None else None
            if job is not None:
                job.run()
                self.finish_flush(job)
        finally:
            self.abandon()

    def begin_close(self) -> FlushJob | None:
        """Write everything, and make a job of what is to be synced; None if nothing changed since a clean opening."""
        assert self._write is None, "closing waits for the writer thread"
        self._check_may_append(self._last_append_ms)
        is_untouched = self._durability.is_untouched(self.log_end_offset) and not self.epochs.is_dirty
        if is_untouched or self.config.discard_writes:
            return None
        self.write()
        self._segments.active.finish()
        snapshot = offset_file(self.directory, self.log_end_offset, SNAPSHOT)
        try:
            write_file(self._pool.disk, snapshot, encode_snapshot(self.producers))
            return self._durability.begin_close(self._segments, self.epochs, end_offset=self.log_end_offset)
        except OSError as error:
            self._stop(f"{self.directory} could not be closed: {error}", error)

    def close_files(self) -> None:
        """Give all descriptors back; the next use opens the files again."""
        self._segments.close()

    def abandon(self) -> None:
        """Give all descriptors back and write nothing, as if the process were killed."""
        self._write = None
        self._durability.abandon()
        self._pending.clear()
        self._segments.close()


__all__ = ["AppendInfo", "Log"]
