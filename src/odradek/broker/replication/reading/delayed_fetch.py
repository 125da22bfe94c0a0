"""Fetches that wait for records of a partition, and the offset that each kind of reader reads up to."""

from enum import IntEnum
from typing import Protocol


class FetchIsolation(IntEnum):
    """The end of what a reader reads: followers, consumers, consumers of committed transactions."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2


class DelayedFetch(Protocol):
    """A fetch that waits for more records of a partition."""

    def advanced(self, size: int) -> None:
        """Tell the fetch that it may read `size` more bytes."""

    def interrupted(self) -> None:
        """Tell the fetch to read again and complete: the leader or epoch changed, or a size could not be computed."""
