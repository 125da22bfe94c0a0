"""The verification of one partition's folder: its segments in order, and its other files."""

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Final

from msgspec.structs import replace

from odradek.broker.log.checkpoints import leader_epoch_cache, meta_properties
from odradek.broker.log.checkpoints.checkpoint_file import decode_lines
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.continuity import is_gap
from odradek.broker.log.errors import DamagedFileError, TruncatedFileError
from odradek.broker.log.inspection.file_contents import inspect_snapshot
from odradek.broker.log.inspection.findings import Finding, LogContext, Report
from odradek.broker.log.inspection.segment_check import (
    Chain,
    EpochCheck,
    FileCheck,
    LogCheck,
    OffsetIndexCheck,
    TimeIndexCheck,
)
from odradek.broker.log.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_file,
    parse_offset_file,
)
from odradek.broker.log.producers.producer_snapshot import decode_snapshot
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.segments.batch_scan import scan_file
from odradek.broker.log.segments.transaction_index import AbortedTransaction, decode_transactions
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import BatchHeader


class TransactionCheck(FileCheck):
    """Checks the `.txnindex` of one segment; `batch` updates `chain.producers`."""

    def __init__(self, path: str, data: bytes, base_offset: int, chain: Chain, *, is_cleaned: bool) -> None:
        """`is_cleaned`: the segment may have been compacted."""
        super().__init__(path)
        self._size = len(data)
        self._chain = chain
        self._is_cleaned = is_cleaned
        self._entries: dict[int, tuple[int, AbortedTransaction]] = {}
        """`(byte position, transaction)` by the marker's offset, until the marker is found."""
        self._lacking: AbortedTransaction | None = None
        self._is_lost = False
        before = -1
        try:
            for byte, entry in decode_transactions(data, path):
                last = entry.last_offset
                if entry.first_offset > last:
                    self.fail(byte, f"has a transaction from offset {entry.first_offset} to {last}")
                elif last < base_offset:
                    self.fail(byte, f"has a transaction that ends at offset {last}, outside the segment")
                elif last <= before:
                    self.fail(byte, f"has a transaction that ends at offset {last}, after one that ends at {before}")
                else:
                    self._entries[last] = byte, entry
                before = max(before, last)
        except DamagedFileError as error:
            self.found(error)

    def batch(self, header: BatchHeader, data: memoryview, *, is_trusted: bool) -> None:
        """Check the next batch; after one without `is_trusted`, open transactions are unknown."""
        if not is_trusted:
            self._chain.producers = None
            self._is_lost = True
            return
        marker = decode_marker(data) if header.is_control else None
        producers = self._chain.producers
        aborted = None if producers is None else producers.replay(header, marker)
        if marker is None or marker.type is not ControlType.ABORT:
            return
        byte, entry = self._entries.pop(header.base_offset, (0, None))
        if producers is None or self._is_cleaned:
            if entry is not None and entry.producer_id != header.producer_id:
                self.fail(byte, f"has a transaction that is not of the producer of its marker: {entry}")
        elif entry is None:
            self._lacking = self._lacking or aborted
        elif entry != aborted:
            self.fail(byte, f"has {entry} where the log has {aborted or 'no transaction that is open'}")

    def end(self, *, is_complete: bool, may_be_ahead: bool) -> None:
        """Check the end of the segment. With `is_complete` no entry may be missing.

        With `may_be_ahead` (a live log) entries may precede their markers.
        """
        if is_complete and self._lacking is not None:
            self.fail(self._size, f"lacks {self._lacking}")
        for byte, entry in self._entries.values():
            if not may_be_ahead and not self._is_lost:
                self.fail(byte, f"has a transaction that ends at offset {entry.last_offset}, where no marker aborts it")
        if self._is_cleaned:
            self._chain.producers = None


def begin_segment(chain: Chain, base_offset: int, snapshot: bytes | None) -> None:
    """Set `chain.producers`, if unknown, from a valid snapshot; without a snapshot at offset 0, to an empty state."""
    if chain.producers is not None:
        return
    if snapshot is not None:
        try:
            chain.producers = decode_snapshot(snapshot, "")
        except DamagedFileError:
            return  # the check of snapshots reports it
    elif not base_offset:
        chain.producers = ProducerState()


_PARTS: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
MAX_OFFSET: Final = 2**63 - 1


