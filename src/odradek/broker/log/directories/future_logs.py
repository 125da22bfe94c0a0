"""Logs that move to another data directory of their broker: their copies, and the swaps (KIP-113).

```
begin    an empty copy in the other directory     {topic}-{partition}.{token}-future
         `broker.replication` fills it while the log serves
swap     1  the copy is synced, and its directory's checkpoints have the log's offsets
         2  the log's folder is renamed           {topic}-{partition}.{token}-moved    ┐ the next start completes what
         3  the copy's folder is renamed          {topic}-{partition}                  ┘ a crash interrupts here
         4  the log goes on with the copy's files; its former folder becomes one of a deleted log
```
Each rename is synced before the next one, so that at any moment one folder, by name or token, has all records. A copy
that a restart finds is dropped and begun again: the log may have been truncated or compacted without it.
"""

import logging
import uuid
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.directories.deleted_logs import DeletedLogs
from odradek.broker.log.directories.directory_loading import read_topic_id, remove_tree
from odradek.broker.log.directories.log_checkpoints import LogCheckpoints
from odradek.broker.log.errors import CheckpointError, LogStorageError, is_passing
from odradek.broker.log.log import Log
from odradek.broker.log.names import deleted_folder, future_folder, moved_folder, parent_of, parse_future_folder
from odradek.broker.log.segments.open_files import FilePool, write_file
from odradek.model import StorageError, TopicPartition
from odradek.model.probes import probe
from odradek.runtime import Disk, Entropy, uuid4
from odradek.runtime.shortages import is_out_of_descriptors

_logger = logging.getLogger("odradek.log")


class FutureLog(Struct, kw_only=True, eq=False):
    """`log` is the copy of `source`. If `truncate_to` is not None, `source` was truncated to it: the copy follows."""

    log: Log
    source: Log
    truncate_to: int | None = None


