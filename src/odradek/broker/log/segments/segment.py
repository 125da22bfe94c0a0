"""One segment: a `.log` file of batches from a base offset on, and its indexes.

`add` records each appended batch, also while it is pending. `LogWriter` writes the bytes and raises `written_size`, the
end of the readable bytes. The last hundred batches' positions are in memory, so reads at the log's end need no index.

```
NNNNNNNNNNNNNNNNNNNN.log     record batches (protocol.record_batch), with rising offsets from N to N + 2**31 - 1
```
A `.log` is valid up to the first batch that is truncated, has another magic than 2, a wrong CRC, or an offset that
does not rise.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

from odradek.broker.log.errors import DamagedSegmentError
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, offset_file
from odradek.broker.log.segments.batch_scan import OLD_FORMATS
from odradek.broker.log.segments.index_file import IndexFile
from odradek.broker.log.segments.offset_index import ENTRY, MAX_RELATIVE_OFFSET, OffsetIndex
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.time_index import NO_TIMESTAMP, TimeIndex
from odradek.broker.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from odradek.model import Buffer
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    CorruptBatchError,
    read_header,
    verify_crc,
)

_logger = logging.getLogger("odradek.log")
_SCAN_BYTES: Final = 8192
_MOST_RECENT: Final = 128
_WORTH_LENDING_BYTES: Final = 64 * 1024
"""Smaller reads use no lent buffer, most of which would be wasted."""

Lender = Callable[[int], memoryview]
"""Returns a buffer of at least the given size, which is the caller's until its last view is gone."""


class SegmentEnd(NamedTuple):
    """The state of a segment after recovery has read it. Timestamps in ms, sizes in bytes.

    `since_entry` is the size of the batches since the last index entry.
    """

    size: int
    next_offset: int
    first_timestamp: int | None
    max_timestamp: int
    max_timestamp_offset: int
    since_entry: int


