"""Iteration that yields to other tasks of the event loop, for long work of a request or of the broker."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
_TURN: Final = 16
"""Items per turn: the name of a group may have 32,767 characters, and finding its partition takes 3 ms then."""

TURN_S: Final = 0.005
"""The longest turn of work that no client waits for."""


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every few of them."""
    for place, item in enumerate(items, 1):
        yield item
        if not place % _TURN:
            await asyncio.sleep(0)


async def cooperatively_by_time(items: Iterable[T], monotonic: Callable[[], float]) -> AsyncIterator[T]:
    """Yield the items, each of them cheap, and let other tasks run every `TURN_S`."""
    until = monotonic() + TURN_S
    for item in items:
        yield item
        if monotonic() >= until:
            await asyncio.sleep(0)
            until = monotonic() + TURN_S
