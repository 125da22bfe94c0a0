"""Maps offsets of a mirror's source to offsets of its target, to translate committed offsets.

Each batch adds, for each partition, the source range that it read and the range by which the target's log grew. If both
are equally long, offsets translate one to one. If not (compaction and transactions leave gaps in the source, a repeated
batch writes twice), an offset inside of the range translates to the start of the target range: a group reads some
records again and skips none. As in MirrorMaker (KIP-545), only the mirror may write to the target's topics.

    CHECKPOINT/odradek_offset_syncs    {"topic": {"0": [[source start, source end, target start, target end], …]}}
"""

import json
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

from odradek.model import StorageError, TopicPartition
from odradek.runtime import Disk

FILE: Final = "odradek_offset_syncs"
MOST_RANGES: Final = 1000
"""Ranges per partition; older ones are dropped. Adjacent ranges that are both one to one are merged."""

_Range = tuple[int, int, int, int]


class OffsetSyncs:
    """The source and target ranges of all partitions. Pure, except `load` and `save`."""

    def __init__(self) -> None:
        self._ranges: dict[TopicPartition, list[_Range]] = {}

    def add(self, partition: TopicPartition, source: tuple[int, int], target: tuple[int, int]) -> None:
        """Add a batch: the range of source offsets that it read, and the range of target offsets that it wrote."""
        if source[0] >= source[1]:
            return
        ranges = self._ranges.setdefault(partition, [])
        added: _Range = (*source, *target)
        if ranges and _continues(ranges[-1], added):
            added = (ranges[-1][0], added[1], ranges[-1][2], added[3])
            ranges.pop()
        # A range that begins before the last one's end is a batch written again, or of a topic created again.
        while ranges and ranges[-1][0] >= added[0]:
            ranges.pop()
        if ranges and ranges[-1][1] > added[0]:
            ranges[-1] = _cut(ranges[-1], added[0])
        ranges.append(added)
        del ranges[:-MOST_RANGES]

    def translate(self, partition: TopicPartition, offset: int) -> int | None:
        """Return the target's offset for a committed offset; None if no known range begins at or before it.

        An offset after a range, such as one that is not mirrored yet, translates to the end of that range.
        """
        ranges = self._ranges.get(partition, [])
        index = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
        if index < 0:
            return None
        source_start, source_end, target_start, target_end = ranges[index]
        if offset >= source_end:
            return target_end
        if _is_one_to_one(ranges[index]):
            return target_start + offset - source_start
        return target_start

    def save(self, disk: Disk, checkpoint: str) -> None:
        """Write the file of a checkpoint. Raise `OSError`."""
        encoded: dict[str, dict[str, list[_Range]]] = {}
        for partition, ranges in sorted(self._ranges.items()):
            encoded.setdefault(partition.topic, {})[str(partition.partition)] = ranges
        disk.replace_file(f"{checkpoint}/{FILE}", json.dumps(encoded).encode())

    @classmethod
    def load(cls, disk: Disk, checkpoint: str) -> "OffsetSyncs":
        """Read the file of a checkpoint; without a file there are no ranges. Raise `StorageError` if it is damaged."""
        syncs, path = cls(), f"{checkpoint}/{FILE}"
        if not disk.exists(path):
            return syncs
        try:
            encoded: Mapping[str, Mapping[str, list[list[int]]]] = json.loads(disk.read_file(path))
            for topic, partitions in encoded.items():
                for number, ranges in partitions.items():
                    found = [(start, end, to_start, to_end) for start, end, to_start, to_end in ranges]
                    syncs._ranges[TopicPartition(topic, int(number))] = found
        except (AttributeError, TypeError, ValueError):
            raise StorageError(
                f"{path} is damaged: remove it, and groups are translated from the next batch on"
            ) from None
        return syncs


def _is_one_to_one(each: _Range) -> bool:
    return each[1] - each[0] == each[3] - each[2]


def _cut(last: _Range, source_end: int) -> _Range:
    """Return the part of `last` before `source_end`, with an empty target range if `last` is not one to one."""
    kept = source_end - last[0] if _is_one_to_one(last) else 0
    return (last[0], source_end, last[2], last[2] + kept)


def _continues(last: _Range, added: _Range) -> bool:
    """Return whether both ranges are one to one, and `added` begins where `last` ends, at source and target."""
    return last[1] == added[0] and last[3] == added[2] and _is_one_to_one(last) and _is_one_to_one(added)
