"""Locks and checks a broker's data directories, and takes those with failed disks offline.

An offline directory stays offline until the next start; the others stay in use (KIP-112). A broker does not start
without a usable directory, or with a directory of another broker, cluster or process, and creates nothing in it then.
"""

import errno
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.names import parent_of
from odradek.model import StorageError, first_names
from odradek.runtime import Disk, DiskLock, Entropy, Runtime, new_id
from odradek.runtime.shortages import is_out_of_descriptors

_logger = logging.getLogger("odradek.log")


class LogDirectories:
    """The data directories of one broker; `paths` are all, as configured.

    `cluster_id` is None until it is set or read from a directory.
    """

    def __init__(
        self,
        disk: Disk,
        paths: Sequence[str],
        *,
        broker_id: int,
        cluster_id: str | None,
        entropy: Entropy,
        note: str,
    ) -> None:
        """`note` describes this process to another one that finds a directory locked."""
        self.paths = list(paths)
        self.cluster_id = cluster_id
        self.offline: dict[str, StorageError] = {}
        """Directories that are not usable, with the reason."""
        self.new: set[str] = set()
        """Directories that had no `meta.properties` at this start."""
        self.ids: dict[str, str] = {}
        """The `directory.id` of each path (KIP-858); those in `new` are not written yet."""
        self._disk = disk
        self._broker_id = broker_id
        self._entropy = entropy
        self._note = note
        self._locks: list[DiskLock] = []

    @property
    def is_locked(self) -> bool:
        return bool(self._locks)

    @property
    def usable(self) -> list[str]:
        return [path for path in self.paths if path not in self.offline]

    @property
    def paths_by_id(self) -> Mapping[str, str]:
        """The absolute paths of usable directories by `directory.id`."""
        return {self.ids[path]: self._disk.absolute(path) for path in self.usable if path in self.ids}

    @property
    def offline_paths(self) -> Set[str]:
        return {self._disk.absolute(path) for path in self.offline}

    @property
    def new_ids(self) -> Set[str]:
        """The `directory.id` of each directory in `new`."""
        return {self.ids[path] for path in self.new if path in self.ids}

    def lock(self) -> None:
        """Lock the directories and create missing ones; those with a failed disk become `offline`.

        If one belongs to another broker, cluster or process, or none is usable, raises `StorageError` and locks none.
        """
        self.check()
        self.offline.clear()
        try:
            for path in self.paths:
                try:
                    self._lock(path)
                except OSError as error:
                    self.load_failed(path, error)
            self._read_meta_properties(self.load_failed)
        except StorageError:
            self.unlock()
            raise

    def check(self) -> None:
        """Raise `StorageError` for a directory of another broker, cluster or process; create nothing.

        Set `cluster_id`, and the `ids` of directories that are not new. A failed disk is left to `lock`.
        """
        for path in self.paths:
            with suppress(OSError):
                if (holder := self._disk.lock_holder(f"{path}/{meta_properties.LOCK}")) is not None:
                    raise _in_use(path, holder)
        self._read_meta_properties(lambda path, error: None)

    def _lock(self, path: str) -> None:
        self._make_directory(path)
        try:
            self._locks.append(self._disk.lock(f"{path}/{meta_properties.LOCK}", self._note))
        except BlockingIOError as error:
            raise _in_use(path, str(error)) from None

    def load_failed(self, path: str, error: OSError) -> None:
        """Take a directory offline at the start. Raises `StorageError` if none is left or descriptors are short."""
        if is_out_of_descriptors(error):
            raise StorageError(f"the data directory {path} cannot be read: {error} (raise ulimit -n)") from error
        self.offline[path] = reason = StorageError(f"the data directory {path} cannot be used: {error}")
        if len(self.offline) == len(self.paths):
            raise StorageError("; ".join(map(str, self.offline.values()))) from error
        _logger.error("%s; its logs are offline until this broker is restarted", reason)

    def fail(self, path: str, error: OSError) -> StorageError:
        """Take a directory offline while the broker runs; return the reason."""
        self.offline[path] = reason = StorageError(f"the data directory {path} has failed: {error}")
        return reason

    def _make_directory(self, path: str) -> None:
        if not self._disk.exists(path):
            self._make_directory(parent_of(path))
            self._disk.make_directories(path)
            self._disk.sync_directory(parent_of(path))

    def _read_meta_properties(self, when_failed: Callable[[str, OSError], None]) -> None:
        known: dict[str, str] = {}
        self.new.clear()
        self.ids.clear()
        for directory in self.usable:
            path = f"{directory}/{meta_properties.META_PROPERTIES}"
            try:
                data = self._disk.read_file(path)
            except FileNotFoundError:
                self._refuse_nested(directory)
                self.new.add(directory)
                if self.is_locked:
                    self.ids[directory] = meta_properties.encode_uuid(new_id(self._entropy))
                continue
            except OSError as error:
                when_failed(directory, error)
                continue
            found = meta_properties.decode_meta_properties(data, path)
            if found.broker_id is not None and found.broker_id != self._broker_id:
                raise StorageError(
                    f"the data directory {directory} belongs to broker {found.broker_id}, and this is broker "
                    f"{self._broker_id}; start it with its own --data-dir"
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

    def _refuse_nested(self, directory: str) -> None:
        """Raise `StorageError` if a new directory has data directories of other brokers in it, as one of `up` has."""
        own = {self._disk.absolute(path) for path in self.paths}
        with suppress(OSError):
            inside = [f"{directory}/{name}" for name in self._disk.list(directory)]
            found = [each for each in inside if meta_properties.is_data_directory(self._disk, each)]
            if nested := [each for each in found if self._disk.absolute(each) not in own]:
                raise StorageError(
                    f"{directory} is no data directory, but has those of other brokers in it: {first_names(nested)}; "
                    "run `odradek up` with it, or choose another --data-dir"
                )

    def is_at(self, path: str, directory_id: str) -> bool:
        """Return whether the directory with this `directory.id` is at `path`, in use by this broker or not."""
        place = f"{path}/{meta_properties.META_PROPERTIES}"
        with suppress(OSError, StorageError):
            found = meta_properties.decode_meta_properties(self._disk.read_file(place), place)
            return found.directory_id == directory_id
        return False

    def write_meta_properties(self, directory: str) -> None:
        """Write the `meta.properties` of a directory in `new`. Raises `OSError`."""
        assert self.cluster_id is not None, "a data directory belongs to a cluster"
        if directory in self.new:
            text = meta_properties.encode_meta_properties(self._broker_id, self.cluster_id, self.ids[directory])
            self._disk.replace_file(f"{directory}/{meta_properties.META_PROPERTIES}", text)
            self.new.discard(directory)

    def check_still_there(self, directory: str) -> None:
        """Raise `OSError` unless `directory` is still the locked one, by its `directory.id`.

        Without this check, checkpoints could go to another disk, mounted over it.
        """
        path = f"{directory}/{meta_properties.META_PROPERTIES}"
        try:
            found = meta_properties.decode_meta_properties(self._disk.read_file(path), path).directory_id
        except FileNotFoundError:
            if directory in self.new:
                return  # it is not written yet
            found = None
        except StorageError as error:
            raise OSError(errno.ESTALE, str(error)) from error
        if directory in self.ids and found != self.ids[directory]:
            reason = f"another disk is there now: {path} has the directory.id {found}, and had {self.ids[directory]}"
            raise OSError(errno.ESTALE, reason)

    def unlock(self) -> None:
        while self._locks:
            self._locks.pop().release()


def checked_directories(runtime: Runtime, paths: Sequence[str], broker_id: int) -> LogDirectories:
    """Return a broker's data directories, not locked, after `check`. Raises `StorageError`."""
    found = LogDirectories(runtime.disk, paths, broker_id=broker_id, cluster_id=None, entropy=runtime.entropy, note="")
    found.check()
    return found


def _in_use(path: str, holder: str) -> StorageError:
    return StorageError(f"the data directory {path} is in use by {holder}; stop it, or choose another --data-dir")
