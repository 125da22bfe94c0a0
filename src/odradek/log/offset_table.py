"""The last offset of each key for compiled compaction: what `offset_map` is for the plain one, without numpy.

Slots of 24 bytes, a key's digest and its offset side by side (`columns.compaction_layout`), in memory of the system's
that is zeros until it is written to; only compiled code enters and looks for keys. The table begins small and grows by
four; the two that exist then are within `max_bytes`.
"""

import ctypes
import mmap
from collections.abc import Callable
from typing import Final

SLOT_BYTES: Final = 24
GROWTH: Final = 4
FEWEST_SLOTS: Final = 1024
NO_OFFSET: Final = -1


def most_slots(max_bytes: int) -> int:
    """How many slots a table may come to have, a power of two, that grows within so many bytes."""
    slots = FEWEST_SLOTS
    while slots * 2 * SLOT_BYTES * (GROWTH + 1) // GROWTH <= max_bytes:
        slots *= 2
    return slots


def most_keys(slots: int, load_factor: float) -> int:
    """How many keys so many slots take. Some are always free, or the search for a new key would never end."""
    return max(min(int(slots * load_factor), slots * 15 // 16), 1)


def fewest_slots(most: int) -> int:
    """How many slots a table begins with, that grows to just `most`."""
    while most > FEWEST_SLOTS * GROWTH:
        most //= GROWTH
    return most


class Memory:
    """Zeros of the system's, which are released with the object. `address` is theirs, as long as it lives."""

    __slots__ = ("_pin", "address", "data")

    def __init__(self, size: int) -> None:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.data = memoryview(pages)
        self._pin = ctypes.c_char.from_buffer(pages)
        self.address = ctypes.addressof(self._pin)


class OffsetTable:
    """See the module. `latest_offset` is the last offset that was looked at, whether its key is here or not.

    `secret`, 16 random bytes, keys the digests. `address` is where `slots` slots are, of which `size` are taken; it
    changes with `reserve`.
    """

    def __init__(
        self, max_bytes: int, load_factor: float, *, secret: bytes, move_slots: Callable[[int, int, int, int], int]
    ) -> None:
        """`move_slots` is the compiled function of that name."""
        self._max_slots = most_slots(max_bytes)
        self.max_keys = most_keys(self._max_slots, load_factor)
        self.latest_offset = NO_OFFSET
        self.size = 0
        self.slots = fewest_slots(self._max_slots)
        self.secret = Memory(len(secret))
        self.secret.data[: len(secret)] = secret
        self._load_factor = load_factor
        self._move_slots = move_slots
        self._memory = Memory(self.slots * SLOT_BYTES)

    @property
    def address(self) -> int:
        """Where the slots are."""
        return self._memory.address

    @property
    def utilization(self) -> float:
        """How full it is, 1 when no more keys fit."""
        return self.size / self.max_keys

    def reserve(self, keys: int) -> None:
        """Grow so that as many new ones fit, if they ever will."""
        wanted = min(self.size + keys, self.max_keys)
        slots = self.slots
        while slots < self._max_slots and most_keys(slots, self._load_factor) < wanted:
            slots *= GROWTH
        if slots > self.slots:
            larger = Memory(slots * SLOT_BYTES)
            self._move_slots(self._memory.address, self.slots, larger.address, slots)
            self._memory, self.slots = larger, slots
