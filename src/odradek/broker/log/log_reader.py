"""Reading a log: batches, aborted transactions, and offsets by timestamp."""

from odradek.broker.log.errors import DamagedSegmentError, LogStorageError, is_passing
from odradek.broker.log.local_log import LocalLog
from odradek.broker.log.log_writer import LogWriter
from odradek.broker.log.recovery.segment_damage import SuspectedSegments
from odradek.broker.log.segments.segment import Lender
from odradek.broker.log.segments.segments import Segments
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.broker.log.time_lookup import Lookup, find_first_since, find_latest
from odradek.model import Buffer, ErrorCode, KafkaError


class LogReader:
    """Reads a log. Methods raise `LogStorageError` if a file cannot be read, `DamagedSegmentError` for a damaged one.

    All but `size_between` report damage to `suspected`.
    """

    __slots__ = ("_local", "_suspected", "_writer")

    def __init__(self, local: LocalLog, writer: LogWriter, suspected: SuspectedSegments) -> None:
        self._local = local
        self._writer = writer
        self._suspected = suspected

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
        `KafkaError` OFFSET_OUT_OF_RANGE before `log_start_offset` or beyond `log_end_offset`.
        """
        local = self._local
        if not local.log_start_offset <= offset <= local.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {offset} is outside {local.log_start_offset} to {local.log_end_offset} of {local.directory}",
            )
        written = local.written_offset
        limit = written if up_to_offset is None else min(up_to_offset, written)
        if offset >= limit or local.config.discard_writes:
            return b""
        try:
            return read_batches(
                local.segments,
                offset,
                max_bytes,
                limit=limit,
                written=written,
                at_least_one=at_least_one,
                lend=lend,
            )
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self._suspected.add(error.path)
            raise

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction without a marker below the high watermark, or None.

        It is at least the log start offset.
        """
        local = self._local
        first = local.producers.first_unstable_offset
        return None if first is None else max(first, local.log_start_offset)

    def has_aborted_transactions(self, from_offset: int) -> bool:
        """Return whether `aborted_transactions` may find any, without reading a file."""
        segments = self._local.segments
        return any(segments[number].aborted for number in range(segments.find(from_offset), len(segments)))

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in `[from_offset, to_offset)`, ordered by marker.

        `to_offset` is at most the last stable offset.
        """
        try:
            return collect_aborted(self._local.segments, from_offset, to_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def size_between(self, from_offset: int, to_offset: int) -> int:
        """Return the bytes of the batches in `[from_offset, to_offset)`, both base offsets of batches."""
        try:
            return size_between(self._local.segments, from_offset, to_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def find_offset(self, timestamp: int) -> Lookup:
        """Return the first record with at least `timestamp` (ms), or None (ListOffsets)."""
        try:
            return (yield from find_first_since(self._local.segments, timestamp, self._local.log_start_offset))
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self._suspected.add(error.path)
            raise

    def find_max_timestamp(self) -> Lookup:
        """Return the first record with the largest timestamp, None without timestamps (KIP-734)."""
        try:
            return (yield from find_latest(self._local.segments, self._local.log_start_offset))
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self._suspected.add(error.path)
            raise

    def _unreadable(self, error: OSError) -> LogStorageError:
        self._writer.report_disk_failure(error)
        return LogStorageError(f"Failed to read {self._local.directory}: {error}", is_passing=is_passing(error))


def read_batches(
    segments: Segments,
    offset: int,
    max_bytes: int,
    *,
    limit: int,
    written: int,
    at_least_one: bool,
    lend: Lender | None = None,
) -> Buffer:
    """Return batches of one segment in `[offset, limit)` of a log written up to `written` (see `LogReader.read`)."""
    for number in range(segments.find(offset), len(segments)):
        segment = segments[number]
        position = segment.find(offset)
        is_cut = limit < written and limit < segment.next_offset
        end = min(segment.find(limit), segment.written_size) if is_cut else segment.written_size
        if position < end:
            return segment.read(position, max_bytes, end, at_least_one=at_least_one, lend=lend)
    return b""


def collect_aborted(segments: Segments, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Return aborted transactions with records in `[from_offset, to_offset)`, ordered by marker."""
    found: list[AbortedTransaction] = []
    for number in range(segments.find(from_offset), len(segments)):
        aborted = segments[number].aborted
        if aborted is not None:
            some, is_all = aborted.collect(from_offset, to_offset)
            found += some
            if is_all:
                break
    return found


def size_between(segments: Segments, from_offset: int, to_offset: int) -> int:
    """Return the bytes of the batches in `[from_offset, to_offset)`."""
    size = 0
    for number in range(segments.find(from_offset), len(segments)):
        segment = segments[number]
        if segment.base_offset >= to_offset:
            break
        start = segment.find(from_offset) if from_offset > segment.base_offset else 0
        size += segment.find(to_offset) - start
    return size
