"""Files, directories, and the threads for blocking work.

Every function blocks. Callers on the event loop use `Disk.submit`: appends run on the writer thread, syncs of old
segments and removals on the background thread, so that an fsync of a gigabyte does not delay appends. Data is durable
only after `sync` or `sync_directory`.
"""

import asyncio
import contextlib
import errno
import os
import resource
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from odradek.model import Buffer
from odradek.runtime.file_locks import FileLock, lock_holder
from odradek.runtime.threads import LazyThread, run_in_threads

T = TypeVar("T")

_IOV_MAX: Final = 1024
"""On Linux: the limit of buffers in one writev."""
_SMALL_FILE: Final = 65_536
_SYNCS_AT_ONCE: Final = 8
_NICENESS: Final = 5
"""The writer thread's nice value. With it, clients beside a saturating producer wait half as long, and that producer
loses no throughput (measured)."""


class File(Protocol):
    """A file that is read at any offset and written at its end."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` and return the number of bytes read; fewer only at the end of the file.

        Cheaper than `read` for large reads, as it allocates no memory.
        """

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers after the last byte. After an `OSError` a part may be written: `truncate` removes it."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Return the file's size in bytes."""

    def sync(self) -> None:
        """Return when the file's data is on the disk.

        After an `OSError` it is unknown which data is on the disk, even if a later sync succeeds.
        """

    def close(self) -> None:
        """Close the descriptor; a closed file must not be used."""


class DiskLock(Protocol):
    """A lock on a file, held until `release` or until the process ends."""

    def release(self) -> None:
        """Release the lock."""


