"""The interface of fetches that wait for records, and the offset up to which each kind of reader reads."""

from enum import IntEnum
from typing import Protocol

from odradek.model import ErrorCode, KafkaError


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


def check_leader_epoch(clients: int, ours: int) -> None:
    """Raise FENCED_LEADER_EPOCH if the client's epoch is older, UNKNOWN_LEADER_EPOCH if newer; -1 is not checked."""
    if clients >= 0 and clients != ours:
        raise KafkaError(ErrorCode.fenced_leader_epoch if clients < ours else ErrorCode.unknown_leader_epoch)
