"""All logs of a broker: its data directories, who may use them, and what has to be done from time to time.

`open` locks the directories, checks whose they are, and loads every log in them. `maintain`, or `begin_maintenance`
with a job for a background thread, runs retention and expiry, syncs finished segments, removes what was deleted and
writes the checkpoints. `close` leaves a mark that the next `open` need not recover; `kill` does not.

```
data directory/
    .lock  meta.properties  .kafka_cleanshutdown                          meta_properties
    recovery-point-offset-checkpoint  log-start-offset-checkpoint
    replication-offset-checkpoint                                         checkpoints
    {topic}-{partition}/                                                  names
```
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping

from odradek.log.checkpoints import meta_properties
from odradek.log.directories.checkpoint_contents import checkpoint_contents
from odradek.log.directories.checkpoint_writer import CheckpointPlan, CheckpointWriter
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_shutdown import ClosedDirectory, close_logs
from odradek.log.directories.lost_records import Shortfalls
from odradek.log.directories.maintenance import MaintenanceJob
from odradek.log.directories.missing_logs import Expectations
from odradek.log.errors import (
    CheckpointError,
    LogStorageError,
    OfflineDirectoryError,
    describe,
    is_disk_failure,
    is_passing,
)
from odradek.log.log import Log
from odradek.log.names import deleted_folder, parent_of, stray_folder
from odradek.log.segments.open_files import write_file
from odradek.model import TopicPartition
from odradek.runtime import uuid4

_logger = logging.getLogger("odradek.log")


class LogManager(LogDirectories):
    """See the module. Methods raise `StorageError` when the disk, or what is on it, is not as it should be."""

    # ---- logs ---------------------------------------------------------------------------------------------------

    def get_or_create(
        self, partition: TopicPartition, *, topic_id: uuid.UUID | None, now_ms: int, is_copied: bool = False
    ) -> Log:
        """The partition's log; a new one goes into the directory that has the fewest.

        `is_copied`: it is a follower's that is in sync with nobody. Raises `StorageError` if there is one that could
        not be opened or has lost records (see `lost_records`), and `OfflineDirectoryError` if it may be in a directory
        that is offline or lost (see `expect`).
        """
        log = self._logs.get(partition)
        if log is None:
            if partition in self._offline:
                raise self._offline[partition]
            self._expectations.check(partition, is_copied=is_copied, offline=self.offline_directories)
        elif (reason := self.offline_directories.get(parent_of(log.directory))) is not None:
            raise OfflineDirectoryError(str(reason))
        if is_copied:
            self.settle_shortfall(partition)
        self.shortfalls.check(partition)
        if self._outdated.get(partition, -1) >= self._checkpoints.written:
            self.checkpoint()
        self._outdated.pop(partition, None)
        if log is None:
            log = self._create(partition, now_ms)
        if topic_id is not None and partition not in self._topic_ids:
            path = f"{log.directory}/{meta_properties.PARTITION_METADATA}"
            try:
                write_file(self._disk, path, meta_properties.encode_partition_metadata(topic_id))
            except OSError as error:
                message = f"{path} cannot be written: {error}"
                raise LogStorageError(message, is_passing=is_passing(error)) from error
            log.sync_with_next_flush(path)
            self._topic_ids[partition] = topic_id
        return log

    def settle_shortfall(self, partition: TopicPartition) -> None:
        """Let a log that has lost records be used as it is: its leader, or an operator, says that it may.

        Checkpoints are written before it is used, as they say that more of it was synced than there is.
        """
        if self.shortfalls.settle(partition):
            self._outdated[partition] = self._checkpoints.planned

    def _create(self, partition: TopicPartition, now_ms: int) -> Log:
        """In one directory after the other, as Kafka does, while the disks under them fail."""
        while self._usable:
            places = self._expectations.places(partition, {each: self._disk.absolute(each) for each in self._usable})
            directory = min(places, key=self._counts.__getitem__)
            folder = f"{directory}/{partition}"
            try:
                log = Log.open(self.pool, folder, self._config_for(partition.topic), now_ms=now_ms, clean=True)
            except LogStorageError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or not is_disk_failure(cause):
                    raise
                self.fail_directory(directory, cause)
                continue
            self._logs[partition] = log
            self._watch(partition, log)
            self._counts[directory] += 1
            return log
        raise OfflineDirectoryError("; ".join(map(str, self.offline_directories.values())))

    def truncate_to(self, partition: TopicPartition, offset: int) -> None:
        """Cut a log (see `Log.truncate_to`), once the checkpoints say nothing that is false then: a crash may come."""
        log = self._logs[partition]
        kept = max((base for base in log.segment_base_offsets if base < offset), default=log.first_base_offset)
        is_compacted_beyond = self.cleaner.truncate_checkpoint(partition, offset)
        is_committed = log.high_watermark > offset
        if log.recovery_point > kept or log.log_start_offset > offset or is_compacted_beyond or is_committed:
            # What the log goes by afterwards: a later, deeper cut would not know that the file says more.
            log.lower_recovery_point(kept)
            log.lower_log_start_offset(offset)
            log.lower_high_watermark(offset)
            self.checkpoint()
        log.truncate_to(offset)

    def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Remove all records of a log, which goes on at `offset`; checkpoints are written first."""
        log = self._logs[partition]
        start = min(offset, log.first_base_offset)
        self.cleaner.truncate_checkpoint(partition, start)
        log.lower_recovery_point(start)
        log.lower_log_start_offset(offset)
        log.lower_high_watermark(offset)
        self.checkpoint()
        log.truncate_fully_and_start_at(offset, now_ms)

    def delete(self, partition: TopicPartition, now_ms: int, *, is_stray: bool = False) -> None:
        """Delete the partition's log, also one that could not be opened, if there is one.

        Its folder is renamed at once, to `-stray` if `is_stray`, and removed after `file.delete.delay.ms`. Raises
        `StorageError`; the partition is offline then, until another try succeeds.
        """
        log = self._logs.pop(partition, None)
        self._topic_ids.pop(partition, None)
        self._offline.pop(partition, None)
        self._expectations.drop(partition)
        self.shortfalls.settle(partition)
        self.cleaner.forget(partition)
        folders = self._undeleted.pop(partition, [])
        folders += [found.folder for found in self._unopened.values() if found.partition == partition]
        delay_ms = self._config_for(partition.topic).file_delete_delay_ms
        if log is not None:
            log.abandon()
            self._counts[parent_of(log.directory)] -= 1
            folders.append(log.directory)
            delay_ms = log.config.file_delete_delay_ms
        for number, folder in enumerate(folders):
            if parent_of(folder) in self.offline_directories:
                self._unopened.pop(folder, None)  # and if it comes back, the topic's id says that it is no more
                continue
            try:
                name_of = stray_folder if is_stray else deleted_folder
                target = self._move(partition, folder, name_of(partition, uuid4(self._entropy).hex))
            except LogStorageError as error:
                self._undeleted[partition] = folders[number:]
                self._offline[partition] = error  # a new topic must not find its records there
                raise
            self._folders_to_remove.append((now_ms + delay_ms, target))

    def put_aside(self, partition: TopicPartition, reason: str) -> None:
        """Take the partition's log away and keep its files, in a folder that is no log's: they are an operator's.

        Raises `LogStorageError`; the log is as it was then.
        """
        log = self._logs[partition]
        folder = self._put_aside(partition, log.directory, reason)
        del self._logs[partition]
        self.strays[folder] = partition, self._topic_ids.pop(partition, None)
        self.shortfalls.settle(partition)
        self.cleaner.forget(partition)
        log.abandon()
        self._counts[parent_of(log.directory)] -= 1

    def remove_stray(self, folder: str, now_ms: int) -> None:
        """Remove a folder of `strays` after `file.delete.delay.ms`."""
        partition, _ = self.strays.pop(folder)
        _logger.warning("the stray log %s is removed", folder)
        self._folders_to_remove.append((now_ms + self._config_for(partition.topic).file_delete_delay_ms, folder))

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
        begun = self.maintenance_in_steps(
            now_ms, high_watermark=({} if high_watermarks is None else high_watermarks).get
        )
        if begun is None:
            return None
        job, steps = begun
        for _ in steps:
            pass
        return job

    def maintenance_in_steps(
        self, now_ms: int, *, high_watermark: Callable[[TopicPartition], int | None]
    ) -> tuple[MaintenanceJob, Iterator[None]] | None:
        """The same, of a log at each step, between which others have their turn; the job is whole after the last one.

        What the job has after some of the steps may be run, and has to be before `close`.
        """
        if self._maintenance is not None:
            return None
        job = self._maintenance = MaintenanceJob(self._disk)
        return job, self._prepare_maintenance(job, now_ms, high_watermark)

    def _prepare_maintenance(
        self, job: MaintenanceJob, now_ms: int, high_watermark: Callable[[TopicPartition], int | None]
    ) -> Iterator[None]:
        for partition, log in tuple(self._logs.items()):
            if self._logs.get(partition) is log:  # and not deleted meanwhile
                try:
                    self._look_after(partition, log, job, now_ms, high_watermark(partition))
                except Exception:
                    _logger.exception("%s is looked after at the next time: an error of this program", log.directory)
            yield
        job.folders = [path for due_ms, path in self._folders_to_remove if due_ms <= now_ms]
        self._folders_to_remove = [item for item in self._folders_to_remove if item[0] > now_ms]

    def _look_after(
        self, partition: TopicPartition, log: Log, job: MaintenanceJob, now_ms: int, high_watermark: int | None
    ) -> None:
        if log.failure is not None:
            return
        try:
            if not self.cleaner.is_busy_with(partition):
                log.delete_old_segments(now_ms, high_watermark=high_watermark)
        except LogStorageError:
            return  # the log has said so, and stopped
        log.expire_producers(now_ms)
        job.files.extend(log.take_deleted_files(now_ms))
        flush = log.begin_flush(now_ms=now_ms, include_active=now_ms - log.last_flush_ms >= log.config.flush_ms)
        if flush is not None:
            job.flushes.append((log, flush))

    def finish_maintenance(self, job: MaintenanceJob) -> CheckpointPlan | None:
        """Take the results of a job that has run; what is to be written down then.

        None if the job is of no use now, or if it can't be found out without a descriptor.
        """
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
        try:
            return self.plan_checkpoints()
        except CheckpointError as error:
            _logger.warning("%s; recovery would read more", error)
            return None

    def maintain(self, now_ms: int, *, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """All of it at once."""
        job = self.begin_maintenance(now_ms, high_watermarks=high_watermarks)
        if job is not None:
            job.run()
            plan = self.finish_maintenance(job)
            try:
                if plan is not None:
                    self.write_checkpoints(plan)
            except CheckpointError as error:
                _logger.warning("%s; recovery would read more", error)
                self.checkpoint_failed(error)

    def checkpoint(self) -> None:
        """Write down recovery points, log start offsets, high watermarks and how far logs are compacted, at once."""
        try:
            self.write_checkpoints(self.plan_checkpoints())
        except CheckpointError as error:
            self.checkpoint_failed(error)
            raise

    def checkpoint_failed(self, error: CheckpointError) -> None:
        """Know that checkpoints could not be written."""
        if is_disk_failure(error.error):
            self.fail_directory(error.directory, error.error)

    def plan_checkpoints(self) -> CheckpointPlan:
        """What is to be written down by now. Raises `CheckpointError` without a descriptor to find that out."""
        files: dict[str, Mapping[TopicPartition, int]] = {}
        for directory in self._usable:
            try:
                self._ownership.check_still_there(directory)
            except OSError as error:
                if is_passing(error):
                    raise CheckpointError(directory, f"{directory}/{meta_properties.META_PROPERTIES}", error) from error
                self.fail_directory(directory, error)
            else:
                files |= self._checkpoints_of(directory)
        return self._checkpoints.plan(files, is_whole=True)

    def write_checkpoints(self, plan: CheckpointPlan) -> None:
        """Write them, on any thread, unless newer ones are written already. Raises `CheckpointError`."""
        self._checkpoints.write(plan)

    def _checkpoints_of(self, directory: str) -> dict[str, Mapping[TopicPartition, int]]:
        unopened, short = self._unopened_in(directory), self.shortfalls.in_directory(directory)
        return checkpoint_contents(self._disk, directory, self._logs_in(directory), unopened, short, self.cleaner)

    # ---- the end ------------------------------------------------------------------------------------------------

    def close(self, *, threads: int = 1) -> None:
        """Close every log and leave a mark that all is well, if it is. No job may be under way. Never raises.

        Blocks, with so many `threads` at work on each directory; the mark comes when all in its directory is synced.
        """
        if self._is_open:
            for log in self._logs.values():
                log.set_listeners()
            logs = {directory: list(self._logs_in(directory).values()) for directory in self._usable}
            for directory, closed in close_logs(self.pool, logs, threads=threads).items():
                try:
                    self._seal(directory, closed)
                except Exception as error:
                    _logger.warning("%s will be recovered at the next start: %s", directory, describe(error))
        self._forget()

    def _seal(self, directory: str, closed: ClosedDirectory) -> None:
        if closed.error is not None:
            raise closed.error
        self._ownership.check_still_there(directory)
        for log, job in closed.jobs:
            log.finish_flush(job)
        self._checkpoints.write(self._checkpoints.plan(self._checkpoints_of(directory), is_whole=False))
        if closed.is_whole and not self._unopened_in(directory):
            self._disk.replace_file(
                f"{directory}/{meta_properties.CLEAN_SHUTDOWN}", meta_properties.CLEAN_SHUTDOWN_DATA
            )

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
        self._expectations = Expectations()
        self.shortfalls = Shortfalls()
        self.strays.clear()
        self._is_open = False
        self._ownership.give_back()
