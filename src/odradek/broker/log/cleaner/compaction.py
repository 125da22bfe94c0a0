"""One compaction of one log: index the keys of its dirty part, then write the records that stay to new segments.

```
    log start                   first_dirty_offset          next_dirty_offset (map is full)        first uncleanable
    |  clean: compacted before  |  dirty: keys are indexed  |  segment's rest  |  next compaction  |  not yet
    '-------------- written to new segments, as few as possible ---------------'
```
A batch keeps its offsets and producer. A batch without records is removed, except the last one of a known producer,
which has its sequence number, and the last one of a new segment, which must end where the next segment begins.
`steps` runs on any thread, and only reads the log's files.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import Struct

from odradek.broker.log.cleaner.checked_batches import Chunk, Piece, Run, Section
from odradek.broker.log.cleaner.record_filter import Kept, KeptRun, RecordFilter, set_horizon
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import CLEANED
from odradek.broker.log.segments.batch_scan import FoundBatch
from odradek.broker.log.segments.offset_index import ENTRY as INDEX_ENTRY
from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segment_swap import CleanedSegment, Source
from odradek.broker.log.segments.time_index import ENTRY as TIME_INDEX_ENTRY
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.model import Buffer
from odradek.protocol.batches.compression import Codec, compress, decompress
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker, decode_marker
from odradek.protocol.batches.record_batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    write_header,
)
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime import Disk


class CleanedTransactions:
    """Decides which transactional batches and markers can be removed; receives a log's batches in order.

    Records of the `aborted` transactions are removed at once, a marker and its index entry when a later compaction
    finds none of its batches.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        """Producers with a batch of the open transaction, perhaps one removed now."""
        self.to_index: list[AbortedTransaction] = []
        """Aborted transactions whose markers stay, for the transaction index; the caller clears the list."""

    def _open(self, up_to_offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= up_to_offset:
            transaction = self._coming.pop()
            if transaction.producer_id not in self._aborted:
                self._aborted[transaction.producer_id] = transaction

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return whether the records of a data batch belong to an aborted transaction."""
        self._open(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_batches.add(header.producer_id)
        return header.producer_id in self._aborted

    def can_be_removed(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Return whether a control batch can be removed; without a `marker` only if it has no record."""
        self._open(header.last_offset)
        if marker is None:
            return not header.record_count
        has_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.type is ControlType.ABORT:
            transaction = self._aborted.pop(header.producer_id, None)
            if transaction is None or not has_batches:
                return True
            self.to_index.append(transaction)
            return False
        return not has_batches


_OPEN_FILES: Final = 4
_SYNC_BYTES: Final = 1 << 20
"""New segments are synced together up to this size: most of a tiny one's time is its syncs."""
_NO_TIMESTAMP: Final = -1
_LONGEST_RETENTION_MS: Final = 1 << 61
"""The limit of `delete.retention.ms`, so that differences of times have 64 bits."""


class LastBatch(NamedTuple):
    """The last data batch of a producer, which compaction keeps; it ends at `offset`.

    If `offset` is -1, there is no such batch, and the transaction markers of `epoch` are kept instead.
    """

    offset: int
    epoch: int


class CompactionPlan(Struct, frozen=True, kw_only=True):
    """The input of a compaction, as of `now_ms`. `sources` are the log's first segments, read `io_bytes` at a time.

    Keys are indexed from `first_dirty_offset` on; the batch with that offset begins at byte `first_position` of its
    segment. `last_batches` has producer ids as keys.
    """

    directory: str
    config: LogConfig
    sources: Sequence[Source]
    first_dirty_offset: int
    first_position: int
    aborted: Sequence[AbortedTransaction]
    last_batches: Mapping[int, LastBatch]
    now_ms: int
    io_bytes: int


class CompactionStats(Struct, kw_only=True):
    """Sizes before and after. `indexed_bytes` were read to index keys, `read_bytes` to filter records."""

    indexed_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    read_records: int = 0
    written_records: int = 0
    map_utilization: float = 0.0


class _Entry(NamedTuple):
    """A batch to write: `data`, or the kept records of `section`. With `keep_empty` it is written even without any."""

    header: BatchHeader
    data: Buffer
    section: Section | None
    keep_empty: bool


class Compaction:
    """One compaction. `next_dirty_offset` is the end of the indexed keys, once `steps` has indexed them."""

    def __init__(self, disk: Disk, plan: CompactionPlan, new_filter: Callable[[], RecordFilter]) -> None:
        """`new_filter` is called on the thread of `steps`, because its imports are slow."""
        self.plan = plan
        self.stats = CompactionStats()
        self.next_dirty_offset = plan.first_dirty_offset
        self._disk = disk
        self._new_filter = new_filter
        self._filter: RecordFilter
        self._last_offsets = sorted(last.offset for last in plan.last_batches.values() if last.offset >= 0)
        self._segments: list[tuple[Segment, Sequence[Source]]] = []
        """New segments that are not swapped in, and their sources."""
        self._horizon_ms = plan.now_ms + min(plan.config.delete_retention_ms, _LONGEST_RETENTION_MS)

    def steps(self) -> Iterator[int | CleanedSegment]:
        """Yield after each step: the bytes read and written, or a new segment, which the caller now swaps in.

        Raises `DamagedFileError`, `CorruptBatchError` or `OSError` if a file cannot be read or written. Unless all
        steps have run, call `discard`.
        """
        self._filter = self._new_filter()
        self._remove_left_overs()
        yield from self._note_keys()
        self.stats.map_utilization = self._filter.offsets.utilization
        end = self.next_dirty_offset
        sources = deque(source for source in self.plan.sources if source.base_offset < end)
        transactions = CleanedTransactions(self.plan.aborted)
        while sources:
            yield from self._clean(sources, transactions)
            if not sources or sum(segment.size for segment, _ in self._segments) >= _SYNC_BYTES:
                yield from self._sync()
        self._disk.sync_all([self.plan.directory])

    def _sync(self) -> Iterator[CleanedSegment]:
        paths = [path for segment, _ in self._segments for path in segment.paths]
        self._disk.sync_all([*paths, self.plan.directory])
        while self._segments:
            yield CleanedSegment(self._segments[0][1])
            del self._segments[0]

    def _remove_left_overs(self) -> None:
        """Remove an earlier compaction's files, which a crash could mix with new ones."""
        directory = self.plan.directory
        for name in self._disk.list(directory):
            if name.endswith(CLEANED):
                self._disk.remove(f"{directory}/{name}")

    def discard(self) -> None:
        """Remove files that are not swapped in; opening the log removes those that remain."""
        for segment, _ in self._segments:
            with suppress(OSError):
                self._remove(segment)

    # ---- the keys of the dirty part -----------------------------------------------------------------------------

    def _note_keys(self) -> Iterator[int]:
        plan, offsets = self.plan, self._filter.offsets
        # Markers before the first dirty offset are not read, so their transactions would stay open.
        transactions = CleanedTransactions(each for each in plan.aborted if each.last_offset >= plan.first_dirty_offset)
        position = plan.first_position
        for source in plan.sources:
            if source.next_offset <= plan.first_dirty_offset:
                continue
            for chunk in self._chunks(source, position):
                self.stats.indexed_bytes += chunk.size
                is_full = False
                for pieces, last_offset, size in self._with_keys(chunk, transactions):
                    is_full = bool(pieces) and self._filter.index_keys(pieces, plan.first_dirty_offset)
                    if not is_full:
                        offsets.latest_offset = max(offsets.latest_offset, last_offset)
                    self.next_dirty_offset = max(self.next_dirty_offset, offsets.latest_offset + 1)
                    yield size
                    if is_full:
                        return
            offsets.latest_offset = max(offsets.latest_offset, source.next_offset - 1)
            self.next_dirty_offset = source.next_offset
            position = 0

    def _with_keys(self, chunk: Chunk, transactions: CleanedTransactions) -> Iterator[tuple[list[Piece], int, int]]:
        """Yield `(records to index, last offset, bytes)`, once per chunk, more often if decompression enlarges it."""
        pieces: list[Piece] = []
        size = chunk.size
        extra = 0
        for batch in chunk.batches:
            if isinstance(batch, Run):
                if batch.last_offset >= self.plan.first_dirty_offset:
                    pieces.append(batch)
                continue
            header = batch.header
            if header.is_control:
                transactions.can_be_removed(header, decode_marker(batch.data))
            elif (
                not transactions.is_aborted(header)
                and header.record_count
                and header.last_offset >= self.plan.first_dirty_offset
            ):
                section = _section(batch)
                pieces.append(section)
                extra += _extra_bytes(section)
            if extra >= self.plan.io_bytes:
                yield pieces, header.last_offset, size + extra
                pieces, size, extra = [], 0, 0
        yield pieces, chunk.last.last_offset, size + extra

    def _chunks(self, source: Source, position: int = 0) -> Iterator[Chunk]:
        plan, file = self.plan, self._disk.open(source.path, read_only=True)
        try:
            read_bytes = max(plan.io_bytes, HEADER_SIZE)
            yield from self._filter.read(file, source, position=position, read_bytes=read_bytes, now_ms=plan.now_ms)
        except CorruptBatchError as error:
            raise DamagedFileError(source.path, 0, f"has a batch that cannot be read: {error}") from error
        finally:
            file.close()

    # ---- writing anew -------------------------------------------------------------------------------------------

    def _clean(self, sources: deque[Source], transactions: CleanedTransactions) -> Iterator[int]:
        """Write one segment from as many of `sources` as fit; yield the bytes of each step."""
        plan = self.plan
        pool = FilePool(self._disk, _OPEN_FILES)
        base_offset = sources[0].base_offset
        segment = Segment(pool, plan.directory, base_offset, plan.config, now_ms=plan.now_ms, suffix=CLEANED)
        group: list[Source] = []
        self._segments.append((segment, group))
        self._remove(segment)
        segment.log.truncate(0)
        last: BatchHeader | None = None
        while sources and (not group or _fits(segment, sources[0])):
            group.append(sources.popleft())
            for chunk in self._chunks(group[-1]):
                last = chunk.last
                yield from self._clean_chunk(segment, chunk, transactions)
            self.stats.read_bytes += group[-1].size
            for aborted in transactions.to_index:
                segment.add_aborted(aborted)
            transactions.to_index.clear()
        if last is None:
            self._remove(segment)  # source segments without a batch stay
            del self._segments[-1]
            return
        if segment.next_offset <= last.last_offset:
            self._write(segment, [_Entry(last._replace(record_count=0), _emptied(last), None, True)])
        segment.finish()
        segment.flush_indexes()
        segment.close()

    def _clean_chunk(self, segment: Segment, chunk: Chunk, transactions: CleanedTransactions) -> Iterator[int]:
        entries: list[_Entry | Run] = []
        size, extra = chunk.size, 0
        for batch in chunk.batches:
            entry = batch if isinstance(batch, Run) else self._decide(batch, transactions)
            if entry is not None:
                entries.append(entry)
            if isinstance(entry, _Entry) and entry.section is not None:
                extra += _extra_bytes(entry.section)
                if extra >= self.plan.io_bytes:
                    yield size + extra + self._write(segment, entries)
                    entries, size, extra = [], 0, 0
        yield size + extra + self._write(segment, entries)

    def _remove(self, segment: Segment) -> None:
        segment.close()
        for path in segment.paths:
            if self._disk.exists(path):
                self._disk.remove(path)

    def _decide(self, found: FoundBatch, transactions: CleanedTransactions) -> _Entry | None:
        """Return the entry to write for a batch, None if it is removed."""
        header, data = found.header, found.data
        self.stats.read_records += header.record_count
        keep_empty = self._is_last_of_producer(header)
        if header.is_control:
            is_over = transactions.can_be_removed(header, decode_marker(data))
            is_due = header.has_delete_horizon and header.base_timestamp <= self.plan.now_ms
            if header.record_count and not (is_over and is_due):
                if is_over and not header.has_delete_horizon:
                    data = memoryview(
                        _rebuilt(header, set_horizon(_section(found), self._horizon_ms), self._horizon_ms)
                    )
                return _Entry(header, data, None, True)
        elif not transactions.is_aborted(header) and header.record_count:
            is_behind = header.base_offset > self._filter.offsets.latest_offset
            return _Entry(header, data, None if is_behind else _section(found), keep_empty)
        return _Entry(header._replace(record_count=0), _emptied(header), None, True) if keep_empty else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.plan.last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        return (
            header.last_offset == last.offset
            if last.offset >= 0
            else (header.is_control and header.producer_epoch == last.epoch)
        )

    def _write(self, segment: Segment, entries: Sequence[_Entry | Run]) -> int:
        pieces = [entry if isinstance(entry, Run) else entry.section for entry in entries]
        answers = iter(
            self._filter.keep_records(
                [piece for piece in pieces if piece is not None],
                now_ms=self.plan.now_ms,
                horizon_ms=self._horizon_ms,
                last_offsets=self._last_offsets,
            )
        )
        buffers: list[Buffer] = []
        for entry, piece in zip(entries, pieces, strict=True):
            kept = next(answers) if piece is not None else None
            if isinstance(entry, Run):
                assert isinstance(kept, KeptRun)
                self._add_run(segment, entry, kept, buffers)
            else:
                assert not isinstance(kept, KeptRun)
                self._add_batch(segment, entry, kept, buffers)
        size = sum(map(len, buffers))
        if size:
            segment.log.append(buffers)
            segment.flush_full_pages()
        self.stats.written_bytes += size
        return size

    def _add_run(self, segment: Segment, run: Run, kept: KeptRun, buffers: list[Buffer]) -> None:
        self.stats.read_records += run.record_count
        now_ms = self.plan.now_ms
        for base_offset, last_offset, size, count, latest in kept.batches:
            segment.add(base_offset, last_offset, size, latest, now_ms)
            self.stats.written_records += count
        buffers.append(kept.data)

    def _add_batch(self, segment: Segment, entry: _Entry, kept: Kept | None, buffers: list[Buffer]) -> None:
        header, data = entry.header, entry.data
        latest, count = header.max_timestamp, header.record_count
        if kept is not None:
            count = kept.record_count
            if kept.data is not None and count:
                data, latest = _rebuilt(header, kept, self._horizon_ms), kept.max_timestamp
            elif not count:
                if not entry.keep_empty:
                    return
                data = _emptied(header)
        segment.add(header.base_offset, header.last_offset, len(data), latest, self.plan.now_ms)
        buffers.append(data)
        self.stats.written_records += count


def _fits(segment: Segment, source: Source) -> bool:
    config = segment.config
    return (
        segment.size + source.size <= config.segment_bytes
        and len(segment.offset_index.entries) * INDEX_ENTRY.size + source.index_bytes <= config.segment_index_bytes
        and len(segment.time_index.entries) * TIME_INDEX_ENTRY.size + source.time_index_bytes
        <= config.segment_index_bytes
        and source.next_offset - 1 - segment.base_offset <= MAX_RELATIVE_OFFSET
    )


def _section(found: FoundBatch) -> Section:
    header = found.header
    data: Buffer = found.data[HEADER_SIZE:]
    return Section(header, data if header.codec == Codec.NONE else decompress(header.codec, data))


def _extra_bytes(section: Section) -> int:
    return len(section.data) if section.header.attributes & CODEC_MASK else 0


def _rebuilt(header: BatchHeader, kept: Kept, horizon_ms: int) -> bytearray:
    assert kept.data is not None, "a batch that stays as it is is not built anew"
    batch = bytearray(HEADER_SIZE)
    batch += kept.data if header.codec == Codec.NONE else compress(header.codec, kept.data)
    header = header._replace(record_count=kept.record_count, max_timestamp=kept.max_timestamp)
    if kept.has_new_horizon:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
    write_header(batch, header)
    return batch


def _emptied(header: BatchHeader) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    write_header(batch, header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, record_count=0))
    return batch
