"""The leader epochs of a log with their first offsets, which show where replicas diverge (KIP-101, KIP-279).

```
leader-epoch-checkpoint, text        0                     version
                                     2                     number of lines that follow
                                     0 0                   epoch, first offset
                                     3 1500                both rise
```
The file is valid if it parses, epochs rise and offsets do not fall. It is written when the log is flushed or closed.
Recovery adds missing epochs from the batches.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.broker.log.checkpoints.checkpoint_file import decode_lines, encode_lines, parse_number
from odradek.broker.log.errors import DamagedFileError

FILE_NAME: Final = "leader-epoch-checkpoint"
NO_EPOCH: Final = -1
NO_OFFSET: Final = -1


class EpochStart(NamedTuple):
    """The first offset that a leader of `epoch` wrote."""

    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log in order; `is_dirty` if the file is out of date.

    `latest` is the newest epoch, `recorded` the newest one with a record.
    """

    __slots__ = ("entries", "is_dirty", "latest", "recorded")

    def __init__(self, entries: Sequence[EpochStart] = ()) -> None:
        self.entries = list(entries)
        self.latest = self.recorded = self.entries[-1].epoch if self.entries else NO_EPOCH
        self.is_dirty = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that a leader of `epoch` wrote `start_offset`, unless a record of that epoch is known."""
        if epoch <= self.recorded:
            return
        self.begin(epoch, start_offset)
        self.recorded = epoch
        self.is_dirty = True

    def begin(self, epoch: int, start_offset: int) -> None:
        """Record that a leader of `epoch` begins at `start_offset`, before it has written a record."""
        if epoch <= self.latest:
            return
        while self.entries and self.entries[-1].start_offset >= start_offset:
            self.entries.pop()
        self.entries.append(EpochStart(epoch, start_offset))
        self.latest = epoch

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch` and its end offset (OffsetForLeaderEpoch).

        Returns (-1, -1) for -1 and for an epoch after the latest; for one before the first, `epoch` and the first start
        offset.
        """
        if epoch == self.latest and epoch != NO_EPOCH:
            return epoch, log_end_offset
        number = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if epoch == NO_EPOCH or number == len(self.entries):
            return NO_EPOCH, NO_OFFSET
        return (self.entries[number - 1].epoch if number else epoch), self.entries[number].start_offset

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the leader that wrote `offset`, -1 if unknown."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[number - 1].epoch if number else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        if self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries = [entry for entry in self.entries if entry.start_offset < end_offset]
            self.latest = self.recorded = self.entries[-1].epoch if self.entries else NO_EPOCH
            self.is_dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that ended at or before `start_offset`; the epoch of that offset then begins there."""
        number = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if number == 0:
            return
        first = EpochStart(self.entries[number - 1].epoch, start_offset)
        if self.entries[:number] != [first]:
            self.entries[:number] = [first]
            self.is_dirty = True

    def encode(self) -> bytes:
        return encode_lines([f"{epoch} {offset}" for epoch, offset in self.entries])

    @classmethod
    def decode(cls, data: bytes, path: str) -> "LeaderEpochs":
        """Parse a checkpoint file. Raises `DamagedFileError` if it is not valid."""
        entries: list[EpochStart] = []
        for byte, line in decode_lines(data, path):
            try:
                epoch, offset = line.split()
                start = EpochStart(parse_number(epoch, 32), parse_number(offset))
            except ValueError:
                raise DamagedFileError(path, byte, f"has a line that is not an epoch and offset: {line!r}") from None
            if entries and (start.epoch <= entries[-1].epoch or start.start_offset < entries[-1].start_offset):
                raise DamagedFileError(path, byte, f"has epochs that do not rise: {line!r} follows {entries[-1]}")
            entries.append(start)
        return cls(entries)
