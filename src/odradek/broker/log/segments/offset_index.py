"""`.index` files: positions in a segment by offset.

```
entry, 8 bytes    relative offset uint32 | position uint32          big-endian, both rise
```
The relative offset is a batch's last offset less the base offset, the position is that batch's. There is an entry about
every `index.interval.bytes`, none for the first batch. The file is valid if its size is a multiple of 8 and the last
position is inside the segment and not 0 (a crash may leave zeros). Entries are checked when used (`Segment`).
"""

import struct
from typing import Final

from odradek.broker.log.segments.index_file import IndexFile, Pair
from odradek.broker.log.segments.open_files import PooledFile

ENTRY: Final = struct.Struct(">II")
MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class OffsetIndex:
    """The sparse offset index of one segment; methods take absolute offsets. Those that read raise `OSError`."""

    __slots__ = ("_base_offset", "entries", "limit")

    def __init__(self, file: PooledFile, base_offset: int, *, max_bytes: int, stored_bytes: int = 0) -> None:
        self.entries: IndexFile[Pair] = IndexFile(file, ENTRY, stored=stored_bytes // ENTRY.size)
        self.limit = max_bytes // ENTRY.size
        self._base_offset = base_offset

    @property
    def is_full(self) -> bool:
        """Whether `segment.index.bytes` is reached, so that the segment must roll."""
        return len(self.entries) >= self.limit

    def append(self, last_offset: int, position: int) -> None:
        """Index the batch at `position`, unless the index is full."""
        if not self.is_full:
            self.entries.append((last_offset - self._base_offset, position))

    def position_below(self, offset: int) -> int:
        """Return the position of the last indexed batch whose last offset is at most `offset`, or 0."""
        number = self.entries.find(offset - self._base_offset, 0)
        return self.entries[number][1] if number >= 0 else 0

    def position_before(self, offset: int, *, entries: int) -> int:
        number = self.entries.find(offset - self._base_offset, 0) - entries
        return self.entries[number][1] if number >= 0 else 0

    def truncate(self, size: int) -> None:
        self.entries.truncate(self.entries.find(size - 1, 1) + 1)

    def is_valid(self, stored_bytes: int, segment_bytes: int) -> bool:
        last = self.entries.last
        return stored_bytes % ENTRY.size == 0 and (last is None or 0 < last[1] < segment_bytes)