class PartitionCheck:
    """Checks one partition's folder, with `records` also the records in batches.

    `advance` is called with the bytes of each batch. `end_offset` is the log end offset, None if unknown.
    """

    def __init__(
        self,
        report: Report,
        directory: str,
        context: LogContext,
        *,
        records: bool,
        advance: Callable[[int], object],
    ) -> None:
        self.end_offset: int | None = None
        self._report = report
        self._disk = report.disk
        self._directory = directory
        self._context = context
        self._state = context.state
        self._records = records
        self._advance = advance
        self._is_live = self._state.holder is not None
        self._names: set[str] = set()
        self._is_swapping = False

    def run(self) -> Iterator[Finding]:
        report = self._report
        report.totals.logs += 1
        try:
            names = self._names = set(self._disk.list(self._directory))
        except OSError as error:
            report.unreadable(self._directory, error, self._state)
            yield from report.take()
            return
        self._is_swapping = any(name.endswith(SWAP) for name in names)
        if self._is_swapping:
            # The next start completes an interrupted compaction; until then there may be a gap.
            self._context = replace(self._context, recovery_point=0, cleaned_offset=MAX_OFFSET)
        bases = sorted(parsed[0] for name in names if (parsed := parse_offset_file(name)) and parsed[1] == LOG)
        epochs = self._read_epochs()
        if meta_properties.PARTITION_METADATA in names:
            path = f"{self._directory}/{meta_properties.PARTITION_METADATA}"
            report.read(path, self._state, meta_properties.decode_partition_metadata)
        chain, is_whole, before = Chain(next_offset=bases[0] if bases else 0), True, -1
        for base, following in zip_longest(bases, bases[1:]):
            if is_whole:
                self._check_beginning(base, chain, is_after_empty=chain.next_offset == before)
            before = base
            chain.next_offset = max(chain.next_offset, base)
            segment = _SegmentFiles(self, base, following)
            is_whole = segment.check(chain, epochs)
            yield from report.take()
        self.end_offset = chain.next_offset if bases and is_whole else None
        report.add(epochs, is_settled=self._context.is_settled(chain.next_offset))
        self._check_strays(bases)
        yield from report.take()

    def _check_beginning(self, base: int, chain: Chain, *, is_after_empty: bool) -> None:
        path, due = offset_file(self._directory, base, LOG), chain.next_offset
        if base != due:
            chain.producers = None
        if base < due:
            self._report.damage(path, f"begins at offset {base}, and the segment before it ends at {due}", 0)
        elif is_gap(
            due,
            base,
            is_after_empty=is_after_empty,
            known_offset=max(self._context.cleaned_offset, self._context.log_start_offset),
        ):
            self._report.damage(path, f"comes after a gap: offsets {due} to {base - 1} are in no file", 0)

    def _read_epochs(self) -> EpochCheck:
        path, start = f"{self._directory}/{leader_epoch_cache.FILE_NAME}", self._context.log_start_offset
        is_complete = self._state.is_clean
        if leader_epoch_cache.FILE_NAME not in self._names:
            return EpochCheck(path, 0, (), log_start_offset=start, is_complete=is_complete)
        data = self._report.read(path, self._state, lambda data, _: data)
        try:
            lines = [] if data is None else _decode_epochs(data, path)
        except DamagedFileError as error:
            broken = EpochCheck(path, 0, (), log_start_offset=start, is_complete=False)
            broken.found(error)
            return broken
        is_complete = is_complete and data is not None
        return EpochCheck(path, len(data or b""), lines, log_start_offset=start, is_complete=is_complete)

    def _check_strays(self, bases: list[int]) -> None:
        for name in sorted(self._names):
            parsed = parse_offset_file(name)
            if parsed is None or parsed[0] in bases or parsed[1] not in _PARTS:
                continue
            path = f"{self._directory}/{name}"
            if parsed[1] == SNAPSHOT:
                data = self._report.read(path, self._state, lambda data, _: data)
                is_settled = self._context.is_settled(parsed[0] + 1)
                check_snapshot(self._report, path, data, parsed[0], is_settled=is_settled)
            elif not self._is_live and not self._is_swapping:
                self._report.damage(path, "has no .log beside it")