class Segment:
    """One segment. Methods that read raise `OSError`, and `CorruptBatchError` for a damaged file.

    `size` and `next_offset` include pending batches, `written_size` does not. `max_timestamp` is -1 without timestamps.
    `is_created` is whether the `.log` file exists. `aborted`, the transaction index, is None if no transaction aborted.
    """

    def __init__(
        self, pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> None:
        """`suffix` is appended to the file names of a segment outside its log."""
        self.directory = directory
        self.base_offset = base_offset
        self.config = config
        self.size = 0
        self.written_size = 0
        self.next_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.last_append_ms = now_ms
        self.is_created = False
        self.is_truncated = False
        """Whether synced batches at the file's end are missing."""
        self.checked_at_s: float | None = None
        """The monotonic time of the last check that found no damage."""
        self.end_batch: tuple[int, int] | None = None
        """`(last offset, leader epoch)` of the last batch, if `load_end` found one."""
        self._suffix = suffix
        self.log = pool.file(self._path(LOG))
        self.pool = pool
        self.aborted: TransactionIndex | None = None
        self._first_timestamp: int | None = None
        self._created_ms = now_ms
        self._since_entry = 0
        self._recent_lasts: list[int] = []
        self._recent_positions: list[int] = []
        self._recent_from = base_offset
        self._is_rebuilt = False
        self._are_times_confirmed = True
        self.update_config(config)
        self._make_indexes(0, 0)

    @classmethod
    def open(
        cls, pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> "Segment":
        """Return a segment on the disk; then call `load_end` or `load_finished`."""
        segment = cls(pool, directory, base_offset, config, now_ms=now_ms, suffix=suffix)
        segment.size = segment.written_size = pool.disk.size(segment.log.path)
        segment.is_created = True
        segment._make_indexes(*segment.stored_index_bytes())
        path = segment._path(TRANSACTION_INDEX)
        if pool.disk.exists(path):
            segment.aborted = TransactionIndex(pool.file(path), stored_bytes=pool.disk.size(path))
        return segment

    def _path(self, kind: str) -> str:
        return offset_file(self.directory, self.base_offset, kind) + self._suffix

    def _make_indexes(self, index_bytes: int, time_index_bytes: int) -> None:
        base, limit, file = self.base_offset, self.config.segment_index_bytes, self.pool.file
        self.offset_index = OffsetIndex(file(self._path(INDEX)), base, max_bytes=limit, stored_bytes=index_bytes)
        self.time_index = TimeIndex(file(self._path(TIME_INDEX)), base, max_bytes=limit, stored_bytes=time_index_bytes)

    def stored_index_bytes(self) -> tuple[int, int]:
        """Return the sizes of the offset and time index files, 0 if missing."""
        disk, paths = self.pool.disk, (self._path(INDEX), self._path(TIME_INDEX))
        sizes = [disk.size(path) if disk.exists(path) else 0 for path in paths]
        return sizes[0], sizes[1]

    def update_config(self, config: LogConfig) -> None:
        """Apply another configuration, except the size limit of the indexes."""
        self.config = config
        most_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            most_ms = min(most_ms, config.max_compaction_lag_ms)  # the active segment is never compacted (KIP-354)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._roll_ms = most_ms - (jitter_ms and crc32(self.log.path.encode()) % jitter_ms)

    # ---- batches and index entries --------------------------------------------------------------------------------

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        if not self.size:
            return False
        first, newest = self.first_timestamp(), max_timestamp
        age_ms = newest - first if first > 0 and newest > 0 else now_ms - self._created_ms
        return (
            self.size + size > self.config.segment_bytes
            or age_ms > self._roll_ms
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
            or self.offset_index.is_full
            or self.time_index.is_full
        )

    def add(self, base_offset: int, last_offset: int, size: int, max_timestamp: int, now_ms: int) -> None:
        position = self.size
        if not position:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        recent = self._recent_lasts
        if self._since_entry > self.config.index_interval_bytes:
            self.add_index_entries(last_offset, position, self.max_timestamp, self.max_timestamp_offset)
            self._since_entry = 0
        if not recent:
            self._recent_from = base_offset
        recent.append(last_offset)
        self._recent_positions.append(position)
        if len(recent) > _MOST_RECENT:
            half = len(recent) // 2
            self._recent_from = recent[half - 1] + 1
            del recent[:half]
            del self._recent_positions[:half]
        self._since_entry += size
        self.size = position + size
        self.next_offset = last_offset + 1
        self.last_append_ms = now_ms

    def add_batches(
        self, batches: Iterable[tuple[int, BatchHeader]], size: int, last_offset: int
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Add and yield batches, each `(position, header)`, up to one that ends beyond `size`.

        Raises `CorruptBatchError` if their offsets do not rise up to `last_offset`.
        """
        for position, header in batches:
            if not self.next_offset <= header.base_offset <= header.last_offset <= last_offset:
                raise CorruptBatchError(f"{self.log.path} has a batch at byte {position} that is out of order")
            if position + header.size > size:
                return
            self.add(header.base_offset, header.last_offset, header.size, header.max_timestamp, self.last_append_ms)
            yield position, header

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction, whose marker is in this segment, to the transaction index."""
        if self.aborted is None:
            self.aborted = TransactionIndex(self.pool.file(self._path(TRANSACTION_INDEX)))
        self.aborted.append(transaction)

    def add_index_entries(self, last_offset: int, position: int, max_timestamp: int, timestamp_offset: int) -> None:
        """Index the batch at `position` by offset, and the largest timestamp so far by time."""
        self.offset_index.append(last_offset, position)
        self.time_index.append(max_timestamp, timestamp_offset)

    def set_recovered(self, end: SegmentEnd, now_ms: int) -> None:
        """Set the state found by recovery, which has already added the index entries."""
        self.size = self.written_size = end.size
        self.next_offset = end.next_offset
        self.max_timestamp, self.max_timestamp_offset = end.max_timestamp, end.max_timestamp_offset
        self.last_append_ms = now_ms
        self.clear_recent()
        self._first_timestamp = end.first_timestamp
        self._since_entry = end.since_entry

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, -1 without one."""
        if self._first_timestamp is None:
            self._first_timestamp = self._read_first_timestamp()
        return self._first_timestamp

    def finish(self) -> None:
        """Add the last entry of the time index, after the last append."""
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset, at_end=True)

    def flush_full_pages(self) -> None:
        for entries in self._indexes():
            if entries.has_full_page:
                entries.flush()

    def flush_indexes(self) -> None:
        """Write all index entries without syncing."""
        for entries in self._indexes():
            entries.flush()

    def rewrite_indexes(self) -> None:
        """Make the next flush rewrite the index files, not atomically, because recovery runs again after a crash."""
        for entries in self._indexes():
            entries.rewrite()

    def replace_indexes(self) -> None:
        """Replace each index file by the entries since `reset`, atomically and synced."""
        for entries in self._indexes():
            entries.replace(self.pool.disk)

    def _indexes(self) -> tuple[IndexFile[Any], ...]:
        if self.aborted is None:
            return self.offset_index.entries, self.time_index.entries
        return self.offset_index.entries, self.time_index.entries, self.aborted.entries

    @property
    def paths(self) -> tuple[str, ...]:
        return self.log.path, *(entries.file.path for entries in self._indexes())

    @property
    def largest_timestamp(self) -> int:
        """The time for retention: the largest timestamp, or the last append's time without timestamps.

        Timestamp 0 counts as none: librdkafka writes it.
        """
        return self.max_timestamp if self.max_timestamp > 0 else self.last_append_ms

    # ---- reading ------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> int:
        """Return the position of the batch with `offset`, or of the next batch; `size` if there is none."""
        if self._recent_lasts and offset >= self._recent_from:
            number = bisect_left(self._recent_lasts, offset)
            return self._recent_positions[number] if number < len(self._recent_lasts) else self.size
        if offset >= self.next_offset:
            return self.size
        start = self.offset_index.position_below(offset)
        try:
            return self._find_from(start, offset)
        except CorruptBatchError as error:
            if not self.rebuild_indexes(str(error)):
                raise
        return self._find_from(self.offset_index.position_below(offset), offset)

    def _find_from(self, start: int, offset: int) -> int:
        header, end_offset = None, self.next_offset
        for position, header in self.scan(start):
            if header.last_offset >= offset:
                if (position == start and start and header.base_offset > offset) or header.last_offset >= end_offset:
                    break
                return position
        else:
            if header is None:
                # No batch at `start`: it may be pending, or compaction may have left an empty segment.
                is_true = not start or start < self.size != self.written_size
            else:
                is_true = position + header.size == self.written_size
            if is_true and not self.is_truncated:
                return self.written_size
        raise DamagedSegmentError(
            self.log.path, f"offset {offset} is not at byte {start} of {self.log.path}, or after it"
        )

    def rebuild_indexes(self, reason: str) -> bool:
        """Rebuild both indexes after a wrong entry, only once if no batch is pending; return whether any changed."""
        if self._is_rebuilt:
            return False
        self._is_rebuilt = True
        true = Segment(self.pool, self.directory, self.base_offset, self.config, now_ms=self.last_append_ms)
        try:
            for _ in true.add_batches(self.scan(), self.written_size, self.base_offset + MAX_RELATIVE_OFFSET):
                pass
        except CorruptBatchError:
            return False
        if true.size + HEADER_SIZE <= self.written_size:
            return False
        true.finish()
        wrong = [
            mine.file.path
            for mine, rows, end in (
                (self.offset_index.entries, true.offset_index.entries, true.size),
                (self.time_index.entries, true.time_index.entries, true.next_offset - self.base_offset),
            )
            if mine.correct(rows.rows(0, len(rows)), column=1, end=end)
        ]
        if not wrong:
            return False
        if self.max_timestamp_offset < true.next_offset or self.max_timestamp < true.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = true.max_timestamp, true.max_timestamp_offset
        if self.size != self.written_size:
            self._is_rebuilt = self._are_times_confirmed = False
        _logger.warning("%s: %s; rebuilt from the segment: %s", self.log.path, reason, ", ".join(wrong))
        try:
            self.flush_indexes()
        except OSError as error:
            _logger.warning("%s: its indexes stay in memory until the next flush: %s", self.log.path, error)
        return True

    def confirm_times(self) -> None:
        """Check `max_timestamp` if it is only from the time index, and rebuild wrong indexes; log errors.

        Repeated calls check again only while batches are pending.
        """
        if self._are_times_confirmed:
            return
        self._are_times_confirmed = self.size == self.written_size
        try:
            timestamp, offset = self.time_index.last_entry()
            start = self.find(offset)
            true = next((header.max_timestamp for _, header in self.scan(start)), None)
            is_told = timestamp < 0 or true == timestamp or (true is None and self.size != self.written_size)
            last = self.offset_index.entries.last
            largest = max((header.max_timestamp for _, header in self.scan(last[1] if last else 0)), default=-1)
            if largest > self.max_timestamp or not is_told:
                self.rebuild_indexes(f"its largest timestamp is not {timestamp}, at offset {offset}")
        except (OSError, CorruptBatchError) as error:
            _logger.warning("%s: its largest timestamp is not confirmed: %s", self.log.path, error)

    def read(
        self, position: int, max_bytes: int, end: int, *, at_least_one: bool, lend: Lender | None = None
    ) -> Buffer:
        """Return up to `max_bytes` in positions `[position, end)`; the last batch may be truncated.

        A larger first batch is returned whole with `at_least_one`, else not at all. Raises `DamagedSegmentError` if the
        first batch is damaged; later ones are not checked (1 µs each): clients check them and fetch again.
        """
        if not at_least_one and max_bytes < end - position:
            # Usually other partitions have filled the response, and the rest is too small for a batch.
            header = self.log.read(position, HEADER_SIZE)
            if len(header) < HEADER_SIZE or read_header(header).size > max_bytes:
                return b""
        data = self._read(position, min(max_bytes, end - position), lend)
        if len(data) < HEADER_SIZE:
            if not at_least_one or position >= end:
                return b""
            data = self.log.read(position, HEADER_SIZE)
        first = read_header(data)
        if first.size > len(data):
            if not at_least_one:
                return b""
            if position + first.size > self.written_size:
                raise DamagedSegmentError(self.log.path, f"{self.log.path} ends in the batch at byte {position}")
            data = self._read(position, first.size, lend)
        if first.magic not in OLD_FORMATS and not self._is_sound(first, data):
            message = f"the batch at byte {position} of {self.log.path} is damaged: its checksum or its offset is wrong"
            raise DamagedSegmentError(self.log.path, message)
        return data

    def _is_sound(self, header: BatchHeader, data: Buffer) -> bool:
        is_here = self.base_offset <= header.base_offset <= header.last_offset < self.next_offset
        return header.magic == MAGIC and is_here and verify_crc(data, 0, header)

    def _read(self, position: int, length: int, lend: Lender | None) -> Buffer:
        if lend is None or length < _WORTH_LENDING_BYTES:
            return self.log.read(position, length)
        view = lend(length)[:length]
        return view[: self.log.read_into(position, view)].toreadonly()

    def scan(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield `(position, header)` of each batch from `position` on; reads little more than headers."""
        end = self.written_size
        chunk, start = b"", position
        while position + HEADER_SIZE <= end:
            if position + HEADER_SIZE > start + len(chunk):
                chunk, start = self.log.read(position, min(_SCAN_BYTES, end - position)), position
            header = read_header(chunk, position - start)
            if header.magic != MAGIC or header.size < HEADER_SIZE:
                raise DamagedSegmentError(self.log.path, f"there is no batch at byte {position} of {self.log.path}")
            yield position, header
            position += header.size

    # ---- opening and truncating ---------------------------------------------------------------------------------

    def load_end(self) -> bool:
        """Read `next_offset` and `max_timestamp` after the last index entry; return whether all batches are whole."""
        latest, latest_offset = self.time_index.last_entry()
        last = self.offset_index.entries.last
        start = end = last[1] if last else 0
        next_offset, is_whole = self.base_offset, True
        try:
            for position, header in self.scan(start):
                if header.max_timestamp > latest:
                    latest, latest_offset = header.max_timestamp, header.last_offset
                next_offset = header.next_offset
                self.end_batch = header.last_offset, header.partition_leader_epoch
                end = position + header.size
        except CorruptBatchError:
            is_whole = False
        self.next_offset = next_offset
        self.max_timestamp, self.max_timestamp_offset = latest, latest_offset
        if is_whole:
            self._since_entry = end - start
            self._are_times_confirmed = False
        return is_whole and end == self.written_size

    def load_finished(self, next_base_offset: int, times: tuple[int, int] | None = None) -> None:
        """Set a finished segment's end; `times` (largest timestamp, its offset) defaults to the index's last entry."""
        self.max_timestamp, self.max_timestamp_offset = times or self.time_index.last_entry()
        self.next_offset = next_base_offset
        self._are_times_confirmed = False

    def has_valid_indexes(self, end_offset: int) -> bool:
        """Return whether both index files exist, and they and the transaction index are valid."""
        index_bytes, time_index_bytes = self.stored_index_bytes()
        return (
            self.pool.disk.exists(self.offset_index.entries.file.path)
            and self.offset_index.is_valid(index_bytes, self.size)
            and self.time_index.is_valid(time_index_bytes, end_offset)
            and (time_index_bytes > 0 or not self.size)
            and self.has_valid_transactions(end_offset)
        )

    def has_valid_transactions(self, end_offset: int) -> bool:
        if self.aborted is None:
            return True
        size = self.pool.disk.size(self.aborted.entries.file.path)
        return self.aborted.is_valid(size, self.base_offset, end_offset)

    def offset_beyond_end(self) -> int | None:
        """Return the last indexed offset if the `.log` ends before its batch; None otherwise or for a wrong index."""
        last, index_bytes = self.offset_index.entries.last, self.stored_index_bytes()[0]
        if last is None or last[1] < self.size or index_bytes % ENTRY.size:
            return None
        return self.base_offset + last[0] if self.offset_index.entries.is_sorted() else None

    def has_sorted_indexes(self) -> bool:
        """Return whether all index entries rise; a crash may damage unsynced entries."""
        return self.offset_index.entries.is_sorted() and self.time_index.entries.is_sorted()

    def reset(self) -> None:
        """Clear all batches and index entries in memory; `replace_indexes` changes the files."""
        for entries in self._indexes():
            entries.clear()
        self.clear_recent()
        self.size = 0
        self.next_offset = self.base_offset
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._since_entry = 0

    def truncate(self, offset: int) -> None:
        """Remove the batch with `offset` and all later ones, also pending and half-written ones."""
        self.size = self.find(offset)
        self.log.truncate(self.size)
        self.written_size = self.size
        self.offset_index.truncate(self.size)
        self.time_index.truncate(offset)
        if self.aborted is not None:
            self.aborted.truncate(offset)
        self.clear_recent()
        if not self.load_end():
            raise DamagedSegmentError(self.log.path, f"{self.log.path} has no whole batches before offset {offset}")
        self.next_offset = offset

    def move_to(self, directory: str) -> None:
        """Use the files in `directory`, a new name of the present one."""
        self.close()
        for file in (self.log, *(entries.file for entries in self._indexes())):
            file.path = f"{directory}/{file.path.rpartition('/')[2]}"
        self.directory = directory

    def close(self) -> None:
        """Close the files; the next use opens them again."""
        self.log.close()
        for entries in self._indexes():
            entries.file.close()

    def clear_recent(self) -> None:
        """Clear the recent batches' positions in memory; all batches must be written."""
        self._recent_lasts.clear()
        self._recent_positions.clear()
        self._since_entry = 0
        self._first_timestamp = None

    def _read_first_timestamp(self) -> int:
        if self.written_size < HEADER_SIZE:
            return NO_TIMESTAMP
        return read_header(self.log.read(0, HEADER_SIZE)).max_timestamp
