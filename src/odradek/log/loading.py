"""Opening a log: what is in its folder, and after a crash, how much of it may be believed.

After a clean shutdown the files are as the log left them, and only their ends are looked at. Otherwise every batch
from the recovery point's segment on is checked, its indexes are built anew, and the log ends before the first batch
that is cut, damaged, out of order, or of an older leader epoch than the one before it: what comes after it cannot have
been synced. For the same reason a segment there must begin where the one before ends, as `Log` always rolls.
Loading changes files (it cuts and removes) only towards a state that loading again would leave alone, so it may itself
be interrupted anywhere.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.log import leader_epochs
from odradek.log.files import FilePool
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log_config import LogConfig
from odradek.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TEMPORARY,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_file,
    parse_offset_file,
)
from odradek.log.producer_snapshot import decode_snapshot
from odradek.log.producer_state import ProducerState
from odradek.log.segment import MAX_RELATIVE_OFFSET, Segment
from odradek.model import StorageError
from odradek.protocol.control_records import EndTransactionMarker, decode_marker
from odradek.protocol.record_batch import HEADER_SIZE, MAGIC, BatchHeader, CorruptBatchError, read_header, verify_crc
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")
_READ_BYTES: Final = 1 << 20
_PROGRESS_BYTES: Final = 256 << 20
_LEFT_OVER: Final = (DELETED, CLEANED, TEMPORARY)
_INDEXES: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """What was found: at least one segment, the last of which is appended to.

    `is_clean` says that all of it is on the disk as a clean shutdown left it.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    log_start_offset: int
    is_clean: bool


def load(
    pool: FilePool,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
) -> LoadedLog:
    """Open the log in `directory`, which is created if it is not there, and repair it. Raises `OSError`.

    `recovery_point` and `log_start_offset` are what the checkpoints say. With `clean` nothing should be amiss; what is
    amiss even so is repaired.
    """
    pool.disk.make_directories(directory)
    names = _without_left_overs(pool, directory)
    bases = sorted(parsed[0] for name in names if (parsed := parse_offset_file(name)) and parsed[1] == LOG)
    segments = [Segment.open(pool, directory, base, config, now_ms=now_ms) for base in bases]
    first = len(segments)
    for number, segment in enumerate(segments[:-1]):
        following = segments[number + 1].base_offset
        if not clean and following > recovery_point:
            first = min(first, number)
        elif segment.has_valid_indexes(following):
            segment.load_finished(following)
        else:
            _logger.warning("%s: its indexes are missing or damaged; they are built anew", segment.log.path)
            _rebuild_indexes(segment, following, load_producers(pool, directory, segments[:number], segment), now_ms)
    if segments and not (clean and _has_valid_end(segments[-1])):
        first = min(first, len(segments) - 1)
    epochs = _load_epochs(pool, directory, segments[:first])
    is_clean = clean and bool(segments) and first == len(segments)
    producers = None
    if first < len(segments):
        producers = load_producers(pool, directory, segments[:first], segments[first])
        _recover(segments, first, epochs, producers, now_ms)
    if segments and segments[-1].next_offset < log_start_offset:
        _logger.warning(
            "%s ends at offset %d and begins at %d: its records are gone",
            directory,
            segments[-1].next_offset,
            log_start_offset,
        )
        _remove(segments)
        epochs.truncate_from_end(0)
        segments.clear()
        producers = None
    if not segments:
        segments.append(create_segment(pool, directory, log_start_offset, config, now_ms=now_ms))
        is_clean = False
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(segments[-1].next_offset)
    epochs.truncate_from_start(log_start_offset)
    remove_snapshots(pool, directory, after=segments[-1].next_offset)
    _remove_stray_snapshots(
        pool, directory, segments, synced_offset=segments[-1].next_offset if clean else recovery_point
    )
    if producers is None:
        producers = load_producers(pool, directory, segments)
    return LoadedLog(
        segments=segments,
        epochs=epochs,
        producers=producers,
        log_start_offset=log_start_offset,
        is_clean=is_clean,
    )


def create_segment(pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int) -> Segment:
    """A new, empty segment whose file is there; not synced. Raises `OSError`."""
    segment = Segment(pool, directory, base_offset, config, now_ms=now_ms)
    segment.log.truncate(0)
    segment.is_created = True
    return segment


