"""Folders of deleted (`-delete`) and stray (`-stray`) logs: renamed, and removed later."""

import logging
import uuid
from collections.abc import Callable, Container, Sequence

from odradek.broker.log.directories.log_checkpoints import LogCheckpoints
from odradek.broker.log.directories.log_status import LogStatuses
from odradek.broker.log.errors import LogStorageError, is_passing
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.names import deleted_folder, parent_of, stray_folder
from odradek.broker.log.retention import DelayedRemovals
from odradek.model import TopicPartition
from odradek.runtime import Disk, Entropy, uuid4

_logger = logging.getLogger("odradek.log")


class DeletedLogs:
    """The deleted and stray logs of one broker. `strays` has the partition and topic id of each stray folder."""

    def __init__(
        self,
        disk: Disk,
        entropy: Entropy,
        config_for: Callable[[str], LogConfig],
        statuses: LogStatuses,
        checkpoints: LogCheckpoints,
    ) -> None:
        self.strays: dict[str, tuple[TopicPartition, uuid.UUID | None]] = {}
        self.left: set[tuple[uuid.UUID, int]] = set()
        """Topic id and partition of each deleted replica whose folder was not renamed: the next start finds its log."""
        self._disk = disk
        self._entropy = entropy
        self._config_for = config_for
        self._statuses = statuses
        self._checkpoints = checkpoints
        self._undeleted: dict[TopicPartition, list[str]] = {}
        """Folders of deleted logs whose rename failed."""
        self._undiscarded: dict[str, TopicPartition] = {}
        """Folders whose rename by `discard` failed."""
        self._folders = DelayedRemovals()
        """The renamed folders until they are removed."""
        self._unsynced: set[str] = set()
        """Directories in which folders were renamed since the last sync."""

    def delete(
        self,
        partition: TopicPartition,
        folders: Sequence[str],
        now_ms: int,
        delay_ms: int,
        *,
        topic_id: uuid.UUID | None,
        is_stray: bool,
        offline: Container[str],
    ) -> None:
        """Rename a partition's folders, also those whose rename failed before, for removal after `delay_ms`.

        A power failure may undo it until the next `sync`. Folders in `offline` directories stay. After a
        `LogStorageError` the partition is offline until a call succeeds.
        """
        folders = list(dict.fromkeys((*self._undeleted.pop(partition, []), *folders)))  # unopened logs are in both
        name_of = stray_folder if is_stray else deleted_folder
        for number, folder in enumerate(folders):
            if parent_of(folder) in offline:
                self._statuses.unopened.pop(folder, None)
                self._leave(partition, topic_id)
                continue
            try:
                target = self._rename(partition, folder, name_of(partition, uuid4(self._entropy).hex))
            except LogStorageError as error:
                self._undeleted[partition] = folders[number:]
                self._leave(partition, topic_id)
                self._statuses.offline[partition] = error  # a new topic must not use the old records
                raise
            self._folders.add(target, now_ms, delay_ms)

    def _leave(self, partition: TopicPartition, topic_id: uuid.UUID | None) -> None:
        if topic_id is not None:
            self.left.add((topic_id, partition.partition))

    def discard(self, partition: TopicPartition, folder: str, now_ms: int) -> None:
        """Rename a folder that is no longer the partition's log, for removal; `take_due` repeats what fails."""
        directory = parent_of(folder)
        target = f"{directory}/{deleted_folder(partition, uuid4(self._entropy).hex)}"
        try:
            self._disk.rename(folder, target)
        except FileNotFoundError:
            return
        except OSError as error:
            _logger.warning("Failed to delete %s, will retry: %s", folder, error)
            self._undiscarded[folder] = partition
            return
        self._unsynced.add(directory)
        self._folders.add(target, now_ms, 0)

    def discard_again(self, now_ms: int) -> None:
        """Repeat what failed of `discard`."""
        for folder in list(self._undiscarded):
            self.discard(self._undiscarded.pop(folder), folder, now_ms)

    def has_undiscarded(self, partition: TopicPartition) -> bool:
        """Return whether a folder of the partition still has to be discarded."""
        return partition in self._undiscarded.values()

    def rename_to_stray(self, partition: TopicPartition, folder: str, reason: str) -> str:
        """Rename a log's folder to `-stray`, and `sync`; return the new path. Raises `LogStorageError`."""
        target = stray_folder(partition, uuid4(self._entropy).hex)
        _logger.warning("%s is %s; renaming it to %s", folder, reason, target)
        renamed = self._rename(partition, folder, target)
        self.sync()
        return renamed

    def sync(self) -> None:
        """Sync the directories of renamed folders, on any thread."""
        while self._unsynced:
            directory = self._unsynced.pop()
            try:
                self._disk.sync_directory(directory)
            except OSError as error:
                _logger.warning("A power failure may undo the renaming of folders in %s: %s", directory, error)

    def _rename(self, partition: TopicPartition, folder: str, name: str) -> str:
        directory = parent_of(folder)
        self._checkpoints.mark_outdated([partition])
        try:
            self._disk.rename(folder, f"{directory}/{name}")
        except OSError as error:
            message = f"Failed to rename {folder} to {name}: {error}"
            raise LogStorageError(message, is_passing=is_passing(error)) from error
        self._statuses.unopened.pop(folder, None)
        self._unsynced.add(directory)
        return f"{directory}/{name}"

    def remove_stray(self, folder: str, now_ms: int) -> None:
        """Schedule the removal of a folder of `strays` after `file.delete.delay.ms`."""
        partition, _ = self.strays.pop(folder)
        _logger.warning("Deleting the stray log %s", folder)
        self._folders.add(folder, now_ms, self._config_for(partition.topic).file_delete_delay_ms)

    def take_due(self, now_ms: int) -> list[str]:
        self.discard_again(now_ms)
        return self._folders.take_due(now_ms)
