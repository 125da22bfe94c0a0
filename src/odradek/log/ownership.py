"""Whose data directories these are: one process holds them at a time, of the broker and cluster that they belong to."""

from collections.abc import Sequence

from odradek.log import identity
from odradek.log.names import parent_of
from odradek.model import StorageError
from odradek.runtime import Disk, DiskLock, Entropy, uuid4


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
        """Take the directories, creating what is not there. Raises `StorageError`; none is taken then."""
        for directory in self._directories:
            try:
                self._make_directory(directory)
                self._locks.append(self._disk.lock(f"{directory}/{identity.LOCK}", self._note))
            except BlockingIOError as error:
                self.give_back()
                raise StorageError(
                    f"the data directory {directory} is in use by {error}; stop it, or choose another --data-dir"
                ) from None
            except OSError as error:
                self.give_back()
                raise StorageError(f"the data directory {directory} cannot be used: {error}") from error
        try:
            self._check_identity()
        except StorageError:
            self.give_back()
            raise

    def _make_directory(self, path: str) -> None:
        """Create a directory and those above it so that they outlast a power cut."""
        if not self._disk.exists(path):
            self._make_directory(parent_of(path))
            self._disk.make_directories(path)
            self._disk.sync_directory(parent_of(path))

    def _check_identity(self) -> None:
        known: dict[str, str] = {}
        for directory in self._directories:
            path = f"{directory}/{identity.META_PROPERTIES}"
            if not self._disk.exists(path):
                continue
            found = identity.decode_meta_properties(self._disk.read_file(path), path)
            if found.broker_id is not None and found.broker_id != self._broker_id:
                raise StorageError(
                    f"the data directory {directory} is broker {found.broker_id}'s, and this one is {self._broker_id}"
                )
            if found.directory_id is not None and known.setdefault(found.directory_id, directory) != directory:
                raise StorageError(
                    f"the data directories {known[found.directory_id]} and {directory} have the same directory.id: "
                    "one is a copy of the other; leave one out"
                )
            if self.cluster_id is None:
                self.cluster_id = found.cluster_id
            elif found.cluster_id is not None and found.cluster_id != self.cluster_id:
                raise StorageError(
                    f"the data directory {directory} is of cluster {found.cluster_id}, and this is {self.cluster_id}"
                )

    def write_identity(self, directory: str) -> None:
        """Write down whose it is, where it is not. Raises `OSError`."""
        assert self.cluster_id is not None, "a data directory belongs to a cluster"
        path = f"{directory}/{identity.META_PROPERTIES}"
        if not self._disk.exists(path):
            self._disk.replace_file(
                path, identity.encode_meta_properties(self._broker_id, self.cluster_id, new_id(self._entropy))
            )

    def give_back(self) -> None:
        """Let others have them."""
        while self._locks:
            self._locks.pop().release()


def new_id(entropy: Entropy) -> str:
    """An id as Kafka makes them: a UUID in 22 characters of URL-safe base64, never beginning with a dash."""
    while True:
        text = identity.encode_uuid(uuid4(entropy))
        if not text.startswith("-"):
            return text
