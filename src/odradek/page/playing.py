"""Plays scripts for the page, each in a process of its own, so that the page stays responsive; keeps the last plays."""

import asyncio
import contextlib
import sys
from collections import OrderedDict
from typing import Final

from msgspec import DecodeError, ValidationError, json

from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.player import Play, Script
from odradek.model import UnavailableError

_MOST_KEPT: Final = 40
"""Limit of the plays in memory, each of some hundred KB: ten scripts with four generations."""
_MOST_AT_ONCE: Final = 2
_MOST_WAITING: Final = 40
"""Limit of the plays that are being made or wait; other sites can ask for an address of a page without login."""
_LIMIT_S: Final = 180.0

_Key = tuple[Generation, str, int, int]


class Plays:
    """The last plays, and those that are being made. It belongs to one event loop at a time."""

    def __init__(self) -> None:
        self._plays: OrderedDict[_Key, Play] = OrderedDict()
        self._making: dict[_Key, asyncio.Task[Play]] = {}
        self._places: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    async def plays(self, script: Script, *, partitions: int, seed: int) -> list[Play]:
        """Return the play of each generation. Raises `LabError` for one that cannot be played."""
        return list(await asyncio.gather(*(self._play((each, str(script), partitions, seed)) for each in Generation)))

    async def _play(self, key: _Key) -> Play:
        if key in self._plays:
            self._plays.move_to_end(key)
            return self._plays[key]
        task = self._making.get(key)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            if len(self._making) >= _MOST_WAITING:
                raise UnavailableError("too many plays are being made: try it again in a minute")
            task = self._making[key] = asyncio.create_task(self._make(key), name=f"play {key}")
        return await asyncio.shield(task)

    async def _make(self, key: _Key) -> Play:
        try:
            async with self._free_place():
                made = await _played(key)
        finally:
            del self._making[key]
        self._plays[key] = made
        while len(self._plays) > _MOST_KEPT:
            self._plays.popitem(last=False)
        return made

    def _free_place(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if self._places is None or self._places[0] is not loop:
            self._places = loop, asyncio.Semaphore(_MOST_AT_ONCE)
        return self._places[1]


async def _played(key: _Key) -> Play:
    """Run `odradek lab play` in another process, and return its result."""
    generation, script, partitions, seed = key
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "odradek", "lab", "play", script, "--json", "--generation", generation.key,
        "--partitions", str(partitions), "--seed", str(seed),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_LIMIT_S):
            shown, errors = await process.communicate()
    except TimeoutError:
        raise UnavailableError(f"the play has taken {_LIMIT_S:.0f} s: try it with fewer members, or again") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    try:
        return json.decode(shown, type=Play)
    except (DecodeError, ValidationError):
        reason = errors.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("odradek: ")
        raise LabError(f"generation {generation} cannot be played: {reason[:300]}") from None
