"""Reads many values at once, a field at a time: numpy moves a position in each value.

Only bytes that are as every writer writes them are read so. A value with other bytes, damaged or merely unusual, is
marked as odd, and a decoder of single values decides on it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[Any]

FEWEST: Final = 256
"""Fewer values are decoded one by one: numpy's calls would cost more."""
_PADDING: Final = 16
"""Bytes after the values, so that a number at the end of a damaged value can be read."""
_LONGEST_VARINT: Final = 10


class Column(NamedTuple):
    """An Arrow type, and a function that reads the next value at each cursor as an array of this type."""

    type: pa.DataType
    read: Callable[["Cursors"], pa.Array]
    takes_no_bytes: bool = False


class Cursors:
    """Positions in values: `at` is the next byte of each, `end` the byte after its last. Both ascend."""

    __slots__ = ("_are_odd", "_data", "_value", "at", "end")

    def __init__(self, data: Numbers, are_odd: Numbers, value: Numbers, at: Numbers, end: Numbers) -> None:
        self._data, self._are_odd, self._value = data, are_odd, value
        self.at, self.end = at, end

    @classmethod
    def of(cls, array: pa.Array) -> "Cursors":
        """Return cursors at the beginning of the values of a binary array; nulls are odd."""
        array = array.cast(pa.binary())
        _, offsets, data = array.buffers()
        found = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
        content = np.frombuffer(data or b"", np.uint8)[found[0] : found[-1]]
        padded = np.concatenate([content, np.zeros(_PADDING, np.uint8)])
        are_odd = array.is_null().to_numpy(zero_copy_only=False)
        return cls(padded, are_odd, np.arange(len(array)), found[:-1] - found[0], found[1:] - found[0])

    def __len__(self) -> int:
        return len(self.at)

    @property
    def is_odd(self) -> Numbers:
        """Whether the value of each cursor is odd."""
        return self._are_odd[self._value]

    def among(self, chosen: Numbers) -> "Cursors":
        """Return copies of the cursors with these indices."""
        return self.within(chosen, self.at[chosen], self.end[chosen])

    def within(self, chosen: Numbers, start: Numbers, end: Numbers) -> "Cursors":
        """Return cursors from `start` to `end` in the values of the cursors with the indices `chosen`."""
        return Cursors(self._data, self._are_odd, self._value[chosen], start, end)

    def fail(self, wrong: Numbers) -> None:
        """Mark the values of the cursors with these indices as odd, and move the cursors to the end."""
        self._are_odd[self._value[wrong]] = True
        self.at[wrong] = self.end[wrong]

    def varint(self, longest: int = _LONGEST_VARINT) -> Numbers:
        """Read unsigned numbers of seven bits a byte, the lowest first."""
        byte = self._data[self.at]
        found, self.at = (byte & 0x7F).astype(np.uint64), self.at + 1
        more = np.flatnonzero(byte & 0x80)
        for shift in range(7, 7 * longest, 7):
            if not more.size:
                break
            byte = self._data[self.at[more]]
            found[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            self.at[more] += 1
            more = more[byte & 0x80 != 0] if shift < 63 else more[byte > 1]
        self.fail(more)
        self.fail(np.flatnonzero(self.at > self.end))
        return found

    def zigzag(self) -> Numbers:
        """Read signed numbers as Avro writes them: 0, -1, 1, -2 and so on are 0, 1, 2, 3."""
        return signed(self.varint())

    def fixed(self, kind: npt.DTypeLike) -> Numbers:
        """Read numbers of the bytes of `kind`."""
        size = np.dtype(kind).itemsize
        start, _ = self.span(np.full(len(self), size))
        return self._data[start[:, None] + np.arange(size)].view(kind)[:, 0]

    def span(self, length: Numbers) -> tuple[Numbers, Numbers]:
        """Return where the next `length` bytes of each value begin and end, and go there."""
        length = length.astype(np.int64)
        wrong = (length < 0) | (length > self.end - self.at)
        self.fail(np.flatnonzero(wrong))
        start = self.at
        self.at = start + np.where(wrong, 0, length)
        return start, self.at

    def integers(self, start: Numbers, end: Numbers) -> Numbers:
        """Return the signed numbers that are in these bytes, the highest first; those of more than 64 bits are odd."""
        length = end - start
        bytes_ = self._data[end[:, None] - np.arange(1, _PADDING + 1)]
        is_negative = self._data[start] >= 0x80
        sign = np.where(is_negative, 0xFF, 0).astype(np.uint8)
        bytes_ = np.where(np.arange(_PADDING) < length[:, None], bytes_, sign[:, None])
        found = np.ascontiguousarray(bytes_[:, :8]).view("<i8")[:, 0]
        fits = ((found < 0) == is_negative) & (bytes_[:, 8:] == sign[:, None]).all(axis=1) & (length <= _PADDING)
        self.fail(np.flatnonzero(~fits | (length == 0)))
        return found

    def binary(self, start: Numbers, end: Numbers) -> pa.Array:
        """Return the bytes from `start` to `end` of each value."""
        if not len(start):
            return pa.array([], pa.binary())
        # Each second element is the gap between two values' bytes.
        offsets = np.stack([start, end], axis=1).ravel().astype(np.int32)
        assert offsets[0] >= 0
        assert offsets[-1] <= len(self._data)
        assert (offsets[1:] >= offsets[:-1]).all()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._data)]
        both = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
        return both.take(pa.array(np.arange(0, len(offsets), 2)))

    def text(self, start: Numbers, end: Numbers) -> pa.Array:
        """Return the bytes from `start` to `end` as strings; a value that is not UTF-8 is odd."""
        found = self.binary(start, end)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(each) for each in found.to_pylist()])
            self.fail(np.flatnonzero(wrong))
            return self.binary(np.where(wrong, end, start), end).cast(pa.string())


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def signed(found: Numbers) -> Numbers:
    """Return the signed numbers of zigzag ones, of the same width."""
    return ((found >> 1) ^ -(found & 1)).view(f"i{found.itemsize}")


def decimals(found: Numbers, kind: pa.DataType) -> pa.Array:
    """Return signed or unsigned integers of 64 bits as the unscaled numbers of a decimal type."""
    words = np.stack([found.view("u8"), np.where(found < 0, -1, 0).astype("i8").view("u8")], axis=1)
    return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(words)])


def spread(found: pa.Array, has: Numbers) -> pa.Array:
    """Return the elements of `found` at the places where `has` is true, and nulls at the others."""
    return found if has.all() else found.take(pa.array(np.cumsum(has) - 1, mask=~has))


def grouped(cursors: Cursors, found: pa.Array, owner: Numbers, kind: pa.DataType) -> pa.Array:
    """Return lists or maps of items or of structs (key, value); `owner` is the ascending index of the cursor of each.

    A value with a map that has a key twice is odd.
    """
    offsets = pa.array(np.searchsorted(owner, np.arange(len(cursors) + 1)).astype(np.int32))
    if not pa.types.is_map(kind):
        return pa.ListArray.from_arrays(offsets, found, type=kind)
    keys = found.field(0)
    code = keys.dictionary_encode().indices.to_numpy()
    _, first = np.unique(owner * (code.max(initial=0) + 1) + code, return_index=True)
    cursors.fail(np.delete(owner, first))
    return pa.MapArray.from_arrays(offsets, keys, found.field(1), type=kind)
