"""A queue of deadlines in which postponing is cheap: every heartbeat postpones a session deadline.

Postponing changes one dict entry; the heap entry moves when it reaches the top. So `next_ms` may be earlier than the
first deadline, but never later.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

DeadlineKey = tuple[str, str, str]
"""`(group id, kind, member id)`; the member id is empty for a deadline of the group."""


class Deadlines(Generic[K]):
    """Deadlines by key, in ms of the caller's clock."""

    def __init__(self) -> None:
        self._at_ms: dict[K, int] = {}
        self._queued_ms: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._order = count()

    def set(self, key: K, at_ms: int) -> None:
        self._at_ms[key] = at_ms
        queued = self._queued_ms.get(key)
        if queued is None or at_ms < queued:
            self._queue(key, at_ms)

    def clear(self, key: K) -> None:
        self._at_ms.pop(key, None)

    def at_ms(self, key: K) -> int | None:
        return self._at_ms.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._at_ms

    @property
    def next_ms(self) -> int | None:
        """Return when to call `pop_due` next, at the latest at the first deadline; None if there is no deadline."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            if key in self._at_ms and self._queued_ms.get(key) == at_ms:
                return at_ms
            self._drop_first()
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove the earliest deadline and return its key, if the deadline is not after `now_ms`; else return None."""
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._drop_first()
            at_ms = self._at_ms.get(key)
            if at_ms is None or key in self._queued_ms:
                continue
            if at_ms <= now_ms:
                del self._at_ms[key]
                return key
            self._queue(key, at_ms)
        return None

    def _queue(self, key: K, at_ms: int) -> None:
        self._queued_ms[key] = at_ms
        heappush(self._heap, (at_ms, next(self._order), key))

    def _drop_first(self) -> K:
        """Pop the first heap entry; the key stays queued if an earlier entry replaced this one."""
        at_ms, _, key = heappop(self._heap)
        if self._queued_ms.get(key) == at_ms:
            del self._queued_ms[key]
        return key
