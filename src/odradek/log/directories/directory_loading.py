"""From a data directory to open logs: what is found in it, and the opening of one log on a thread of its own.

A directory that can't be listed, or whose checkpoints can't be read, is offline (`log_directories`). In another, what
cannot be opened costs its partition and nothing else. Kafka gives up the whole data directory, or the broker, in these
cases (`LogManager.loadLogs`):

| found | here |
|---|---|
| an error of the disk, a file that may not be read, damage that recovery does not mend | the partition is offline |
| two folders of one partition, in two data directories | the one in which anything was ever written, if one is empty |
| the same, and neither is empty | the one of the topic that the cluster has, if their ids tell |
| the same, and nobody can tell | the partition is offline; both are left alone |
| a folder, or a file, that is no log's | left alone, and named in the log if it is a folder |
| `{topic}-{partition}.{32 hex digits}-delete` | removed |
| the same with `-stray` | named in the log; removed later if the metadata say that it is stray |
| the same with `-future` of a Kafka broker | left alone, and named in the log |
"""

import logging
import uuid
from collections.abc import Collection, Iterable
from typing import Final

from odradek.log.checkpoints import meta_properties
from odradek.log.checkpoints.checkpoint_file import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offsets,
)
from odradek.log.directories.loading_progress import LoadingProgress, LoadingStoppedError
from odradek.log.directories.lost_records import LostRecords
from odradek.log.directories.removal import remove_tree
from odradek.log.errors import LogStorageError
from odradek.log.log import Log
from odradek.log.log_config import LogConfig
from odradek.log.names import LOG, is_deleted_folder, parse_folder, parse_offset_file, parse_stray_folder
from odradek.log.segments.open_files import FilePool
from odradek.model import KafkaError, StorageError, TopicPartition
from odradek.model.values import dataclass
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")
_NO_LOGS: Final = frozenset({"metadata.sqlite.sessions", "remote-log-index-cache", "__cluster_metadata-0"})
"""Folders that we, and Kafka's brokers, keep beside logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A log's folder, and what the checkpoints say of it. `size` is what recovery may have to read, in bytes."""

    partition: TopicPartition
    folder: str
    clean: bool
    recovery_point: int
    log_start_offset: int
    cleaned_offset: int
    high_watermark: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedLog:
    """What became of it: a log, or why there is none."""

    found: FoundLog
    log: Log | None
    topic_id: uuid.UUID | None = None
    error: StorageError | None = None
    lost_records: LostRecords | None = None
    """What it lacks of what was synced or acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLogs:
    """What is in a data directory, whether a clean shutdown left it, and up to where its logs are compacted.

    `outdated` are partitions that checkpoints tell of and that have no folder; those in `vanished` had records.
    """

    was_closed: bool
    logs: list[FoundLog]
    outdated: set[TopicPartition]
    vanished: list[LostRecords]
    strays: dict[str, tuple[TopicPartition, uuid.UUID | None]]
    cleaned_offsets: dict[TopicPartition, int]


def find_logs(disk: Disk, directory: str) -> FoundLogs:
    """Find a directory's logs, remove deleted ones, and take the mark of a clean shutdown away. Raises `OSError`."""
    mark = f"{directory}/{meta_properties.CLEAN_SHUTDOWN}"
    clean = disk.exists(mark)
    if clean:
        disk.remove(mark)
        disk.sync_directory(directory)
    recovery_points = _read_checkpoint(disk, directory, RECOVERY_POINTS)
    start_offsets = _read_checkpoint(disk, directory, LOG_START_OFFSETS)
    cleaned_offsets = _read_checkpoint(disk, directory, CLEANER_OFFSETS)
    high_watermarks = _read_checkpoint(disk, directory, HIGH_WATERMARKS)
    logs = []
    strays: dict[str, tuple[TopicPartition, uuid.UUID | None]] = {}
    for name in disk.list(directory):
        folder, partition = f"{directory}/{name}", parse_folder(name)
        if is_deleted_folder(name):
            _remove(disk, folder)
        elif name not in _NO_LOGS and _is_folder(disk, folder):
            if partition is None and (stray := parse_stray_folder(name)) is not None:
                _logger.warning("Loaded stray log: %s", folder)
                strays[folder] = stray, _topic_id_of_stray(disk, folder)
                continue
            if partition is None:
                _logger.warning("%s is no log's folder, and is left alone", folder)
                continue
            recovery_point = recovery_points.get(partition, 0)
            found = FoundLog(
                partition=partition,
                folder=folder,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=start_offsets.get(partition, 0),
                cleaned_offset=cleaned_offsets.get(partition, 0),
                high_watermark=high_watermarks.get(partition, 0),
                size=0 if clean else _unsynced_bytes(disk, folder, recovery_point),
            )
            logs.append(found)
    if logs and not clean:
        size = sum(each.size for each in logs) >> 20
        _logger.warning("%s was not closed: of its %d logs, %d MiB may have to be checked", directory, len(logs), size)
    partitions = {each.partition for each in logs}
    known = recovery_points.keys() | start_offsets.keys() | high_watermarks.keys() | cleaned_offsets.keys()
    cleaned_offsets = {each: offset for each, offset in cleaned_offsets.items() if each in partitions}
    outdated = known - partitions
    gone = [
        LostRecords(
            partition=each,
            folder=f"{directory}/{each}",
            end_offset=None,
            recovery_point=recovery_points.get(each, 0),
            high_watermark=high_watermarks.get(each, 0),
        )
        for each in sorted(outdated)
    ]
    return FoundLogs(
        was_closed=clean,
        logs=logs,
        outdated=outdated,
        vanished=[each for each in gone if each.expected_offset],
        strays=strays,
        cleaned_offsets=cleaned_offsets,
    )


