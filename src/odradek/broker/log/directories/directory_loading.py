"""Finding the logs of a data directory at the start, and opening each on a thread.

If a log cannot be opened, only its partition is offline; in Kafka the directory or the broker fails (`loadLogs`):

| found | result |
|---|---|
| a disk error, an unreadable file, irreparable damage | the partition is offline |
| logs of one partition in two data directories, one empty | the empty one is removed, the other opened |
| such logs, neither empty | the one with the topic's id is opened, the other renamed to `-stray` |
| such logs, if topic ids do not decide | the partition is offline; both logs are unchanged |
| `{topic}-{partition}.{32 hex digits}-delete` | removed |
| `{topic}-{partition}.{32 hex digits}-stray` | logged; removed later if the metadata confirms it |
| `{topic}-{partition}.{32 hex digits}-future` and `-moved` | see `future_logs` |
| other folders, or with a `meta.properties` | ignored; logged |
| other files | ignored |
"""

import logging
import uuid
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.checkpoints.checkpoint_file import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    decode_offsets,
)
from odradek.broker.log.directories.loading_progress import LoadingProgress, LoadingStoppedError
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import (
    LOG,
    is_deleted_folder,
    parse_folder,
    parse_future_folder,
    parse_offset_file,
    parse_stray_folder,
)
from odradek.broker.log.segments.open_files import FilePool
from odradek.model import KafkaError, StorageError, TopicPartition
from odradek.runtime import Disk

_logger = logging.getLogger("odradek.log")
_NO_LOGS: Final = frozenset({"metadata.sqlite.sessions", "remote-log-index-cache", "__cluster_metadata-0"})
"""Folders of Odradek's and Kafka's brokers that are not logs."""


class FoundLog(Struct, frozen=True, kw_only=True):
    """A log's folder and its checkpoints; recovery may have to read up to `size` bytes."""

    partition: TopicPartition
    folder: str
    clean: bool
    recovery_point: int
    log_start_offset: int
    cleaned_offset: int
    high_watermark: int
    size: int


class LostRecords(Struct, frozen=True, kw_only=True):
    """A log that ends before the offsets in its checkpoints; `end_offset` is None if its folder is missing."""

    partition: TopicPartition
    folder: str
    end_offset: int | None
    recovery_point: int
    high_watermark: int
    advice: str = ""
    """Commands for an operator."""

    @property
    def expected_offset(self) -> int:
        """The log end offset that the checkpoints require at least."""
        return max(self.recovery_point, self.high_watermark)

    @property
    def is_synced_data(self) -> bool:
        """Whether synced records are lost, which no power failure explains."""
        return self.end_offset is None or self.end_offset < self.recovery_point

    def __str__(self) -> str:
        found = "is gone" if self.end_offset is None else f"ends at offset {self.end_offset}"
        return (
            f"{self.folder} {found}, and its checkpoints have the recovery point {self.recovery_point} and the high "
            f"watermark {self.high_watermark}: records before offset {self.expected_offset} are lost"
        )


class OpenedLog(Struct, frozen=True, kw_only=True):
    """An opened log, or why it is not open."""

    found: FoundLog
    log: Log | None
    topic_id: uuid.UUID | None = None
    error: StorageError | None = None
    lost_records: LostRecords | None = None
    """Synced or acknowledged records that the log lacks."""


class FoundLogs(Struct, frozen=True, kw_only=True):
    """The logs, stray folders and cleaner offsets of a data directory; `was_closed` by a clean shutdown.

    `outdated` partitions are in checkpoints without a folder; those in `vanished` had records.
    """

    was_closed: bool
    logs: list[FoundLog]
    outdated: set[TopicPartition]
    vanished: list[LostRecords]
    strays: dict[str, tuple[TopicPartition, uuid.UUID | None]]
    cleaned_offsets: dict[TopicPartition, int]


def find_logs(disk: Disk, directory: str) -> FoundLogs:
    """Find a directory's logs; remove deleted logs and `.kafka_cleanshutdown`. Raises `OSError`."""
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
            if partition is None and parse_future_folder(name) is not None:
                continue
            if partition is None or meta_properties.is_data_directory(disk, folder):
                _logger.warning("%s is not a log's folder, ignoring it", folder)
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
        _logger.warning(
            "%s had an unclean shutdown: recovering its %d logs, up to %d MiB to check", directory, len(logs), size
        )
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
        _logger.warning("Ignoring the stray log %s: %s", folder, error)
        return None