class _SegmentFiles:
    """The files of one segment; `following` is the next segment's base offset, None for the last."""

    def __init__(self, partition: PartitionCheck, base_offset: int, following: int | None) -> None:
        self._partition = partition
        self._report = partition._report
        self._state = partition._state
        self._base_offset = base_offset
        self._is_growing = partition._is_live and following is None
        settled = partition._context.is_settled
        self._is_settled = settled(MAX_OFFSET if following is None else following)
        self._is_snapshot_settled = settled(base_offset + 1)
        self._path = offset_file(partition._directory, base_offset, LOG)
        self._paths = {suffix: self._path.removesuffix(LOG) + suffix for suffix in _PARTS}

    def check(self, chain: Chain, epochs: EpochCheck) -> bool:
        """Check the files; return whether all batches are valid."""
        base, report, paths = self._base_offset, self._report, self._paths
        data = {suffix: self._read_part(path) for suffix, path in paths.items()}  # before the .log, which may grow
        log = LogCheck(
            self._path,
            base,
            chain,
            cleaned_offset=self._partition._context.cleaned_offset,
            records=self._partition._records,
        )
        index = OffsetIndexCheck(paths[INDEX], data[INDEX] or b"", base)
        times = TimeIndexCheck(paths[TIME_INDEX], data[TIME_INDEX] or b"", base)
        begin_segment(chain, base, data[SNAPSHOT])
        is_cleaned = base < self._partition._context.cleaned_offset
        transactions = TransactionCheck(
            paths[TRANSACTION_INDEX], data[TRANSACTION_INDEX] or b"", base, chain, is_cleaned=is_cleaned
        )
        end = self._walk(log, index, times, transactions, epochs)
        report.totals.segments += 1
        if end is not None:
            is_finished = self._state.is_clean and data[TIME_INDEX] is not None and log.damage is None
            index.end(end, may_be_ahead=self._is_growing)
            times.end(may_be_ahead=self._is_growing, is_finished=is_finished)
            is_complete = self._is_settled and not self._is_growing and not self._is_unreadable(data, TRANSACTION_INDEX)
            transactions.end(is_complete=is_complete, may_be_ahead=self._is_growing)
        else:
            chain.producers = None
        if self._is_growing and isinstance(log.damage, TruncatedFileError):
            report.note(log.path, f"{log.damage.reason}: it is being written", log.damage.byte)
        else:
            report.add(log)
        for check in (index, times, transactions):
            report.add(check, is_settled=self._is_settled)
        for suffix in (INDEX, TIME_INDEX):
            is_there = paths[suffix].rpartition("/")[2] in self._partition._names
            if end and self._state.is_clean and not is_there:
                report.damage(paths[suffix], "is missing")
        check_snapshot(report, paths[SNAPSHOT], data[SNAPSHOT], base, is_settled=self._is_snapshot_settled)
        return end is not None and log.damage is None

    def _walk(
        self,
        log: LogCheck,
        index: OffsetIndexCheck,
        times: TimeIndexCheck,
        transactions: TransactionCheck,
        epochs: EpochCheck,
    ) -> int | None:
        """Pass every batch to every check; return the end of the last batch in bytes, None if unknown."""
        try:
            file = self._partition._disk.open(self._path, read_only=True)
        except OSError as error:
            self._report.unreadable(self._path, error, self._state)
            return None
        totals, size = self._report.totals, file.size()
        try:
            for found in scan_file(file, self._path, size):
                is_trusted = log.batch(found)
                index.batch(found.position, found.header, is_trusted=is_trusted)
                times.batch(found.header, is_trusted=is_trusted)
                transactions.batch(found.header, found.data, is_trusted=is_trusted)
                if is_trusted:
                    epochs.batch(found.header)
                    totals.records += found.header.record_count
                totals.batches += 1
                totals.bytes += found.header.size
                self._partition._advance(found.header.size)
            return size
        except DamagedFileError as error:
            log.found(error)
            return error.byte if isinstance(error, TruncatedFileError) and self._is_growing else None
        except OSError as error:
            self._report.unreadable(self._path, error, self._state)
            return None
        finally:
            file.close()

    def _is_unreadable(self, data: Mapping[str, bytes | None], suffix: str) -> bool:
        return data[suffix] is None and self._paths[suffix].rpartition("/")[2] in self._partition._names

    def _read_part(self, path: str) -> bytes | None:
        if path.rpartition("/")[2] not in self._partition._names:
            return None
        return self._report.read(path, self._state, lambda data, _: data)


def check_snapshot(report: Report, path: str, data: bytes | None, offset: int, *, is_settled: bool) -> None:
    if data is None:
        return
    check = FileCheck(path)
    try:
        for producer in inspect_snapshot(data, path):
            if producer.last_offset >= offset:
                check.fail(0, f"has producer {producer.producer_id} with offset {producer.last_offset}")
    except DamagedFileError as error:
        check.found(error)
    report.add(check, is_settled=is_settled)


def _decode_epochs(data: bytes, path: str) -> list[tuple[int, int, int]]:
    entries = LeaderEpochs.decode(data, path).entries
    return [(line.byte, *entry) for line, entry in zip(decode_lines(data, path), entries, strict=True)]
