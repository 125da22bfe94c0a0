"""A file of sorted rows of numbers, the base of a segment's three indexes.

New rows stay in memory until they fill a page; searches read only parts of the file.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final, Generic, TypeVar, cast

from odradek.broker.log.segments.open_files import PooledFile
from odradek.runtime import Disk

Pair = tuple[int, int]
Row = TypeVar("Row", bound=tuple[int, ...])

PAGE_ENTRIES: Final = 512
_COLUMNS: Final = tuple(map(itemgetter, range(5)))


class IndexFile(Generic[Row]):
    """Rows of numbers that never decrease in the searched columns: `stored` rows in `file`, the others in memory.

    Methods that use the file raise `OSError`.
    """

    __slots__ = ("_is_torn", "_last", "_layout", "_stored", "_tail", "file")

    def __init__(self, file: PooledFile, layout: struct.Struct, *, stored: int = 0) -> None:
        self.file = file
        self._layout = layout
        self._stored = stored
        self._tail: list[Row] = []
        self._last: Row | None = None
        self._is_torn = False

    def __len__(self) -> int:
        return self._stored + len(self._tail)

    def __getitem__(self, number: int) -> Row:
        if number >= self._stored:
            return self._tail[number - self._stored]
        return self._page(number, 1)[0]

    @property
    def last(self) -> Row | None:
        if self._last is None and len(self):
            self._last = self[len(self) - 1]
        return self._last

    @property
    def has_full_page(self) -> bool:
        return len(self._tail) >= PAGE_ENTRIES

    def is_sorted(self) -> bool:
        """Return whether the first column rises and the second never falls; reads the whole file."""
        rows = [*self._page(0, self._stored), *self._tail]
        return all(first[0] < second[0] and first[1] <= second[1] for first, second in pairwise(rows))

    def append(self, row: Row) -> None:
        """Add a row, in memory only."""
        self._tail.append(row)
        self._last = row

    def rows(self, first: int, count: int) -> list[Row]:
        """Return up to `count` rows from row `first` on; empty only at the end."""
        if first >= self._stored:
            return self._tail[first - self._stored : first - self._stored + count]
        return self._page(first, min(count, self._stored - first))

    def find(self, value: int, column: int) -> int:
        """Return the index of the last row whose `column` is at most `value`, or -1."""
        key = _COLUMNS[column]
        if self._tail and self._tail[0][column] <= value:
            return self._stored + bisect_right(self._tail, value, key=key) - 1
        low, high = 0, self._stored
        while high - low > PAGE_ENTRIES:
            middle = (low + high) // 2
            if self[middle][column] <= value:
                low = middle
            else:
                high = middle
        return low + bisect_right(self._page(low, high - low), value, key=key) - 1

    def clear(self) -> None:
        """Remove all rows; `rewrite` or `replace` then changes the file."""
        self._stored = 0
        self._tail.clear()
        self._last = None

    def truncate(self, count: int) -> None:
        if count < self._stored:
            self.file.truncate(count * self._layout.size)
            self._stored = count
            self._tail.clear()
        else:
            del self._tail[count - self._stored :]
        self._last = None

    def flush(self) -> None:
        """Write the rows in memory without syncing; create a missing file."""
        if self._is_torn:
            self.file.truncate(self._stored * self._layout.size)
        self._is_torn = True
        self.file.append([self._packed()])
        self._is_torn = False
        self._stored += len(self._tail)
        self._tail.clear()

    def rewrite(self) -> None:
        """Make the next `flush` replace the file's content; flush now if a page is full."""
        assert not self._stored, "a part of the index would be lost"
        self._is_torn = True
        if len(self._tail) >= PAGE_ENTRIES:
            self.flush()

    def correct(self, rows: Sequence[Row], *, column: int, end: int) -> bool:
        """Replace stored rows, and rows in memory whose `column` is below `end`, by `rows`; return whether any differs.

        The next `flush` writes them.
        """
        beyond = [row for row in self._tail if row[column] >= end]
        if [*self._page(0, self._stored), *self._tail] == [*rows, *beyond]:
            return False
        self._stored, self._tail, self._last = 0, [*rows, *beyond], None
        self._is_torn = True
        return True

    def replace(self, disk: Disk) -> None:
        """Replace the file by the rows in memory, atomically and synced."""
        assert not self._stored, "a part of the index would be lost"
        self.file.close()
        disk.replace_file(self.file.path, self._packed())
        self._stored = len(self._tail)
        self._tail.clear()
        self._is_torn = False

    def _packed(self) -> bytes:
        return b"".join([self._layout.pack(*row) for row in self._tail])

    def _page(self, first: int, count: int) -> list[Row]:
        if not count:
            return []
        width = self._layout.size
        data = self.file.read(first * width, count * width)
        return cast("list[Row]", list(self._layout.iter_unpack(data[: len(data) // width * width])))
