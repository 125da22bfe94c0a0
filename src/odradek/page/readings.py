"""Readings of a cluster that open pages share: each is made once in an interval, however many pages show it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from itertools import takewhile
from typing import Any, Final

from odradek.model import OdradekError
from odradek.runtime import Clock

BUSY_SHARE: Final = 4
"""The pause after a reading, as a multiple of its duration, so that a large cluster is read less often."""
LONGEST_PAUSE_S: Final = 10.0
_LONGEST_WAIT_S: Final = 1.0
"""Limit of the wait for the first value of what is shown only if it is known: a broker may hang."""
_MOMENT_S: Final = 0.1
"""Limit of the wait for the next value while there is a recent one."""
_RECENT_S: Final = 20.0
"""The time in which a value is recent, and after which a key that nobody has asked for is forgotten."""
_CLOSE_S: Final = 2.0
"""The longest silence before a request that counts as its: requests may be further apart."""


def pause_s(interval_s: float, duration_s: float) -> float:
    """Return the time until the next reading, after one that took `duration_s`."""
    return max(interval_s, min(BUSY_SHARE * duration_s, LONGEST_PAUSE_S))


class _Reading:
    """The last value of a key, when it came and until when it is kept; the task of the last reading."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.value: Any = None
        self.came_s: float | None = None
        self.asked_s = self.began_s = self.kept_s = 0.0
        self.silent_since_s: float | None = None
        """The start of the silence if a value was requested and has not come."""

    async def read(self, read: Callable[[], Awaitable[Any]], interval_s: float, clock: Clock) -> Any:
        self.value = await read()
        now_s = self.came_s = clock.monotonic()
        self.silent_since_s, self.kept_s = None, now_s + (interval_s and pause_s(interval_s, now_s - self.began_s))
        return self.value


class Readings:
    """Values by key. Requests during a reading share its value or error; a value is kept for an interval afterwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_key: dict[Hashable, _Reading] = {}
        """In the order in which they were asked for."""
        self._running: set[asyncio.Task[Any]] = set()
        """Those that are not done, also forgotten ones, whose viewers still wait."""

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Any]], interval_s: float) -> Any:
        """Return the kept value of `key`, or else what `read` returns."""
        task = self._task(self._asked(key), read, interval_s)
        await asyncio.wait((task,))  # which goes on if this viewer leaves
        return task.result()

    async def known(self, key: Hashable, read: Callable[[], Awaitable[Any]], interval_s: float) -> Any:
        """Return what `get` returns; if it takes long, the last value if it is recent; otherwise None."""
        reading = self._asked(key)
        task, now_s = self._task(reading, read, interval_s), self._clock.monotonic()
        is_recent = reading.came_s is not None and now_s - reading.came_s < _RECENT_S
        wait_s = 0.0 if is_recent else reading.began_s + _LONGEST_WAIT_S - now_s
        await asyncio.wait((task,), timeout=max(wait_s, _MOMENT_S))
        if not task.done():
            return reading.value if is_recent else None
        return None if isinstance(task.exception(), OdradekError) else task.result()

    def silent_s(self, key: Hashable) -> float:
        """Return for how long a value of `key` that was requested has been missing."""
        reading = self._by_key.get(key)
        since_s = None if reading is None else reading.silent_since_s
        return 0.0 if since_s is None else self._clock.monotonic() - since_s

    def forget(self) -> None:
        """Forget all values, because the cluster has been changed."""
        self._by_key.clear()

    async def close(self) -> None:
        tasks = list(self._running)
        self.forget()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _asked(self, key: Hashable) -> _Reading:
        now_s = self._clock.monotonic()
        for old in list(takewhile(lambda each: now_s - self._by_key[each].asked_s > _RECENT_S, self._by_key)):
            del self._by_key[old]
        reading = self._by_key[key] = self._by_key.pop(key) if key in self._by_key else _Reading()
        reading.asked_s = now_s
        return reading

    def _task(self, reading: _Reading, read: Callable[[], Awaitable[Any]], interval_s: float) -> asyncio.Task[Any]:
        """Return the task of a reading: the one that runs or whose value is kept, or else a new one."""
        task, now_s = reading.task, self._clock.monotonic()
        if task is None or (task.done() and now_s >= reading.kept_s):
            if reading.silent_since_s is None:
                reading.silent_since_s = now_s if reading.came_s is None else max(reading.came_s, now_s - _CLOSE_S)
            reading.began_s = now_s
            task = reading.task = asyncio.create_task(reading.read(read, interval_s, self._clock))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # all viewers may have left
        return task
