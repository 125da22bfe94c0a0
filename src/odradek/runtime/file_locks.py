"""Locks on files between processes, which Kafka on the JVM respects as well.

They belong to open files, which a fork shares with its parent: a child closes its copies at once.
"""

import contextlib
import fcntl
import os
import struct
import weakref
from typing import Final, Self

from odradek.runtime.shortages import NO_ROOM

_MAX_NOTE_BYTES: Final = 1024
_RECORD_LOCK: Final = struct.Struct("hhqqi0q")
"""Linux's `struct flock`: type, whence, start, length (0: to the end), process id."""
_WHOLE_FILE: Final = _RECORD_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_NOTHING: Final = _RECORD_LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


class FileLock:
    """An flock and a record lock; the kernel releases both when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        _locks.add(self)

    @classmethod
    def take(cls, path: str, note: str) -> Self:
        """Lock the file at `path`, created if missing. Raises `BlockingIOError` with the holder."""
        lock = cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        try:
            lock._take(note)
        except BaseException:
            lock.release()
            raise
        return lock

    def _take(self, note: str) -> None:
        descriptor = self._descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The holder is not a JVM, so its note is right and the expensive read of /proc/locks is not needed.
            holder = os.pread(descriptor, _MAX_NOTE_BYTES, 0).decode(errors="replace").strip()
            raise BlockingIOError(holder or "another process") from None
        try:
            _lock_against_java(descriptor, _WHOLE_FILE)
        except BlockingIOError:
            raise BlockingIOError(_java_holder(os.fstat(descriptor)) or "another process") from None
        if os.fstat(descriptor).st_nlink == 0:
            # The previous holder removed the file after it was opened here: another process would create and lock a new
            # file.
            raise BlockingIOError("another process, which removed the file")
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, holder_note(os.getpid(), note).encode()[:_MAX_NOTE_BYTES], 0)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def release(self) -> None:
        """Release both locks, also if a child has the open file."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            _lock_against_java(self._descriptor, _NOTHING)
            self.forget()

    def forget(self) -> None:
        """Close the file. In a child the locks stay its parent's."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_locks: Final = weakref.WeakSet[FileLock]()


def _forget_locks() -> None:
    for lock in tuple(_locks):
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)


def lock_holder(path: str) -> str | None:
    """Return the process that holds the lock on the file at `path`, or None."""
    try:
        with open(path, "rb") as file:
            found, note = os.fstat(file.fileno()), file.read(_MAX_NOTE_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    return _java_holder(found) or ((note or "another process") if _is_locked(found, note) else None)


def holder_note(process_id: int, note: str) -> str:
    """Return the content of a lock file."""
    return f"process {process_id} ({note})" if note else f"process {process_id}"


def _lock_against_java(descriptor: int, lock: bytes) -> None:
    """Take or release the record lock that Kafka takes on `.lock` (`FileChannel.lock`), as Java sees no flock.

    The lock belongs to the open file and not to the process, so that closing another descriptor of the file does not
    release it. Only Linux has such locks; elsewhere the JVM sees an flock.
    """
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)


def _java_holder(found: os.stat_result) -> str | None:
    """Return "process PID" of the holder of a record lock on the file, or None.

    A JVM takes such a lock; the note in the file is then outdated.

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
    """Return whether a process holds an flock on the file.

    This does not try to take the lock, since a broker that starts meanwhile would fail. The kernel's line is
    `1: FLOCK ADVISORY WRITE 8505 fe:00:10002631 0 EOF`: process, device, inode. Without /proc/locks, the holder is the
    process in the note, if that is alive.
    """
    try:
        with open("/proc/locks") as file:
            places = [line.split()[5].split(":") for line in file if " FLOCK " in line and "->" not in line]
    except FileNotFoundError:
        process_id = note.removeprefix("process ").partition(" ")[0]
        if not process_id.isdecimal():
            return False
        with contextlib.suppress(PermissionError):  # the process is another user's
            try:
                os.kill(int(process_id), 0)
            except ProcessLookupError:
                return False
        return True
    # Only inodes are compared: overlays and btrfs show another device here than to `stat`. Collisions are rare.
    return any(int(inode) == found.st_ino for *_, inode in places)
