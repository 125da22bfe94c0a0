"""Long work of one request, done in turns with everybody else's."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

T = TypeVar("T")
_TURN: Final = 16
"""Items of a turn: the name of a group may have 32,767 letters, and to find its partition takes 3 ms then."""


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; after every few of them, others have their turn."""
    for place, item in enumerate(items, 1):
        yield item
        if not place % _TURN:
            await asyncio.sleep(0)
