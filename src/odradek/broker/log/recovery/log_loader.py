"""Opening a log: loads its segments, leader epochs and producers, and recovers the log after a crash.

Without a clean shutdown every batch from the recovery point's segment on is checked, unless the log ends at the
recovery point. The log is truncated before the first batch that is incomplete, damaged, out of order, or of an older
leader epoch. Loading may be interrupted anywhere and repeated. Functions raise `OSError`.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import Struct

from odradek.broker.log.checkpoints import leader_epoch_cache
from odradek.broker.log.checkpoints.leader_epoch_cache import NO_EPOCH, NO_OFFSET, LeaderEpochs
from odradek.broker.log.continuity import is_gap
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import (
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
from odradek.broker.log.producers.producer_snapshot import decode_snapshot
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.recovery.segment_recovery import Watcher, recover_segment
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.segment import Segment
from odradek.broker.log.segments.segment_swap import complete_swaps
from odradek.model import StorageError
from odradek.model.probes import probe
from odradek.protocol.batches.control_records import EndTransactionMarker, decode_marker
from odradek.protocol.batches.record_batch import BatchHeader, CorruptBatchError
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")
_RECENT_ENTRIES: Final = 64
"""The number of last index entries whose batches are read again: at least 64 batches and 256 KiB."""
_LEFT_OVER: Final = (DELETED, TEMPORARY)
_INDEXES: Final = (INDEX, TIME_INDEX, TRANSACTION_INDEX)


class TruncatedBytes(NamedTuple):
    """The number of bytes that recovery removed (`size`), and of whole segments among them."""

    size: int
    segments: int


NOTHING_TRUNCATED: Final = TruncatedBytes(0, 0)


class LoadedLog(Struct, kw_only=True):
    """A loaded log with closed files and at least one segment, the last of which is active.

    `is_clean`: no segment was recovered or created.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerState
    log_start_offset: int
    is_clean: bool
    truncated: TruncatedBytes


