"""An in-memory `runtime.Disk`: a simulated power cut loses unsynced data, and a seed decides which.

It is stricter than most file systems: a file's data is safe after `sync`, its name after `sync_directory`, and neither
implies the other. A killed process loses nothing, because the kernel has the page cache. A power cut keeps, loses or
tears unsynced data:

    file        each sector of 512 bytes changed since the last sync is new or old (zeros beyond the old end); the size
                is anywhere between old and new
    directory   only the first few creations, renames and removals since the last sync happened
    failed sync the kernel forgets that the data was dirty: later syncs succeed without saving it

```python
disk = MemoryDisk(random.Random(7))
disk.cut_power_at(disk.operations + 12)      # the 12th change from now raises PowerCutError, half done
disk.cut_power(); disk.kill()                # the next process finds what survived
disk.fail_next("sync", errno.EIO, path_end=".log"); disk.capacity_bytes = 1 << 20
disk.most_open_files = disk.open_files; disk.has_threads = False
disk.broken.add("/data")                     # everything below fails with EIO, as on a dead disk
```
"""

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache, partial
from typing import Final, TypeVar

from odradek.model import Buffer
from odradek.runtime.disk import DiskLock, DiskSpace, File
from odradek.runtime.file_locks import holder_note
from odradek.runtime.shortages import NO_ROOM
from odradek.simulation.virtual.disk_contents import Content, Directory, Survival

T = TypeVar("T")
_BOUNDLESS_BYTES: Final = 1 << 50
_OPEN_FILES_LIMIT: Final = 1024


class PowerCutError(BaseException):
    """The simulated machine lost power, or the process was killed: only the test that did so may handle this."""