class FutureLogs(Mapping[TopicPartition, FutureLog]):
    """The copies of one broker. Methods raise `StorageError`."""

    def __init__(
        self,
        pool: FilePool,
        entropy: Entropy,
        logs: Mapping[TopicPartition, Log],
        topic_ids: Mapping[TopicPartition, uuid.UUID],
        deleted: DeletedLogs,
        checkpoints: LogCheckpoints,
        when_failed: Callable[[Log, Exception], None],
    ) -> None:
        """`when_failed` is called with a copy, or a log that moves, whose disk fails."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a copy begins."""
        self._pool = pool
        self._disk = pool.disk
        self._entropy = entropy
        self._logs = logs
        self._topic_ids = topic_ids
        self._deleted = deleted
        self._checkpoints = checkpoints
        self._when_failed = when_failed
        self._futures: dict[TopicPartition, FutureLog] = {}

    def __getitem__(self, partition: TopicPartition) -> FutureLog:
        return self._futures[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._futures)

    def __len__(self) -> int:
        return len(self._futures)

    def begin(self, partition: TopicPartition, directory: str, now_ms: int) -> None:
        """Create an empty copy of an open log in another directory."""
        log = self._logs[partition]
        self._deleted.discard_again(now_ms)
        if self._deleted.has_undiscarded(partition):  # the next start could take that folder for what this move leaves
            raise LogStorageError(f"a former folder of {partition} cannot be deleted", is_passing=True)
        folder = f"{directory}/{future_folder(partition, uuid4(self._entropy).hex)}"
        try:
            copy = Log.open(self._pool, folder, log.config, now_ms=now_ms, log_start_offset=log.log_start_offset)
            if (topic_id := self._topic_ids.get(partition)) is not None:
                path = f"{folder}/{meta_properties.PARTITION_METADATA}"
                write_file(self._disk, path, meta_properties.encode_partition_metadata(topic_id))
        except (OSError, LogStorageError) as error:
            with suppress(OSError):
                remove_tree(self._disk, folder)
            raise LogStorageError(f"Failed to create {folder}: {error}", is_passing=is_passing(error)) from error
        copy.set_listeners(on_failure=partial(self._when_failed, copy))
        self._futures[partition] = FutureLog(log=copy, source=log)
        _logger.info("%s moves to %s", log.directory, directory)
        self.on_change()

    def drop(self, partition: TopicPartition, now_ms: int) -> None:
        """End a move, if there is one: the log stays where it is. Raises nothing."""
        future = self._futures.pop(partition, None)
        if future is not None:
            future.log.abandon()
            self._deleted.discard(partition, future.log.directory, now_ms)

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Record that the log is truncated to `offset`."""
        future = self._futures.get(partition)
        if future is not None:
            future.truncate_to = min(offset, offset if future.truncate_to is None else future.truncate_to)

    def directory_failed(self, directory: str, reason: str) -> None:
        """Stop the copies in a directory; the next step of each ends its move."""
        for future in self._futures.values():
            if parent_of(future.log.directory) == directory:
                future.log.writer.stop(reason)

    def swap(self, partition: TopicPartition, now_ms: int) -> None:
        """Let the log go on with the files of its copy, which has all records. Both have no write or flush under way.

        Blocks for the syncs. After an error the log is as before, or has stopped.
        """
        log, copy = self._logs[partition], self._futures[partition].log
        disk, source, target = self._disk, parent_of(log.directory), parent_of(copy.directory)
        moved = f"{source}/{moved_folder(copy.directory.rpartition('/')[2])}"
        name = f"{target}/{partition}"
        if not log.writer.is_settled or not copy.log_end_offset == copy.written_offset <= log.log_end_offset:
            raise LogStorageError(f"{log.directory} cannot move: not everything is written")
        copy.flush()
        if copy.failure is not None or copy.writer.synced_offset < copy.log_end_offset:
            message = copy.failure or f"Failed to sync {copy.directory}"
            raise LogStorageError(message, is_passing=copy.failure is None)
        copy.advance_log_start_offset(log.log_start_offset)
        copy.producers.committed(log.high_watermark)
        try:
            copy.segments.active.log.sync()
            disk.sync_all([copy.directory, f"{copy.directory}/{meta_properties.PARTITION_METADATA}"])
            self._checkpoints.write_directory(target, {partition: copy})
        except CheckpointError as error:
            self._checkpoints.write_failed(error)
            raise
        except OSError as error:
            self._when_failed(copy, error)
            raise
        copy.segments.close()
        done: list[tuple[str, str]] = []
        for each, before, after in ((log, log.directory, moved), (copy, copy.directory, name)):
            try:
                disk.rename(before, after)
                done.append((before, after))
                disk.sync_directory(parent_of(after))
            except OSError as error:
                self._undo(log, done, error)
                self._when_failed(each, error)
                message = f"Failed to move {log.directory} to {target}: {error}"
                raise LogStorageError(message, is_passing=is_passing(error)) from error
        _go_on(log, name, copy)
        copy.writer.abandon()
        del self._futures[partition]
        _logger.info("%s has moved to %s", partition, name)
        self._deleted.discard(partition, moved, now_ms)
        with suppress(CheckpointError):  # entries of a log that is elsewhere are ignored
            self._checkpoints.write_all()

    def _undo(self, log: Log, renamed: Sequence[tuple[str, str]], cause: OSError) -> None:
        """Undo the renames of a swap; if that fails, stop the log, and leave the rest to the next start.

        Without the undo, a start after a power failure could find two logs, or complete the swap and lose what is
        appended from now on.
        """
        probe("log: a swap of directories is undone")
        if is_out_of_descriptors(cause):
            self._pool.give_back()
        for before, after in reversed(renamed):
            try:
                self._disk.rename(after, before)
                self._disk.sync_directory(parent_of(before))
            except OSError as error:
                probe("log: a swap of directories cannot be undone")
                message = f"Failed to rename {after} back to {before}: {error}"
                log.writer.fail(message, LogStorageError(message))  # no `_when_failed`: the disk may be the copy's
                return

    def begin_again(
        self, directories: Sequence[str], now_ms: int, *, offline: Container[TopicPartition], is_whole: bool
    ) -> None:
        """At the start, delete the copies in `directories`, and begin their moves again if no directory is offline.

        Copies of `offline` logs stay. Unless `is_whole`, a directory is offline, and copies without a log stay, too.
        """
        for folder in [each for some in _folders(self._disk, directories)[0].values() for each in some]:
            directory, name = parent_of(folder), folder.rpartition("/")[2]
            partition, _ = parse_future_folder(name) or (None, "")
            if partition is None or name.endswith("-moved") or partition in offline:
                continue
            log = self._logs.get(partition)
            if log is None and not is_whole:
                continue
            try:
                topic_id = read_topic_id(self._disk, folder)
                remove_tree(self._disk, folder)  # now: the new copy needs the room
                is_same = topic_id is None or topic_id == self._topic_ids.get(partition)
                is_elsewhere = log is not None and parent_of(log.directory) != directory
                if is_elsewhere and is_same and is_whole and partition not in self._futures:
                    self.begin(partition, directory, now_ms)
            except (OSError, StorageError) as error:
                _logger.error(
                    "The move of %s to %s is given up, until it is asked for again: %s", partition, directory, error
                )

    def clear(self) -> None:
        """Forget the copies, as if the process were killed."""
        for future in self._futures.values():
            future.log.abandon()
        self._futures.clear()


def _go_on(log: Log, directory: str, copy: Log) -> None:
    """Let a log go on in `directory` with the files of `copy`, whose folder has just been renamed to it.

    The copy has all records and is synced. All else stays, so that a `Partition` or `Follower` does not notice.
    """
    assert log.writer.is_settled, "the swap has checked it"
    log.segments.close()
    for segment in copy.segments:
        segment.move_to(directory)
    log.directory = directory
    log.segments.replace(0, len(log.segments), copy.segments[:])
    log.segments.active.next_offset = log.log_end_offset  # the batches before it may have been truncated
    log.segments.active.update_config(log.config)
    log.epochs.is_dirty = True
    log.writer.moved(copy.writer.recovery_point)


def _folders(disk: Disk, directories: Sequence[str]) -> tuple[dict[str, list[str]], bool]:
    """Return the paths of all folders and files of each directory, and whether all directories can be read."""
    found: dict[str, list[str]] = {}
    for directory in directories:
        with suppress(OSError):  # it becomes offline when its logs are looked for
            found[directory] = [f"{directory}/{name}" for name in disk.list(directory)]
    return found, len(found) == len(directories)


def complete_swaps(disk: Disk, directories: Sequence[str], *, is_whole: bool) -> None:
    """Complete the swaps that a crash has interrupted, before logs are looked for.

    Where the copy is missing, its log is restored if `is_whole`; else the copy may be in an offline directory, perhaps
    already as the log, and the folder stays.
    """
    by_directory, is_readable = _folders(disk, directories)
    paths = {path.rpartition("/")[2]: path for some in by_directory.values() for path in some}
    found = [
        (*parsed, path)
        for name, path in paths.items()
        if name.endswith("-moved") and (parsed := parse_future_folder(name))
    ]
    found.sort(key=lambda each: future_folder(each[0], each[1]) not in paths)  # first those whose copy is still there
    for partition, token, moved in found:
        deleted = f"{parent_of(moved)}/{deleted_folder(partition, token)}"
        try:
            if str(partition) in paths:
                _rename(disk, moved, deleted)
            elif (copy := paths.get(future_folder(partition, token))) is not None:
                probe("log: a swap of directories is completed at the start")
                _restore(disk, copy, partition, paths)
                _rename(disk, moved, deleted)
            elif is_whole and is_readable:
                _restore(disk, moved, partition, paths)
            else:
                _logger.error("%s stays: a directory that is offline may have the log that replaces it", moved)
        except OSError as error:
            _logger.error("The swap of %s cannot be completed: %s", moved, error)


def _restore(disk: Disk, folder: str, partition: TopicPartition, paths: dict[str, str]) -> None:
    """Make a folder the partition's log, also in `paths`, which has the path of each name."""
    path = f"{parent_of(folder)}/{partition}"
    disk.rename(folder, path)
    paths[str(partition)] = path
    disk.sync_directory(parent_of(path))


def _rename(disk: Disk, before: str, after: str) -> None:
    disk.rename(before, after)
    disk.sync_directory(parent_of(after))
