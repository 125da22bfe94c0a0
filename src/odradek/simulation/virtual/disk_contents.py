"""Files and directories of a `MemoryDisk`: their current state, and what a power cut leaves of it.

The rules are in `simulation.virtual.disk`.
"""

import random
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

SECTOR_BYTES: Final = 512
"""The unit that a disk writes atomically."""


class Survival(Enum):
    """The effect of a power cut on unsynced data."""

    KEEP = "all of it is there"
    LOSE = "none of it is there"
    TEAR = "parts of it are there"
    ANY = "each file and directory draws one of the three"


class Content:
    """A file: its current bytes, `data`, and its synced bytes, `data[:stable] + old_tail`.

    Files only grow and shrink at their end, so no other bytes can differ.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.stable = 0
        self.old_tail = b""
        self.is_forgotten = False
        self.modified_at = 0.0

    def truncate(self, size: int) -> None:
        if size < self.stable:
            self.old_tail = bytes(self.data[size : self.stable]) + self.old_tail
            self.stable = size
        if size <= self.stable:
            self.is_forgotten = False
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))

    def sync(self) -> None:
        """Make the current bytes durable, unless a failed sync made the kernel forget that they are dirty."""
        if not self.is_forgotten:
            self.stable = len(self.data)
            self.old_tail = b""

    def survive(self, survival: Survival, entropy: random.Random) -> None:
        """Change the file into what a power cut leaves of it."""
        old, new = self.old_tail, bytes(self.data[self.stable :])
        if survival is Survival.ANY:
            survival = entropy.choice((Survival.KEEP, Survival.LOSE, Survival.TEAR))
        if old != new and survival is not Survival.KEEP:
            tail = old if survival is Survival.LOSE else _torn(old, new, self.stable, entropy)
            del self.data[self.stable :]
            self.data += tail
        self.is_forgotten = False
        self.sync()

    def used_bytes(self) -> int:
        return len(self.data)


class Directory:
    """A directory: its current names, its synced names, and the changes since the sync, in order."""

    def __init__(self) -> None:
        self.entries: dict[str, Directory | Content] = {}
        self._durable: dict[str, Directory | Content] = {}
        self._journal: list[Callable[[dict[str, Any]], object]] = []

    def put(self, name: str, node: "Directory | Content") -> None:
        self._log(lambda entries: entries.__setitem__(name, node))

    def drop(self, name: str) -> None:
        self._log(lambda entries: entries.pop(name, None))

    def move(self, name: str, target: str) -> None:
        self._log(lambda entries: entries.__setitem__(target, entries.pop(name)))

    def _log(self, change: Callable[[dict[str, Any]], object]) -> None:
        change(self.entries)
        self._journal.append(change)

    def sync(self) -> None:
        """Make the current names durable."""
        self._durable = dict(self.entries)
        self._journal.clear()

    def survive(self, survival: Survival, entropy: random.Random) -> None:
        """Change the directory, with everything in it, into what a power cut leaves."""
        mine = survival
        if mine is Survival.ANY:
            mine = entropy.choice((Survival.KEEP, Survival.LOSE, Survival.TEAR))
        count = {Survival.KEEP: len(self._journal), Survival.LOSE: 0}.get(mine)
        if count is None:
            count = entropy.randint(0, len(self._journal))
        for change in self._journal[:count]:
            change(self._durable)
        self.entries = self._durable
        self.sync()
        for _, node in sorted(self.entries.items()):
            node.survive(survival, entropy)

    def used_bytes(self) -> int:
        return sum(node.used_bytes() for node in self.entries.values())


def _torn(old: bytes, new: bytes, start: int, entropy: random.Random) -> bytes:
    """Return what a power cut leaves of a file's unsynced tail: each sector is from `old` or from `new`.

    The tail begins at offset `start` of the file; its random length is between those of `old` and `new`.
    """
    shorter, longer = sorted((len(old), len(new)))
    result = bytearray(entropy.randint(shorter, longer))
    position = 0
    while position < len(result):
        end = min(len(result), position + SECTOR_BYTES - (start + position) % SECTOR_BYTES)
        source = new if entropy.random() < 0.5 else old
        piece = source[position:end]
        result[position : position + len(piece)] = piece
        position = end
    return bytes(result)
