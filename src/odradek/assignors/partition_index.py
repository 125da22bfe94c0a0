"""Numbers topic-partitions for NumPy arrays: 0 … count - 1, in the order of topic names.

`PartitionIndex` converts topic-partitions to numbers; `IndexedPartitions` is an array of numbers, read as partitions.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import overload

import numpy as np
from numpy.typing import NDArray

from odradek.assignors.placement import Runs
from odradek.model import TopicPartition

Numbers = NDArray[np.int64]
_FIRST, _SECOND = itemgetter(0), itemgetter(1)


class PartitionIndex:
    """Numbers the partitions of all topics; `topics` is sorted, `starts` has the number of each topic's partition 0."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.topics = sorted(topic for topic, count in partitions.items() if count > 0)
        self.counts: Numbers = np.fromiter((partitions[topic] for topic in self.topics), np.int64, len(self.topics))
        self.ends: Numbers = np.cumsum(self.counts)
        self.starts: Numbers = self.ends - self.counts
        self.number_of_topic = {topic: number for number, topic in enumerate(self.topics)}

    @property
    def count(self) -> int:
        """Return the number of partitions of all topics."""
        return int(self.ends[-1]) if self.topics else 0

    def numbers_of(self, sequences: Sequence[Sequence[tuple[str, int]]]) -> tuple[Numbers, Numbers]:
        """Return the numbers of the existing partitions in `sequences`, and for each the position of its sequence."""
        found: list[Numbers] = []
        positions: list[Numbers] = []
        plain: list[int] = []
        for position, sequence in enumerate(sequences):
            if isinstance(sequence, IndexedPartitions | Runs):
                found.append(self._numbers_of_compact(sequence))
                positions.append(np.full(len(found[-1]), position, np.int64))
            else:
                plain.append(position)
        lengths = [len(sequences[position]) for position in plain]
        numbers, exists = self._numbers_of_tuples(
            chain.from_iterable(sequences[position] for position in plain), sum(lengths)
        )
        found.append(numbers)
        positions.append(np.repeat(np.array(plain, np.int64), lengths)[exists])
        return np.concatenate(found), np.concatenate(positions)

    def _numbers_of_tuples(self, tuples: Iterable[tuple[str, int]], count: int) -> tuple[Numbers, NDArray[np.bool_]]:
        pairs = list(tuples)
        topics = np.fromiter(map(self.number_of_topic.get, map(_FIRST, pairs), repeat(-1)), np.int64, count)
        return self._existing(topics, np.fromiter(map(_SECOND, pairs), np.int64, count))

    def _existing(self, topics: Numbers, partitions: Numbers) -> tuple[Numbers, NDArray[np.bool_]]:
        """Return the numbers of the existing pairs, and a mask of these pairs; `topics` are numbers, -1 if unknown."""
        if not self.topics:
            return np.zeros(0, np.int64), np.zeros(len(topics), np.bool_)
        exists = (topics >= 0) & (partitions >= 0) & (partitions < self.counts[topics])
        return self.starts[topics[exists]] + partitions[exists], exists

    def _numbers_of_compact(self, sequence: "IndexedPartitions | Runs") -> Numbers:
        if isinstance(sequence, Runs):
            topics = [self.number_of_topic.get(topic, -1) for topic, _ in sequence.runs]
            lengths = [len(numbers) for _, numbers in sequence.runs]
            parts = [np.asarray(numbers, np.int64) for _, numbers in sequence.runs]
            partitions = np.concatenate(parts) if parts else np.zeros(0, np.int64)
            return self._existing(np.repeat(np.array(topics, np.int64), lengths), partitions)[0]
        other = sequence.partition_index
        if other is self or (other.topics == self.topics and np.array_equal(other.counts, self.counts)):
            return sequence.numbers
        topics_there = np.searchsorted(other.ends, sequence.numbers, side="right")
        renumbered = np.fromiter((self.number_of_topic.get(topic, -1) for topic in other.topics), np.int64)
        return self._existing(renumbered[topics_there], sequence.numbers - other.starts[topics_there])[0]


class IndexedPartitions(Sequence[TopicPartition]):
    """A sequence of topic-partitions, stored as sorted numbers; equals a list or tuple of the same partitions."""

    __slots__ = ("numbers", "partition_index")

    def __init__(self, partition_index: PartitionIndex, numbers: Numbers) -> None:
        self.partition_index = partition_index
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[TopicPartition]:
        topics = np.searchsorted(self.partition_index.ends, self.numbers, side="right")
        names = map(self.partition_index.topics.__getitem__, topics.tolist())
        return map(TopicPartition, names, (self.numbers - self.partition_index.starts[topics]).tolist())

    @overload
    def __getitem__(self, index: int) -> TopicPartition: ...
    @overload
    def __getitem__(self, index: slice) -> list[TopicPartition]: ...
    def __getitem__(self, index: int | slice) -> TopicPartition | list[TopicPartition]:
        if isinstance(index, slice):
            return list(self)[index]
        number = int(self.numbers[index])
        topic = bisect_right(self.partition_index.ends, number)
        return TopicPartition(self.partition_index.topics[topic], number - int(self.partition_index.starts[topic]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexedPartitions | Runs | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))
