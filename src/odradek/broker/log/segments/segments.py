"""A log's segments in the order of their offsets: at least one, the last of which is active."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import overload

from odradek.broker.log.segments.segment import Segment


class Segments(Sequence[Segment]):
    """The segments of one log: `active` is the last one, `bases` has the base offsets. Methods change no file."""

    __slots__ = ("_segments", "active", "bases")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._changed()

    def _changed(self) -> None:
        assert self._segments, "a log has at least one segment"
        self.bases = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, number: int) -> Segment: ...

    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...

    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._segments[number]

    @property
    def size(self) -> int:
        """The bytes of all batches, including pending ones."""
        return sum(segment.size for segment in self._segments)

    def find(self, offset: int) -> int:
        """Return the index of the segment with `offset`; 0 for an earlier offset."""
        bases = self.bases
        return len(bases) - 1 if offset >= bases[-1] else max(bisect_right(bases, offset) - 1, 0)

    def add(self, segment: Segment) -> None:
        """Add `segment` as the active one."""
        assert segment.base_offset > self.bases[-1], "segments rise"
        self._segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def drop_first(self, count: int) -> list[Segment]:
        """Remove and return the first `count` segments; at least one must remain."""
        return self.replace(0, count, ())

    def drop_from(self, offset: int) -> list[Segment]:
        """Remove and return the segments that begin at `offset` or later, except the first one."""
        first = len(self.bases)
        while first > 1 and self.bases[first - 1] >= offset:
            first -= 1
        return self.replace(first, len(self.bases) - first, ())

    def replace(self, first: int, count: int, by: Sequence[Segment]) -> list[Segment]:
        """Replace `count` segments from index `first` on by `by`; return the old ones."""
        old = self._segments[first : first + count]
        self._segments[first : first + count] = by
        self._changed()
        return old

    def close(self) -> None:
        """Close all files; the next use opens them again."""
        for segment in self._segments:
            segment.close()
