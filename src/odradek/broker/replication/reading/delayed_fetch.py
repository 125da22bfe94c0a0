"""The interface of fetches that wait for records, and the offset up to which each kind of reader reads."""

from enum import IntEnum
from typing import Protocol


class FetchIsolation(IntEnum):
    """The offset up to which followers, read_uncommitted consumers and read_committed consumers read."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class DelayedFetch(Protocol):
    """A fetch that waits for more records of a partition."""

    def advanced(self, size: int) -> None:
        """Notify the fetch that it can read `size` more bytes."""

    def interrupted(self) -> None:
        """Read again and complete: the leader or epoch has changed, or the number of new bytes is unknown."""
