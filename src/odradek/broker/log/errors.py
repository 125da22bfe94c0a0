"""Exceptions of logs, and which OS errors are passing (retriable) or mean that a disk has failed."""

import errno
from typing import Final

from odradek.model import ErrorCode, KafkaError, StorageError
from odradek.protocol.errors import CorruptBatchError
from odradek.runtime.shortages import NO_DESCRIPTOR, NO_ROOM

_PASSING_ERRORS: Final = (*NO_ROOM, *NO_DESCRIPTOR, errno.ENOMEM, errno.EAGAIN)
"""EAGAIN means that the system cannot start a thread."""


def is_passing(error: BaseException) -> bool:
    """Return whether `error` is a shortage of disk space, descriptors, memory or threads, or `NotRunError`."""
    if isinstance(error, OSError):
        return error.errno in _PASSING_ERRORS
    return isinstance(error, MemoryError | NotRunError)


def describe(error: BaseException) -> str:
    """Return the text of an error, or its type's name if the text is empty."""
    return str(error) or type(error).__name__


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
"""The disk is broken, missing, unreachable, or read-only because of damage."""


def is_disk_failure(error: BaseException) -> bool:
    """Return whether `error` means that a whole disk has failed, not only one file."""
    return isinstance(error, OSError) and error.errno in _DISK_FAILURES


class NotRunError(Exception):
    """A write or flush job was never run, so it wrote and synced nothing."""


class DamagedFileError(StorageError):
    """A file violates its format; the first invalid batch, entry or line begins at `byte`."""

    def __init__(self, path: str, byte: int, reason: str) -> None:
        self.path = path
        self.byte = byte
        self.reason = reason
        super().__init__(f"{path} {reason} (byte {byte})")


class TruncatedFileError(DamagedFileError):
    """A file ends inside its last batch or entry: it is being written, or was truncated."""


class DamagedSegmentError(CorruptBatchError):
    """The `.log` file at `path`, or one of its indexes, is damaged."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(message)


class LogStorageError(KafkaError, StorageError):
    """The log cannot be read or written; `KafkaError` for clients, `StorageError` for operators."""

    def __init__(self, message: str, *, is_passing: bool = False) -> None:
        super().__init__(ErrorCode.kafka_storage_error, message)
        self.is_passing = is_passing
        """Whether the log works again once the shortage that caused the error has ended."""


class OfflineDirectoryError(LogStorageError):
    """The log is, or may be, in an offline data directory."""


class CheckpointError(LogStorageError):
    """A checkpoint file of the data directory `directory` could not be written."""

    def __init__(self, directory: str, path: str, error: OSError) -> None:
        self.directory = directory
        self.error = error
        super().__init__(f"the checkpoint {path} cannot be written: {error}", is_passing=is_passing(error))