class DiskSpace(NamedTuple):
    """Total bytes of the volume of a directory, and the bytes that this process may still use."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """A file system. Paths are plain strings with `/`."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and appending, or for reading only. A missing file is an error unless `create` is true."""

    def exists(self, path: str) -> bool:
        """Return whether `path` is a file or a directory."""

    def is_directory(self, path: str) -> bool:
        """Return whether `path` is a directory."""

    def is_writable(self, path: str) -> bool:
        """Return whether this process may make files in the directory `path`."""

    def is_link(self, path: str) -> bool:
        """Return whether `path` is a symbolic link."""

    def modified_at(self, path: str) -> float:
        """Return when a file was last written, in seconds since the epoch. Raises `FileNotFoundError`."""

    def set_modified_at(self, path: str, seconds: float) -> None:
        """Set what `modified_at` returns, up to the file system's precision. Needs no space on a full disk."""

    def size(self, path: str) -> int:
        """Return a file's size in bytes without opening it. Raises `FileNotFoundError`."""

    def space(self, path: str) -> DiskSpace:
        """Return the space of the volume of a directory."""

    def absolute(self, path: str) -> str:
        """Return the absolute form of `path`."""

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents; an existing directory is not an error."""

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a folder within a directory atomically; an existing file is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Return when creations, renames and removals in `path` are on the disk."""

    def sync_all(self, paths: Sequence[str]) -> None:
        """Return when these files and directories are on the disk.

        Syncs several at a time, ignores missing paths, goes on after errors, and then raises one of them. After EMFILE
        or ENFILE no sync has failed, but some were not done.
        """

    def read_file(self, path: str) -> bytes:
        """Return the content of a small file. Raises `FileNotFoundError`."""

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace the content of `path` atomically, by way of `path` + ".tmp"; return when it is on the disk."""

    def lock(self, path: str, note: str) -> DiskLock:
        """Lock `path` exclusively; write "process PID (`note`)" into it if the disk has space.

        Raises `BlockingIOError`, whose text names the holder, if another process holds the lock or removed the file
        meanwhile.
        """

    def lock_holder(self, path: str) -> str | None:
        """Return a text that names the process that has locked `path`, None if it is not locked. Changes nothing."""

    def run_in_threads(self, groups: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        """Run all work, at most `threads` at a time of each group.

        Yields results as they complete, raises the first error. After an error, or when the caller stops iterating,
        work that has not started is dropped. A group for which the system starts no thread runs on the caller's thread
        at the end. Blocks.
        """

    def open_files_limit(self) -> int:
        """Return the limit of open files and connections of this process."""

    def submit(self, work: Callable[[], T], *, background: bool = False) -> "asyncio.Future[T]":
        """Run `work` on the writer thread, or on the background thread; each thread keeps the order of submission.

        Needs a running loop. If the system starts no thread, `work` is not run, and the future's error is `OSError`
        EAGAIN or `MemoryError`.
        """


class SystemDisk:
    """The operating system's file system. `submit` starts a writer thread and a background thread when needed."""

    def __init__(self) -> None:
        self._writer = LazyThread("odradek-writer", begin=_lower_priority)
        self._background = LazyThread("odradek-background")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        descriptor = os.open(path, flags | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)
        if read_only:
            try:
                _refuse_directory(descriptor, path)
            except IsADirectoryError:
                os.close(descriptor)
                raise
        return _SystemFile(descriptor)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_writable(self, path: str) -> bool:
        return os.access(path, os.W_OK | os.X_OK)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def modified_at(self, path: str) -> float:
        return os.stat(path).st_mtime

    def set_modified_at(self, path: str, seconds: float) -> None:
        os.utime(path, (seconds, seconds))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def space(self, path: str) -> DiskSpace:
        volume = os.statvfs(path)
        return DiskSpace(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        _sync_path(path)

    def sync_all(self, paths: Sequence[str]) -> None:
        syncs = [[partial(_sync_if_there, path) for path in paths]]
        errors = [error for error in self.run_in_threads(syncs, threads=_SYNCS_AT_ONCE) if error is not None]
        if errors:
            # The system reports a failed sync only once, so that error precedes those of files that cannot be opened.
            raise next((error for error in errors if error.errno not in (errno.EMFILE, errno.ENFILE)), errors[0])

    def read_file(self, path: str) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _refuse_directory(descriptor, path)
            data = os.read(descriptor, _SMALL_FILE)
            while more := os.read(descriptor, _SMALL_FILE) if len(data) >= _SMALL_FILE else b"":
                data += more
            return data
        finally:
            os.close(descriptor)

    def replace_file(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path) or ".")

    def lock(self, path: str, note: str) -> DiskLock:
        return FileLock.take(path, note)

    def lock_holder(self, path: str) -> str | None:
        return lock_holder(path)

    def run_in_threads(self, groups: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        return run_in_threads(groups, threads=threads)

    def open_files_limit(self) -> int:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def submit(self, work: Callable[[], T], *, background: bool = False) -> "asyncio.Future[T]":
        return (self._background if background else self._writer).submit(work)


def _refuse_directory(descriptor: int, path: str) -> None:
    """Raise `IsADirectoryError` for a directory; a read would raise it without the path."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def _lower_priority() -> None:
    """Lower the priority of this thread; only on Linux, since elsewhere `nice` is per process."""
    if sys.platform == "linux":
        with suppress(OSError):  # sandboxes may forbid it
            os.nice(_NICENESS)


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_if_there(path: str) -> OSError | None:
    """Sync `path` if it exists; return the error if that fails."""
    try:
        _sync_path(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None


class _SystemFile:
    """A descriptor and the offset of its end."""

    __slots__ = ("_descriptor", "_end")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        return os.preadv(self._descriptor, [buffer], offset)

    def append(self, buffers: Sequence[Buffer]) -> None:
        for first in range(0, len(buffers), _IOV_MAX):
            some = buffers if len(buffers) <= _IOV_MAX else buffers[first : first + _IOV_MAX]
            wanted = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, self._end)
            self._end += written
            if written < wanted:
                self._append_rest(b"".join(some)[written:])

    def _append_rest(self, rest: bytes) -> None:
        """Write the rest after a short write. If the disk is full, this raises the error."""
        view = memoryview(rest)
        while view:
            written = os.pwrite(self._descriptor, view, self._end)
            self._end += written
            view = view[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._end = size

    def size(self) -> int:
        return self._end

    def sync(self) -> None:
        os.fdatasync(self._descriptor) if hasattr(os, "fdatasync") else os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()