def _topic_id_of_stray(disk: Disk, folder: str) -> uuid.UUID | None:
    try:
        return read_topic_id(disk, folder)
    except OSError as error:
        _logger.warning("%s is left alone: %s", folder, error)
        return None


def _is_folder(disk: Disk, path: str) -> bool:
    """Whether it is one, or may be: of what the disk does not give, opening it says why."""
    if disk.is_directory(path):
        return True
    try:
        disk.list(path)
    except (NotADirectoryError, FileNotFoundError):
        return False
    except OSError:
        pass
    return True


def _remove(disk: Disk, folder: str) -> None:
    try:
        remove_tree(disk, folder)
    except OSError as error:
        _logger.warning("%s, which is deleted, could not be removed: %s", folder, error)


def _read_checkpoint(disk: Disk, directory: str, name: str) -> dict[TopicPartition, int]:
    path = f"{directory}/{name}"
    try:
        return decode_offsets(disk.read_file(path), path)
    except FileNotFoundError:
        return {}
    except StorageError as error:
        _logger.warning("%s; the start does without it", error)
        return {}


def _unsynced_bytes(disk: Disk, folder: str, recovery_point: int) -> int:
    """The size of the segments that do not end before the recovery point; 0 where that can't be found out."""
    try:
        parsed = [parse_offset_file(name) for name in disk.list(folder)]
        bases = sorted(item[0] for item in parsed if item and item[1] == LOG)
        first = max(sum(base <= recovery_point for base in bases) - 1, 0)
        return sum(disk.size(f"{folder}/{base:020d}{LOG}") for base in bases[first:])
    except OSError:
        return 0  # opening it will fail, and say why


