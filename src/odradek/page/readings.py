"""Readings of a cluster that open pages share: each is made once in an interval, however many pages show it."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, Final

BUSY_SHARE: Final = 4
"""The pause after a reading, as a multiple of its duration, so that a large cluster is read less often."""
LONGEST_PAUSE_S: Final = 10.0
_MOMENT_S: Final = 0.1
_RECENT_S: Final = 20.0


def pause_s(interval_s: float, duration_s: float) -> float:
    """Return the time until the next reading, after one that took `duration_s`."""
    return max(interval_s, min(BUSY_SHARE * duration_s, LONGEST_PAUSE_S))


class Readings:
    """Values by key. Requests during a reading share its value or error; a value is kept for an interval afterwards."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}
        self._recent: dict[Hashable, tuple[Any]] = {}
        """Values of the last `_RECENT_S` by key, for those without patience."""
        self._running: set[asyncio.Task[Any]] = set()
        """Those that are not done, also forgotten ones, whose viewers still wait."""

    async def get(
        self, key: Hashable, read: Callable[[], Awaitable[Any]], interval_s: float, *, patient: bool = True
    ) -> Any:
        """Return the kept value of `key`, or else what `read` returns.

        Without `patient`, return the last value if `read` takes longer than a moment, as while a broker hangs.
        """
        task, known = self.start(key, read, interval_s), None if patient else self._recent.get(key)
        await asyncio.wait((task,), timeout=None if known is None else _MOMENT_S)
        if known is not None and not task.done():
            return known[0]
        value = task.result()
        if not patient and (known is None or known[0] is not value):
            self._recent[key] = made = (value,)
            asyncio.get_running_loop().call_later(_RECENT_S, self._drop_recent, key, made)
        return value

    def start(self, key: Hashable, read: Callable[[], Awaitable[Any]], interval_s: float) -> asyncio.Task[Any]:
        """Return the task of a reading: the one that runs or is kept, or else a new one."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(self._read(key, read, interval_s))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # all viewers may have left
        return task

    def forget(self) -> None:
        """Forget all values, because the cluster has been changed."""
        self._tasks.clear()
        self._recent.clear()

    async def close(self) -> None:
        """Cancel the running readings."""
        tasks = list(self._running)
        self.forget()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[Any]], interval_s: float) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        drop = partial(self._drop, key, task)
        began_s, kept_s = loop.time(), 0.0
        try:
            value = await read()
            kept_s = interval_s and pause_s(interval_s, loop.time() - began_s)
            return value
        finally:
            loop.call_later(kept_s, drop)

    def _drop_recent(self, key: Hashable, made: tuple[Any]) -> None:
        if self._recent.get(key) is made:
            del self._recent[key]

    def _drop(self, key: Hashable, task: asyncio.Task[Any] | None) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
