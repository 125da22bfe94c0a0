"""All logs of a broker: its data directories, who may use them, and what has to be done from time to time.

`open` locks the directories, checks whose they are, and loads every log in them. `maintain`, or `begin_maintenance`
with a job for a background thread, runs retention and expiry, syncs finished segments, removes what was deleted and
writes the checkpoints. `close` leaves a mark that the next `open` need not recover; `kill` does not.

```
data directory/
    .lock  meta.properties  .kafka_cleanshutdown                          identity
    recovery-point-offset-checkpoint  log-start-offset-checkpoint
    replication-offset-checkpoint                                         checkpoints
    {topic}-{partition}/                                                  names
```
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from odradek.log import identity
from odradek.log.checkpoint_writer import CheckpointPlan, CheckpointWriter
from odradek.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from odradek.log.durability import FlushJob
from odradek.log.errors import LogStorageError
from odradek.log.files import DEFAULT_OPEN_FILES, FilePool, write_file
from odradek.log.log import Log
from odradek.log.log_cleaner import LogCleaner
from odradek.log.log_config import LogConfig
from odradek.log.maintenance import MaintenanceJob
from odradek.log.names import deleted_folder, parent_of
from odradek.log.ownership import Ownership, new_id
from odradek.log.progress import LoadingStoppedError, Progress
from odradek.log.startup import Directory, FoundLog, OpenedLog, explore, open_found, refuse_twins
from odradek.model import StorageError, TopicPartition
from odradek.runtime import Disk, Entropy, uuid4

_logger = logging.getLogger("odradek.log")
_FILES_OF_A_THREAD: Final = 4
ConfigFor = Callable[[str], LogConfig]


class LogManager:
    """See the module. Methods raise `StorageError` when the disk, or what is on it, is not as it should be."""

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
    ) -> None:
        """`config_for` tells a topic's configuration; `note` is what a second broker is told about this one.

        `when_log_stopped` is called for each log that the disk's fault has stopped.
        """
        self.directories = list(directories)
        self.broker_id = broker_id
        self.pool = FilePool(disk, max_open_files)
        self._disk = disk
        self._entropy = entropy
        self._config_for = config_for
        self._when_log_stopped = when_log_stopped
        self._ownership = Ownership(
            disk, self.directories, broker_id=broker_id, cluster_id=cluster_id, entropy=entropy, note=note
        )
        self._logs: dict[TopicPartition, Log] = {}
        self.cleaner = LogCleaner(disk, entropy, MappingProxyType(self._logs))
        self._topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self._counts = dict.fromkeys(self.directories, 0)
        """How many logs are in each directory."""
        self._maintenance: MaintenanceJob | None = None
        self._folders_to_remove: list[tuple[int, str]] = []
        self._checkpoints = CheckpointWriter(disk)
        self._outdated: dict[TopicPartition, int] = {}
        """What the checkpoints have and must not have when a new log of that name begins, up to which plan of them."""
        self._unopened: dict[str, FoundLog] = {}
        """The folders of logs that are not open, or not yet: what the checkpoints say of them is kept."""
        self._offline: dict[TopicPartition, StorageError] = {}
        self._progress: Progress | None = None
        self._wants_stop = False
        self._is_open = False
        self.were_closed = False
        """Whether every directory was left by a clean shutdown, so that no log has lost its end; known when loaded."""

    # ---- opening ------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to, None if nobody has said it yet."""
        return self._ownership.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str) -> None:
        self._ownership.cluster_id = cluster_id

    def lock(self) -> None:
        """Take the directories, creating what is not there.

        Raises `StorageError` that says which process has one, or whose directory it is. Sets `cluster_id` to what the
        directories say, if it was None.
        """
        self._ownership.take()

    def load(self, now_ms: int, *, threads: int = 1, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        """Open every log in the directories, which `lock` has taken; recover those that were not closed.

        `cluster_id` must be known by now; it is written down. Blocks, with so many `threads` at work on each directory;
        `monotonic` is the clock of the lines that say how far it is. Raises `LoadingStoppedError` after `stop_loading`:
        `close` keeps what was recovered by then.
        """
        assert self._ownership.is_held, "lock comes first"
        self._is_open = True
        explored = [self._explore(directory) for directory in self.directories]
        self.were_closed = all(each.was_closed for each in explored)
        found = [each.logs for each in explored]
        everything = [each for logs in found for each in logs]
        self._unopened = {each.folder: each for each in everything}
        self._offline = refuse_twins(everything)
        for reason in self._offline.values():
            _logger.error("%s; the partition is offline", reason)
        self._progress = Progress(monotonic, logs=len(everything), size=sum(each.size for each in everything))
        if self._wants_stop:
            self._progress.stop()
        configs = {topic: self._config_for(topic) for topic in {each.partition.topic for each in everything}}
        lanes = [
            [
                partial(open_found, self.pool, each, configs[each.partition.topic], now_ms, self._progress)
                for each in logs
                if each.partition not in self._offline
            ]
            for logs in found
        ]
        # A thread has the files of one segment open at most: the pool, which is no thread's, has nothing to close.
        threads = max(1, min(threads, self.pool.limit // _FILES_OF_A_THREAD // len(lanes)))
        for opened in self._disk.run_lanes(lanes, threads=threads):
            if opened is not None:
                self._take(opened)
        in_order = sorted(self._logs.items())
        self._logs.clear()
        self._logs.update(in_order)
        if self._progress.is_stopped:
            raise LoadingStoppedError
        if everything:
            self._progress.end()

    def _explore(self, directory: str) -> Directory:
        try:
            self._ownership.write_identity(directory)
            explored = explore(self._disk, directory)
        except OSError as error:
            raise StorageError(f"the data directory {directory} cannot be used: {error}") from error
        self._outdated.update(dict.fromkeys(explored.outdated, self._checkpoints.planned))
        self.cleaner.offsets.update(explored.cleaned_offsets)
        return explored

    def stop_loading(self) -> None:
        """Let `load`, which runs on another thread, end soon."""
        self._wants_stop = True
        if self._progress is not None:
            self._progress.stop()

    def _take(self, opened: OpenedLog) -> None:
        partition = opened.found.partition
        if opened.log is None:
            assert opened.error is not None
            _logger.error("%s; the partition is offline", opened.error)
            self._offline[partition] = opened.error
            return
        del self._unopened[opened.found.folder]
        self._logs[partition] = opened.log
        opened.log.when_stopped = self._when_log_stopped
        self._counts[parent_of(opened.found.folder)] += 1
        opened.log.producers.committed(min(opened.found.high_watermark, opened.log.written_offset))
        if opened.topic_id is not None:
            self._topic_ids[partition] = opened.topic_id

    def open(self, now_ms: int) -> None:
        """`lock` and `load`, with a new cluster id if there is none."""
        self.lock()
        if self.cluster_id is None:
            self.cluster_id = new_id(self._entropy)
        self.load(now_ms)

    # ---- logs ---------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log, None if there is none."""
        return self._logs.get(partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every log; to be read only."""
        return self._logs

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """The id of the topic that the log was created for; another one's log is not this topic's (KIP-516)."""
        return self._topic_ids.get(partition)

    def get_or_create(self, partition: TopicPartition, *, topic_id: uuid.UUID | None, now_ms: int) -> Log:
        """The partition's log; a new one goes into the directory that has the fewest.

        Raises `StorageError` if there is one that could not be opened.
        """
        log = self._logs.get(partition)
        if log is None:
            if partition in self._offline:
                raise self._offline[partition]
            if self._outdated.pop(partition, -1) >= self._checkpoints.written:
                self.checkpoint()
            directory = min(self.directories, key=self._counts.__getitem__)
            folder = f"{directory}/{partition}"
            log = Log.open(self.pool, folder, self._config_for(partition.topic), now_ms=now_ms, clean=True)
            self._logs[partition] = log
            log.when_stopped = self._when_log_stopped
            self._counts[directory] += 1
        if topic_id is not None and partition not in self._topic_ids:
            path = f"{log.directory}/{identity.PARTITION_METADATA}"
            try:
                write_file(self._disk, path, identity.encode_partition_metadata(topic_id))
            except OSError as error:
                raise LogStorageError(f"{path} cannot be written: {error}") from error
            self._topic_ids[partition] = topic_id
        return log

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log (see `Log.truncate`), once the checkpoints say nothing that is false then: a crash may come."""
        log = self._logs[partition]
        kept = max((base for base in log.segment_base_offsets if base < offset), default=log.first_base_offset)
        is_compacted_beyond = self.cleaner.cut(partition, offset)
        if log.recovery_point > kept or log.log_start_offset > offset or is_compacted_beyond:
            # What the log goes by afterwards: a later, deeper cut would not know that the file says more.
            log.lower_recovery_point(kept)
            log.lower_log_start_offset(offset)
            self.checkpoint()
        log.truncate(offset)

    def restart(self, partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Drop all that is in a log, which goes on at `offset` (see `Log.restart`); the checkpoints come first."""
        log = self._logs[partition]
        start = min(offset, log.first_base_offset)
        self.cleaner.cut(partition, start)
        log.lower_recovery_point(start)
        log.lower_log_start_offset(offset)
        self.checkpoint()
        log.restart(offset, now_ms)

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Take the partition's log away at once; its files follow after `file.delete.delay.ms`. Ignored without one.

        A log that could not be opened goes too. Raises `StorageError`.
        """
        log = self._logs.pop(partition, None)
        self._topic_ids.pop(partition, None)
        self._offline.pop(partition, None)
        self.cleaner.forget(partition)
        folders = [found.folder for found in self._unopened.values() if found.partition == partition]
        delay_ms = self._config_for(partition.topic).file_delete_delay_ms
        if log is not None:
            log.abandon()
            self._counts[parent_of(log.directory)] -= 1
            folders.append(log.directory)
            delay_ms = log.config.file_delete_delay_ms
        for folder in folders:
            self._unopened.pop(folder, None)
            self._outdated[partition] = self._checkpoints.planned
            directory = parent_of(folder)
            target = f"{directory}/{deleted_folder(partition, uuid4(self._entropy).hex)}"
            try:
                self._disk.rename(folder, target)
                self._disk.sync_directory(directory)
            except OSError as error:
                raise LogStorageError(f"{folder} cannot be deleted: {error}") from error
            self._folders_to_remove.append((now_ms + delay_ms, target))

    def update_config(self, topic: str, partitions: Iterable[int]) -> None:
        """Ask `config_for` again, for the logs of these partitions of `topic`; those that are not here are ignored."""
        config = self._config_for(topic)
        for number in partitions:
            log = self._logs.get(TopicPartition(topic, number))
            if log is not None:
                log.update_config(config)

    # ---- from time to time --------------------------------------------------------------------------------------

    def begin_maintenance(
        self, now_ms: int, *, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> MaintenanceJob | None:
        """Run retention and expiry, and make a job of what the disk has to do; None if one is under way.

        `high_watermarks` bound what retention may take, where they are below what is written. A log that fails stops,
        and the others go on.
        """
        if self._maintenance is not None:
            return None
        job = self._maintenance = MaintenanceJob(self._disk)
        for partition, log in self._logs.items():
            committed = None if high_watermarks is None else high_watermarks.get(partition)
            try:
                if not self.cleaner.is_busy_with(partition):
                    log.delete_old_segments(now_ms, high_watermark=committed)
            except LogStorageError:
                continue  # the log has said so, and stopped
            log.expire_producers(now_ms)
            job.files.extend(log.take_trash(now_ms))
            flush = log.begin_flush(now_ms=now_ms, include_active=now_ms - log.last_flush_ms >= log.config.flush_ms)
            if flush is not None:
                job.flushes.append((log, flush))
        job.folders = [path for due_ms, path in self._folders_to_remove if due_ms <= now_ms]
        self._folders_to_remove = [item for item in self._folders_to_remove if item[0] > now_ms]
        return job

    def finish_maintenance(self, job: MaintenanceJob) -> CheckpointPlan | None:
        """Take the results of a job that has run; what is to be written down then. None if the job is of no use now."""
        if self._maintenance is not job:
            return None
        self._maintenance = None
        for path, error in job.errors:
            _logger.warning("%s could not be removed: %s", path, error)
        for log, flush in job.flushes:
            try:
                log.finish_flush(flush)
            except LogStorageError:
                continue  # the log has said so, and stopped
        return self.plan_checkpoints()

    def maintain(self, now_ms: int, *, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """All of it at once."""
        job = self.begin_maintenance(now_ms, high_watermarks=high_watermarks)
        if job is not None:
            job.run()
            plan = self.finish_maintenance(job)
            assert plan is not None, "nobody else has finished it"
            try:
                self.write_checkpoints(plan)
            except LogStorageError as error:
                _logger.warning("%s; recovery would read more", error)

    def checkpoint(self) -> None:
        """Write down recovery points, log start offsets, high watermarks and how far logs are compacted, at once."""
        self.write_checkpoints(self.plan_checkpoints())

    def plan_checkpoints(self) -> CheckpointPlan:
        """What is to be written down by now."""
        files: dict[str, Mapping[TopicPartition, int]] = {}
        for directory in self.directories:
            files |= self._checkpoints_of(directory)
        return self._checkpoints.plan(files, is_whole=True)

    def write_checkpoints(self, plan: CheckpointPlan) -> None:
        """Write them, on any thread, unless newer ones are written already. Raises `LogStorageError`."""
        self._checkpoints.write(plan)

    def _checkpoints_of(self, directory: str) -> dict[str, Mapping[TopicPartition, int]]:
        logs = self._logs_in(directory)
        points = {tp: log.recovery_point for tp, log in logs.items()}
        starts = {tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset > log.first_base_offset}
        marks = {tp: log.high_watermark for tp, log in logs.items()}
        for found in self._unopened_in(directory):
            points[found.partition] = found.recovery_point
            starts[found.partition] = found.log_start_offset
            marks[found.partition] = found.high_watermark
        files = {RECOVERY_POINTS: points, LOG_START_OFFSETS: starts, HIGH_WATERMARKS: marks}
        cleaned = {tp: offset for tp in logs if (offset := self.cleaner.compacted_offset(tp)) is not None}
        for found in self._unopened_in(directory):
            if found.partition in self.cleaner.offsets:
                cleaned[found.partition] = self.cleaner.offsets[found.partition]
        if cleaned or self._disk.exists(f"{directory}/{CLEANER_OFFSETS}"):
            files[CLEANER_OFFSETS] = cleaned
        return {f"{directory}/{name}": offsets for name, offsets in files.items()}

    def _logs_in(self, directory: str) -> dict[TopicPartition, Log]:
        return {tp: log for tp, log in self._logs.items() if parent_of(log.directory) == directory}

    def _unopened_in(self, directory: str) -> list[FoundLog]:
        return [found for found in self._unopened.values() if parent_of(found.folder) == directory]

    # ---- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every log and leave a mark that all is well, if it is. No job may be under way. Never raises.

        All that has to be synced is synced together: for thousands of logs, one after the other takes too long.
        """
        if self._is_open:
            for directory in self.directories:
                try:
                    self._close_directory(directory)
                except (OSError, LogStorageError) as error:
                    _logger.warning("%s will be recovered at the next start: %s", directory, error)
        self._forget()

    def _close_directory(self, directory: str) -> None:
        jobs: list[tuple[Log, FlushJob]] = []
        is_clean = not self._unopened_in(directory)
        for log in self._logs_in(directory).values():
            try:
                job = log.begin_close()
                if job is not None:
                    job.prepare()
                    jobs.append((log, job))
            except LogStorageError as error:
                _logger.warning("%s will be recovered at the next start: %s", log.directory, error)
                is_clean = False
        self._disk.sync_all([path for _, job in jobs for path in job.paths])
        for log, job in jobs:
            log.finish_flush(job)
        self._checkpoints.write(self._checkpoints.plan(self._checkpoints_of(directory), is_whole=False))
        if is_clean:
            self._disk.replace_file(f"{directory}/{identity.CLEAN_SHUTDOWN}", identity.CLEAN_SHUTDOWN_DATA)

    def kill(self) -> None:
        """End as `kill -9` would: nothing is written or synced, and the directories are free."""
        self._forget()

    def _forget(self) -> None:
        self.cleaner.stop()
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()
        self._counts = dict.fromkeys(self.directories, 0)
        self._topic_ids.clear()
        self._checkpoints.stop()
        self._checkpoints = CheckpointWriter(self._disk)
        self._maintenance = None
        self._unopened.clear()
        self._offline = {}
        self._is_open = False
        self._ownership.give_back()
