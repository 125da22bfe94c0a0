"""The half of a log that changes nothing: where it begins and ends, what is in it, and where a time is."""

from collections.abc import Callable, Sequence

from odradek.log.durability import Durability
from odradek.log.errors import DamagedFileError, DamagedSegmentError, LogStorageError, is_disk_failure, is_passing
from odradek.log.log_config import LogConfig
from odradek.log.pending_writes import PendingWrites, WriteJob
from odradek.log.producers.refused_batches import RefusedBatches
from odradek.log.recovery.log_loader import LoadedLog
from odradek.log.retention import Trash
from odradek.log.segments.open_files import FilePool
from odradek.log.segments.segment import Lender, Segment
from odradek.log.segments.segment_reader import collect_aborted, read_batches, size_between
from odradek.log.segments.segments import Segments
from odradek.log.segments.transaction_index import AbortedTransaction
from odradek.log.time_lookup import TimestampOffset, find_first_since, find_latest
from odradek.log.validation import MessageRules
from odradek.model import ErrorCode, KafkaError
from odradek.runtime import Buffer


class LogView:
    """What `Log` adds to; it alone changes these attributes.

    `log_start_offset` is the first offset that may be read, `log_end_offset` the next one to be appended,
    `written_offset` the end of what may be read. `epochs` and `producers` are to be read only. `cut` is what recovery
    took away when the log was opened.
    """

    def __init__(self, pool: FilePool, directory: str, config: LogConfig, loaded: LoadedLog, *, now_ms: int) -> None:
        self.directory = directory
        self.config = config
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.cut = loaded.cut
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = self.written_offset = loaded.segments[-1].next_offset
        self._pool = pool
        self._segments = Segments(loaded.segments)
        self._durability = Durability(
            pool.disk, directory, end_offset=self.log_end_offset, is_clean=loaded.is_clean, now_ms=now_ms
        )
        self._rules = MessageRules(config)
        self.refused = RefusedBatches()
        self._last_append_ms = 0
        self._pending = PendingWrites()
        self._write: WriteJob | None = None
        self._failure: str | None = None
        self._lost: LogStorageError | None = None
        """Why what was appended and not written is lost, until `begin_write` has said so to those who wait for it."""
        self._is_cut_due = False
        """Whether the books still have what is lost."""
        self.when_failed: Callable[[Exception], None] | None = None
        """Called when the log has stopped, once, and with what says that the disk has failed where it goes on."""
        self.when_suspected: Callable[[Segment], bool] | None = None
        """Called when a reader, or compaction, did not find in a segment what should be there.

        It returns whether the segment is being checked; `checked` or `not_checked` is called when that has ended.
        """
        self._suspected: set[Segment] = set()
        self._damaged: tuple[Segment, DamagedFileError] | None = None
        self._trash = Trash()

    @property
    def failure(self) -> str | None:
        """Why the log stopped, None while it runs."""
        return self._failure

    @property
    def high_watermark(self) -> int:
        """The end of what is committed, as far as the log was told."""
        return min(self.producers.high_watermark, self.written_offset)

    @property
    def synced_offset(self) -> int:
        """The end of what outlasts a power cut."""
        return self._durability.synced_offset

    @property
    def recovery_point(self) -> int:
        """Segments that end before it are synced with their indexes, and recovery leaves them alone."""
        return self._durability.recovery_point

    @property
    def last_flush_ms(self) -> int:
        """When the active segment was last given to a flush."""
        return self._durability.last_flush_ms

    @property
    def pending_bytes(self) -> int:
        """What is appended and waits to be written."""
        return self._pending.size

    @property
    def size(self) -> int:
        """The bytes of all batches, also of those that are pending."""
        return self._segments.size

    @property
    def segments(self) -> Sequence[Segment]:
        """In the order of their offsets, the last one appended to; to be read only."""
        return self._segments

    @property
    def segment_base_offsets(self) -> list[int]:
        """Where the segments begin."""
        return list(self._segments.bases)

    @property
    def first_base_offset(self) -> int:
        """Where the first segment begins: at the log's start, or before it."""
        return self._segments.bases[0]

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        up_to_offset: int | None = None,
        at_least_one: bool = True,
        lend: Lender | None = None,
    ) -> Buffer:
        """Batches from the one with `offset` on, out of one segment; the first may begin earlier, the last may be cut.

        Nothing at or beyond `up_to_offset` (None: `written_offset`) is returned. If the first batch has more than
        `max_bytes`, it is returned whole with `at_least_one`, else nothing is. Raises `KafkaError`
        OFFSET_OUT_OF_RANGE. Much is read into memory of `lend`'s, if there is such, and a view of that is returned.
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
            return read_batches(
                self._segments,
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
            self.suspect(error.path)
            raise

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins of which nobody knows yet how it ends, or not for sure; None without one.

        How far what is appended is committed, `producers.committed` was told.
        """
        first = self.producers.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    def has_aborted_transactions(self, from_offset: int) -> bool:
        """Whether `aborted_transactions` may find any; False is quick to say."""
        segments = self._segments
        return any(segments[number].aborted for number in range(segments.find(from_offset), len(segments)))

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Those with a record in `from_offset` to `to_offset`, exclusive, in the order of their ends.

        `to_offset` is at most the last stable offset: of what is open nobody knows.
        """
        try:
            return collect_aborted(self._segments, from_offset, to_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def size_between(self, from_offset: int, to_offset: int) -> int:
        """The bytes of the batches in `from_offset` to `to_offset`, exclusive, of which each begins one."""
        try:
            return size_between(self._segments, from_offset, to_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def find_offset(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is not earlier than `timestamp` (ms), or None; as ListOffsets defines it."""
        try:
            return find_first_since(self._segments, timestamp, self.log_start_offset)
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self.suspect(error.path)
            raise

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The first of the records with the largest timestamp, or None if there is none (KIP-734)."""
        try:
            return find_latest(self._segments, self.log_start_offset)
        except OSError as error:
            raise self._unreadable(error) from error
        except DamagedSegmentError as error:
            self.suspect(error.path)
            raise

    def suspect(self, path: str) -> None:
        """Have the segment whose `.log` file is at `path` checked for damage, unless one is known to be damaged."""
        if self.when_suspected is None or self.damage is not None:
            return
        for segment in self._segments:
            if segment.log.path == path and segment not in self._suspected and self.when_suspected(segment):
                self._suspected.add(segment)

    def checked(self, segment: Segment, size: int, damage: DamagedFileError | None) -> bool:
        """Know what is wrong with `segment`, as it was when it had `size` bytes; return whether that is news."""
        self._suspected.discard(segment)
        if damage is None or self.damage is not None or segment not in self._segments or segment.written_size < size:
            return False
        self._damaged = segment, damage
        return True

    def not_checked(self, segment: Segment) -> None:
        """Nothing is known of `segment`: the next reader that suspects it has it checked again."""
        self._suspected.discard(segment)

    @property
    def damage(self) -> DamagedFileError | None:
        """What is known to be wrong with a file of the log (see `segment_damage`); it cannot be copied from here.

        It is forgotten when its segment leaves the log, by retention for instance.
        """
        if self._damaged is not None and self._damaged[0] not in self._segments:
            self._damaged = None
        return None if self._damaged is None else self._damaged[1]

    @property
    def may_be_damaged(self) -> bool:
        """Whether a file of the log is damaged, or is being checked."""
        return self.damage is not None or any(segment in self._segments for segment in self._suspected)

    def _unreadable(self, error: OSError) -> LogStorageError:
        if is_disk_failure(error) and self.when_failed is not None:
            self.when_failed(error)
        return LogStorageError(f"the log in {self.directory} cannot be read: {error}", is_passing=is_passing(error))
