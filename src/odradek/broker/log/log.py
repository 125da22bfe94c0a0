"""`Log`, the log of one partition: append, read, find offsets by time, truncate, delete old segments.

```
append_as_leader   checks a batch, assigns its offset in place, keeps the buffer      log_end_offset   >=
write              one gathered write of all pending batches                          written_offset   >=
flush              a sync                                                             writer.synced_offset
```
Only written batches can be read. All methods run on one thread; the jobs of `writer`, a `LogWriter`, on any.
"""

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from odradek.broker.log.errors import DamagedSegmentError, LogStorageError, is_passing
from odradek.broker.log.log_config import LOG_APPEND_TIME, LogConfig
from odradek.broker.log.log_writer import LogWriter, State
from odradek.broker.log.names import CLEANED, LOG, SNAPSHOT, offset_file
from odradek.broker.log.producers.producer_snapshot import encode_snapshot
from odradek.broker.log.producers.producer_state import AppendedBatch
from odradek.broker.log.recovery.log_loader import (
    LoadedLog,
    create_segment,
    load,
    load_producers,
    remove_segment_files,
    remove_snapshots,
)
from odradek.broker.log.recovery.segment_damage import SuspectedSegments
from odradek.broker.log.recovery.segment_recovery import Watcher
from odradek.broker.log.retention import DeletedFiles, count_expired
from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.broker.log.segments.open_files import FilePool, write_file
from odradek.broker.log.segments.segment import Lender, Segment
from odradek.broker.log.segments.segment_swap import CleanedSegment, swap
from odradek.broker.log.segments.segments import Segments
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.broker.log.time_lookup import Lookup, find_first_since, find_latest
from odradek.broker.log.validation import AppendInfo, MessageRules, fetched_batches
from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.control_records import EndTransactionMarker, decode_marker, encode_marker
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    assign_offset,
    read_header,
    set_log_append_time,
    verify_crc,
)
from odradek.runtime import Disk
from odradek.runtime.shortages import is_out_of_descriptors

_logger = logging.getLogger("odradek.log")
_NO_TIMESTAMP: Final = -1
_RETRIED: Final = frozenset({ErrorCode.not_enough_replicas, ErrorCode.concurrent_transactions})
"""Errors of verifications after which a producer sends the batch again."""


