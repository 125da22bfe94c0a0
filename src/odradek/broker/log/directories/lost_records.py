"""Logs with lost records: they end before the recovery point or high watermark in their checkpoints.

If such a replica led, its followers would truncate good copies.

```
loaded: the log is too short ──► not used ──► another replica leads, this one is out of the ISR: it follows
                                    │
                                    └───────► an operator accepts the loss: the log is used
```
Until then the checkpoints keep their values, so that the next start finds the loss again.
"""

from collections.abc import Iterator

from msgspec import Struct

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.names import parent_of
from odradek.model import TopicPartition


class LostRecords(Struct, frozen=True, kw_only=True):
    """The lost records of one log; `end_offset` is None if its folder is missing."""

    partition: TopicPartition
    folder: str
    end_offset: int | None
    recovery_point: int
    high_watermark: int

    @property
    def expected_offset(self) -> int:
        """The log end offset that the checkpoints require at least."""
        return max(self.recovery_point, self.high_watermark)

    @property
    def is_synced_data(self) -> bool:
        """Whether synced records are lost, which no power failure explains."""
        return self.end_offset is None or self.end_offset < self.recovery_point

    def __str__(self) -> str:
        found = "is gone" if self.end_offset is None else f"ends at offset {self.end_offset}"
        return (
            f"{self.folder} {found}, and its checkpoints have the recovery point {self.recovery_point} and the high "
            f"watermark {self.high_watermark}: records before offset {self.expected_offset} are lost"
        )


class LogsWithLostRecords:
    """The logs of one broker with lost records, until the loss is accepted."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, LostRecords] = {}
        self._advice: dict[TopicPartition, str] = {}

    def clear(self) -> None:
        self._found.clear()
        self._advice.clear()

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[LostRecords]:
        return iter(tuple(self._found.values()))

    def add(self, found: LostRecords) -> None:
        """Add lost records; of two for one partition, keep those with the higher expected offset."""
        known = self._found.get(found.partition)
        if known is None or known.expected_offset < found.expected_offset:
            self._found[found.partition] = found

    def advise(self, partition: TopicPartition, advice: str) -> None:
        """Set the advice to operators in the error of `check`."""
        self._advice[partition] = advice

    def remove(self, partition: TopicPartition) -> bool:
        """Remove the partition; return whether it had lost records."""
        self._advice.pop(partition, None)
        return self._found.pop(partition, None) is not None

    def check(self, partition: TopicPartition) -> None:
        """Raise `LogStorageError` if the partition's log has lost records."""
        found = self._found.get(partition)
        if found is not None:
            advice = self._advice.get(partition)
            raise LogStorageError(f"{found}{f'; {advice}' if advice else ''}")

    def in_directory(self, directory: str) -> list[LostRecords]:
        return [each for each in self._found.values() if parent_of(each.folder) == directory]
