"""One segment: batches from a base offset on in a `.log` file, and its indexes.

A segment keeps the books of what was appended (`add`), also of what waits to be written; the log writes the bytes and
moves `written_size`. Nothing beyond that is read. In the books are the last hundred batches one by one, so that readers
at the end of the log need no look into a file.

```
NNNNNNNNNNNNNNNNNNNN.log     record batches (protocol.record_batch), end to end, offsets rising, none below the base
                             offset N nor 2**31 or more above it
```
A `.log` is valid up to the first batch that is cut, has another magic than 2, a wrong CRC, or an offset that does not
rise.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

from odradek.log.errors import DamagedSegmentError
from odradek.log.log_config import LogConfig
from odradek.log.names import INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, offset_file
from odradek.log.segments.index_file import IndexFile
from odradek.log.segments.index_rebuild import true_indexes
from odradek.log.segments.offset_index import ENTRY, OffsetIndex
from odradek.log.segments.old_formats import OLD_FORMATS
from odradek.log.segments.open_files import FilePool
from odradek.log.segments.time_index import NO_TIMESTAMP, TimeIndex
from odradek.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from odradek.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader, CorruptBatchError, read_header, verify_crc
from odradek.runtime import Buffer

_logger = logging.getLogger("odradek.log")
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_SCAN_BYTES: Final = 8192
_MOST_RECENT: Final = 128
_WORTH_LENDING_BYTES: Final = 64 * 1024
"""Below this, memory of Python's own is as good, and a view of a larger piece would waste most of that."""

Lender = Callable[[int], memoryview]
"""Gives memory of at least so many bytes, which is the borrower's as long as there are views of it."""


class SegmentEnd(NamedTuple):
    """The books of a segment that was read to its end. Timestamps in ms, sizes in bytes.

    `first_timestamp` is the first batch's, None without one; `since_entry` is what came since the last index entry.
    """

    size: int
    next_offset: int
    first_timestamp: int | None
    max_timestamp: int
    max_timestamp_offset: int
    since_entry: int


