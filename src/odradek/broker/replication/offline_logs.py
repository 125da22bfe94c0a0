"""Replicas whose logs cannot be used, with the reasons.

A log that is damaged, or was stopped by an error, stays offline until the broker restarts. While there is no disk space
or no file descriptor for a log, opening it is tried every `RETRY_S`; the controller is notified of success.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from odradek.broker.log.errors import LogStorageError
from odradek.model import StorageError, TopicPartition

RETRY_S: Final = 5.0


class OfflineLogs:
    """The offline logs of one broker. `try_again` is called on the event loop with the partitions to open again."""

    def __init__(self, *, try_again: Callable[[Sequence[TopicPartition]], None]) -> None:
        self._try_again = try_again
        self._errors: dict[TopicPartition, StorageError] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._has_stopped = False

    def __len__(self) -> int:
        return len(self._errors)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._errors)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._errors

    def get(self, key: TopicPartition) -> StorageError | None:
        """Return why a log cannot be used, None if it is not offline."""
        return self._errors.get(key)

    def add(self, key: TopicPartition, error: StorageError) -> bool:
        """Add a log, and return whether its error is new."""
        before, self._errors[key] = self._errors.get(key), error
        if _is_passing(error) and self._timer is None and not self._has_stopped:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._try)
        return str(before) != str(error)

    def drop(self, key: TopicPartition) -> bool:
        """Remove a log, and return whether it was offline."""
        return self._errors.pop(key, None) is not None

    def stop(self) -> None:
        """Stop opening logs again."""
        self._has_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        self._timer = None
        self._try_again([key for key, error in self._errors.items() if _is_passing(error)])


def _is_passing(error: StorageError) -> bool:
    return isinstance(error, LogStorageError) and error.is_passing
