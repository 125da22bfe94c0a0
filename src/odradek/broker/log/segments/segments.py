"""A log's segments in the order of their offsets: at least one, the last of which is active."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import overload

from odradek.broker.log.segments.segment import Lender, Segment
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.model import Buffer


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
        return sum(segment.size for segment in self._segments)

    def find(self, offset: int) -> int:
        """Return the index of the segment with `offset`; 0 for an earlier offset."""
        bases = self.bases
        return len(bases) - 1 if offset >= bases[-1] else max(bisect_right(bases, offset) - 1, 0)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        limit: int,
        written: int,
        at_least_one: bool,
        lend: Lender | None = None,
    ) -> Buffer:
        segments = self._segments
        for number in range(self.find(offset), len(segments)):
            segment = segments[number]
            position = segment.find(offset)
            is_cut = limit < written and limit < segment.next_offset
            end = min(segment.find(limit), segment.written_size) if is_cut else segment.written_size
            if position < end:
                return segment.read(position, max_bytes, end, at_least_one=at_least_one, lend=lend)
        return b""

    def aborted_between(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        found: list[AbortedTransaction] = []
        for segment in self._segments[self.find(from_offset) :]:
            if segment.aborted is not None:
                some, is_all = segment.aborted.collect(from_offset, to_offset)
                found += some
                if is_all:
                    break
        return found

    def size_between(self, from_offset: int, to_offset: int) -> int:
        size = 0
        for segment in self._segments[self.find(from_offset) :]:
            if segment.base_offset >= to_offset:
                break
            start = segment.find(from_offset) if from_offset > segment.base_offset else 0
            size += segment.find(to_offset) - start
        return size

    def add(self, segment: Segment) -> None:
        assert segment.base_offset > self.bases[-1], "segments rise"
        self._segments.append(segment)
        self.bases = [*self.bases, segment.base_offset]
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
        for segment in self._segments:
            segment.close()
