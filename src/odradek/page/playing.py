"""Plays scripts for the page in processes of their own, so that the page stays responsive; keeps the last plays."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from typing import Final

from msgspec import DecodeError, ValidationError, json

from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.player import Play, Script
from odradek.lab.player.worker import PlayAnswer, PlayRequest
from odradek.model import UnavailableError

_MOST_KEPT: Final = 40
"""Limit of the plays in memory, each of some hundred KB: ten scripts with four generations."""
_MOST_AT_ONCE: Final = 2
_MOST_WAITING: Final = 40
"""Limit of the plays that run or wait: other sites can link to plays of a page without login."""
_LIMIT_S: Final = 180.0
_IDLE_S: Final = 60.0
"""An idle process ends after this time. It is kept until then, because its start takes longer than a play."""
_MOST_ANSWER: Final = 1 << 26


class Plays:
    """The last plays of a page, those that are being made, and the processes that make them."""

    def __init__(self) -> None:
        self._plays: OrderedDict[PlayRequest, Play] = OrderedDict()
        self._making: dict[PlayRequest, asyncio.Task[Play]] = {}
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._preparing = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._idle: dict[Process, asyncio.TimerHandle] = {}

    async def plays(self, script: Script, *, partitions: int, seed: int) -> list[Play]:
        """Return the play of each generation. Raises `LabError` for one that cannot be played."""
        asked = [
            PlayRequest(generation=each, script=str(script), partitions=partitions, seed=seed) for each in Generation
        ]
        return list(await asyncio.gather(*map(self._play, asked)))

    async def prepare(self) -> None:
        """Start processes for a user who will probably ask for a play."""
        async with self._preparing:
            with contextlib.suppress(UnavailableError):
                while len(self._idle) + len(self._making) < _MOST_AT_ONCE:
                    self._rest(await _started())

    async def close(self) -> None:
        """Cancel the running plays, and end all processes."""
        tasks = list(self._making.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            await self._end(process)
        await asyncio.gather(*self._ending)

    async def _play(self, asked: PlayRequest) -> Play:
        if asked in self._plays:
            self._plays.move_to_end(asked)
            return self._plays[asked]
        task = self._making.get(asked)
        if task is None:
            if len(self._making) >= _MOST_WAITING:
                raise UnavailableError("too many plays are being made: try again in a minute")
            task = self._making[asked] = asyncio.create_task(self._make(asked), name=f"play {asked}")
        return await asyncio.shield(task)

    async def _make(self, asked: PlayRequest) -> Play:
        try:
            async with self._free:
                made = await self._played(asked)
        finally:
            del self._making[asked]
        self._plays[asked] = made
        while len(self._plays) > _MOST_KEPT:
            self._plays.popitem(last=False)
        return made

    async def _played(self, asked: PlayRequest) -> Play:
        process, timer = self._idle.popitem() if self._idle else (await _started(), None)
        if timer is not None:
            timer.cancel()
        assert process.stdin is not None
        assert process.stdout is not None
        answer = PlayAnswer(error="its process has ended, see the log of the page")
        is_alive = False
        try:
            async with asyncio.timeout(_LIMIT_S):
                process.stdin.write(json.encode(asked) + b"\n")
                answer = json.decode(await process.stdout.readline(), type=PlayAnswer)
                is_alive = True
        except TimeoutError:
            raise UnavailableError(
                f"the play took longer than {_LIMIT_S:.0f} s: try again, or with fewer members"
            ) from None
        except (OSError, DecodeError, ValidationError):
            pass
        finally:
            if is_alive:
                self._rest(process)
            else:
                await self._end(process)
        if answer.play is None:
            raise LabError(f"generation {asked.generation} cannot be played: {answer.error[:300]}")
        return answer.play

    def _rest(self, process: Process) -> None:
        self._idle[process] = asyncio.get_running_loop().call_later(_IDLE_S, self._retire, process)

    def _retire(self, process: Process) -> None:
        del self._idle[process]
        self._ending.add(ending := asyncio.create_task(self._end(process)))
        ending.add_done_callback(self._ending.discard)

    async def _end(self, process: Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def _started() -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "odradek.lab.player.worker", stdin=PIPE, stdout=PIPE, limit=_MOST_ANSWER,
            start_new_session=True,  # Ctrl-C ends the page, which ends this process
        )  # fmt: skip
    except OSError as error:
        raise UnavailableError(f"a process for the play cannot be started: {error}") from None
