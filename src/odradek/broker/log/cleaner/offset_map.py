"""A hash map of keys to their last offsets, in a fixed amount of memory for keys of any length.

Open addressing with double hashing; a slot of 24 bytes, as in Kafka's cleaner, has a key's 128-bit digest and the
offset. A digest collision would lose a record, so digests are keyed per map: clients cannot cause one.

Compiled code accesses `slots` directly. The array grows fourfold; `max_bytes` includes the old and the new array.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from odradek.broker.log.cleaner.compaction_rows import SLOT

Words = npt.NDArray[np.uint64]

DIGEST_BYTES: Final = 16
NO_OFFSET: Final = -1
SLOT_BYTES: Final = SLOT.itemsize
_GROWTH: Final = 4
_FEWEST_SLOTS: Final = 1024


class OffsetMap:
    """A map of keys to offsets. `latest_offset` is the last indexed offset, also of a record without a key.

    `secret`, 16 random bytes, keys the digests; `size` is the number of keys; `load_factor` the largest used share of
    slots.
    """

    def __init__(self, max_bytes: int, load_factor: float, *, secret: bytes) -> None:
        self._load_factor = load_factor
        self._max_slots = _FEWEST_SLOTS
        while self._max_slots * 2 * SLOT_BYTES * (_GROWTH + 1) // _GROWTH <= max_bytes:
            self._max_slots *= 2
        self.max_keys = self._most_keys(self._max_slots)
        self.latest_offset = NO_OFFSET
        self.size = 0
        self.secret = secret
        slots = self._max_slots
        while slots > _FEWEST_SLOTS * _GROWTH:
            slots //= _GROWTH
        self.slots: npt.NDArray[Any] = np.zeros(slots, SLOT)

    def _most_keys(self, slots: int) -> int:
        """Return the number of keys for `slots`; free slots keep searches short."""
        return max(min(int(slots * self._load_factor), slots * 15 // 16), 1)

    @property
    def utilization(self) -> float:
        """The used share of `max_keys`."""
        return self.size / self.max_keys

    def reserve(self, keys: int) -> None:
        """Grow, up to `max_bytes`, for `keys` new keys."""
        wanted = min(self.size + keys, self.max_keys)
        slots = len(self.slots)
        while slots < self._max_slots and self._most_keys(slots) < wanted:
            slots *= _GROWTH
        if slots > len(self.slots):
            used = self.slots[self.slots["first"] != 0]
            self.slots = np.zeros(slots, SLOT)
            self.size = 0
            self._put(used["first"], used["second"], used["offset"])

    def put(self, offsets_by_key: dict[bytes, int]) -> bool:
        """Set the last offsets of keys; if they do not fit, set none and return False."""
        room = self.max_keys - self.size
        if len(offsets_by_key) > room and self._new_keys(offsets_by_key) > room:
            return False
        self.reserve(len(offsets_by_key))
        first, second = self._digests(offsets_by_key)
        self._put(first, second, np.fromiter(offsets_by_key.values(), np.int64, len(offsets_by_key)))
        return True

    def get(self, keys: Sequence[bytes]) -> list[int]:
        """Return the last offset of each key, -1 for unknown keys."""
        found: list[int] = self._get(*self._digests(keys)).tolist()
        return found

    def _new_keys(self, keys: Iterable[bytes]) -> int:
        first, second = self._digests(keys)
        return int(np.count_nonzero(self._get(first, second) == NO_OFFSET))

    def _digests(self, keys: Iterable[bytes]) -> tuple[Words, Words]:
        blake, secret = hashlib.blake2b, self.secret
        data = b"".join([blake(key, digest_size=DIGEST_BYTES, key=secret).digest() for key in keys])
        words = np.frombuffer(data, np.uint64).reshape(-1, 2)
        first = words[:, 0].copy()
        first[first == 0] = 1
        return first, words[:, 1].copy()

    def _put(self, first: Words, second: Words, offsets: npt.NDArray[np.int64]) -> None:
        slots, mask = self.slots, np.uint64(len(self.slots) - 1)
        slot, step = first & mask, second | np.uint64(1)
        waiting = np.arange(len(first))
        while len(waiting):
            at = slot[waiting]
            is_free = slots["first"][at] == 0
            free = waiting[is_free]
            # If several keys write to one free slot, the last one is stored.
            slots["first"][slot[free]] = first[free]
            slots["second"][slot[free]] = second[free]
            is_mine = (slots["first"][at] == first[waiting]) & (slots["second"][at] == second[waiting])
            self.size += int(np.count_nonzero(is_mine & is_free))
            mine = waiting[is_mine]
            slots["offset"][slot[mine]] = offsets[mine]
            waiting = waiting[~is_mine]
            slot[waiting] = (slot[waiting] + step[waiting]) & mask

    def _get(self, first: Words, second: Words) -> npt.NDArray[np.int64]:
        slots, mask = self.slots, np.uint64(len(self.slots) - 1)
        slot, step = first & mask, second | np.uint64(1)
        found = np.full(len(first), NO_OFFSET, np.int64)
        waiting = np.arange(len(first))
        while len(waiting):
            at = slots[slot[waiting]]
            is_mine = (at["first"] == first[waiting]) & (at["second"] == second[waiting])
            found[waiting[is_mine]] = at["offset"][is_mine]
            waiting = waiting[~is_mine & (at["first"] != 0)]
            slot[waiting] = (slot[waiting] + step[waiting]) & mask
        return found