class Log:
    """One partition's log on this broker. Methods raise `LogStorageError` if a file fails or the log has stopped.

    `log_start_offset` is the first readable offset, `log_end_offset` the next to be appended, `written_offset` the end
    of the readable records. `segments`, `epochs` and `producers` are read only, except for `producers.committed`.
    `truncated` says what recovery removed when the log was opened.
    """

    def __init__(
        self, pool: FilePool, directory: str, config: LogConfig, loaded: LoadedLog, *, recovery_point: int, now_ms: int
    ) -> None:
        self.pool = pool
        self.directory = directory
        self.config = config
        self.segments = Segments(loaded.segments)
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.written_offset = self.segments.active.next_offset
        self.last_append_ms = 0
        self.truncated = loaded.truncated
        self.suspected = SuspectedSegments(self.segments)
        self.writer = LogWriter(self, is_clean=loaded.is_clean, recovery_point=recovery_point, now_ms=now_ms)
        self._rules = MessageRules(config)
        self._deleted = DeletedFiles()

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
        return cls(pool, directory, config, loaded, recovery_point=recovery_point, now_ms=now_ms)

    def set_listeners(
        self,
        *,
        on_failure: Callable[[Exception], None] | None = None,
        on_suspected: Callable[[Segment], bool] | None = None,
    ) -> None:
        """Set `on_failure`, called when the log stops or its disk fails, and `on_suspected`, which checks a segment."""
        self.writer.on_failure = on_failure
        self.suspected.on_suspected = on_suspected

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self._rules = MessageRules(config)
        self.segments.active.update_config(config)

    # ---- what the log is ----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """The high watermark last passed to `producers.committed`, at most `written_offset`."""
        return min(self.producers.high_watermark, self.written_offset)

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first segment; `log_start_offset` may be higher."""
        return self.segments.bases[0]

    @property
    def failure(self) -> str | None:
        """Why the log stopped; None while it runs."""
        return self.writer.failure

    # ---- appending ----------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        from_client: bool = True,
        transactional: bool = False,
        needs_verification: bool = False,
        is_checked: bool = False,
    ) -> AppendInfo:
        """Append one batch as the leader: check it, assign the next offset, add it to the pending batches.

        `batches` has exactly one batch, is changed in place (copied, if read-only), and must not change until it is
        written. Respond to a client, also for a duplicate, when `written_offset` is beyond `last_offset`.
        `from_client` is False for the broker's own batches; `transactional` allows a client's batch of a transaction.
        Raises `UncheckedBatchError` if a long check is needed, unless `is_checked`.
        With `needs_verification`, the first batch of a transaction is refused unless it was verified. After a
        `KafkaError` other than `LogStorageError` the log is unchanged. Rules: `validation` and `producer_state`.
        """
        writer = self.writer
        try:
            writer.make_appendable(now_ms)
        except LogStorageError as error:
            if error.is_passing and from_client:
                writer.refused.note_batch(batches, error, now_ms)
            raise
        view = batches if type(batches) is memoryview else memoryview(batches)
        if view.readonly:
            view = memoryview(bytearray(view))
        try:
            header, view = self._rules.admit(
                view, now_ms, from_client=from_client, transactional=transactional, is_checked=is_checked
            )
        except KafkaError:
            # A retried batch may now break a rule that it met before: rules change, and timestamps get too old.
            duplicate = self.find_duplicate(view) if from_client else None
            if duplicate is None:
                raise
            return duplicate
        if header.producer_id >= 0:
            known = self._check_producer(header, now_ms, has_sequence=from_client)
            if known is not None:
                return self._duplicate(known)
            if needs_verification and header.is_transactional:
                self._check_verified(header, view, now_ms)
        first = self.log_end_offset
        last = first + header.last_offset_delta
        timestamp, append_time = header.max_timestamp, _NO_TIMESTAMP
        if self.config.message_timestamp_type == LOG_APPEND_TIME:
            set_log_append_time(view, 0, header, now_ms)
            timestamp = append_time = now_ms
        if leader_epoch < self.epochs.latest:
            raise self._epoch_too_old(leader_epoch)
        assign_offset(view, 0, first, leader_epoch)
        try:
            self._add_pending(view, first, last, timestamp, leader_epoch, now_ms)
            if header.producer_id >= 0:
                self.producers.update(header, first, timestamp, now_ms=now_ms)
        except Exception as error:
            lost = writer.lose(error, first=first)
            writer.refused.note_batch(view, lost, now_ms)
            raise lost from error
        return AppendInfo(first, last, append_time, self.log_start_offset, False)

    def _check_producer(self, header: BatchHeader, now_ms: int, *, has_sequence: bool) -> AppendedBatch | None:
        """Return the append that the batch repeats, or None. Raises `KafkaError` (see `producer_state`)."""
        producers, refused = self.producers, self.writer.refused
        try:
            known = producers.check(header, has_sequence=has_sequence)
        except KafkaError as error:
            if error.code is ErrorCode.out_of_order_sequence_number:
                refused.check(header, producers.entries.get(header.producer_id), now_ms)
            raise
        if known is None and header.producer_id not in producers.entries:
            refused.check(header, None, now_ms)
        return known

    def _check_verified(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        """Raise `KafkaError` unless the batch's transaction is known here or verified.

        A retriable refusal is recorded, so that the producer's later batches are not appended before this one.
        """
        try:
            self.producers.check_verified(header.producer_id, header.producer_epoch, header.base_sequence)
        except KafkaError as error:
            if error.code in _RETRIED:
                self.writer.refused.note_batch(batch, error, now_ms)
            raise

    def find_duplicate(self, batch: Buffer) -> AppendInfo | None:
        """Return the first append of an idempotent producer's `batch`, perhaps pending; None if unknown or damaged.

        Only for batches not passed to `append_as_leader`, which finds duplicates itself.
        """
        if self.writer.state is not State.RUNNING or len(batch) < HEADER_SIZE:
            return None
        header = read_header(batch)
        if header.magic != MAGIC or header.producer_id < 0 or header.size != len(batch):
            return None
        known = self.producers.find(header)
        return self._duplicate(known) if known is not None and verify_crc(batch, 0, header) else None

    def _duplicate(self, known: AppendedBatch) -> AppendInfo:
        time_ms = known.timestamp if self.config.message_timestamp_type == LOG_APPEND_TIME else _NO_TIMESTAMP
        return AppendInfo(known.first_offset, known.last_offset, time_ms, self.log_start_offset, True)

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
        """Append the marker that ends a producer's transaction (KIP-98), even if none is open.

        A `duplicate` has the log's last offset, since its own is unknown: respond when everything appended is written.
        After a `KafkaError` other than `LogStorageError` nothing has changed. Rules: `producer_state`.
        """
        self.writer.make_appendable(now_ms)
        producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        offset = self.log_end_offset
        if not self.producers.check_marker(marker, transaction_version=transaction_version, **producer):
            return AppendInfo(offset - 1, offset - 1, _NO_TIMESTAMP, self.log_start_offset, True)
        view = memoryview(encode_marker(marker, now_ms=now_ms, **producer))
        append_time = _NO_TIMESTAMP
        if self.config.message_timestamp_type == LOG_APPEND_TIME:
            set_log_append_time(view, 0, read_header(view), now_ms)
            append_time = now_ms
        if leader_epoch < self.epochs.latest:
            raise self._epoch_too_old(leader_epoch)
        assign_offset(view, 0, offset, leader_epoch)
        try:
            self._add_pending(view, offset, offset, now_ms, leader_epoch, now_ms)
            self._add_aborted(self.producers.end_transaction(marker, offset=offset, timestamp=now_ms, **producer))
        except Exception as error:
            raise self.writer.lose(error, first=offset) from error
        return AppendInfo(offset, offset, append_time, self.log_start_offset, False)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> int:
        """Append batches fetched from the leader at `log_end_offset`, unchanged; return the number of bytes.

        A truncated last batch is left for the next fetch, as is everything from a damaged batch on. `records` must not
        change until they are written. Raises `KafkaError` CORRUPT_MESSAGE if the first batch is damaged or does not
        continue the log.
        """
        self.writer.make_appendable(now_ms)
        view = memoryview(records)
        offset = self.log_end_offset
        batches = fetched_batches(view, log_end_offset=offset, leader_epoch=self.epochs.latest)
        try:
            for position, header in batches:
                batch, first, last = view[position : position + header.size], header.base_offset, header.last_offset
                self._add_pending(batch, first, last, header.max_timestamp, header.partition_leader_epoch, now_ms)
                if header.producer_id >= 0:
                    marker = decode_marker(batch) if header.is_control else None
                    self._add_aborted(self.producers.replay(header, marker, now_ms=now_ms))
        except Exception as error:
            raise self.writer.lose(error, first=offset) from error
        return batches[-1][0] + batches[-1][1].size if batches else 0

    def begin_epoch(self, leader_epoch: int) -> None:
        """Record that `leader_epoch` begins at the log end offset, even without a record (KIP-101)."""
        self.epochs.begin(leader_epoch, self.log_end_offset)

    def _epoch_too_old(self, leader_epoch: int) -> LogStorageError:
        """Return the error for an append with an older leader epoch than the log's last one.

        Such a batch must not be written: recovery would truncate the log there.
        """
        return LogStorageError(
            f"{self.directory} has records of leader epoch {self.epochs.latest}, and the leader's epoch "
            f"is {leader_epoch}: another cluster wrote to it; `odradek metadata adopt` takes its epochs over"
        )

    def _add_pending(
        self, batch: memoryview, first: int, last: int, timestamp: int, leader_epoch: int, now_ms: int
    ) -> None:
        """Add a checked batch with the offsets `first` to `last` to the pending batches."""
        size = len(batch)
        if not self.config.discard_writes:
            segment = self.segments.active
            if segment.must_roll(size, last, timestamp, now_ms):
                segment = self.roll(now_ms)
            if last - segment.base_offset > MAX_RELATIVE_OFFSET:  # a follower gets a compacted log
                segment = self.roll(now_ms, first)
            segment.add(first, last, size, timestamp, now_ms)
        pending = self.writer.pending
        pending.buffers.append(batch)
        pending.size += size
        self.log_end_offset = last + 1
        self.last_append_ms = now_ms
        if leader_epoch > self.epochs.recorded:
            self.epochs.assign(leader_epoch, first)

    def _add_aborted(self, aborted: AbortedTransaction | None) -> None:
        if aborted is not None and not self.config.discard_writes:
            self.segments.active.add_aborted(aborted)

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the log end offset, or at `base_offset`; the first write creates its file."""
        old = self.segments.active
        old.finish()
        base_offset = self.log_end_offset if base_offset is None else base_offset
        segment = Segment(self.pool, self.directory, base_offset, self.config, now_ms=now_ms)
        self.segments.add(segment)
        self.writer.pending.roll(old, segment, encode_snapshot(self.producers))
        return segment

    # ---- reading ------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to_offset: int | None = None,
        at_least_one: bool = True,
        lend: Lender | None = None,
    ) -> Buffer:
        """Return batches of one segment from `offset` on; the first may begin earlier, the last may be truncated.

        Only batches before `up_to_offset` (None: `written_offset`) are returned. A first batch larger than `max_bytes`
        is returned whole with `at_least_one`, else not at all. `lend` provides buffers for large results. Raises
        `KafkaError` OFFSET_OUT_OF_RANGE before `log_start_offset` or beyond `log_end_offset`, and for a damaged segment
        `DamagedSegmentError`, which is reported to `suspected`.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is outside {self.log_start_offset} to {self.log_end_offset} of {self.directory}",
            )
        written = self.written_offset
        limit = written if up_to_offset is None else min(up_to_offset, written)
        if offset >= limit or self.config.discard_writes:
            return b""
        try:
            return self.segments.read(
                offset, max_bytes, limit=limit, written=written, at_least_one=at_least_one, lend=lend
            )
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self.suspected.add(error.path)
            raise

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction without a marker below the high watermark, or None.

        It is at least the log start offset.
        """
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    def has_aborted_transactions(self, from_offset: int) -> bool:
        """Return whether `aborted_transactions` may find any, without reading a file."""
        return any(segment.aborted for segment in self.segments[self.segments.find(from_offset) :])

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in `[from_offset, to_offset)`, ordered by marker.

        `to_offset` is at most the last stable offset.
        """
        try:
            return self.segments.aborted_between(from_offset, to_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def size_between(self, from_offset: int, to_offset: int) -> int:
        try:
            return self.segments.size_between(from_offset, to_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def find_offset(self, timestamp: int) -> Lookup:
        """Return the first record with at least `timestamp` (ms), or None (ListOffsets)."""
        return self._lookup(find_first_since(self.segments, timestamp, self.log_start_offset))

    def find_max_timestamp(self) -> Lookup:
        return self._lookup(find_latest(self.segments, self.log_start_offset))

    def _lookup(self, search: Lookup) -> Lookup:
        try:
            return (yield from search)
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self.suspected.add(error.path)
            raise

    def _unreadable(self, error: OSError) -> LogStorageError:
        self.writer.report(error)
        return LogStorageError(f"Failed to read {self.directory}: {error}", is_passing=is_passing(error))

    # ---- truncation ---------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Remove all batches from `offset` on, also pending ones, and sync; return False if there were none.

        `offset` must not be below `first_base_offset`. A batch that contains it is removed whole. No write may be under
        way. Use `LogManager.truncate_to`, which writes checkpoints first.
        """
        assert not self.writer.is_writing, "truncation waits for the writer thread"
        if offset >= self.log_end_offset and self.writer.state is not State.LOST:
            self.epochs.truncate_from_end(offset)  # an epoch without records may begin there
            return False
        try:
            self.truncate_unsynced(min(offset, self.written_offset))
            self.segments.active.log.sync()
            self.pool.disk.sync_directory(self.directory)
        except OSError as error:
            raise self._truncation_failed(f"Failed to truncate {self.directory} to offset {offset}", error) from error
        return True

    def truncate_unsynced(self, offset: int) -> None:
        """Remove everything from `offset` on, without syncing. After an `OSError` call again."""
        assert offset >= self.first_base_offset, "a log that begins later is truncated fully"
        kept = max((base for base in self.segments.bases if base < offset), default=self.first_base_offset)
        self.writer.begin_truncation(offset, kept)
        self.log_end_offset = self.written_offset = offset
        while self.segments.active.base_offset > kept:
            remove_segment_files(self.pool, self.segments.active)
            self.segments.drop_from(self.segments.active.base_offset)
        self.segments.active.truncate(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        remove_snapshots(self.pool, self.directory, after=offset)
        self._end_truncation(offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove all records and begin an empty log at `offset`; synced on return.

        No write may be under way. Use `LogManager.truncate_fully_and_start_at`, which writes checkpoints first.
        """
        assert not self.writer.is_writing, "truncation waits for the writer thread"
        try:
            self.writer.begin_truncation(offset, offset)
            for segment in reversed(self.segments):
                remove_segment_files(self.pool, segment)
            remove_snapshots(self.pool, self.directory, after=-1)
            segment = create_segment(self.pool, self.directory, offset, self.config, now_ms=now_ms)
            self.segments.replace(0, len(self.segments), [segment])
            self.epochs.truncate_from_end(-1)
            self.log_start_offset = self.log_end_offset = self.written_offset = offset
            self._end_truncation(offset)
            self.pool.disk.sync_directory(self.directory)
        except OSError as error:
            message = f"Failed to truncate {self.directory} and start at offset {offset}"
            raise self._truncation_failed(message, error) from error
        _logger.info("%s: truncated fully, starts at offset %d", self.directory, offset)

    def _end_truncation(self, offset: int) -> None:
        before, committed = self.producers, min(self.producers.high_watermark, offset)
        self.producers = load_producers(self.pool, self.directory, self.segments)
        self.producers.committed(committed)
        self.producers.take_verifications(before)
        self.writer.end_truncation()

    def _truncation_failed(self, message: str, error: OSError) -> LogStorageError:
        return self.writer.fail(f"{message}: {error}", error, may_go_on=is_out_of_descriptors(error))

    def lower_offsets(self, recovery_point: int, offset: int) -> None:
        """Lower the recovery point, and the log start offset and high watermark to `offset`, before a truncation."""
        self.writer.recovery_point = min(self.writer.recovery_point, recovery_point)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.producers.committed(min(self.high_watermark, offset))

    # ---- retention and compaction -------------------------------------------------------------------------------

    def advance_log_start_offset(self, offset: int, *, high_watermark: int | None = None) -> None:
        """Raise the log start offset to `offset` (DeleteRecords).

        Raises `KafkaError` OFFSET_OUT_OF_RANGE beyond the smaller of `high_watermark` and `written_offset`.
        """
        end = self._committed_offset(high_watermark)
        if offset > end:
            raise KafkaError(ErrorCode.offset_out_of_range, f"offset {offset} is beyond the high watermark {end}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def _committed_offset(self, high_watermark: int | None) -> int:
        return self.written_offset if high_watermark is None else min(high_watermark, self.written_offset)

    def delete_old_segments(self, now_ms: int, *, high_watermark: int | None = None) -> int:
        """Delete the segments selected by `count_expired`; return their number."""
        config = self.config
        if self.writer.state is not State.RUNNING or config.discard_writes:
            return 0
        count = count_expired(
            self.segments,
            config,
            now_ms=now_ms,
            committed_offset=self._committed_offset(high_watermark),
            log_start_offset=self.log_start_offset,
        )
        if not count:
            return 0
        try:
            if count == len(self.segments):
                try:
                    self._roll_empty(now_ms)
                except OSError as error:
                    if not is_passing(error):
                        raise
                    count -= 1
            expired = self.segments.drop_first(count)
            self.log_start_offset = max(self.log_start_offset, self.first_base_offset)
            self.epochs.truncate_from_start(self.log_start_offset)
            self._deleted.add_segments(self.pool.disk, expired, now_ms, config.file_delete_delay_ms)
            self._remove_old_snapshots()
        except OSError as error:
            raise self.writer.fail(f"Failed to delete old segments of {self.directory}: {error}", error) from error
        if count:
            start = self.first_base_offset
            _logger.info("%s: retention deleted %d segments, up to offset %d", self.directory, count, start)
        return count

    def _roll_empty(self, now_ms: int) -> None:
        """Begin a new segment and create its file, which keeps the log end offset if all other segments are deleted.

        The log is unchanged after an `OSError`.
        """
        assert not self.writer.pending.size, "a segment with pending batches cannot be deleted"
        end, disk = self.log_end_offset, self.pool.disk
        write_file(disk, offset_file(self.directory, end, SNAPSHOT), encode_snapshot(self.producers))
        self.writer.unsynced_paths.add(self.directory)
        try:
            segment = create_segment(self.pool, self.directory, end, self.config, now_ms=now_ms)
        except OSError:
            # Appends go on in the old segment, whose offsets would overlap this file at the next start.
            with suppress(OSError):
                disk.remove(offset_file(self.directory, end, LOG))
            raise
        self.segments.add(segment)

    def _remove_old_snapshots(self) -> None:
        try:
            remove_snapshots(self.pool, self.directory, before=self.first_base_offset)
        except OSError as error:
            if not is_out_of_descriptors(error):
                raise
            _logger.warning("Failed to remove old snapshots of %s, will retry: %s", self.directory, error)

    def roll_for_compaction(self, now_ms: int) -> None:
        active, is_compacted = self.segments.active, "compact" in self.config.cleanup_policy
        if not is_compacted or not active.size or self.writer.state is not State.RUNNING:
            return
        if not 0 < active.first_timestamp() < now_ms - self.config.max_compaction_lag_ms:
            return
        if self.writer.pending.size or self.writer.is_writing:
            self.roll(now_ms)
        else:
            active.finish()
            self._roll_empty(now_ms)

    def replace_segments(self, cleaned: CleanedSegment, now_ms: int) -> bool:
        """Replace the sources of `cleaned`; return False if they, or `cleaned`, have changed.

        Raises `OSError` if resources are short; nothing is replaced then. Raises `LogStorageError` if the log stops.
        """
        sources = cleaned.sources
        first = self.segments.find(sources[0].base_offset)
        old = self.segments[first : first + len(sources)]
        if self.writer.state is State.STOPPED or self.segments.active in old:
            return False
        if [(each.base_offset, each.size) for each in old] != [(each.base_offset, each.size) for each in sources]:
            return False
        base_offset, delay_ms = old[0].base_offset, self.config.file_delete_delay_ms
        message = f"Failed to swap in compacted segments of {self.directory}"
        try:
            times = self._times_of_cleaned(base_offset)
        except FileNotFoundError:
            return False  # another compaction of the log has removed it; it is not part of the log yet
        except OSError as error:
            if is_passing(error):
                raise
            raise self.writer.fail(f"{message}: {error}", error) from error
        disk, now = self.pool.disk, sources[-1].last_append_ms
        try:
            swap(disk, self.directory, base_offset, lambda: self._deleted.add_segments(disk, old, now_ms, delay_ms))
            for path in [offset_file(self.directory, each.base_offset, SNAPSHOT) for each in old[1:]]:
                if disk.exists(path):
                    disk.remove(path)
            segment = Segment.open(self.pool, self.directory, base_offset, self.config, now_ms=now)
            segment.load_finished(sources[-1].next_offset, times)
        except OSError as error:
            raise self.writer.fail(f"{message}: {error}", error) from error
        self.writer.unsynced_paths.add(self.directory)
        self.segments.replace(first, len(old), [segment])
        return True

    def _times_of_cleaned(self, base_offset: int) -> tuple[int, int]:
        with closing(
            Segment.open(self.pool, self.directory, base_offset, self.config, now_ms=0, suffix=CLEANED)
        ) as cleaned:
            return cleaned.time_index.last_entry()

    def take_deleted_files(self, now_ms: int) -> list[str]:
        return self._deleted.take_due(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        """Remove expired refusals and producers; return the number of removed producers."""
        self.writer.refused.expire(now_ms)
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # ---- writing on this thread, and closing --------------------------------------------------------------------

    def write(self) -> None:
        job = self.writer.begin_write()
        if job is not None:
            job.run()
            self.writer.finish_write(job)

    def flush(self) -> None:
        """Write and sync everything on this thread."""
        self.write()
        job = self.writer.begin_flush(include_active=True)
        if job is not None:
            job.run()
            self.writer.finish_flush(job)

    def close(self) -> None:
        """Write and sync everything, so that the next `open` may be `clean`. No job may be under way."""
        try:
            job = self.writer.begin_close() if self.failure is None else None
            if job is not None:
                job.run()
                self.writer.finish_flush(job)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all file descriptors without writing, as if the process were killed."""
        self.writer.abandon()
        self.segments.close()
