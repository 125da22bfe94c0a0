"""What goes wrong under a log: the disk's fault, told to clients as KAFKA_STORAGE_ERROR."""

import errno
from typing import Final

from odradek.model import ErrorCode, KafkaError, StorageError
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime.disk import NO_ROOM

_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_TOO_MANY_FILES: Final = "Too many open files"
_PASSING_ERRORS: Final = (*NO_ROOM, *_NO_DESCRIPTOR, errno.ENOMEM, errno.EAGAIN)
"""EAGAIN is a thread that the system does not start."""


def is_passing(error: BaseException) -> bool:
    """Whether the disk has no room, or the process no descriptor, memory or thread: nothing is damaged."""
    if isinstance(error, OSError):
        return error.errno in _PASSING_ERRORS
    return isinstance(error, MemoryError | NotRunError)


def describe(error: BaseException) -> str:
    """Return the text of an error, or its type's name if it has none."""
    return str(error) or type(error).__name__


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether the process, or the system, may open no more files: what was to be opened was not touched.

    The loader of a library gives no number with its `ImportError`.
    """
    if isinstance(error, ImportError):
        return _TOO_MANY_FILES in str(error)
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR


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


def is_disk_failure(error: BaseException) -> bool:
    """Whether what is below the data directory has failed, and not only one file of it."""
    return isinstance(error, OSError) and error.errno in _DISK_FAILURES


class NotRunError(Exception):
    """A job for another thread was not run: nothing was written or synced by it."""


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
