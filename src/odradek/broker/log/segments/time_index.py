"""`.timeindex` files: offsets in a segment by timestamp.

```
entry, 12 bytes    timestamp int64, ms | relative offset uint32     big-endian, both rise
```
The timestamp is the largest so far, the offset the last one of the batch that has it, less the base offset. An entry is
added with an offset index entry if the timestamp has grown, and when the segment is rolled or closed. The file is valid
if its size is a multiple of 12, the last relative offset is inside the segment, and the last of several entries is not
all zeros. Entries are checked when they are used (`Segment.rebuild_indexes`).
"""

import struct
from typing import Final

from odradek.broker.log.segments.index_file import IndexFile, Pair
from odradek.broker.log.segments.open_files import PooledFile

ENTRY: Final = struct.Struct(">qI")
NO_TIMESTAMP: Final = -1


class TimeIndex:
    """The sparse time index of one segment; methods use absolute offsets. Those that read raise `OSError`."""

    __slots__ = ("_base_offset", "entries", "limit")

    def __init__(self, file: PooledFile, base_offset: int, *, max_bytes: int, stored_bytes: int = 0) -> None:
        self.entries: IndexFile[Pair] = IndexFile(file, ENTRY, stored=stored_bytes // ENTRY.size)
        self.limit = max_bytes // ENTRY.size
        self._base_offset = base_offset

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll; the last slot is reserved for the entry added at the roll."""
        return len(self.entries) >= self.limit - 1

    @property
    def last_timestamp(self) -> int:
        last = self.entries.last
        return last[0] if last else NO_TIMESTAMP

    def append(self, timestamp: int, offset: int, *, at_end: bool = False) -> None:
        """Add the largest timestamp so far, if it has grown and there is room; `at_end` uses the reserved slot."""
        if timestamp > self.last_timestamp and (at_end or not self.is_full):
            self.entries.append((timestamp, offset - self._base_offset))

    def last_entry(self) -> tuple[int, int]:
        """Return the largest known timestamp and its offset; -1 and the base offset without entries."""
        last = self.entries.last
        return (last[0], self._base_offset + last[1]) if last else (NO_TIMESTAMP, self._base_offset)

    def entry_below(self, timestamp: int) -> tuple[int, int]:
        """Return `(timestamp, offset)` of the last entry before `timestamp`, -1 and the base offset without one."""
        number = self.entries.find(timestamp - 1, 0)
        if number < 0:
            return NO_TIMESTAMP, self._base_offset
        found, relative = self.entries[number]
        return found, self._base_offset + relative

    def truncate(self, end_offset: int) -> None:
        self.entries.truncate(self.entries.find(end_offset - 1 - self._base_offset, 1) + 1)

    def is_valid(self, stored_bytes: int, end_offset: int) -> bool:
        last = self.entries.last
        return stored_bytes % ENTRY.size == 0 and (
            last is None or (self._base_offset + last[1] < end_offset and (any(last) or len(self.entries) == 1))
        )