def open_found(
    pool: FilePool, found: FoundLog, config: LogConfig, now_ms: int, progress: LoadingProgress
) -> OpenedLog | None:
    """Open a log and close its files again, on any thread; None if that is to stop. Raises nothing."""
    if progress.is_stopped:
        return None
    checked = 0

    def watch(size: int) -> None:
        nonlocal checked
        checked += size
        progress.checked(size)

    try:
        log = Log.open(
            pool,
            found.folder,
            config,
            now_ms=now_ms,
            clean=found.clean,
            recovery_point=found.recovery_point,
            log_start_offset=found.log_start_offset,
            cleaned_offset=found.cleaned_offset,
            watch=watch,
        )
        topic_id = read_topic_id(pool.disk, found.folder)
        log.close_files()
    except LoadingStoppedError:
        return None
    except (StorageError, KafkaError, OSError) as error:
        text = str(error) if found.folder in str(error) else f"the log in {found.folder} cannot be opened: {error}"
        return OpenedLog(found=found, log=None, error=LogStorageError(text))
    progress.opened(skipped=max(found.size - checked, 0), is_recovered=checked > 0, truncated=log.truncated)
    lost = LostRecords(
        partition=found.partition,
        folder=found.folder,
        end_offset=log.log_end_offset,
        recovery_point=found.recovery_point,
        high_watermark=found.high_watermark,
    )
    is_whole = log.log_end_offset >= lost.expected_offset
    return OpenedLog(found=found, log=log, topic_id=topic_id, lost_records=None if is_whole else lost)


def read_topic_id(disk: Disk, folder: str) -> uuid.UUID | None:
    """The id of the topic that the log is of, None if its folder does not say. Raises `OSError`."""
    path = f"{folder}/{meta_properties.PARTITION_METADATA}"
    try:
        return meta_properties.decode_partition_metadata(disk.read_file(path), path)
    except FileNotFoundError:
        return None
    except StorageError as error:
        _logger.warning("%s; it is written anew when a broker knows the topic's id", error)
        return None


def drop_empty_duplicates(disk: Disk, logs: Iterable[FoundLog]) -> list[FoundLog]:
    """The logs, without those in which nothing was ever written and of which another directory has one, too.

    A disk that fails while it begins a log leaves such a folder, and the log is made elsewhere. It is removed.
    """
    by_partition: dict[TopicPartition, list[FoundLog]] = {}
    for each in logs:
        by_partition.setdefault(each.partition, []).append(each)
    for duplicates in by_partition.values():
        for each in [twin for twin in duplicates if len(duplicates) > 1 and _is_untouched(disk, twin.folder)]:
            if len(duplicates) > 1:
                _logger.warning("%s is empty, and %s has another log; it is removed", each.folder, each.partition)
                _remove(disk, each.folder)
                duplicates.remove(each)
    return [each for duplicates in by_partition.values() for each in duplicates]


def _is_untouched(disk: Disk, folder: str) -> bool:
    """Whether there is no segment, or the first one, without a byte: a log that was cut from its start begins later."""
    try:
        segments = [name for name in disk.list(folder) if name.endswith(LOG)]
        return all(parse_offset_file(name) == (0, LOG) and disk.size(f"{folder}/{name}") == 0 for name in segments)
    except OSError:
        return False


def refuse_duplicates(logs: Iterable[FoundLog]) -> dict[TopicPartition, StorageError]:
    """Why the partitions are offline that have two folders."""
    folders: dict[TopicPartition, list[str]] = {}
    for found in logs:
        folders.setdefault(found.partition, []).append(found.folder)
    return {
        partition: LogStorageError(
            f"{' and '.join(duplicates)} are logs of the same partition: keep the one that is whole, and start again"
        )
        for partition, duplicates in folders.items()
        if len(duplicates) > 1
    }


def choose_duplicate(
    disk: Disk, found: Collection[FoundLog], topic_id: uuid.UUID | None
) -> tuple[FoundLog | None, list[FoundLog]]:
    """Of one partition's logs, the one that is of the topic of this id, and those that are of another topic.

    None and none, unless that is sure: one has the id, and all others say another one. Raises `OSError`.
    """
    ids = {each.folder: read_topic_id(disk, each.folder) for each in found}
    right = [each for each in found if topic_id is not None and ids[each.folder] == topic_id]
    others = [each for each in found if ids[each.folder] not in (None, topic_id)]
    if len(right) == 1 and len(others) == len(found) - 1:
        return right[0], others
    return None, []
