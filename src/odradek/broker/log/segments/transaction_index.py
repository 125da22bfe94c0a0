"""`.txnindex` files: the aborted transactions whose markers are in a segment.

```
entry, 34 bytes    version int16 = 0 | producer_id int64 | first_offset int64 | last_offset int64
                   last_stable_offset int64                                             big-endian
```
`last_offset` is the marker's and rises. `last_stable_offset` is the log's after the marker, and does not fall: a reader
up to offset X stops at the first entry with at least X. The file exists only if a transaction was aborted. It is valid
if its size is a multiple of 34, every version is 0, and `last_offset` rises inside the segment.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.broker.log.errors import DamagedFileError, TruncatedFileError
from odradek.broker.log.segments.index_file import PAGE_ENTRIES, IndexFile
from odradek.broker.log.segments.open_files import PooledFile

VERSION: Final = 0
ENTRY: Final = struct.Struct(">hqqqq")
Entry = tuple[int, int, int, int, int]
_LAST_OFFSET: Final = 3
"""The searched column."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from its first record to its marker, and the last stable offset after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The transaction index of one segment. Methods that read raise `OSError`."""

    __slots__ = ("entries",)

    def __init__(self, file: PooledFile, *, stored_bytes: int = 0) -> None:
        self.entries: IndexFile[Entry] = IndexFile(file, ENTRY, stored=stored_bytes // ENTRY.size)

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction; its marker must follow those of all others."""
        last = self.entries.last
        assert last is None or last[_LAST_OFFSET] < transaction.last_offset, "transactions end one after the other"
        self.entries.append((VERSION, *transaction))

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return transactions with records in `[from_offset, to_offset)`, and whether later segments have no more."""
        found: list[AbortedTransaction] = []
        for _, producer_id, first, last, stable in self._rows(self.entries.find(from_offset - 1, _LAST_OFFSET) + 1):
            if first < to_offset:
                found.append(AbortedTransaction(producer_id, first, last, stable))
            if stable >= to_offset:
                return found, True
        return found, False

    def truncate(self, end_offset: int) -> None:
        self.entries.truncate(self.entries.find(end_offset - 1, _LAST_OFFSET) + 1)

    def is_valid(self, stored_bytes: int, base_offset: int, end_offset: int) -> bool:
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
    """Yield `(byte position, transaction)`. Raises `DamagedFileError` for another version or a truncated entry."""
    width = ENTRY.size
    end = len(data) - len(data) % width
    for byte in range(0, end, width):
        version, *fields = ENTRY.unpack_from(data, byte)
        if version != VERSION:
            raise DamagedFileError(path, byte, f"has an entry of version {version}; this release reads {VERSION}")
        yield byte, AbortedTransaction(*fields)
    if end < len(data):
        raise TruncatedFileError(path, end, f"ends with {len(data) - end} bytes of an entry that has {width}")
