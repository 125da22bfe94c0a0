"""`.txnindex`: the transactions that were aborted, in the segment where their ends are.

```
entry, 34 bytes    version int16 = 0 | producer_id int64 | first_offset int64 | last_offset int64
                   last_stable_offset int64                                             big-endian
```
`last_offset` is that of the marker, and rises; `last_stable_offset` is what it was once this transaction had ended, and
does not fall. Whoever reads up to an offset therefore needs no entry behind the first one that was stable up to there:
what begins before it and was aborted, ended before. The file is there only if a transaction was aborted. It is valid
if its size is a multiple of 34, every version is 0, and each `last_offset` rises inside the segment.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.log.errors import CutFileError, DamagedFileError
from odradek.log.segments.index_file import PAGE_ENTRIES, IndexFile
from odradek.log.segments.open_files import PooledFile

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")
Entry = tuple[int, int, int, int, int]
_LAST_OFFSET: Final = 3
"""The column that is searched."""


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its first record's offset, its marker's, and what was stable afterwards."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """One segment's. Raises `OSError` when its file cannot be read."""

    __slots__ = ("entries",)

    def __init__(self, file: PooledFile, *, stored_bytes: int = 0) -> None:
        self.entries: IndexFile[Entry] = IndexFile(file, ENTRY, stored=stored_bytes // ENTRY.size)

    def append(self, transaction: AbortedTransaction) -> None:
        """Note a transaction that ends behind all others."""
        last = self.entries.last
        assert last is None or last[_LAST_OFFSET] < transaction.last_offset, "transactions end one after the other"
        self.entries.append((VERSION, *transaction))

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Those with a record in `from_offset` to `to_offset`, exclusive, and whether no later segment has another."""
        found: list[AbortedTransaction] = []
        for _, producer_id, first, last, stable in self._rows(self.entries.find(from_offset - 1, _LAST_OFFSET) + 1):
            if first < to_offset:
                found.append(AbortedTransaction(producer_id, first, last, stable))
            if stable >= to_offset:
                return found, True
        return found, False

    def truncate(self, end_offset: int) -> None:
        """Forget the ends from `end_offset` on."""
        self.entries.truncate(self.entries.find(end_offset - 1, _LAST_OFFSET) + 1)

    def is_valid(self, stored_bytes: int, base_offset: int, end_offset: int) -> bool:
        """Whether the file may be believed; see the module."""
        before = base_offset - 1
        for version, _, first, last, _ in self._rows(0):
            if version != VERSION or not before < last < end_offset or first > last:
                return False
            before = last
        return stored_bytes % ENTRY.size == 0

    def _rows(self, number: int) -> Iterator[Entry]:
        while page := self.entries.rows(number, PAGE_ENTRIES):
            yield from page
            number += len(page)


def decode_transactions(data: bytes, path: str) -> Iterator[tuple[int, AbortedTransaction]]:
    """`(byte, transaction)` of a file. Raises `DamagedFileError` for another version, and if the last one is cut."""
    width = ENTRY.size
    end = len(data) - len(data) % width
    for byte in range(0, end, width):
        version, *fields = ENTRY.unpack_from(data, byte)
        if version != VERSION:
            raise DamagedFileError(path, byte, f"has an entry of version {version}; this release reads {VERSION}")
        yield byte, AbortedTransaction(*fields)
    if end < len(data):
        raise CutFileError(path, end, f"ends with {len(data) - end} bytes of an entry that has {width}")