def _is_folder(disk: Disk, path: str) -> bool:
    """Return whether `path` is a folder, perhaps an unreadable one."""
    if disk.is_directory(path):
        return True
    try:
        disk.list(path)
    except (NotADirectoryError, FileNotFoundError):
        return False
    except OSError:
        pass
    return True


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder and the files in it, if it exists. Raises `OSError`."""
    if not disk.exists(path):
        return
    for name in disk.list(path):
        disk.remove(f"{path}/{name}")
    disk.remove_directory(path)


def _remove(disk: Disk, folder: str) -> None:
    try:
        remove_tree(disk, folder)
    except OSError as error:
        _logger.warning("Failed to remove the deleted log %s: %s", folder, error)


def _read_checkpoint(disk: Disk, directory: str, name: str) -> dict[TopicPartition, int]:
    path = f"{directory}/{name}"
    try:
        return decode_offsets(disk.read_file(path), path)
    except FileNotFoundError:
        return {}
    except StorageError as error:
        _logger.warning("Ignoring an unreadable checkpoint: %s", error)
        return {}


def _unsynced_bytes(disk: Disk, folder: str, recovery_point: int) -> int:
    try:
        parsed = [parse_offset_file(name) for name in disk.list(folder)]
        bases = sorted(item[0] for item in parsed if item and item[1] == LOG)
        first = max(sum(base <= recovery_point for base in bases) - 1, 0)
        return sum(disk.size(f"{folder}/{base:020d}{LOG}") for base in bases[first:])
    except OSError:
        return 0  # opening it fails, too


def open_found(
    pool: FilePool, found: FoundLog, config: LogConfig, now_ms: int, progress: LoadingProgress
) -> OpenedLog | None:
    """Open a log on any thread; None if loading was stopped. Storage errors are in the result."""
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
        log.segments.close()
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
    """Return the topic id in `partition.metadata`, None if that is missing or invalid. Raises `OSError`."""
    path = f"{folder}/{meta_properties.PARTITION_METADATA}"
    try:
        return meta_properties.decode_partition_metadata(disk.read_file(path), path)
    except FileNotFoundError:
        return None
    except StorageError as error:
        _logger.warning("Ignoring an unreadable partition.metadata until the topic's id is known: %s", error)
        return None


def drop_empty_duplicates(disk: Disk, logs: Iterable[FoundLog]) -> list[FoundLog]:
    """Remove empty logs of partitions with another log (left by failed creations); return the remaining logs."""
    by_partition: dict[TopicPartition, list[FoundLog]] = {}
    for each in logs:
        by_partition.setdefault(each.partition, []).append(each)
    for duplicates in by_partition.values():
        for each in [log for log in duplicates if len(duplicates) > 1 and _is_untouched(disk, log.folder)]:
            if len(duplicates) > 1:
                _logger.warning("Removing the empty log %s: %s has another one", each.folder, each.partition)
                _remove(disk, each.folder)
                duplicates.remove(each)
    return [each for duplicates in by_partition.values() for each in duplicates]


def _is_untouched(disk: Disk, folder: str) -> bool:
    try:
        segments = [name for name in disk.list(folder) if name.endswith(LOG)]
        return all(parse_offset_file(name) == (0, LOG) and disk.size(f"{folder}/{name}") == 0 for name in segments)
    except OSError:
        return False


def refuse_duplicates(logs: Iterable[FoundLog]) -> dict[TopicPartition, StorageError]:
    folders: dict[TopicPartition, list[str]] = {}
    for found in logs:
        folders.setdefault(found.partition, []).append(found.folder)
    return {
        partition: LogStorageError(
            f"{' and '.join(duplicates)} are logs of the same partition: keep the complete one, and restart the broker"
        )
        for partition, duplicates in folders.items()
        if len(duplicates) > 1
    }


def choose_duplicate(
    disk: Disk, found: Collection[FoundLog], topic_id: uuid.UUID | None
) -> tuple[FoundLog | None, list[FoundLog]]:
    """Return the only log with `topic_id`, and the others if each has another known id; else (None, []).

    Raises `OSError`.
    """
    ids = {each.folder: read_topic_id(disk, each.folder) for each in found}
    right = [each for each in found if topic_id is not None and ids[each.folder] == topic_id]
    others = [each for each in found if ids[each.folder] not in (None, topic_id)]
    if len(right) == 1 and len(others) == len(found) - 1:
        return right[0], others
    return None, []
