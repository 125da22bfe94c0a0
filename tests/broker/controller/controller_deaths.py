"""A controller that dies at each step of a work: one simulated life for each death, and one without."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from odradek.metadata.store import Operation, Result
from odradek.stores import MemoryStore
from odradek.testing import Simulation

LIVED = "lived"
MOST_STEPS = 60


class MortalStore(MemoryStore):
    """A session whose process dies instead of doing its `writes_left`-th transaction, once `writes_left` is set."""

    writes_left: int | None = None
    dead = False

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.writes_left is not None:
            if self.writes_left == 0:
                self.dead = True
                await asyncio.get_running_loop().create_future()
            self.writes_left -= 1
        return await super().multi(operations)


def lives(seed: int, scenario: Callable[[Simulation, int], Coroutine[Any, Any, str]]) -> list[str]:
    """Return `scenario`'s answers for a death at each step; the answer `LIVED` is the last one."""
    answers: list[str] = []
    for step in range(MOST_STEPS):
        simulation = Simulation(seed)
        answers.append(simulation.run(scenario(simulation, step)))
        if answers[-1] == LIVED:
            return answers
    raise AssertionError("a controller dies in every life")


async def dies_of(work: Awaitable[Any], *, is_dead: Callable[[], bool], kill: Callable[[], Awaitable[None]]) -> bool:
    """Do `work` until it is done or `is_dead`, and then kill; return whether the death came first."""
    task = asyncio.ensure_future(work)
    while not task.done() and not is_dead():
        await asyncio.sleep(0.0001)
    died = not task.done()
    await kill()
    task.cancel()
    await asyncio.wait([task])
    if not died:
        task.result()
    return died
