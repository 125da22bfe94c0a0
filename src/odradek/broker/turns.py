"""Long work in turns, between which other tasks of the event loop run.

Work that grows with a request's entries, or with the broker's state, is a generator of this module's type `Steps`.
`TURN` is the budget of a turn: an entry that is looked up weighs 1, one that is checked or changed up to `HEAVY`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from typing import Final, TypeAlias, TypeVar

from odradek.runtime.turns import next_turn

T = TypeVar("T")
Steps: TypeAlias = Generator[int, None, T]
"""Work that yields the weight of each part of it after the part, and returns its result."""

TURN: Final = 512
"""The weight of work after which other tasks run: some 5 ms."""
HEAVY: Final = 32
"""The weight of a costly entry. Hashing a group id of 32,767 characters takes 3 ms."""
LARGE_BYTES: Final = 16 * 1024
"""Longer bodies of requests are decoded by the worker (`Runtime.worker`)."""
TURN_S: Final = 0.005
"""Longest time for which background work occupies the event loop."""


async def in_turns(steps: Steps[T]) -> T:
    """Do the work, let other tasks run after each turn, and return its result."""
    while True:
        result = one_turn(steps)
        if result is not None:
            return result[0]
        await next_turn()


def one_turn(steps: Steps[T]) -> tuple[T] | None:
    """Work for one turn. Return the result in a tuple, or None if there is more to do."""
    left = TURN
    try:
        while left > 0:
            left -= next(steps)
    except StopIteration as done:
        return (done.value,)
    return None


def at_once(steps: Steps[T]) -> T:
    """Do the work without letting other tasks run, and return its result."""
    while (result := one_turn(steps)) is None:
        pass
    return result[0]


def light(item: object) -> int:
    """Return the weight of an entry that is only looked up, for `cooperatively`."""
    del item
    return 1


async def cooperatively(items: Iterable[T], weigh: Callable[[T], int] = lambda _: HEAVY) -> AsyncIterator[T]:
    """Yield the items, each of which is weighed before that, and let other tasks run after each turn."""
    left = TURN
    for item in items:
        weight = weigh(item)
        yield item
        left -= weight
        if left <= 0:
            await next_turn()
            left = TURN


async def cooperatively_by_time(items: Iterable[T], monotonic: Callable[[], float]) -> AsyncIterator[T]:
    """Yield the items, which must be cheap to produce, and let other tasks run every `TURN_S`."""
    until = monotonic() + TURN_S
    for item in items:
        yield item
        if monotonic() >= until:
            await asyncio.sleep(0)
            until = monotonic() + TURN_S
