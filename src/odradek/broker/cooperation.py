"""Iterators that let other tasks of the event loop run during long work."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
_TURN: Final = 16
"""Number of items after which other tasks run. Hashing a group id of 32,767 characters takes 3 ms."""

TURN_S: Final = 0.005
"""Longest time for which background work occupies the event loop."""


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every 16 items."""
    for place, item in enumerate(items, 1):
        yield item
        if not place % _TURN:
            await asyncio.sleep(0)


async def cooperatively_by_time(items: Iterable[T], monotonic: Callable[[], float]) -> AsyncIterator[T]:
    """Yield the items, which must be cheap to produce, and let other tasks run every `TURN_S`."""
    until = monotonic() + TURN_S
    for item in items:
        yield item
        if monotonic() >= until:
            await asyncio.sleep(0)
            until = monotonic() + TURN_S
