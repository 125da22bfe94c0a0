"""`.index`: where in a segment to look for an offset.

```
entry, 8 bytes    relative offset uint32 | position uint32          big-endian, both rise
```
The relative offset is that of a batch's last record less the segment's base offset; the position is where that batch
begins. There is an entry for about every `index.interval.bytes` of log, none for the first batch. The file is valid if
its size is a multiple of 8 and the last position is inside the segment, and not 0, of which a crash may leave many;
whether an entry is true is seen when it is used (`index_rebuild`).
"""

import struct
from typing import Final

from odradek.log.segments.index_file import IndexFile, Pair
from odradek.log.segments.open_files import PooledFile

ENTRY: Final = struct.Struct(">II")


class OffsetIndex:
    """The sparse index of one segment; in absolute offsets. Raises `OSError` when its file cannot be read."""

    __slots__ = ("_base_offset", "entries", "limit")

    def __init__(self, file: PooledFile, base_offset: int, *, max_bytes: int, stored_bytes: int = 0) -> None:
        self.entries: IndexFile[Pair] = IndexFile(file, ENTRY, stored=stored_bytes // ENTRY.size)
        self.limit = max_bytes // ENTRY.size
        self._base_offset = base_offset

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll, as `segment.index.bytes` allows no more."""
        return len(self.entries) >= self.limit

    def append(self, last_offset: int, position: int) -> None:
        """Note the batch that begins at `position`; ignored if the index is full."""
        if not self.is_full:
            self.entries.append((last_offset - self._base_offset, position))

    def position_below(self, offset: int) -> int:
        """The beginning of a batch that is not after `offset`; the last one that is known."""
        number = self.entries.find(offset - self._base_offset, 0)
        return self.entries[number][1] if number >= 0 else 0

    def position_before(self, offset: int, *, entries: int) -> int:
        """The beginning of a batch so many entries earlier than `position_below` would say, or of the first one."""
        number = self.entries.find(offset - self._base_offset, 0) - entries
        return self.entries[number][1] if number >= 0 else 0

    def truncate(self, size: int) -> None:
        """Forget batches that begin at `size` or later."""
        self.entries.truncate(self.entries.find(size - 1, 1) + 1)

    def is_valid(self, stored_bytes: int, segment_bytes: int) -> bool:
        """Whether the file may be believed; see the module."""
        last = self.entries.last
        return stored_bytes % ENTRY.size == 0 and (last is None or 0 < last[1] < segment_bytes)
