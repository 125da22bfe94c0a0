"""Long work, of a request or of the broker's own, done in turns with everybody else's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
_TURN: Final = 16
"""Items of a turn: the name of a group may have 32,767 letters, and to find its partition takes 3 ms then."""

TURN_S: Final = 0.005
"""How long a turn may take of what is done for nobody who waits."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; after every few of them, others have their turn."""
    for place, item in enumerate(items, 1):
        yield item
        if not place % _TURN:
            await asyncio.sleep(0)


async def in_short_turns(items: Iterable[T], monotonic: Callable[[], float]) -> AsyncIterator[T]:
    """The same items, of which each takes next to nothing; others have their turn whenever `TURN_S` are over."""
    until = monotonic() + TURN_S
    for item in items:
        yield item
        if monotonic() >= until:
            await asyncio.sleep(0)
            until = monotonic() + TURN_S