class MemoryDisk:
    """Files and directories in memory. `entropy` draws the losses of a power cut and the duration of submitted work.

    `operations` counts changes (creations, appends, truncations, syncs, renames, removals). `capacity_bytes` limits the
    sum of all files: an append beyond it writes what fits and raises `OSError` ENOSPC. `delay_s` is the minimum and
    maximum duration of submitted work; with (0, 0) it runs in the loop's next turn.
    """

    def __init__(self, entropy: random.Random | None = None, *, process_id: int = 1) -> None:
        self.operations = 0
        self.capacity_bytes: int | None = None
        self.delay_s: tuple[float, float] = (0.0, 0.0)
        self.process_id = process_id
        self.most_open_files: int | None = None
        """Limit of open files, beyond which opening and listing fail with EMFILE; open files still work."""
        self.open_files = 0
        self.has_threads = True
        """If False, `submit` fails as if the system could start no thread."""
        self.broken: set[str] = set()
        """Directories that cannot be read or written; `exists` returns False for them, as `os.path` does."""
        self._entropy = entropy or random.Random(0)
        self._root = Directory()
        self._cut_at: int | None = None
        self._only_in_job = self._is_in_job = False
        self._is_cut = False
        self._generation = 0
        self._locks: dict[str, str] = {}
        self._faults: list[_Fault] = []
        self._lanes: dict[bool, deque[Callable[[], None]]] = {}

    # ---- for tests ----------------------------------------------------------------------------------------------

    def cut_power_at(self, operation: int, *, in_next_job: bool = False) -> None:
        """Raise `PowerCutError` when `operations` reaches `operation`; that change is done, half done or not done.

        With `in_next_job`, the power is cut only during the next background job that runs, such as the recovery of
        all logs.
        """
        self._cut_at, self._only_in_job = operation, in_next_job

    def cut_power(self, survival: Survival = Survival.ANY) -> None:
        """Cut the power and restore it: unsynced data survives as `survival` says."""
        self._root.survive(survival, self._entropy)
        self.kill()

    def kill(self) -> None:
        """Kill the process: its locks and open files are gone, its data stays.

        The disk then serves the next process.
        """
        self._generation += 1
        self.open_files = 0
        self._locks.clear()
        self._lanes.clear()
        self._cut_at = None
        self._is_cut = False

    def fail_next(self, operation: str, error: int | Exception, *, path_end: str = "", count: int = 1) -> None:
        """Fail the next `count` changes of kind `operation` on paths that end in `path_end`.

        `operation` is "create", "append", "truncate", "sync", "rename" or "remove". `error` is the number of an
        `OSError`, or the exception to raise.
        """
        self._faults.append(_Fault(operation, error, path_end, count))

    def forget_failures(self) -> None:
        """Drop the failures that `fail_next` planned and that have not happened."""
        self._faults.clear()

    def used_bytes(self) -> int:
        """Return the bytes of all files."""
        return self._root.used_bytes()

    # ---- the interface of runtime -------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file. Writes to a `read_only` file are not refused, but counted in `operations`."""
        del read_only
        self._check_power()
        self._check_whole(path)
        self._take_descriptor(path)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = Content()
            self._change("create", path, partial(directory.put, name, node))
            node.modified_at = self.operations
        return _MemoryFile(self, path, node, self._generation)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def is_writable(self, path: str) -> bool:
        return True

    def is_link(self, path: str) -> bool:
        """Return False: there are no links."""
        del path
        return False

    def modified_at(self, path: str) -> float:
        """Return the number of the change that last touched the file, in place of a time."""
        return self._content(path).modified_at

    def set_modified_at(self, path: str, seconds: float) -> None:
        self._content(path).modified_at = seconds

    def size(self, path: str) -> int:
        return len(self._content(path).data)

    def space(self, path: str) -> DiskSpace:
        """Return total and free bytes; without `capacity_bytes`, more than any test uses."""
        self._directory(path)
        total = _BOUNDLESS_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return DiskSpace(total, max(total - self.used_bytes(), 0))

    def absolute(self, path: str) -> str:
        """Return the path from the root, which is the working directory."""
        return f"/{'/'.join(_parts(path))}"

    def list(self, path: str) -> list[str]:
        self._take_descriptor(path)
        return sorted(self._directory(path).entries)

    def make_directories(self, path: str) -> None:
        parent = ""
        for name in _parts(path):
            whole = f"{parent}/{name}"
            if not self.exists(whole):
                self._change("create", whole, partial(self._directory(parent).put, name, Directory()))
            elif not self.is_directory(whole):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), whole)
            parent = whole

    def rename(self, source: str, target: str) -> None:
        """Rename a file. Raises `OSError` EXDEV between two directories, where it may not be atomic."""
        directory, name = self._parent(source)
        target_directory, new_name = self._parent(target)
        if directory is not target_directory:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        if name not in directory.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._change("rename", source, partial(directory.move, name, new_name))

    def remove(self, path: str) -> None:
        self._content(path)
        directory, name = self._parent(path)
        self._change("remove", path, partial(directory.drop, name))

    def remove_directory(self, path: str) -> None:
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        directory, name = self._parent(path)
        self._change("remove", path, partial(directory.drop, name))

    def sync_directory(self, path: str) -> None:
        self._take_descriptor(path)
        self._change("sync", path, self._directory(path).sync)

    def sync_all(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._take_descriptor(path)
            node = self._find(path)
            if isinstance(node, Directory):
                self.sync_directory(path)
            elif node is not None:
                self._sync(path, node)

    def read_file(self, path: str) -> bytes:
        self._take_descriptor(path)
        return bytes(self._content(path).data)

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file in separate operations, so that the power can be cut between them."""
        temporary = f"{path}.tmp"
        with closing(self.open(temporary, create=True)) as file:
            file.truncate(0)
            file.append([data])
            file.sync()
        self.rename(temporary, path)
        self.sync_directory(path.rpartition("/")[0])

    def lock(self, path: str, note: str) -> DiskLock:
        self._check_power()
        self._check_whole(path)
        key = "/".join(_parts(path))
        if key in self._locks:
            raise BlockingIOError(self._locks[key])
        file = self.open(path, create=True)
        self._locks[key] = holder_note(self.process_id, note)
        file.truncate(0)
        try:
            file.append([self._locks[key].encode()])
        except OSError as error:
            if error.errno not in NO_ROOM:
                del self._locks[key]
                raise
        return _MemoryLock(self._locks, key)

    def lock_holder(self, path: str) -> str | None:
        return self._locks.get("/".join(_parts(path)))

    def run_in_threads(self, groups: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
        """Run all work in order, without threads."""
        del threads
        for group in groups:
            for work in group:
                yield work()

    def open_files_limit(self) -> int:
        """Return Linux's default."""
        return _OPEN_FILES_LIMIT

    def submit(self, work: Callable[[], T], *, background: bool = False) -> "asyncio.Future[T]":
        """Run `work` on the running loop after a delay; background and other work each keep their order."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self.has_threads:
            future.set_exception(OSError(errno.EAGAIN, "the system starts no thread"))
            return future
        lane = self._lanes.setdefault(background, deque())
        lane.append(partial(_complete, future, work))
        if len(lane) == 1:
            self._schedule(loop, lane)
        return future

    def _schedule(self, loop: asyncio.AbstractEventLoop, lane: deque[Callable[[], None]]) -> None:
        delay_s = self._entropy.uniform(*self.delay_s) if self.delay_s[1] > 0 else 0.0
        if delay_s > 0:
            loop.call_later(delay_s, self._run_next, loop, lane, self._generation)
        else:
            loop.call_soon(self._run_next, loop, lane, self._generation)

    def _run_next(self, loop: asyncio.AbstractEventLoop, lane: deque[Callable[[], None]], generation: int) -> None:
        if generation != self._generation:
            return
        self._is_in_job = lane is self._lanes.get(True)
        lane[0]()
        lane.popleft()
        if self._is_in_job and self._only_in_job:
            self._cut_at = None
        self._is_in_job = False
        if lane:
            self._schedule(loop, lane)

    # ---- paths and changes --------------------------------------------------------------------------------------

    def _take_descriptor(self, path: str) -> None:
        if self.most_open_files is not None and self.open_files >= self.most_open_files:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def _check_whole(self, path: str) -> None:
        if self.broken and any(_parts(path)[: len(broken)] == broken for broken in map(_parts, self.broken)):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _find(self, path: str) -> "Directory | Content | None":
        try:
            self._check_whole(path)
        except OSError:
            return None
        node: Directory | Content | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> "Directory":
        self._check_whole(path)
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _content(self, path: str) -> "Content":
        self._check_whole(path)
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Content):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> "tuple[Directory, str]":
        parts = _parts(path)
        return self._directory("/".join(parts[:-1])), parts[-1]

    def _check_power(self) -> None:
        if self._is_cut:
            raise PowerCutError

    def _change(self, kind: str, path: str, act: Callable[[], None]) -> None:
        """Apply a change, or raise its planned error, or cut the power just before or after it."""
        if self._is_due(kind, path):
            if self._entropy.random() < 0.5:
                act()
            raise PowerCutError
        act()

    def _is_due(self, kind: str, path: str) -> bool:
        """Count a change and return whether the power is cut at it. Raises the error that `fail_next` planned."""
        self._check_power()
        self._check_whole(path)
        self.operations += 1
        may_be_cut = self._is_in_job or not self._only_in_job
        if may_be_cut and self._cut_at is not None and self.operations >= self._cut_at:
            self._is_cut = True
            return True
        for fault in self._faults:
            if fault.kind == kind and path.endswith(fault.path_end):
                fault.count -= 1
                if not fault.count:
                    self._faults.remove(fault)
                if isinstance(fault.error, Exception):
                    raise fault.error
                raise OSError(fault.error, os.strerror(fault.error), path)
        return False

    def _append(self, path: str, content: "Content", data: bytes) -> None:
        if self._is_due("append", path):
            content.data += data[: self._entropy.randint(0, len(data))]
            raise PowerCutError
        content.modified_at = self.operations
        room = len(data) if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes())
        content.data += data[:room]
        if room < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _sync(self, path: str, content: "Content") -> None:
        try:
            self._change("sync", path, content.sync)
        except OSError:
            content.is_forgotten = True
            raise


class _Fault:
    def __init__(self, kind: str, error: int | Exception, path_end: str, count: int) -> None:
        self.kind = kind
        self.error = error
        self.path_end = path_end
        self.count = count


class _MemoryFile:
    """An open file. After the disk's `kill` or `cut_power`, all methods except `close` raise `PowerCutError`."""

    def __init__(self, disk: MemoryDisk, path: str, content: Content, generation: int) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._generation = generation
        self._is_closed = False
        disk.open_files += 1

    def _check(self) -> None:
        if self._generation != self._disk._generation:
            raise PowerCutError
        self._disk._check_whole(self._path)
        if self._is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def read(self, offset: int, length: int) -> bytes:
        self._check()
        if offset < 0 or length < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return bytes(self._content.data[offset : offset + length])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def append(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        self._disk._append(self._path, self._content, b"".join(buffers))

    def truncate(self, size: int) -> None:
        self._check()
        self._disk._change("truncate", self._path, partial(self._content.truncate, size))

    def size(self) -> int:
        self._check()
        return len(self._content.data)

    def sync(self) -> None:
        self._check()
        self._disk._sync(self._path, self._content)

    def close(self) -> None:
        if not self._is_closed and self._generation == self._disk._generation:
            self._disk.open_files -= 1
        self._is_closed = True


class _MemoryLock:
    def __init__(self, locks: dict[str, str], key: str) -> None:
        self._locks = locks
        self._key = key
        self._note = locks[key]

    def release(self) -> None:
        if self._locks.get(self._key) is self._note:
            del self._locks[self._key]


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    """Return the names in a path; the root is the working directory."""
    return tuple(name for name in path.split("/") if name not in {"", "."})


def _complete(future: "asyncio.Future[T]", work: Callable[[], T]) -> None:
    """Run submitted work and set its result or error, even a `PowerCutError`, unless the future is cancelled."""
    if future.cancelled():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


__all__ = ["MemoryDisk", "PowerCutError", "Survival"]
