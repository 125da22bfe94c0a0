"""`LogManager`, all logs of a broker: open them at the start, create, truncate, delete and close them.

`close` writes `.kafka_cleanshutdown`, so that the next `open` needs no recovery; `kill` does not.

```
data directory/
    .lock  meta.properties  .kafka_cleanshutdown                          meta_properties
    recovery-point-offset-checkpoint  log-start-offset-checkpoint
    replication-offset-checkpoint                                         checkpoint_file
    {topic}-{partition}/                                                  names
```
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.cleaner.log_cleaner import LogCleaner
from odradek.broker.log.directories.deleted_logs import DeletedLogs
from odradek.broker.log.directories.directory_loading import (
    FoundLogs,
    LostRecords,
    OpenedLog,
    choose_duplicate,
    drop_empty_duplicates,
    find_logs,
    open_found,
)
from odradek.broker.log.directories.future_logs import FutureLogs, complete_swaps
from odradek.broker.log.directories.loading_progress import LoadingProgress, LoadingStoppedError
from odradek.broker.log.directories.log_checkpoints import LogCheckpoints
from odradek.broker.log.directories.log_directories import LogDirectories
from odradek.broker.log.directories.log_status import LogStatuses
from odradek.broker.log.directories.maintenance import LogMaintenance
from odradek.broker.log.errors import LogStorageError, OfflineDirectoryError, describe, is_disk_failure, is_passing
from odradek.broker.log.flush_job import FlushJob
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import future_folder, parent_of
from odradek.broker.log.segments.open_files import DEFAULT_OPEN_FILES, FilePool, write_file
from odradek.broker.log.segments.segment import Segment
from odradek.model import ErrorCode, KafkaError, StorageError, TopicPartition, first_names
from odradek.runtime import Disk, Entropy, new_id
from odradek.runtime.shortages import is_out_of_descriptors


class ClosedDirectory(Struct, kw_only=True):
    """The result for a directory: the flush `jobs` are done, unless there is an `error`.

    `is_whole`: no log has failed.
    """

    jobs: list[tuple[Log, FlushJob]] = field(default_factory=list)
    is_whole: bool = True
    error: Exception | None = None


def close_logs(pool: FilePool, logs: Mapping[str, Sequence[Log]], *, threads: int) -> dict[str, ClosedDirectory]:
    """Write and sync the logs of each directory, `threads` logs at a time in each."""
    closed = {directory: ClosedDirectory() for directory in logs}
    writing = [[partial(_write, directory, log) for log in those] for directory, those in logs.items()]
    for directory, log, job, is_written in pool.run_in_threads(writing, threads=threads):
        closed[directory].is_whole &= is_written
        if job is not None:
            closed[directory].jobs.append((log, job))
    syncing = [[partial(_sync, pool.disk, directory, closed[directory].jobs)] for directory in logs]
    for directory, error in pool.disk.run_in_threads(syncing, threads=1):
        closed[directory].error = error
    return closed


def _write(directory: str, log: Log) -> tuple[str, Log, FlushJob | None, bool]:
    try:
        job = log.writer.begin_close()
        if job is not None:
            job.prepare()
    except Exception as error:
        _logger.warning("%s will be recovered at the next start: %s", log.directory, describe(error))
        return directory, log, None, False
    finally:
        log.segments.close()
    return directory, log, job, True


def _sync(disk: Disk, directory: str, jobs: Sequence[tuple[Log, FlushJob]]) -> tuple[str, Exception | None]:
    try:
        disk.sync_all([path for _, job in jobs for path in job.paths])
    except Exception as error:
        return directory, error
    for _, job in jobs:
        job.error = None
    return directory, None


_logger = logging.getLogger("odradek.log")
_MOST_PREFERRED: Final = 10_000
"""Limit of the logs for which a directory is chosen before they are created."""
ConfigFor = Callable[[str], LogConfig]


class LogManager:
    """The logs of one broker. Methods raise `StorageError` for a failed disk or unexpected files."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        broker_id: int,
        entropy: Entropy,
        cluster_id: str | None = None,
        config_for: ConfigFor = lambda topic: LogConfig(),
        max_open_files: int = DEFAULT_OPEN_FILES,
        note: str = "odradek serve",
        when_log_stopped: Callable[[], None] | None = None,
        when_directory_failed: Callable[[Set[TopicPartition], StorageError], None] | None = None,
        when_segment_suspected: Callable[[TopicPartition, Log, Segment], bool] | None = None,
    ) -> None:
        """`config_for` returns a topic's configuration; another process that finds the lock shows `note`.

        `when_log_stopped` is called for each log that stops, `when_directory_failed` with the partitions of a failed
        directory; `when_segment_suspected` starts a check of a segment and returns whether it did.
        """
        self.pool = FilePool(disk, max_open_files)
        self._disk = disk
        self._entropy = entropy
        self._config_for = config_for
        self._when_log_stopped = when_log_stopped
        self._when_directory_failed = when_directory_failed
        self._when_segment_suspected = when_segment_suspected
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self.logs: Mapping[TopicPartition, Log] = MappingProxyType(self._logs)
        """All open logs."""
        self.topic_ids: Mapping[TopicPartition, uuid.UUID] = MappingProxyType(self._topic_ids)
        """The topic ids of open logs with a `partition.metadata` (KIP-516)."""
        self.directories = LogDirectories(
            disk, directories, broker_id=broker_id, cluster_id=cluster_id, entropy=entropy, note=note
        )
        self.cleaner = LogCleaner(disk, entropy, self.logs)
        self.statuses = LogStatuses()
        self.checkpoints = LogCheckpoints(
            disk, self.directories, self.logs, self.statuses, self.cleaner, self.fail_directory
        )
        self.deleted = DeletedLogs(disk, entropy, config_for, self.statuses, self.checkpoints)
        self.futures = FutureLogs(
            self.pool, entropy, self.logs, self.topic_ids, self.deleted, self.checkpoints, self._log_failed
        )
        """The copies of logs that move to another directory."""
        self._preferred: dict[TopicPartition, str] = {}
        """The directories in which logs shall be created."""
        self.maintenance = LogMaintenance(disk, self.logs, self.cleaner, self.deleted, self.checkpoints)
        self._counts = dict.fromkeys(directories, 0)
        """The number of logs in each directory."""
        self._progress: LoadingProgress | None = None
        self._wants_stop = False
        self._is_open = False
        self.on_rebuilt: Callable[[Log], None] | None = None
        """Called with each log that is opened or truncated, whose state is not that of appends."""
        self.were_closed = False
        """Whether all directories had a clean shutdown and no log has lost records; set by `load`."""

    def open(self, now_ms: int) -> None:
        """Lock the directories, load all logs and write `meta.properties`, with a new cluster id if there is none."""
        self.directories.lock()
        if self.directories.cluster_id is None:
            self.directories.cluster_id = meta_properties.encode_uuid(new_id(self._entropy))
        self.load(now_ms)
        self.write_meta_properties()

    def load(self, now_ms: int, *, threads: int = 1, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        """Open every log in the locked directories; recover the logs of directories without a clean shutdown.

        Blocks, with `threads` threads per directory; `monotonic` returns seconds. Raises `LoadingStoppedError` after
        `stop_loading`; `close` then syncs the logs opened so far.
        """
        assert self.directories.is_locked, "lock comes first"
        self._is_open = True
        complete_swaps(self._disk, self.directories.usable, is_whole=not self.directories.offline)
        directories = [each for path in self.directories.usable if (each := self._find_logs(path)) is not None]
        self.were_closed = all(each.was_closed for each in directories) and not self.directories.offline
        found = drop_empty_duplicates(self._disk, [each for directory in directories for each in directory.logs])
        self.statuses.set_found(found)
        for reason in self.statuses.offline.values():
            _logger.error("%s; the partition is offline", reason)
        progress = LoadingProgress(monotonic, logs=len(found), size=sum(each.size for each in found))
        self._progress = progress
        if self._wants_stop:
            progress.stop()
        configs = {topic: self._config_for(topic) for topic in dict.fromkeys(each.partition.topic for each in found)}
        groups = [
            [
                partial(open_found, self.pool, each, configs[each.partition.topic], now_ms, progress)
                for each in found
                if parent_of(each.folder) == path and each.partition not in self.statuses.offline
            ]
            for path in self.directories.usable
        ]
        for opened in self.pool.run_in_threads(groups, threads=threads):
            if opened is not None:
                self._add_opened(opened)
        in_order = sorted(self._logs.items())
        self._logs.clear()
        self._logs.update(in_order)
        for directory in directories:
            self.deleted.strays.update(directory.strays)
        partitions = {each.partition for each in found}
        for lost in (each for directory in directories for each in directory.vanished):
            if lost.partition not in partitions:
                self._add_lost_records(lost)
        if progress.is_stopped:
            raise LoadingStoppedError
        if found:
            progress.end()
        usable, is_whole = self.directories.usable, not self.directories.offline
        self.futures.begin_again(usable, now_ms, offline=self.statuses.offline, is_whole=is_whole)

    def _find_logs(self, directory: str) -> FoundLogs | None:
        try:
            found = find_logs(self._disk, directory)
        except OSError as error:
            self.directories.load_failed(directory, error)
            return None
        self.checkpoints.mark_outdated(found.outdated)
        self.cleaner.offsets.update(found.cleaned_offsets)
        return found

    def _add_opened(self, opened: OpenedLog) -> None:
        partition = opened.found.partition
        if opened.log is None:
            assert opened.error is not None
            _logger.error("Failed to open the log of %s: %s; the partition is offline", partition, opened.error)
            self.statuses.offline[partition] = opened.error
            return
        self.statuses.unopened.pop(opened.found.folder, None)
        self._add(partition, opened.log)
        if opened.lost_records is not None:
            self._add_lost_records(opened.lost_records)
        opened.log.producers.committed(min(opened.found.high_watermark, opened.log.written_offset))
        if opened.topic_id is not None:
            self._topic_ids[partition] = opened.topic_id
        self._note_rebuilt(opened.log)

    def _add(self, partition: TopicPartition, log: Log) -> None:
        self._logs[partition] = log
        self._counts[parent_of(log.directory)] += 1
        suspected = self._when_segment_suspected
        log.set_listeners(
            on_failure=partial(self._log_failed, log),
            on_suspected=None if suspected is None else partial(suspected, partition, log),
        )

    def _add_lost_records(self, lost: LostRecords) -> None:
        self.were_closed = False
        self.statuses.add_lost(lost)
        _logger.error("A log has lost records: %s", lost)

    def stop_loading(self) -> None:
        """End a `load` that runs on another thread, without waiting for it."""
        self._wants_stop = True
        if self._progress is not None:
            self._progress.stop()

    def write_meta_properties(self) -> None:
        """Write the `meta.properties` of new directories. Raises `StorageError` if no directory is left."""
        for directory in self.directories.usable:
            try:
                self.directories.write_meta_properties(directory)
            except OSError as error:
                if is_out_of_descriptors(error):
                    message = f"meta.properties of {directory} cannot be written: {error} (raise ulimit -n)"
                    raise StorageError(message) from error
                self.fail_directory(directory, error)
        if not self.directories.usable:
            raise StorageError("; ".join(map(str, self.directories.offline.values())))

    # ---- logs that are missing, or in two directories -----------------------------------------------------------

    def partitions_in(self, path: str) -> list[TopicPartition]:
        """Return the partitions with logs, open or not, in the directory with the absolute path `path`."""
        (directory,) = {each for each in self.directories.paths if self._disk.absolute(each) == path}
        return [*self._logs_in(directory), *(each.partition for each in self.statuses.unopened_in(directory))]

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those of `partitions` that have neither an open nor an unopened log."""
        return {each for each in partitions if each not in self._logs and each not in self.statuses.offline}

    def refuse_new_directories(self, reason: str) -> None:
        """Take new, empty directories offline. Raises `StorageError` if no usable directory is left."""
        empty = [each for each in self.directories.new if not self._counts[each]]
        self.directories.offline.update(dict.fromkeys(empty, StorageError(reason)))
        if not self.directories.usable:
            raise StorageError(reason)

    def resolve_duplicates(self, topic_ids: Mapping[str, uuid.UUID], now_ms: int) -> None:
        """Open the log with the topic's id of each of `statuses.duplicates`; rename the others to `-stray`.

        `topic_ids` has topic names as keys. Duplicates arise if a topic is recreated while a directory is offline.
        Blocks.
        """
        for partition in sorted(self.statuses.duplicates):
            found = self.statuses.unopened_of(partition)
            try:
                right, others = choose_duplicate(self._disk, found, topic_ids.get(partition.topic))
                for each in others:
                    self.deleted.rename_to_stray(each.partition, each.folder, "of another topic of the same name")
            except (OSError, LogStorageError) as error:
                _logger.error("Failed to open a log of %s: %s; the partition stays offline", partition, error)
                continue
            if right is not None:
                del self.statuses.offline[partition]
                progress = LoadingProgress(lambda: 0.0, logs=1, size=right.size)
                opened = open_found(self.pool, right, self._config_for(partition.topic), now_ms, progress)
                if opened is not None:
                    self._add_opened(opened)

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """Return the topic id in the log's `partition.metadata`, None if unknown (KIP-516)."""
        return self._topic_ids.get(partition)

    def _logs_in(self, directory: str) -> dict[TopicPartition, Log]:
        return {tp: log for tp, log in self._logs.items() if parent_of(log.directory) == directory}

    def get_or_create(
        self, partition: TopicPartition, *, topic_id: uuid.UUID | None, now_ms: int, is_copied: bool = False
    ) -> Log:
        """Return the partition's log, created if missing in the directory with the fewest logs.

        With `is_copied` lost records are accepted: this replica is outside the ISR and copies the leader's log. Raises
        `StorageError` if the log is not usable, `OfflineDirectoryError` if it may be in an offline directory.
        """
        log = self._logs.get(partition)
        if log is None:
            self.statuses.check_may_create(partition, self.directories.offline)
        elif (reason := self.directories.offline.get(parent_of(log.directory))) is not None:
            raise OfflineDirectoryError(str(reason))
        if is_copied:
            self.accept_lost_records(partition)
        self.statuses.check_whole(partition)
        self.checkpoints.update_outdated(partition)
        if log is None:
            log = self._create(partition, now_ms)
        if topic_id is not None and partition not in self._topic_ids:
            path = f"{log.directory}/{meta_properties.PARTITION_METADATA}"
            try:
                write_file(self._disk, path, meta_properties.encode_partition_metadata(topic_id))
            except OSError as error:
                message = f"Failed to write {path}: {error}"
                raise LogStorageError(message, is_passing=is_passing(error)) from error
            log.writer.unsynced_paths.add(path)
            self._topic_ids[partition] = topic_id
        return log

    def accept_lost_records(self, partition: TopicPartition) -> None:
        """Allow the use of a log with lost records; its checkpoints are corrected before that."""
        if self.statuses.lost.pop(partition, None) is not None:
            self.checkpoints.mark_outdated([partition])

    def _create(self, partition: TopicPartition, now_ms: int) -> Log:
        """Create a log; if the disk fails, try the next directory, as Kafka does."""
        while usable := self.directories.usable:
            choices = self.statuses.directories_for(partition, {each: self._disk.absolute(each) for each in usable})
            preferred = self._preferred.pop(partition, None)
            directory = preferred if preferred in choices else min(choices, key=self._counts.__getitem__)
            folder = f"{directory}/{partition}"
            if meta_properties.is_data_directory(self._disk, folder):
                raise LogStorageError(
                    f"{folder} is the data directory of a broker; {partition} cannot be created there"
                )
            try:
                log = Log.open(self.pool, folder, self._config_for(partition.topic), now_ms=now_ms, clean=True)
            except LogStorageError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or not is_disk_failure(cause):
                    raise
                self.fail_directory(directory, cause)
                continue
            self._add(partition, log)
            return log
        raise OfflineDirectoryError("; ".join(map(str, self.directories.offline.values())))

    def alter_directory(self, partition: TopicPartition, path: str, now_ms: int) -> None:
        """Begin to move a log to the directory with the absolute path `path`; end a move to another one.

        If the log is in `path`, only end the move. Raises `KafkaError` LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR for an
        offline log or directory; REPLICA_NOT_AVAILABLE without a log, which will be created there, as in Kafka.
        """
        directory = next((each for each in self.directories.paths if self._disk.absolute(each) == path), None)
        if directory is None:
            raise KafkaError(ErrorCode.log_dir_not_found, f"{path} is no data directory of this broker")
        log, future, offline = self._logs.get(partition), self.futures.get(partition), self.directories.offline
        if directory in offline or partition in self.statuses.offline:
            raise LogStorageError(str(offline.get(directory) or self.statuses.offline[partition]))
        future_folder(partition, uuid.UUID(int=0).hex)
        if future is not None and parent_of(future.log.directory) != directory:
            self.futures.drop(partition, now_ms)
        if log is None:
            self._preferred[partition] = directory
            while len(self._preferred) > _MOST_PREFERRED:
                del self._preferred[next(iter(self._preferred))]
            raise KafkaError(ErrorCode.replica_not_available, f"there is no replica of {partition}")
        if log.failure is not None:
            raise LogStorageError(log.failure)
        if parent_of(log.directory) == directory or partition in self.futures:
            return
        if offline:
            raise LogStorageError(f"{partition} does not move while {first_names(offline)} is offline")
        self.cleaner.truncate_checkpoint(partition, log.log_end_offset)  # compacts no more until the move has ended
        self.futures.begin(partition, directory, now_ms)

    def swap(self, partition: TopicPartition, now_ms: int) -> None:
        """Let a log go on in the directory of its copy, see `FutureLogs.swap`."""
        log = self._logs[partition]
        self._counts[parent_of(log.directory)] -= 1
        try:
            self.futures.swap(partition, now_ms)
        finally:
            self._counts[parent_of(log.directory)] += 1

    def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Truncate a log, after writing checkpoints if a crash would make them wrong (see `Log.truncate_to`)."""
        log = self._logs[partition]
        kept = max((base for base in log.segments.bases if base < offset), default=log.first_base_offset)
        is_compacted_beyond = self.cleaner.truncate_checkpoint(partition, offset)
        is_committed = log.high_watermark > offset
        if log.writer.recovery_point > kept or log.log_start_offset > offset or is_compacted_beyond or is_committed:
            # A later truncation compares with these values, not with the files.
            self._lower_checkpoints(log, kept, offset)
        self.futures.truncate(partition, offset)  # first: an error may come after the truncation
        log.truncate_to(offset)
        self._note_rebuilt(log)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Remove all records of a log and begin at `offset`, after writing checkpoints."""
        log = self._logs[partition]
        start = min(offset, log.first_base_offset)
        self.cleaner.truncate_checkpoint(partition, start)
        self._lower_checkpoints(log, start, offset)
        self.futures.truncate(partition, start)
        log.truncate_fully_and_start_at(offset, now_ms)
        self._note_rebuilt(log)

    def _note_rebuilt(self, log: Log) -> None:
        if self.on_rebuilt is not None:
            self.on_rebuilt(log)

    def _lower_checkpoints(self, log: Log, recovery_point: int, offset: int) -> None:
        log.lower_offsets(recovery_point, offset)
        self.checkpoints.write_all()

    def delete(self, partition: TopicPartition, now_ms: int, *, is_stray: bool = False) -> None:
        """Delete the partition's log, open or not, if there is one.

        Its folder is renamed to `-delete`, or `-stray` if `is_stray`, and removed after `file.delete.delay.ms`. After a
        `StorageError` the partition is offline until a call succeeds. `deleted.left` has the replicas whose folders
        could not be renamed.
        """
        log = self._logs.pop(partition, None)
        topic_id = self._topic_ids.get(partition)
        self.futures.drop(partition, now_ms)
        self.statuses.forget(partition)
        self._forget(partition)
        folders = [found.folder for found in self.statuses.unopened_of(partition)]
        config = self._config_for(partition.topic) if log is None else log.config
        if log is not None:
            if is_stray:
                self._sync_id(log)
            log.abandon()
            self._counts[parent_of(log.directory)] -= 1
            folders.append(log.directory)
        delay_ms, offline = config.file_delete_delay_ms, self.directories.offline
        self.deleted.delete(partition, folders, now_ms, delay_ms, topic_id=topic_id, is_stray=is_stray, offline=offline)

    def rename_to_stray(self, partition: TopicPartition, reason: str) -> None:
        """Rename the log's folder to `-stray`; it stays until `StrayLogs` or an operator removes it.

        An expected log stays expected: the right one may be in an offline directory. After a `LogStorageError` the log
        is unchanged.
        """
        log = self._logs[partition]
        self._sync_id(log)
        folder = self.deleted.rename_to_stray(partition, log.directory, reason)
        del self._logs[partition]
        self.futures.drop(partition, now_ms=0)
        self.deleted.strays[folder] = partition, self._topic_ids.get(partition)
        self._forget(partition)
        log.abandon()
        self._counts[parent_of(log.directory)] -= 1

    def _sync_id(self, log: Log) -> None:
        """Sync the topic id of a log that becomes a stray: without it the folder would stay for ever."""
        path = f"{log.directory}/{meta_properties.PARTITION_METADATA}"
        try:
            self._disk.sync_all([path, log.directory])
        except OSError as error:
            _logger.warning("A power failure may make %s unreadable: %s", path, error)

    def _forget(self, partition: TopicPartition) -> None:
        self._topic_ids.pop(partition, None)
        self.statuses.lost.pop(partition, None)
        self.cleaner.remove(partition)

    def update_config(self, partition: TopicPartition) -> None:
        log, future = self._logs.get(partition), self.futures.get(partition)
        for each in (log, None if future is None else future.log):
            if each is not None and each.config is not (config := self._config_for(partition.topic)):
                each.update_config(config)

    # ---- disks that fail while the broker runs ------------------------------------------------------------------

    def _log_failed(self, log: Log, error: Exception) -> None:
        if isinstance(error, OSError) and is_disk_failure(error):
            self.fail_directory(parent_of(log.directory), error)
        if self._when_log_stopped is not None and log.failure is not None:
            self._when_log_stopped()

    def fail_directory(self, directory: str, error: OSError) -> None:
        """Take a directory with a failed disk and its logs offline until the next start (KIP-112)."""
        if directory in self.directories.offline or not self._is_open:
            return
        reason = self.directories.fail(directory, error)
        self.statuses.expect_nothing()
        logs = self._logs_in(directory)
        self.futures.directory_failed(directory, str(reason))
        _logger.error("%s; its %d logs are offline until this broker is restarted", reason, len(logs))
        for log in logs.values():
            log.writer.stop(str(reason))
        if self._when_directory_failed is not None:
            self._when_directory_failed(logs.keys(), reason)

    def close(self, *, threads: int = 1) -> None:
        """Close every log; write `.kafka_cleanshutdown` where all logs are synced. Never raises.

        No job may be under way. Blocks, with `threads` threads per directory.
        """
        if self._is_open:
            for log in self._logs.values():
                log.set_listeners()
            logs = {directory: list(self._logs_in(directory).values()) for directory in self.directories.usable}
            for directory, closed in close_logs(self.pool, logs, threads=threads).items():
                try:
                    self._mark_closed(directory, closed)
                except Exception as error:
                    _logger.warning("%s will be recovered at the next start: %s", directory, describe(error))
        self._reset()

    def _mark_closed(self, directory: str, closed: ClosedDirectory) -> None:
        if closed.error is not None:
            raise closed.error
        self.directories.check_still_there(directory)
        for log, job in closed.jobs:
            log.writer.finish_flush(job)
        self.checkpoints.write_directory(directory)
        if closed.is_whole and not self.statuses.unopened_in(directory):
            self._disk.replace_file(
                f"{directory}/{meta_properties.CLEAN_SHUTDOWN}", meta_properties.CLEAN_SHUTDOWN_DATA
            )

    def kill(self) -> None:
        """End as `kill -9` would: write and sync nothing, and unlock the directories."""
        self._reset()

    def _reset(self) -> None:
        self.cleaner.stop()
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()
        self._counts = dict.fromkeys(self.directories.paths, 0)
        self.futures.clear()
        self._preferred.clear()
        self._topic_ids.clear()
        self.checkpoints.reset()
        self.maintenance.abandon()
        self.statuses.clear()
        self.deleted.strays.clear()
        self._is_open = False
        self.directories.unlock()