def load(
    pool: FilePool,
    directory: str,
    config: LogConfig,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    cleaned_offset: int = 0,
    watch: Watcher = lambda size: None,
) -> LoadedLog:
    """Load the log in `directory`, created if missing; recover it if needed.

    A log with a valid end is not recovered if it is `clean` or ends at `recovery_point`. `watch` is called with the
    bytes of each read of recovery.
    """
    if not pool.disk.exists(directory):
        pool.disk.make_directories(directory)
    complete_swaps(pool, directory, config)
    names = _remove_left_overs(pool, directory)
    bases = sorted(parsed[0] for name in names if (parsed := parse_offset_file(name)) and parsed[1] == LOG)
    segments = [Segment.open(pool, directory, base, config, now_ms=now_ms) for base in bases]
    first = _load_synced(pool, directory, segments, clean=clean, recovery_point=recovery_point)
    epochs = _load_epochs(pool, directory, segments[:first])
    if first == len(segments) and not _has_latest_epoch(epochs, segments, log_start_offset):
        probe("log recovery: the last leader epoch is missing and rebuilt")
        _logger.warning("%s lacks its last leader epoch; rebuilding it from the batches", directory)
        epochs = _epochs_of(segments)
    is_clean, producers, truncated = bool(segments) and first == len(segments), None, NOTHING_TRUNCATED
    if first < len(segments):
        producers = load_producers(pool, directory, segments[:first], segments[first])
        known_offset = max(cleaned_offset, log_start_offset)
        truncated = _recover(segments, first, epochs, producers, now_ms, watch, known_offset)
    if segments and segments[-1].next_offset < log_start_offset:
        probe("log recovery: all records before the log start offset are lost")
        _logger.warning(
            "%s ends at offset %d, before its log start offset %d: all of its records are lost",
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
    end_offset = segments[-1].next_offset
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    remove_snapshots(pool, directory, after=end_offset)
    _remove_stray_snapshots(pool, directory, segments, synced_offset=end_offset if clean else recovery_point)
    if producers is None:
        producers = load_producers(pool, directory, segments)
    for segment in segments:
        segment.close()
    return LoadedLog(
        segments=segments,
        epochs=epochs,
        producers=producers,
        log_start_offset=log_start_offset,
        is_clean=is_clean,
        truncated=truncated,
    )


def _load_synced(pool: FilePool, directory: str, segments: list[Segment], *, clean: bool, recovery_point: int) -> int:
    """Load synced segments, rebuild their invalid indexes; return their number. Later segments need recovery."""
    for number, segment in enumerate(segments[:-1]):
        following = segments[number + 1].base_offset
        if not clean and following > recovery_point:
            return number
        if segment.has_valid_indexes(following):
            segment.load_finished(following)
        else:
            probe("log recovery: indexes of a synced segment are rebuilt")
            _logger.warning("%s: its indexes are missing or damaged; rebuilding them", segment.log.path)
            _rebuild_indexes(segment, following, load_producers(pool, directory, segments[:number], segment))
        segment.close()
    if not segments:
        return 0
    last = segments[-1]
    is_synced = clean or (
        last.base_offset < recovery_point and last.has_valid_indexes(recovery_point) and last.has_sorted_indexes()
    )
    if is_synced and _has_valid_end(last) and (clean or last.next_offset == recovery_point):
        return len(segments)
    return len(segments) - 1


def create_segment(pool: FilePool, directory: str, base_offset: int, config: LogConfig, *, now_ms: int) -> Segment:
    """Create an empty segment with its `.log` file, without syncing."""
    segment = Segment(pool, directory, base_offset, config, now_ms=now_ms)
    segment.log.truncate(0)
    segment.is_created = True
    return segment


def _has_valid_end(active: Segment) -> bool:
    return active.load_end() and active.has_valid_transactions(active.next_offset) and not _lacks_entries(active)


def _lacks_entries(active: Segment) -> bool:
    """Return whether an index is empty although `active` has batches with entries.

    Kafka's DumpLogSegments leaves an empty file where the index of an active segment is not written yet.
    """
    interval = active.config.index_interval_bytes
    has_offsets = len(active.offset_index.entries) or active.size <= interval
    has_times = len(active.time_index.entries) or active.max_timestamp < 0
    if has_times and (has_offsets or active.find(active.next_offset - 1) <= interval):
        return False
    probe("log recovery: an index of the active segment is empty")
    _logger.warning("%s: an index is empty; rebuilding both", active.log.path)
    return True


def load_producers(
    pool: FilePool, directory: str, segments: Sequence[Segment], following: Segment | None = None
) -> ProducerState:
    """Return the producers at the end of `segments`, or at the base offset of `following`."""
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
            _add_recent_batches(state, segments, start)
        except StorageError as error:
            probe("log recovery: a producer snapshot is unreadable")
            _logger.warning("Ignoring an unreadable producer snapshot, using an older one: %s", error)
            disk.remove(path)
        else:
            break
    for segment in segments:
        if segment.next_offset > start:
            for position, header in segment.scan(segment.find(start) if start > segment.base_offset else 0):
                state.replay(header, _marker(segment, position, header))
            segment.close()
    return state


def _add_recent_batches(state: ProducerState, segments: Sequence[Segment], end: int) -> None:
    """Add producers' last five batches, if near `end`, because a snapshot has only the last one.

    Kafka's broker does not, and so may append a retried batch twice.
    """
    holding = [segment for segment in segments if segment.base_offset < end]
    if not holding or not state.entries:
        return
    found = ProducerState()
    # The last two, because the last one may be nearly empty.
    for segment in holding[-2:]:
        with suppress(CorruptBatchError):  # fewer batches may be enough
            for _, header in segment.scan(segment.offset_index.position_before(end, entries=_RECENT_ENTRIES)):
                if header.base_offset >= end:
                    break
                if not header.is_control:
                    found.replay(header, None)
        segment.close()
    for producer_id, recalled in found.entries.items():
        entry = state.entries.get(producer_id)
        if entry and entry.batches and entry.epoch == recalled.epoch and entry.batches[-1] == recalled.batches[-1]:
            entry.batches = recalled.batches


def _marker(segment: Segment, position: int, header: BatchHeader) -> EndTransactionMarker | None:
    return decode_marker(segment.log.read(position, header.size)) if header.is_control else None


def remove_snapshots(pool: FilePool, directory: str, *, after: int | None = None, before: int | None = None) -> None:
    """Remove snapshots before `before` and after `after`; with `after` sync the directory."""
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
    """Remove snapshots at no base offset, except the last one, and invalid snapshots from `synced_offset` on."""
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
    segment.close()
    for path in reversed(segment.paths):
        if pool.disk.exists(path):
            pool.disk.remove(path)


def _snapshots(pool: FilePool, directory: str) -> list[int]:
    parsed = [parse_offset_file(name) for name in pool.disk.list(directory)]
    return sorted(item[0] for item in parsed if item and item[1] == SNAPSHOT)


def _remove_left_overs(pool: FilePool, directory: str) -> list[str]:
    """Remove deleted and temporary files, and indexes without a `.log`; return the other names."""
    names = pool.disk.list(directory)
    logs = {name.removesuffix(LOG) for name in names if name.endswith(LOG)}
    kept = []
    reported = set()
    for name in names:
        stem, _, suffix = name.rpartition(".")
        is_stray = f".{suffix}" in _INDEXES and stem not in logs
        if is_stray and stem not in reported:
            reported.add(stem)
            _logger.warning(
                "%s/%s has no .log beside it and is removed: its records are lost, unless the broker crashed while it "
                "deleted the segment",
                directory,
                name,
            )
        if name.endswith(_LEFT_OVER) or is_stray:
            probe("log recovery: a deleted or temporary file is left over")
            pool.disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _load_epochs(pool: FilePool, directory: str, synced: list[Segment]) -> LeaderEpochs:
    """Return the leader epochs in the file; without a valid file, those of the `synced` segments."""
    path = f"{directory}/{leader_epoch_cache.FILE_NAME}"
    try:
        return LeaderEpochs.decode(pool.disk.read_file(path), path)
    except FileNotFoundError:
        return _epochs_of(synced)
    except StorageError as error:
        probe("log recovery: the file of leader epochs is damaged")
        _logger.warning("Rebuilding leader epochs from the batches: %s", error)
        pool.disk.remove(path)
    epochs = _epochs_of(synced)
    epochs.is_dirty = True
    return epochs


def _has_latest_epoch(epochs: LeaderEpochs, segments: list[Segment], log_start_offset: int) -> bool:
    """Return whether `epochs` has the last batch's epoch, without which followers keep divergent records.

    It may be missing: Kafka's broker drops epochs newer than its controller's.
    """
    last = next((segment for segment in reversed(segments) if segment.size), None)
    if last is None:
        return True
    if last.end_batch is None:
        try:
            for _, header in last.scan((last.offset_index.entries.last or (0, 0))[1]):
                last.end_batch = header.last_offset, header.partition_leader_epoch
        except CorruptBatchError as error:
            _logger.error("Last leader epoch is unknown: %s", error)
        last.close()
    offset, epoch = last.end_batch or (NO_OFFSET, NO_EPOCH)
    return epoch == NO_EPOCH or offset < log_start_offset or epochs.epoch_at(offset) == epoch


def _epochs_of(segments: list[Segment]) -> LeaderEpochs:
    epochs = LeaderEpochs()
    try:
        for segment in segments:
            for _, header in segment.scan():
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            segment.close()
    except CorruptBatchError as error:
        _logger.error("Later leader epochs are unknown: %s", error)
    return epochs


def _recover(
    segments: list[Segment],
    first: int,
    epochs: LeaderEpochs,
    producers: ProducerState,
    now_ms: int,
    watch: Watcher,
    known_offset: int,
) -> TruncatedBytes:
    """Recover the segments from number `first` on; truncate at the first error. Updates `epochs`, `producers`."""
    epochs.truncate_from_end(segments[first].base_offset)
    expected, was_finished = segments[first].base_offset, False
    for number in range(first, len(segments)):
        segment = segments[number]
        # Kafka's compaction leaves gaps between segments; Odradek's does not.
        is_after_empty = number > first and not segments[number - 1].size
        is_wrong = segment.base_offset < expected or is_gap(
            expected, segment.base_offset, is_after_empty=is_after_empty, known_offset=known_offset
        )
        if is_wrong and segment.base_offset > expected and was_finished and _are_compacted(segments[number - 1 :]):
            probe("log recovery: compaction explains a gap between segments")
            is_wrong = False
        indexed = _indexed_time(segment, segments[number + 1 : number + 2])
        removed = 0 if is_wrong else recover_segment(segment, epochs, producers, now_ms=now_ms, watch=watch)
        was_finished = indexed is not None and indexed == segment.max_timestamp
        segment.close()
        expected = segment.next_offset
        if is_wrong or removed:
            probe("log recovery: the log is truncated after a crash")
            rest = segments[number if is_wrong else number + 1 :]
            if removed or rest:
                _logger.warning(
                    "%s: %d bytes and %d segments after offset %d removed, which were incomplete",
                    segment.directory, removed, len(rest), segments[number - 1].next_offset if is_wrong else expected,
                )  # fmt: skip
            lost = removed + sum(each.size for each in rest)
            _remove(rest)
            del segments[len(segments) - len(rest) :]
            return TruncatedBytes(lost, len(rest))
    return NOTHING_TRUNCATED


def _indexed_time(segment: Segment, following: Sequence[Segment]) -> int | None:
    """Return the largest timestamp in the index files of a compacted topic's segment, None if they are not valid.

    Compaction syncs a segment with its indexes, so its true largest timestamp shows that its end is not lost. A broker
    loads its logs before it knows their configurations; the policy is empty then.
    """
    policy = segment.config.cleanup_policy
    if not following or (policy and "compact" not in policy):
        return None
    is_valid = segment.size > 0 and segment.has_valid_indexes(following[0].base_offset)
    return segment.time_index.last_timestamp if is_valid else None


def _are_compacted(segments: Sequence[Segment]) -> bool:
    """Return whether any of `segments` lacks records between its batches or inside them."""
    for segment in segments:
        expected = segment.base_offset
        with suppress(CorruptBatchError):  # the batches before it decide
            for _, header in segment.scan():
                if header.base_offset > expected or header.record_count <= header.last_offset_delta:
                    return True
                expected = header.next_offset
        segment.close()
    return False


def _remove(segments: list[Segment]) -> None:
    """Remove segments, the last one first, so that an interruption leaves no gap."""
    for segment in reversed(segments):
        remove_segment_files(segment.pool, segment)
    if segments:
        segments[0].pool.disk.sync_directory(segments[0].directory)


def _rebuild_indexes(segment: Segment, next_offset: int, producers: ProducerState) -> None:
    """Rebuild a synced segment's indexes up to any damage; `producers` are as of its base offset."""
    size = segment.size
    offset_beyond = segment.offset_beyond_end()
    segment.reset()
    try:
        for position, header in segment.add_batches(segment.scan(), size, next_offset - 1):
            aborted = producers.replay(header, _marker(segment, position, header))
            if aborted is not None:
                segment.add_aborted(aborted)
    except CorruptBatchError as error:
        _logger.error("The rest of a segment is not indexed: %s", error)
    else:
        segment.is_truncated = segment.size != size
    is_known_by_index = offset_beyond is not None and offset_beyond >= segment.next_offset
    segment.is_truncated |= is_known_by_index
    if segment.is_truncated:
        _logger.error(
            "%s is truncated: offsets %d to %d are lost, and reading them fails with CORRUPT_MESSAGE",
            segment.log.path,
            segment.next_offset,
            next_offset - 1,
        )
    segment.size = size
    segment.next_offset = next_offset
    segment.clear_recent()
    segment.finish()
    if not is_known_by_index:  # the old files show the truncation to the next start, too
        segment.replace_indexes()
    segment.close()