def _has_valid_end(active: Segment) -> bool:
    """Learn where the log ends; whether its last segment is as a clean shutdown leaves it."""
    return active.load_end() and active.has_valid_transactions(active.next_offset)


def load_producers(
    pool: FilePool, directory: str, segments: Sequence[Segment], following: Segment | None = None
) -> ProducerState:
    """The producers as of the end of `segments`: the newest snapshot that is valid, and the batches after it.

    `following` is the segment after them, if there is one.
    """
    disk = pool.disk
    end = segments[-1].next_offset if following is None else following.base_offset
    state, start = ProducerState(), segments[0].base_offset if segments else end
    for offset in reversed(_snapshots(pool, directory)):
        path = offset_file(directory, offset, SNAPSHOT)
        if offset > end:
            continue
        if offset < start:
            break
        try:
            state, start = decode_snapshot(disk.read_file(path), path), offset
        except StorageError as error:
            _logger.warning("%s; an older one is used", error)
            disk.remove(path)
        else:
            break
    for segment in segments:
        if segment.next_offset > start:
            for position, header in segment.scan(segment.find(start) if start > segment.base_offset else 0):
                state.replay(header, _marker(segment, position, header))
    return state


def _marker(segment: Segment, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    return decode_marker(segment.log.read(position, header.size)) if header.is_control else None


def remove_snapshots(pool: FilePool, directory: str, *, after: int | None = None, before: int | None = None) -> None:
    """Remove the snapshots older than `before`, and those beyond `after`, which may not come back. Raises `OSError`."""
    gone = [
        offset
        for offset in _snapshots(pool, directory)
        if (after is not None and offset > after) or (before is not None and offset < before)
    ]
    for offset in gone:
        pool.disk.remove(offset_file(directory, offset, SNAPSHOT))
    if gone and after is not None:
        pool.disk.sync_directory(directory)


def _remove_stray_snapshots(pool: FilePool, directory: str, segments: list[Segment], *, synced_offset: int) -> None:
    """Remove those of earlier shutdowns, and those from `synced_offset` on that a crash left damaged.

    Only the newest, and those with which a segment begins, are of use.
    """
    bases = {segment.base_offset for segment in segments}
    offsets = _snapshots(pool, directory)
    for offset in offsets:
        path = offset_file(directory, offset, SNAPSHOT)
        is_stray = offset not in bases and offset != offsets[-1]
        if is_stray or (offset >= synced_offset and not _is_snapshot(pool.disk, path)):
            pool.disk.remove(path)


def _is_snapshot(disk: Disk, path: str) -> bool:
    try:
        decode_snapshot(disk.read_file(path), path)
    except StorageError:
        return False
    return True


def remove_segment_files(pool: FilePool, segment: Segment) -> None:
    """Remove the files of a segment that is no longer part of its log, the log file last. Raises `OSError`."""
    segment.close()
    for path in reversed(segment.paths):
        if pool.disk.exists(path):
            pool.disk.remove(path)


def _snapshots(pool: FilePool, directory: str) -> list[int]:
    parsed = [parse_offset_file(name) for name in pool.disk.list(directory)]
    return sorted(item[0] for item in parsed if item and item[1] == SNAPSHOT)


def _without_left_overs(pool: FilePool, directory: str) -> list[str]:
    """The names in the folder, after what a crash left on its way out is gone, and indexes whose log is gone."""
    names = pool.disk.list(directory)
    logs = {name.removesuffix(LOG) for name in names if name.endswith(LOG)}
    kept = []
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if name.endswith(_LEFT_OVER) or (f".{suffix}" in _INDEXES and stem not in logs):
            pool.disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _load_epochs(pool: FilePool, directory: str, synced: list[Segment]) -> LeaderEpochs:
    """The file's epochs; without a file, or if it is damaged, those of the `synced` segments. Recovery adds others."""
    path = f"{directory}/{leader_epochs.FILE_NAME}"
    epochs = LeaderEpochs()
    try:
        return LeaderEpochs.decode(pool.disk.read_file(path), path)
    except FileNotFoundError:
        pass
    except StorageError as error:
        _logger.warning("%s; it is built anew from the batches", error)
        epochs.is_dirty = True
    try:
        for segment in synced:
            for _, header in segment.scan():
                epochs.assign(header.partition_leader_epoch, header.base_offset)
    except CorruptBatchError as error:
        _logger.error("%s: the leader epochs from there on are not known", error)
    return epochs


def _recover(segments: list[Segment], first: int, epochs: LeaderEpochs, producers: ProducerState, now_ms: int) -> None:
    """Check the segments from number `first` on; the log ends where something is wrong, and the rest is removed.

    `producers` are as of the first of them, and in the end as of the last.
    """
    epochs.truncate_from_end(segments[first].base_offset)
    expected = segments[first].base_offset
    for number in range(first, len(segments)):
        segment = segments[number]
        is_wrong = segment.base_offset != expected
        cut = 0 if is_wrong else _recover_segment(segment, epochs, producers, now_ms)
        expected = segment.next_offset
        if is_wrong or cut:
            rest = segments[number if is_wrong else number + 1 :]
            if cut or rest:
                _logger.warning(
                    "%s: %d bytes and %d segments after offset %d were not whole and are cut",
                    segment.directory, cut, len(rest), segments[number - 1].next_offset if is_wrong else expected,
                )  # fmt: skip
            _remove(rest)
            del segments[len(segments) - len(rest) :]
            return


def _remove(segments: list[Segment]) -> None:
    """Remove segments from the last one backwards, so that an interruption leaves no hole."""
    for segment in reversed(segments):
        remove_segment_files(segment.pool, segment)
    if segments:
        segments[0].pool.disk.sync_directory(segments[0].directory)


def _recover_segment(segment: Segment, epochs: LeaderEpochs, producers: ProducerState, now_ms: int) -> int:
    """Check all batches, build the indexes anew, and cut the file after the last batch in order; how much was cut."""
    size = segment.written_size
    segment.clear_books()
    for header, marker in _valid_batches(segment, size):
        segment.add(header.base_offset, header.last_offset, header.size, header.max_timestamp, now_ms)
        epochs.assign(header.partition_leader_epoch, header.base_offset)
        aborted = producers.replay(header, marker)
        if aborted is not None:
            segment.add_aborted(aborted)
    segment.written_size = segment.size
    if segment.size < size:
        segment.log.truncate(segment.size)
        segment.log.sync()
    segment.finish()
    segment.rewrite_indexes()
    return size - segment.size


def _rebuild_indexes(segment: Segment, next_offset: int, producers: ProducerState, now_ms: int) -> None:
    """Build the indexes of a segment that was synced. Its file is left alone, also where it is damaged.

    `producers` are as of the segment's beginning.
    """
    size = segment.size
    segment.clear_books()
    try:
        for position, header in segment.scan():
            segment.add(header.base_offset, header.last_offset, header.size, header.max_timestamp, now_ms)
            aborted = producers.replay(header, _marker(segment, position, header))
            if aborted is not None:
                segment.add_aborted(aborted)
    except CorruptBatchError as error:
        _logger.error("%s: what follows in this file cannot be found", error)
    segment.size = size
    segment.next_offset = next_offset
    segment.finish()
    segment.replace_indexes()


def _valid_batches(segment: Segment, size: int) -> Iterator[tuple[BatchHeader, EndTransactionMarker | None]]:
    """The batches of the file up to the first that may not be believed, and the markers that are in them."""
    position, chunk, start = 0, b"", 0
    expected, epoch = segment.base_offset, -1
    reported = 0
    while position + HEADER_SIZE <= size:
        if position + HEADER_SIZE > start + len(chunk):
            chunk, start = segment.log.read(position, _READ_BYTES), position
        header = read_header(chunk, position - start)
        if (
            header.magic != MAGIC
            or header.size < HEADER_SIZE
            or position + header.size > size
            or header.base_offset < expected
            or header.last_offset_delta < 0
            or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or header.partition_leader_epoch < epoch
        ):
            return
        if position + header.size > start + len(chunk):
            chunk, start = segment.log.read(position, max(_READ_BYTES, header.size)), position
        if not verify_crc(chunk, position - start, header):
            return
        yield header, decode_marker(memoryview(chunk)[position - start :]) if header.is_control else None
        position += header.size
        expected, epoch = header.next_offset, header.partition_leader_epoch
        if position - reported >= _PROGRESS_BYTES:
            reported = position
            _logger.info("recovering %s: %d of %d MiB checked", segment.log.path, position >> 20, size >> 20)
