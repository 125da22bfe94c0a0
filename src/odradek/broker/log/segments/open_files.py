"""The pool of a broker's log files, which are opened on use and closed when too many are open.

All logs share one `FilePool`, on the event loop's thread; files used by other threads are pinned. At start and
shutdown, `FilePool.run_in_threads` opens and closes logs on threads.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from odradek.model import Buffer
from odradek.runtime import Disk, File
from odradek.runtime.shortages import is_out_of_descriptors

T = TypeVar("T")
DEFAULT_OPEN_FILES: Final = 512
"""Half of the usual limit of 1,024; the other half is for connections."""
_FILES_OF_A_THREAD: Final = 8
"""The files of two segments."""
_GIVEN_BACK: Final = 16
"""At least the number of files that threads open at the same time."""


class FilePool:
    """A cache of up to `limit` open files with second-chance eviction."""

    def __init__(self, disk: Disk, limit: int = DEFAULT_OPEN_FILES) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[PooledFile, None] = {}

    @property
    def open_files(self) -> int:
        return len(self._open)

    def give_back(self) -> bool:
        """Close some idle files to free descriptors; return whether there were any."""
        idle = sorted((file for file in self._open if not file.pins), key=lambda file: file.is_recent)
        for file in idle[:_GIVEN_BACK]:
            file.close()
        return bool(idle)

    def file(self, path: str) -> "PooledFile":
        """Return a file that is opened, or created, on its first use."""
        return PooledFile(self, path)

    def run_in_threads(self, groups: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        """Run each of `groups` on up to `threads` threads, and yield the results.

        Fewer threads are used if the pool would close files; the work may open two segments at a time.
        """
        for file in tuple(self._open):
            file.close()
        if len(groups) > self.limit // _FILES_OF_A_THREAD:
            groups = [[work for group in groups for work in group]]
        threads = max(1, min(threads, self.limit // _FILES_OF_A_THREAD // max(len(groups), 1)))
        return self.disk.run_in_threads(groups, threads=threads)

    def _admit(self, newcomer: "PooledFile") -> None:
        self._open[newcomer] = None
        chances = 2 * len(self._open)
        while len(self._open) > self.limit and chances:
            chances -= 1
            oldest = next(iter(self._open))
            del self._open[oldest]
            if oldest.is_recent or oldest.pins or oldest is newcomer:
                oldest.is_recent = False
                self._open[oldest] = None
            else:
                oldest._release()


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """Write a file, neither atomically nor synced. After an `OSError` the partial file is removed if possible."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.append([data])
    except OSError:
        with suppress(OSError):
            disk.remove(path)
        raise
    finally:
        file.close()


class PooledFile:
    """A path whose `File` is opened on use. Methods raise `OSError`."""

    __slots__ = ("_file", "_pool", "_wants_close", "is_recent", "path", "pins")

    def __init__(self, pool: FilePool, path: str) -> None:
        self.path = path
        self.is_recent = False
        self.pins = 0
        self._pool = pool
        self._file: File | None = None
        self._wants_close = False

    def read(self, offset: int, length: int) -> bytes:
        self.is_recent = True
        return (self._file or self._opened()).read(offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        self.is_recent = True
        return (self._file or self._opened()).read_into(offset, buffer)

    def append(self, buffers: Sequence[Buffer]) -> None:
        (self._file or self._opened()).append(buffers)

    def truncate(self, size: int) -> None:
        (self._file or self._opened()).truncate(size)

    def size(self) -> int:
        return (self._file or self._opened()).size()

    def sync(self) -> None:
        """Sync the file; also raises errors of earlier write-backs (Linux 4.17)."""
        (self._file or self._opened()).sync()

    def pin(self) -> File:
        """Return the file for another thread; it stays open until `unpin`."""
        file = self._file or self._opened()
        self.is_recent = True
        self.pins += 1
        return file

    def unpin(self) -> None:
        """Allow the pool to close the file again."""
        self.pins -= 1
        if self._wants_close and not self.pins:
            self.close()

    def adopt(self, file: File) -> None:
        """Use a file that another thread opened for this path."""
        self.close()
        self._file = file
        self._pool._admit(self)

    def close(self) -> None:
        """Close the file once it is not pinned; the next use opens it again."""
        self._wants_close = self.pins > 0
        if self._file is not None and not self.pins:
            self._pool._open.pop(self, None)
            self._release()

    def _opened(self) -> File:
        disk = self._pool.disk
        try:
            file = disk.open(self.path, create=True)
        except OSError as error:
            if not (is_out_of_descriptors(error) and self._pool.give_back()):
                raise
            file = disk.open(self.path, create=True)
        self._file = file
        self._pool._admit(self)
        return file

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
