"""Files, directories, locks, and threads for what takes too long for the event loop.

Everything here blocks; `Disk.submit` is how a caller on the event loop moves work off it: appends go to the writer
thread, syncs of old segments and removals to the background thread, so that an fsync of a gigabyte does not make
appends wait. Durability is the caller's: nothing is synced unless `sync` or `sync_directory` is called.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

_MOST_BUFFERS: Final = 1024
"""IOV_MAX on Linux: one writev takes no more."""
_SMALL_FILE: Final = 65_536
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_LONGEST_NOTE: Final = 1024
_RECORD_LOCK: Final = struct.Struct("hhqqi0q")
"""Linux's `struct flock`: type, whence, start, length (0: to the end), process id."""
_WHOLE_FILE: Final = _RECORD_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_SYNCS_AT_ONCE: Final = 8
_NICENESS: Final = 5
"""Of the writer's thread, for the event loop to come first: measured, beside a producer that takes all it can others
wait half as long, and that one loses nothing."""


class File(Protocol):
    """A file that is read anywhere and written at its end."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset`; how many bytes there were, fewer only at the end of the file.

        For who reads much: fresh memory for each read costs more than the read.
        """

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all buffers after the last byte. On `OSError` a part may have been written: `truncate` cuts it."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """How many bytes the file has."""

    def sync(self) -> None:
        """Return when the file's data is on the disk.

        After an `OSError` nobody knows what is there, even if a later sync passes.
        """

    def close(self) -> None:
        """Give the descriptor back; a closed file must not be used."""


class DiskLock(Protocol):
    """A lock that this process holds on a file, until `release` or its death."""

    def release(self) -> None:
        """Let others have it."""


class DiskSpace(NamedTuple):
    """The room of the volume that a directory is on, in bytes: all of it, and what is left for us."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """A file system. Paths are plain strings with `/`."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and appending, or reading only. `FileNotFoundError` without `create`."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""

    def size(self, path: str) -> int:
        """A file's bytes, without opening it. `FileNotFoundError` if there is none."""

    def space(self, path: str) -> DiskSpace:
        """How much room there is for files in a directory."""

    def absolute(self, path: str) -> str:
        """The same path from the root on."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents; no error if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Move within a directory, replacing a file that is there, in one step."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Return when creations, renames and removals in `path` are on the disk."""

    def sync_all(self, paths: Sequence[str]) -> None:
        """Return when these files and directories are on the disk, several at a time; ignores those that are gone."""

    def read_file(self, path: str) -> bytes:
        """All of a small file. `FileNotFoundError` if there is none."""

    def replace_file(self, path: str, data: bytes) -> None:
        """Make `path` hold `data`, whole or not at all, and on the disk when this returns. Uses `path` + ".tmp"."""

    def lock(self, path: str, note: str) -> DiskLock:
        """Hold `path` exclusively and leave "process PID" and `note` in it, unless there is no room for that.

        Raises `BlockingIOError`, whose text is what the holder left, if another holds it, or removed it meanwhile.
        """

    def lock_holder(self, path: str) -> str | None:
        """What whoever holds `path` by `lock` left in it; None if nobody does. Touches nothing."""

    def run_lanes(self, lanes: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        """Run everything, up to `threads` at a time of each lane; results as they come, an error ends it.

        What has not begun when the caller takes no more does not begin. Blocks: not for the event loop's thread.
        """

    def open_files_limit(self) -> int:
        """How many files and connections this process may have open at once."""

    def submit(self, work: Callable[[], T], *, background: bool = False) -> "asyncio.Future[T]":
        """Run `work` on the writer thread, or on the background thread, after what was submitted there before.

        Needs a running loop.
        """


class SystemDisk:
    """The machine's file system, and two threads that start when they are first used."""

    def __init__(self) -> None:
        self._threads: dict[str, ThreadPoolExecutor] = {}

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """See `Disk`."""
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
        """See `Disk`."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """See `Disk`."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """See `Disk`."""
        return os.stat(path).st_size

    def space(self, path: str) -> DiskSpace:
        """See `Disk`."""
        volume = os.statvfs(path)
        return DiskSpace(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)

    def absolute(self, path: str) -> str:
        """See `Disk`."""
        return os.path.abspath(path)

    def list(self, path: str) -> list[str]:
        """See `Disk`."""
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        """See `Disk`."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See `Disk`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        """See `Disk`."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """See `Disk`."""
        _sync_path(path)

    def sync_all(self, paths: Sequence[str]) -> None:
        """See `Disk`: a file system writes its journal once for all that wait for it."""
        with ThreadPoolExecutor(_SYNCS_AT_ONCE, thread_name_prefix="odradek-sync") as threads:
            for _ in threads.map(_sync_if_there, paths):
                pass

    def read_file(self, path: str) -> bytes:
        """See `Disk`."""
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
        """See `Disk`."""
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        self.sync_directory(os.path.dirname(path) or ".")

    def lock(self, path: str, note: str) -> DiskLock:
        """See `Disk`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Not a Java's: the note is right, and the kernel's list of all locks, which is dear, need not be read.
            holder = os.pread(descriptor, _LONGEST_NOTE, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise BlockingIOError(holder or "another process") from None
        try:
            _keep_java_out(descriptor)
        except BlockingIOError:
            holder = _java_holder(os.fstat(descriptor)) or ""
            os.close(descriptor)
            raise BlockingIOError(holder or "another process") from None
        if os.fstat(descriptor).st_nlink == 0:
            # Whoever held it has removed it since it was opened here: the next one would make, and lock, another file.
            os.close(descriptor)
            raise BlockingIOError("a process that has removed it")
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder_note(os.getpid(), note).encode()[:_LONGEST_NOTE], 0)
        except OSError as error:
            if error.errno not in NO_ROOM:
                os.close(descriptor)
                raise
        return _SystemLock(descriptor)

    def lock_holder(self, path: str) -> str | None:
        """See `Disk`. Where the system has no list of locks, a holder is a process that lives."""
        try:
            with open(path, "rb") as file:
                found, note = os.fstat(file.fileno()), file.read(_LONGEST_NOTE).decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        return _java_holder(found) or ((note or "another process") if _is_locked(found, note) else None)

    def run_lanes(self, lanes: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        """See `Disk`."""
        pools = [ThreadPoolExecutor(threads, thread_name_prefix="odradek-load") for _ in lanes]
        try:
            futures = [pool.submit(work) for pool, lane in zip(pools, lanes, strict=True) for work in lane]
            for future in as_completed(futures):
                yield future.result()
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    def open_files_limit(self) -> int:
        """See `Disk`."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def submit(self, work: Callable[[], T], *, background: bool = False) -> "asyncio.Future[T]":
        """See `Disk`."""
        name = "odradek-background" if background else "odradek-writer"
        thread = self._threads.get(name)
        if thread is None:
            thread = self._threads[name] = ThreadPoolExecutor(1, name, initializer=None if background else _give_way)
        return asyncio.get_running_loop().run_in_executor(thread, work)


def _refuse_directory(descriptor: int, path: str) -> None:
    """Raise the error of a read now, when it is known whose it is."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def _give_way() -> None:
    """Lower the priority of this thread. Elsewhere than on Linux it would be that of the process."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.nice(_NICENESS)


def holder_note(process_id: int, note: str) -> str:
    """What a lock file says about who holds it."""
    return f"process {process_id} ({note})" if note else f"process {process_id}"


def _keep_java_out(descriptor: int) -> None:
    """Take the lock that a Java takes too: Kafka uses a directory's `.lock`, and does not see an flock.

    Of the open file and not of the process, so that closing another descriptor of the file does not drop it. Only Linux
    has that; elsewhere an flock is seen by Javas.
    """
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)


def _java_holder(found: os.stat_result) -> str | None:
    """The process that has the file locked as a Java does; a note in it is an earlier holder's then.

    The kernel's line is `2: POSIX  ADVISORY  WRITE 8505 fe:00:10002631 0 9223372036854775806`.
    """
    try:
        with open("/proc/locks") as file:
            lines = [line.split() for line in file if " POSIX " in line and "->" not in line]
    except FileNotFoundError:
        return None
    held = (line[4] for line in lines if int(line[5].rpartition(":")[2]) == found.st_ino)
    return next((holder_note(int(process_id), "") for process_id in held), None)


def _is_locked(found: os.stat_result, note: str) -> bool:
    """Whether a process holds a lock on the file, which must not be tried: a broker that starts would meet ours.

    A line of the kernel's list is `1: FLOCK ADVISORY WRITE 8505 fe:00:10002631 0 EOF`: process, device, inode.
    """
    try:
        with open("/proc/locks") as file:
            places = [line.split()[5].split(":") for line in file if " FLOCK " in line and "->" not in line]
    except FileNotFoundError:
        process_id = note.removeprefix("process ").partition(" ")[0]
        if not process_id.isdecimal():
            return False
        with contextlib.suppress(PermissionError):  # another user's, then
            try:
                os.kill(int(process_id), 0)
            except ProcessLookupError:
                return False
        return True
    # Overlays and btrfs show another device here than to `stat`: two files of one number on two of them are rare.
    return any(int(inode) == found.st_ino for *_, inode in places)


def _sync_path(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        _sync_path(path)


class _SystemFile:
    """A descriptor, and where its end is."""

    __slots__ = ("_descriptor", "_end")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._end = os.fstat(descriptor).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        return os.preadv(self._descriptor, [buffer], offset)

    def append(self, buffers: Sequence[Buffer]) -> None:
        for first in range(0, len(buffers), _MOST_BUFFERS):
            some = buffers if len(buffers) <= _MOST_BUFFERS else buffers[first : first + _MOST_BUFFERS]
            wanted = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, self._end)
            self._end += written
            if written < wanted:
                self._append_rest(b"".join(some)[written:])

    def _append_rest(self, rest: bytes) -> None:
        """A short write: signals, or a disk that fills up; the next call says which."""
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


class _SystemLock:
    """An flock and a record lock, which the kernel drops when the process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