class Segment:
    """See the module. Methods that read raise `OSError`, and `CorruptBatchError` where the file is not what it was.

    `size` and `next_offset` count what is pending; `written_size` does not. `max_timestamp` is that of all records, -1
    without any. `is_created` says whether the `.log` file is there. `aborted` is None until a transaction is.
    """

    def __init__(
        self, pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> None:
        """`suffix` is behind the names of all its files: of a segment that is not yet part of its log."""
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
        self.is_cut = False
        """Whether the file lost its end after it was synced: there is more than gaps between offsets then."""
        self.checked_at_s: float | None = None
        """When it was last found whole by a check for damage, in monotonic time."""
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
        self._is_mended = False
        self._are_times_confirmed = True
        self.update_config(config)
        self._make_indexes(0, 0)

    @classmethod
    def open(
        cls, pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> "Segment":
        """A segment that is on the disk. Its `next_offset` and `max_timestamp` are not known yet: see `load_end`."""
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
        """The sizes of the two index files, 0 where there is none."""
        disk, paths = self.pool.disk, (self._path(INDEX), self._path(TIME_INDEX))
        sizes = [disk.size(path) if disk.exists(path) else 0 for path in paths]
        return sizes[0], sizes[1]

    def update_config(self, config: LogConfig) -> None:
        """Let another configuration hold from now on; the size of the indexes stays what it was."""
        self.config = config
        most_ms = config.segment_ms
        if "compact" in config.cleanup_policy:
            most_ms = min(most_ms, config.max_compaction_lag_ms)  # the active segment is never compacted (KIP-354)
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._roll_ms = most_ms - (jitter_ms and crc32(self.log.path.encode()) % jitter_ms)

    # ---- the books ----------------------------------------------------------------------------------------------

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` belongs into the next segment."""
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
        """Note that a batch of `size` bytes comes next in the file."""
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

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note that the last batch ends a transaction that is aborted."""
        if self.aborted is None:
            self.aborted = TransactionIndex(self.pool.file(self._path(TRANSACTION_INDEX)))
        self.aborted.append(transaction)

    def add_index_entries(self, last_offset: int, position: int, max_timestamp: int, timestamp_offset: int) -> None:
        """Let both indexes know the batch at `position`, and the largest timestamp so far with its offset."""
        self.offset_index.append(last_offset, position)
        self.time_index.append(max_timestamp, timestamp_offset)

    def set_books(self, end: SegmentEnd, now_ms: int) -> None:
        """Take what recovery found instead of many `add`; the index entries are there already."""
        self.size = self.written_size = end.size
        self.next_offset = end.next_offset
        self.max_timestamp, self.max_timestamp_offset = end.max_timestamp, end.max_timestamp_offset
        self.last_append_ms = now_ms
        self.forget_recent()
        self._first_timestamp = end.first_timestamp
        self._since_entry = end.since_entry

    def first_timestamp(self) -> int:
        """That of the first batch, -1 if it has none, or if there is no batch."""
        if self._first_timestamp is None:
            self._first_timestamp = self._read_first_timestamp()
        return self._first_timestamp

    def finish(self) -> None:
        """Nothing is appended any more: the time index gets its last entry."""
        self.time_index.append(self.max_timestamp, self.max_timestamp_offset, at_end=True)

    def flush_full_pages(self) -> None:
        """Write index entries once there are enough of them."""
        for entries in self._indexes():
            if entries.has_full_page:
                entries.flush()

    def flush_indexes(self) -> None:
        """Write all index entries; does not sync."""
        for entries in self._indexes():
            entries.flush()

    def rewrite_indexes(self) -> None:
        """The same for a segment that the next start will recover again: not synced, and a crash may come between."""
        for entries in self._indexes():
            entries.rewrite()

    def replace_indexes(self) -> None:
        """Make the index files what `add` made of them since `clear_books`; each whole or not at all, and synced."""
        for entries in self._indexes():
            entries.replace(self.pool.disk)

    def _indexes(self) -> tuple[IndexFile[Any], ...]:
        if self.aborted is None:
            return self.offset_index.entries, self.time_index.entries
        return self.offset_index.entries, self.time_index.entries, self.aborted.entries

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of a segment, the log first."""
        return self.log.path, *(entries.file.path for entries in self._indexes())

    @property
    def largest_timestamp(self) -> int:
        """The time that retention goes by: of the latest record, or of the last append if no record has one.

        A 0 is none: librdkafka writes it above records without timestamps, and older logs of ours have it so.
        """
        return self.max_timestamp if self.max_timestamp > 0 else self.last_append_ms

    # ---- reading ------------------------------------------------------------------------------------------------

    def find(self, offset: int) -> int:
        """Where the batch begins that has `offset`, or the next one after it; `size` if there is none."""
        if self._recent_lasts and offset >= self._recent_from:
            number = bisect_left(self._recent_lasts, offset)
            return self._recent_positions[number] if number < len(self._recent_lasts) else self.size
        if offset >= self.next_offset:
            return self.size
        start = self.offset_index.position_below(offset)
        try:
            return self._find_from(start, offset)
        except CorruptBatchError as error:
            if not self.mend_indexes(str(error)):
                raise
        return self._find_from(self.offset_index.position_below(offset), offset)

    def _find_from(self, start: int, offset: int) -> int:
        """The same, from the batch on that the index says begins at `start`, at `offset` or before it."""
        header, end_offset = None, self.next_offset
        for position, header in self.scan(start):
            if header.last_offset >= offset:
                if (position == start and start and header.base_offset > offset) or header.last_offset >= end_offset:
                    break
                return position
        else:
            if header is None:
                # Where something is pending, what is written may end here; and compaction may have left nothing at all.
                is_true = not start or start < self.size != self.written_size
            else:
                is_true = position + header.size == self.written_size
            if is_true and not self.is_cut:
                return self.written_size
        raise DamagedSegmentError(
            self.log.path, f"offset {offset} is not at byte {start} of {self.log.path} or behind it"
        )

    def mend_indexes(self, reason: str) -> bool:
        """Make both indexes of what is in the segment, because one of them misled; whether that was of use.

        Not twice, and not for a segment whose batches are not end to end: it is the segment then that is damaged.
        """
        if self._is_mended:
            return False
        self._is_mended = True
        try:
            true = true_indexes(
                self.scan(), self.base_offset, size=self.written_size, interval_bytes=self.config.index_interval_bytes
            )
        except CorruptBatchError:
            return False
        wrong = [
            entries.file.path
            for entries, rows, end in (
                (self.offset_index.entries, true.offset_rows[: self.offset_index.limit], true.size),
                (self.time_index.entries, true.time_rows[: self.time_index.limit], true.next_offset - self.base_offset),
            )
            if entries.correct(rows, column=1, end=end)
        ]
        if not wrong:
            return False
        if self.max_timestamp_offset < true.next_offset or self.max_timestamp < true.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = true.max_timestamp, true.max_timestamp_offset
        if self.size != self.written_size:
            self._is_mended = self._are_times_confirmed = False
        _logger.warning("%s: %s; built anew from the segment: %s", self.log.path, reason, ", ".join(wrong))
        try:
            self.flush_indexes()
        except OSError as error:
            _logger.warning("%s: its indexes stay in memory for now: %s", self.log.path, error)
        return True

    def confirm_times(self) -> None:
        """See to it, once, that `max_timestamp` is true, if all that is known of it is the end of the time index.

        Looks at the batch which that names, and at the last ones of the segment. Raises nothing. While something is
        pending, once is not enough: it was not noted if the index had a later time.
        """
        if self._are_times_confirmed:
            return
        self._are_times_confirmed = self.size == self.written_size
        timestamp, offset = self.time_index.last_entry()
        try:
            start = self.find(offset)
            true = next((header.max_timestamp for _, header in self.scan(start)), None)
            is_told = timestamp < 0 or true == timestamp or (true is None and self.size != self.written_size)
            last = self.offset_index.entries.last
            largest = max((header.max_timestamp for _, header in self.scan(last[1] if last else 0)), default=-1)
            if largest > self.max_timestamp or not is_told:
                self.mend_indexes(f"its largest timestamp is not {timestamp}, at offset {offset}")
        except (OSError, CorruptBatchError) as error:
            _logger.warning("%s: its largest timestamp is not known for sure: %s", self.log.path, error)

    def read(
        self, position: int, max_bytes: int, end: int, *, at_least_one: bool, lend: Lender | None = None
    ) -> Buffer:
        """Up to `max_bytes` from `position`, none beyond `end`; the last batch may be cut, the first is not.

        If the first is larger: all of it with `at_least_one`, else nothing. Raises `DamagedSegmentError` if the
        checksum of the first is wrong. Those behind it are not checked, which costs a microsecond each: a reader that
        refuses one of them asks for it again, and it is the first one then.
        """
        if not at_least_one and max_bytes < end - position:
            # Most often the rest of an answer that others have filled: too little for a batch, and not worth a copy.
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
                raise DamagedSegmentError(self.log.path, f"the batch at byte {position} of {self.log.path} is cut")
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
        """`(position, header)` of each batch in the file from `position` on; reads little more than headers."""
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

    # ---- opening and cutting ------------------------------------------------------------------------------------

    def load_end(self) -> bool:
        """Learn `next_offset` and `max_timestamp` of a segment that was opened; whether all of it is whole batches."""
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
        """Learn the same of a segment that another one follows, from its index alone; `times` is its last entry."""
        self.max_timestamp, self.max_timestamp_offset = times or self.time_index.last_entry()
        self.next_offset = next_base_offset
        self._are_times_confirmed = False

    def has_valid_indexes(self, end_offset: int) -> bool:
        """Whether both index files of a finished segment are there and may be believed, by their own rules."""
        index_bytes, time_index_bytes = self.stored_index_bytes()
        return (
            self.pool.disk.exists(self.offset_index.entries.file.path)
            and self.offset_index.is_valid(index_bytes, self.size)
            and self.time_index.is_valid(time_index_bytes, end_offset)
            and (time_index_bytes > 0 or not self.size)
            and self.has_valid_transactions(end_offset)
        )

    def has_valid_transactions(self, end_offset: int) -> bool:
        """Whether the file of aborted transactions may be believed, if there is one."""
        if self.aborted is None:
            return True
        size = self.pool.disk.size(self.aborted.entries.file.path)
        return self.aborted.is_valid(size, self.base_offset, end_offset)

    def offset_beyond_its_end(self) -> int | None:
        """An offset that the file had before it became shorter, if its index knows one and may be believed."""
        last, index_bytes = self.offset_index.entries.last, self.stored_index_bytes()[0]
        if last is None or last[1] < self.size or index_bytes % ENTRY.size:
            return None
        return self.base_offset + last[0] if self.offset_index.entries.is_sorted() else None

    def has_sorted_indexes(self) -> bool:
        """Whether all entries rise: a crash may leave parts of what was added after the indexes were synced."""
        return self.offset_index.entries.is_sorted() and self.time_index.entries.is_sorted()

    def clear_books(self) -> None:
        """Forget all that is known of the segment, indexes too: `add` begins anew, at the file's first byte.

        The index files stay until `replace_indexes`.
        """
        for entries in self._indexes():
            entries.clear()
        self.forget_recent()
        self.size = 0
        self.next_offset = self.base_offset
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._since_entry = 0

    def truncate(self, offset: int) -> None:
        """Cut the batch that has `offset` and all after it, also what is pending and what a failed write left."""
        self.size = self.find(offset)
        self.log.truncate(self.size)
        self.written_size = self.size
        self.offset_index.truncate(self.size)
        self.time_index.truncate(offset)
        if self.aborted is not None:
            self.aborted.truncate(offset)
        self.forget_recent()
        if not self.load_end():
            raise DamagedSegmentError(self.log.path, f"{self.log.path} has no whole batches before offset {offset}")
        self.next_offset = offset

    def close(self) -> None:
        """Give the descriptors back; the next use opens the files again."""
        self.log.close()
        for entries in self._indexes():
            entries.file.close()

    def forget_recent(self) -> None:
        """Look for batches in the file from now on, all of which is written."""
        self._recent_lasts.clear()
        self._recent_positions.clear()
        self._since_entry = 0
        self._first_timestamp = None

    def _read_first_timestamp(self) -> int:
        if self.written_size < HEADER_SIZE:
            return NO_TIMESTAMP
        return read_header(self.log.read(0, HEADER_SIZE)).max_timestamp
