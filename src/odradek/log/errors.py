"""What goes wrong under a log: the disk's fault, told to clients as KAFKA_STORAGE_ERROR."""

import errno
from typing import Final

from odradek.model import ErrorCode, KafkaError, StorageError
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime.disk import NO_ROOM

_PASSING_ERRORS: Final = (*NO_ROOM, errno.EMFILE, errno.ENFILE)


def is_passing(error: OSError) -> bool:
    """Whether there is no room on the disk, or no descriptor left: nothing is damaged, and it may be better soon."""
    return error.errno in _PASSING_ERRORS


_DISK_FAILURES: Final = (
    errno.EIO,
    errno.EROFS,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOMEDIUM,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ESHUTDOWN,
    errno.EUCLEAN,
)
"""A disk that is broken, gone, or went read-only because its file system found damage; one over the network, too."""


def is_disk_failure(error: OSError) -> bool:
    """Whether what is below the data directory has failed, and not only one file of it."""
    return error.errno in _DISK_FAILURES


class DamagedFileError(StorageError):
    """A file is not what its format says. `byte` is where the first batch, entry or line begins that is wrong."""

    def __init__(self, path: str, byte: int, reason: str) -> None:
        self.path = path
        self.byte = byte
        self.reason = reason
        super().__init__(f"{path} {reason} (byte {byte})")


class CutFileError(DamagedFileError):
    """The file ends inside its last batch or entry: it is being written, or was when its broker died, or was cut."""


class DamagedSegmentError(CorruptBatchError):
    """A reader did not find what it looked for: the file at `path` is damaged, or an index misled."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


class LogStorageError(KafkaError, StorageError):
    """The log could not be read or written. `KafkaError` for the wire, `StorageError` for whoever runs the broker."""

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(ErrorCode.kafka_storage_error, message)
        self.is_passing = is_passing
        """Whether the log goes on, or can be opened, when there is room."""


class OfflineDirectoryError(LogStorageError):
    """The log is, or may be, in a data directory that can't be used, and is not made anew elsewhere."""


class CheckpointError(LogStorageError):
    """A checkpoint file of the data directory `directory` could not be written."""

    def __init__(self, directory: str, path: str, error: OSError) -> None:
        self.directory = directory
        self.error = error
        super().__init__(f"the checkpoint {path} cannot be written: {error}", is_passing=is_passing(error))
