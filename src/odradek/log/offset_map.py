"""The last offset of each key, in a fixed amount of memory however long the keys are: what compaction goes by.

A table with open addressing, three columns of numpy: two words of a key's 128-bit digest, and the offset. A slot is
24 bytes, as in Kafka's cleaner; a dict of the digests takes about 150 (measured), and one of the keys more. The digest
is keyed anew for each map, so that nobody can choose keys that collide, and wide enough that no others ever will: a
collision would lose a record. Slots are a power of two and found by double hashing with an odd step, which comes by all
of them; at nine tenths full, a new key looks at ten.

The table begins small and grows by four; the two that exist then are within `max_bytes`.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from odradek.log.offset_table import GROWTH, NO_OFFSET, fewest_slots, most_keys, most_slots

Words = npt.NDArray[np.uint64]

DIGEST_BYTES: Final = 16


class OffsetMap:
    """See the module. `latest_offset` is the last offset that was looked at, whether its key is here or not.

    `secret`, 16 random bytes, keys the digests. `first`, `second` and `offsets` are the columns; a slot is free where
    `first` is 0.
    """

    def __init__(self, max_bytes: int, load_factor: float, *, secret: bytes) -> None:
        slots = most_slots(max_bytes)
        self.max_keys = most_keys(slots, load_factor)
        self.latest_offset = NO_OFFSET
        self.size = 0
        self.secret = secret
        self._load_factor = load_factor
        self._max_slots = slots
        self._make(fewest_slots(slots))

    def _make(self, slots: int) -> None:
        self.first: Words = np.zeros(slots, np.uint64)
        self.second: Words = np.zeros(slots, np.uint64)
        self.offsets: npt.NDArray[np.int64] = np.full(slots, NO_OFFSET, np.int64)
        self.mask = slots - 1

    @property
    def utilization(self) -> float:
        """How full it is, 1 when no more keys fit."""
        return self.size / self.max_keys

    def reserve(self, keys: int) -> None:
        """Grow so that as many new ones fit, if they ever will."""
        wanted = min(self.size + keys, self.max_keys)
        slots = self.mask + 1
        while slots < self._max_slots and most_keys(slots, self._load_factor) < wanted:
            slots *= GROWTH
        if slots > self.mask + 1:
            used = np.flatnonzero(self.first)
            first, second, offsets = self.first[used], self.second[used], self.offsets[used]
            self._make(min(slots, self._max_slots))
            self.size = 0
            self._put(first, second, offsets)

    def put(self, offsets_by_key: dict[bytes, int]) -> bool:
        """Note the last offsets of keys, all of them or, if they may not fit, none: whether they are noted."""
        room = self.max_keys - self.size
        if len(offsets_by_key) > room and self._new_keys(offsets_by_key) > room:
            return False
        self.reserve(len(offsets_by_key))
        first, second = self._digests(offsets_by_key)
        self._put(first, second, np.fromiter(offsets_by_key.values(), np.int64, len(offsets_by_key)))
        return True

    def get(self, keys: Sequence[bytes]) -> list[int]:
        """The last offset of each key, -1 for one that is not in the map."""
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
        """Enter keys, each once."""
        mask = np.uint64(self.mask)
        slot, step = first & mask, second | np.uint64(1)
        waiting = np.arange(len(first))
        while len(waiting):
            at = slot[waiting]
            free = waiting[self.first[at] == 0]
            # Of several that come to one free slot, the last one has it.
            self.first[slot[free]] = first[free]
            self.second[slot[free]] = second[free]
            is_mine = (self.first[at] == first[waiting]) & (self.second[at] == second[waiting])
            mine = waiting[is_mine]
            self.size += int(np.count_nonzero(self.offsets[slot[mine]] == NO_OFFSET))
            self.offsets[slot[mine]] = offsets[mine]
            waiting = waiting[~is_mine]
            slot[waiting] = (slot[waiting] + step[waiting]) & mask

    def _get(self, first: Words, second: Words) -> npt.NDArray[np.int64]:
        mask = np.uint64(self.mask)
        slot, step = first & mask, second | np.uint64(1)
        found = np.full(len(first), NO_OFFSET, np.int64)
        waiting = np.arange(len(first))
        while len(waiting):
            at = slot[waiting]
            is_mine = (self.first[at] == first[waiting]) & (self.second[at] == second[waiting])
            found[waiting[is_mine]] = self.offsets[at[is_mine]]
            waiting = waiting[~is_mine & (self.first[at] != 0)]
            slot[waiting] = (slot[waiting] + step[waiting]) & mask
        return found
