"""`.timeindex`: offsets in a segment by timestamp.

```
entry, 12 bytes    timestamp int64, ms | relative offset uint32     big-endian, both rise
```
Up to the offset, which is that of the last record of the batch with the timestamp, no record is later. An entry is
written with one of the offset index if the largest timestamp has grown, and one more when the segment is rolled or
closed. The file is valid if its size is a multiple of 12 and the last relative offset is inside the segment, and not
the last of several that is zero. Entries are checked when they are used (`index_rebuild`).
"""

import struct
from typing import Final

from odradek.log.segments.index_file import IndexFile, Pair
from odradek.log.segments.open_files import PooledFile

ENTRY: Final = struct.Struct(">qI")
NO_TIMESTAMP: Final = -1


class TimeIndex:
    """The sparse time index of one segment, with absolute offsets. Methods that read raise `OSError`."""

    __slots__ = ("_base_offset", "entries", "limit")

    def __init__(self, file: PooledFile, base_offset: int, *, max_bytes: int, stored_bytes: int = 0) -> None:
        self.entries: IndexFile[Pair] = IndexFile(file, ENTRY, stored=stored_bytes // ENTRY.size)
        self.limit = max_bytes // ENTRY.size
        self._base_offset = base_offset

    @property
    def is_full(self) -> bool:
        """Whether the segment must roll. The last slot is kept for the entry that is written at the roll."""
        return len(self.entries) >= self.limit - 1

    @property
    def last_timestamp(self) -> int:
        """The largest known timestamp, -1 if there is none."""
        last = self.entries.last
        return last[0] if last else NO_TIMESTAMP

    def append(self, timestamp: int, offset: int, *, at_end: bool = False) -> None:
        """Add the largest timestamp so far, if it is new and there is room."""
        if timestamp > self.last_timestamp and (at_end or not self.is_full):
            self.entries.append((timestamp, offset - self._base_offset))

    def last_entry(self) -> tuple[int, int]:
        """Return the largest known timestamp and its offset; -1 and the base offset if there is none."""
        last = self.entries.last
        return (last[0], self._base_offset + last[1]) if last else (NO_TIMESTAMP, self._base_offset)

    def entry_below(self, timestamp: int) -> tuple[int, int]:
        """Return the last earlier entry, `(timestamp, offset)`: no record before has `timestamp`."""
        number = self.entries.find(timestamp - 1, 0)
        if number < 0:
            return NO_TIMESTAMP, self._base_offset
        found, relative = self.entries[number]
        return found, self._base_offset + relative

    def truncate(self, end_offset: int) -> None:
        """Remove offsets from `end_offset` on."""
        self.entries.truncate(self.entries.find(end_offset - 1 - self._base_offset, 1) + 1)

    def is_valid(self, stored_bytes: int, end_offset: int) -> bool:
        """Return whether the file is valid, as the module says."""
        last = self.entries.last
        return stored_bytes % ENTRY.size == 0 and (
            last is None or (self._base_offset + last[1] < end_offset and (any(last) or len(self.entries) == 1))
        )
