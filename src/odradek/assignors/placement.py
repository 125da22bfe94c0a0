"""Lazy assignments: `LazyAssignment` builds a member's partitions at the first access, `Runs` stores them as ranges.

So an assignment of a million partitions costs little until they are read.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, overload

from odradek.model import TopicPartition


class Runs(Sequence[TopicPartition]):
    """A sequence of topic-partitions, stored as `(topic, numbers)` ranges; equals a list or tuple of the partitions."""

    __slots__ = ("_ends", "_runs")

    def __init__(self, runs: Iterable[tuple[str, range]]) -> None:
        self._runs = [run for run in runs if run[1]]
        self._ends = list(accumulate(len(numbers) for _, numbers in self._runs))

    @property
    def runs(self) -> Sequence[tuple[str, range]]:
        """The `(topic, numbers)` ranges, without empty ones."""
        return self._runs

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, numbers in self._runs:
            for number in numbers:
                yield TopicPartition(topic, number)

    @overload
    def __getitem__(self, index: int) -> TopicPartition: ...
    @overload
    def __getitem__(self, index: slice) -> list[TopicPartition]: ...
    def __getitem__(self, index: int | slice) -> TopicPartition | list[TopicPartition]:
        if isinstance(index, slice):
            return list(self)[index]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        run = bisect_right(self._ends, position)
        topic, numbers = self._runs[run]
        return TopicPartition(topic, numbers[position - self._ends[run]])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Runs) and self._runs == other._runs:
            return True
        if not isinstance(other, Runs | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class LazyAssignment(Mapping[str, Sequence[TopicPartition]]):
    """A mapping from members to partitions. `place(member)` computes its partitions at the first access."""

    def __init__(self, members: Sequence[str], place: Callable[[str], Sequence[TopicPartition]]) -> None:
        self._place = place
        self._placed: dict[str, Sequence[TopicPartition] | None] = dict.fromkeys(members)

    def __getitem__(self, member: str) -> Sequence[TopicPartition]:
        placed = self._placed[member]
        if placed is None:
            placed = self._placed[member] = self._place(member)
        return placed

    def __iter__(self) -> Iterator[str]:
        return iter(self._placed)

    def __len__(self) -> int:
        return len(self._placed)

    def __contains__(self, member: object) -> bool:
        return member in self._placed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(
            member in other and self[member] == other[member] for member in self._placed
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown: dict[str, Any] = {member: self[member] for member in self}
        return repr(shown)
