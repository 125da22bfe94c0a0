"""Whose data directories these are: one process holds them at a time, of the broker and cluster that they belong to.

One that the disk does not give is offline until the next start, and the others go on, as in Kafka (KIP-112). A broker
without any does not start, and none does with a directory that is another's, broker's or process's: that is no fault of
a disk.
"""

import errno
import logging
from collections.abc import Sequence

from odradek.log.checkpoints import meta_properties
from odradek.log.errors import is_out_of_descriptors
from odradek.log.names import parent_of
from odradek.model import StorageError
from odradek.runtime import Disk, DiskLock, Entropy, new_id

_logger = logging.getLogger("odradek.log")


class Ownership:
    """Of all data directories of a broker. `cluster_id` is None until somebody says it, or the directories do."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        broker_id: int,
        cluster_id: str | None,
        entropy: Entropy,
        note: str,
    ) -> None:
        self.cluster_id = cluster_id
        self.offline: dict[str, StorageError] = {}
        """The directories that the disk does not give, and why."""
        self.new: set[str] = set()
        """Those into which nobody had written his name before this start."""
        self.ids: dict[str, str] = {}
        """The `directory.id` of those that have one (KIP-858), or get one from `write_identity`."""
        self._disk = disk
        self._directories = directories
        self._broker_id = broker_id
        self._entropy = entropy
        self._note = note
        self._locks: list[DiskLock] = []

    @property
    def is_held(self) -> bool:
        """Whether the directories are this process's now."""
        return bool(self._locks)

    def take(self) -> None:
        """Take the directories, creating what is not there; those that the disk does not give are `offline` then.

        Raises `StorageError` if one is another's, or if there is none; none is taken then.
        """
        self.offline.clear()
        try:
            for directory in self._directories:
                try:
                    self._take(directory)
                except OSError as error:
                    self.lose(directory, error)
            self._check_identity()
        except StorageError:
            self.give_back()
            raise

    def _take(self, directory: str) -> None:
        self._make_directory(directory)
        try:
            self._locks.append(self._disk.lock(f"{directory}/{meta_properties.LOCK}", self._note))
        except BlockingIOError as error:
            raise StorageError(
                f"the data directory {directory} is in use by {error}; stop it, or choose another --data-dir"
            ) from None

    def lose(self, directory: str, error: OSError) -> None:
        """The disk does not give a directory. Raises `StorageError` if it was the last one, or without a descriptor."""
        if is_out_of_descriptors(error):
            raise StorageError(f"the data directory {directory} cannot be looked at: {error} (ulimit -n)") from error
        self.offline[directory] = reason = StorageError(f"the data directory {directory} cannot be used: {error}")
        if len(self.offline) == len(self._directories):
            raise StorageError("; ".join(map(str, self.offline.values()))) from error
        _logger.error("%s; its logs are offline until this broker is started again", reason)

    def fail(self, directory: str, error: OSError) -> StorageError:
        """The disk gives a directory no more, that it gave at the start; the reason, for whoever asks for its logs."""
        self.offline[directory] = reason = StorageError(f"the data directory {directory} has failed: {error}")
        return reason

    def _make_directory(self, path: str) -> None:
        """Create a directory and those above it so that they outlast a power cut."""
        if not self._disk.exists(path):
            self._make_directory(parent_of(path))
            self._disk.make_directories(path)
            self._disk.sync_directory(parent_of(path))

    def _check_identity(self) -> None:
        known: dict[str, str] = {}
        self.new.clear()
        self.ids.clear()
        for directory in self._directories:
            if directory in self.offline:
                continue
            path = f"{directory}/{meta_properties.META_PROPERTIES}"
            try:
                data = self._disk.read_file(path)
            except FileNotFoundError:
                self.new.add(directory)
                self.ids[directory] = meta_properties.encode_uuid(new_id(self._entropy))
                continue
            except OSError as error:
                self.lose(directory, error)
                continue
            found = meta_properties.decode_meta_properties(data, path)
            if found.broker_id is not None and found.broker_id != self._broker_id:
                raise StorageError(
                    f"the data directory {directory} is broker {found.broker_id}'s, and this one is {self._broker_id}"
                )
            if found.directory_id is not None and known.setdefault(found.directory_id, directory) != directory:
                raise StorageError(
                    f"the data directories {known[found.directory_id]} and {directory} have the same directory.id: "
                    "one is a copy of the other; leave one out"
                )
            if found.directory_id is not None:
                self.ids[directory] = found.directory_id
            if self.cluster_id is None:
                self.cluster_id = found.cluster_id
            elif found.cluster_id is not None and found.cluster_id != self.cluster_id:
                raise StorageError(
                    f"the data directory {directory} is of cluster {found.cluster_id}, and this is {self.cluster_id}"
                )

    def write_identity(self, directory: str) -> None:
        """Write down whose it is, where it is not. Raises `OSError`."""
        assert self.cluster_id is not None, "a data directory belongs to a cluster"
        if directory in self.new:
            text = meta_properties.encode_meta_properties(self._broker_id, self.cluster_id, self.ids[directory])
            self._disk.replace_file(f"{directory}/{meta_properties.META_PROPERTIES}", text)
            self.new.discard(directory)

    def check_still_there(self, directory: str) -> None:
        """Raise `OSError` unless the path still leads to the directory that was taken.

        A disk that is mounted over it while the broker runs, or unmounted, leaves open files where they were; what is
        written by path, as a mark that all was closed well, would tell of logs on another disk.
        """
        path = f"{directory}/{meta_properties.META_PROPERTIES}"
        try:
            found = meta_properties.decode_meta_properties(self._disk.read_file(path), path).directory_id
        except FileNotFoundError:
            if directory in self.new:
                return  # it has no name yet
            found = None
        except StorageError as error:
            raise OSError(errno.ESTALE, str(error)) from error
        if directory in self.ids and found != self.ids[directory]:
            reason = f"another disk is there now: {path} has the directory.id {found}, and had {self.ids[directory]}"
            raise OSError(errno.ESTALE, reason)

    def give_back(self) -> None:
        """Let others have them."""
        while self._locks:
            self._locks.pop().release()
