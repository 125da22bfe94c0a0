"""Files that are opened when they are used and closed when too many are: a broker may have more than the kernel allows.

All of a broker's logs share one `FilePool`. It works on the event loop's thread only; what a writer thread uses is
pinned first, and at the start and the end, when threads have the logs for themselves, there is `FilePool.run_lanes`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from odradek.log.errors import is_out_of_descriptors
from odradek.runtime import Buffer, Disk, File

T = TypeVar("T")
DEFAULT_OPEN_FILES: Final = 512
"""Half of the usual limit of 1,024; the other half is for connections."""
_FILES_OF_A_THREAD: Final = 8
"""Those of two segments."""
_GIVEN_BACK: Final = 16
"""Enough for what the threads of a broker open at the same time."""


class FilePool:
    """Keeps up to `limit` files open, and closes those that were not used lately (a second chance for each)."""

    def __init__(self, disk: Disk, limit: int = DEFAULT_OPEN_FILES) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[PooledFile, None] = {}

    @property
    def open_files(self) -> int:
        """How many are open now."""
        return len(self._open)

    def give_back(self) -> bool:
        """Close a few files that were not used lately, as the process has no descriptor left; whether it could."""
        idle = sorted((file for file in self._open if not file.pins), key=lambda file: file.is_recent)
        for file in idle[:_GIVEN_BACK]:
            file.close()
        return bool(idle)

    def file(self, path: str) -> "PooledFile":
        """A file that will be opened, and created, when it is first used."""
        return PooledFile(self, path)

    def run_lanes(self, lanes: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        """The disk's `run_lanes`, with so few threads that the pool has nothing to close: it is no thread's.

        What is open is closed first. A piece of work has the files of two segments open at most, and closes them.
        """
        for file in tuple(self._open):
            file.close()
        if len(lanes) > self.limit // _FILES_OF_A_THREAD:
            lanes = [[work for lane in lanes for work in lane]]
        threads = max(1, min(threads, self.limit // _FILES_OF_A_THREAD // max(len(lanes), 1)))
        return self.disk.run_lanes(lanes, threads=threads)

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
    """Make `path` hold `data`; nothing is synced, and a crash may leave a part of it.

    Raises `OSError`; there is no such file then, as far as that can be had: a full disk leaves no part of it, either.
    """
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
    """A path whose `File` comes and goes. Raises `OSError` where a `File` does, and when it cannot be opened."""

    __slots__ = ("_file", "_pool", "_wants_close", "is_recent", "path", "pins")

    def __init__(self, pool: FilePool, path: str) -> None:
        self.path = path
        self.is_recent = False
        self.pins = 0
        self._pool = pool
        self._file: File | None = None
        self._wants_close = False

    def read(self, offset: int, length: int) -> bytes:
        """See `File`."""
        self.is_recent = True
        return (self._file or self._opened()).read(offset, length)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See `File`."""
        self.is_recent = True
        return (self._file or self._opened()).read_into(offset, buffer)

    def append(self, buffers: Sequence[Buffer]) -> None:
        """See `File`."""
        (self._file or self._opened()).append(buffers)

    def truncate(self, size: int) -> None:
        """See `File`."""
        (self._file or self._opened()).truncate(size)

    def size(self) -> int:
        """See `File`."""
        return (self._file or self._opened()).size()

    def sync(self) -> None:
        """See `File`. An error of an earlier write-back is reported even if the file was closed since (Linux 4.17)."""
        (self._file or self._opened()).sync()

    def pin(self) -> File:
        """The file, which stays open until `unpin`: for another thread."""
        file = self._file or self._opened()
        self.is_recent = True
        self.pins += 1
        return file

    def unpin(self) -> None:
        """Let the pool close it again."""
        self.pins -= 1
        if self._wants_close and not self.pins:
            self.close()

    def adopt(self, file: File) -> None:
        """Take what another thread opened for this path."""
        self.close()
        self._file = file
        self._pool._admit(self)

    def close(self) -> None:
        """Give the descriptor back, once nobody has it pinned; the next use opens the file again."""
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
