"""The comparison of a running log's derived state with its batches: indexes, producers, snapshots and leader epochs.

It uses the checks of `odradek log verify`, with the index entries that the log has in memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from struct import Struct
from typing import Any, NamedTuple

from msgspec.structs import replace

from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.inspection.partition_check import TransactionCheck, begin_segment
from odradek.broker.log.inspection.segment_check import Chain, EpochCheck, FileCheck, OffsetIndexCheck, TimeIndexCheck
from odradek.broker.log.log import Log
from odradek.broker.log.names import SNAPSHOT, offset_file, parse_offset_file
from odradek.broker.log.producers.producer_snapshot import decode_snapshot
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.segments import offset_index, time_index, transaction_index
from odradek.broker.log.segments.batch_scan import scan_file
from odradek.broker.log.segments.index_file import IndexFile
from odradek.broker.log.segments.segment import Segment
from odradek.protocol.batches.record_batch import BatchHeader, verify_crc


class _Batch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview
    is_trusted: bool
    """Whether the checksum is right."""


class Scans:
    """The batches of segments, by path. Of a segment that was scanned before, only what is new is scanned.

    Several brokers' segments may share a path: replicas have the same bytes.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, list[_Batch]]] = {}

    def batches(self, log: Log, segment: Segment) -> list[_Batch]:
        if not segment.is_created:
            return []
        path, size = segment.log.path, segment.written_size
        with closing(log.pool.disk.open(path, read_only=True)) as file:
            data = bytes(file.read(0, size))
            known, found = self._known.get(path, (b"", []))
            if known.startswith(data):
                return [each for each in found if each.position < size]
            known, found = (known, [*found]) if data.startswith(known) else (b"", [])
            for position, header, view in scan_file(file, path, size, position=len(known)):
                batch = memoryview(data)[position : position + len(view)]
                found.append(_Batch(position, header, batch, verify_crc(batch, 0, header)))
        self._known[path] = data, found
        return found


def deviations(log: Log, scans: Scans | None = None) -> Iterator[str]:
    """Yield each difference between a log's state and a rebuild from its batches.

    Producers are compared unless batches are pending or damaged, or compaction has removed some. Raises `OSError`, and
    `DamagedFileError` for a segment that is no sequence of batches.
    """
    chain = Chain(next_offset=log.first_base_offset)
    epochs = EpochCheck(
        log.directory,
        0,
        [(0, *entry) for entry in log.epochs.entries],
        log_start_offset=log.log_start_offset,
        is_complete=True,
    )
    checks, is_cleaned = list[FileCheck](), False
    for segment, end in zip(log.segments, (*log.segments.bases[1:], log.written_offset), strict=True):
        snapshot = _snapshot(log, segment.base_offset)
        if snapshot is not None and chain.producers is not None:
            yield from _different(chain.producers, snapshot, f"the snapshot at {segment.base_offset}")
        batches = (scans or Scans()).batches(log, segment)
        # Of a transaction without records, the index of the segment with its marker may know nothing.
        is_cleaned = is_cleaned or not _is_whole(batches, segment.base_offset, end)
        checks += _segment_checks(log, segment, batches, chain, epochs, is_cleaned=is_cleaned)
    yield from (f"{each.path} {each.damage.reason}" for each in (*checks, epochs) if each.damage is not None)
    yield from (f"{log.directory} has a snapshot at {each}, beyond its end" for each in _snapshots_beyond(log))
    if chain.producers is not None and log.log_end_offset == log.written_offset:
        yield from _different(chain.producers, log.producers, f"the log {log.directory}")


def _segment_checks(
    log: Log, segment: Segment, batches: Sequence[_Batch], chain: Chain, epochs: EpochCheck, *, is_cleaned: bool
) -> Iterator[FileCheck]:
    path, base = segment.log.path, segment.base_offset
    index = OffsetIndexCheck(f"{path} index", _packed(segment.offset_index.entries, offset_index.ENTRY), base)
    times = TimeIndexCheck(f"{path} time index", _packed(segment.time_index.entries, time_index.ENTRY), base)
    begin_segment(chain, base, None if base == 0 else _snapshot_data(log, base))
    aborted = b"" if segment.aborted is None else _packed(segment.aborted.entries, transaction_index.ENTRY)
    transactions = TransactionCheck(f"{path} transaction index", aborted, base, chain, is_cleaned=is_cleaned)
    for position, header, data, is_trusted in batches:
        index.batch(position, header, is_trusted=is_trusted)
        times.batch(header, is_trusted=is_trusted)
        transactions.batch(header, data, is_trusted=is_trusted)
        if is_trusted:
            epochs.batch(header)
    size, has_pending = segment.written_size, segment.written_size < segment.size
    index.end(size, may_be_ahead=has_pending)
    times.end(may_be_ahead=has_pending, is_finished=False)
    transactions.end(is_complete=chain.producers is not None, may_be_ahead=has_pending)
    return iter((index, times, transactions))


def _is_whole(batches: Sequence[_Batch], due: int, end: int) -> bool:
    """Return whether the batches have every record from the offset `due` to `end`."""
    for _, header, *_ in batches:
        if header.base_offset != due or header.record_count != header.last_offset_delta + 1:
            return False
        due = header.next_offset
    return due == end


def _packed(index: IndexFile[Any], layout: Struct) -> bytes:
    rows, data = 0, bytearray()
    while page := index.rows(rows, len(index)):
        rows += len(page)
        data += b"".join(layout.pack(*row) for row in page)
    return bytes(data)


def _snapshot_data(log: Log, offset: int) -> bytes | None:
    path = offset_file(log.directory, offset, SNAPSHOT)
    return log.pool.disk.read_file(path) if log.pool.disk.exists(path) else None


def _snapshot(log: Log, offset: int) -> ProducerState | None:
    data = _snapshot_data(log, offset)
    try:
        return None if data is None else decode_snapshot(data, "")
    except DamagedFileError:
        return None  # it is not used


def _snapshots_beyond(log: Log) -> list[int]:
    found = [parse_offset_file(name) for name in log.pool.disk.list(log.directory)]
    return [each[0] for each in found if each is not None and each[1] == SNAPSHOT and each[0] > log.log_end_offset]


def _different(rebuilt: ProducerState, known: ProducerState, where: str) -> Iterator[str]:
    if [*rebuilt._open] != [*known._open]:
        yield f"{where} has the open transactions of {[*known._open]}, and its batches give {[*rebuilt._open]}"
    for producer_id in sorted(rebuilt.entries.keys() | known.entries.keys()):
        one, other = rebuilt.entries.get(producer_id), known.entries.get(producer_id)
        if one is None or other is None:
            yield f"{where} {'has' if one is None else 'lacks'} producer {producer_id}"
            continue
        if (one.epoch, one.transaction_start) != (other.epoch, other.transaction_start):
            yield f"{where} has producer {producer_id} with {other}, and its batches give {one}"
        # A snapshot has the last batch only, and a loaded log perhaps fewer than it had.
        for batch, same in zip(reversed(one.batches), reversed(other.batches), strict=False):
            if replace(batch, timestamp=0) != replace(same, timestamp=0):
                yield f"{where} has {same} of producer {producer_id}, and its batches give {batch}"
