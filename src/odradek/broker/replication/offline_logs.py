"""Replicas whose logs can't be used, and why.

A log that is damaged, or has stopped, is left alone until the broker starts again. One for which there was no room on
the disk, or no descriptor, is tried again: nobody has to come when there is some.

```
            no room                                   there is room
   begin ─────────────► offline, tried every RETRY_S ───────────────► led or followed; the controller is told
```
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from odradek.log.errors import LogStorageError
from odradek.model import StorageError, TopicPartition

RETRY_S: Final = 5.0


class OfflineLogs:
    """One broker's; `try_again` is called on the event loop with those that may be better by now."""

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
        """Why a log can't be used."""
        return self._errors.get(key)

    def add(self, key: TopicPartition, error: StorageError) -> bool:
        """A log can't be used; whether that is news."""
        before, self._errors[key] = self._errors.get(key), error
        if _is_passing(error) and self._timer is None and not self._has_stopped:
            self._timer = asyncio.get_running_loop().call_later(RETRY_S, self._try)
        return str(before) != str(error)

    def drop(self, key: TopicPartition) -> bool:
        """A log can be used, or is not wanted any more; whether it could not."""
        return self._errors.pop(key, None) is not None

    def stop(self) -> None:
        """Try none any more."""
        self._has_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _try(self) -> None:
        self._timer = None
        self._try_again([key for key, error in self._errors.items() if _is_passing(error)])


def _is_passing(error: StorageError) -> bool:
    return isinstance(error, LogStorageError) and error.is_passing
