"""Turns of long work: few in each iteration of an event loop, however many clients cause some."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Final
from weakref import WeakKeyDictionary

MOST_TURNS: Final = 4
"""Turns in one iteration, of some 5 ms each."""
_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Callable[[], object]]] = WeakKeyDictionary()
"""The work of each event loop that waits for its turn, oldest first."""


def call_in_turn(work: Callable[[], object]) -> None:
    """Call `work` in one of the next iterations of the running loop."""
    loop = asyncio.get_running_loop()
    waiting = _waiting.setdefault(loop, deque())
    if not waiting:
        _begin_soon(loop, waiting)
    waiting.append(work)


async def next_turn() -> None:
    """Let other tasks run, and other work that waits for its turn."""
    turn = asyncio.get_running_loop().create_future()
    call_in_turn(lambda: None if turn.done() else turn.set_result(None))
    await turn


def _begin_soon(loop: asyncio.AbstractEventLoop, waiting: deque[Callable[[], object]]) -> None:
    # An empty context: with the caller's, a simulated host that is paused would hold up the turns of other hosts.
    loop.call_soon(_begin_turns, loop, waiting, context=Context())


def _begin_turns(loop: asyncio.AbstractEventLoop, waiting: deque[Callable[[], object]]) -> None:
    turns = [waiting.popleft() for _ in range(min(MOST_TURNS, len(waiting)))]
    if waiting:
        _begin_soon(loop, waiting)
    for work in turns:
        loop.call_soon(work)  # each for itself: an error of one ends no other
