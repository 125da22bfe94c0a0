"""Logs that are shorter than the checkpoints of their data directory say, and logs whose folders are gone.

A log is synced up to its recovery point, and records below the high watermark were acknowledged: a log that ends before
either, or is not there, has lost records. A replica like that would cut the good copies if it led.

```
loaded: the log is too short ──► not opened ──► another replica leads and this one is out of the ISR: it follows
                                    │
                                    └─────────► an operator accepts the loss: the log is used as it is
```
The checkpoints keep what they say of such a log until then, so that the next start finds the same.
"""

from collections.abc import Iterator

from odradek.log.errors import LogStorageError
from odradek.log.names import parent_of
from odradek.model import TopicPartition
from odradek.model.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """What one log lacks. `end_offset` is where it ends, None if there is no folder."""

    partition: TopicPartition
    folder: str
    end_offset: int | None
    recovery_point: int
    high_watermark: int

    @property
    def expected_offset(self) -> int:
        """Where the log ended at least, by the checkpoints."""
        return max(self.recovery_point, self.high_watermark)

    @property
    def is_synced_data(self) -> bool:
        """Whether a power cut cannot explain the loss."""
        return self.end_offset is None or self.end_offset < self.recovery_point

    def __str__(self) -> str:
        found = "is gone" if self.end_offset is None else f"ends at offset {self.end_offset}"
        return (
            f"{self.folder} {found}, and its checkpoints have the recovery point {self.recovery_point} and the high "
            f"watermark {self.high_watermark}: records before offset {self.expected_offset} are lost"
        )


class Shortfalls:
    """The unsettled ones of one broker."""

    def __init__(self) -> None:
        self._found: dict[TopicPartition, Shortfall] = {}
        self._advice: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Shortfall]:
        return iter(tuple(self._found.values()))

    def add(self, found: Shortfall) -> None:
        """Remember a shortfall, which another directory's checkpoint may know of, too."""
        known = self._found.get(found.partition)
        if known is None or known.expected_offset < found.expected_offset:
            self._found[found.partition] = found

    def advise(self, partition: TopicPartition, advice: str) -> None:
        """Set what the error says that an operator can do."""
        self._advice[partition] = advice

    def settle(self, partition: TopicPartition) -> bool:
        """Forget a shortfall; return whether there was one."""
        self._advice.pop(partition, None)
        return self._found.pop(partition, None) is not None

    def check(self, partition: TopicPartition) -> None:
        """Raise `LogStorageError` if the log may not be used."""
        found = self._found.get(partition)
        if found is not None:
            advice = self._advice.get(partition)
            raise LogStorageError(f"{found}{f'; {advice}' if advice else ''}")

    def in_directory(self, directory: str) -> list[Shortfall]:
        """Return the shortfalls of logs in one data directory."""
        return [each for each in self._found.values() if parent_of(each.folder) == directory]
