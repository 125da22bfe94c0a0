"""Plays scripts for the page in processes of their own, so that the page stays responsive; keeps the last plays."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from typing import Final

from msgspec import DecodeError, json

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
_FIRST_ANSWER_S: Final = 0.5
"""The page shows what has been made by then, and requests the rest."""
_IDLE_S: Final = 60.0
"""An idle process ends after this time. It is kept until then, because its start takes longer than a play."""
_MOST_ANSWER: Final = 1 << 26


class Plays:
    """The last plays of a page, made or being made, and the processes that make them."""

    def __init__(self) -> None:
        self._plays: OrderedDict[PlayRequest, asyncio.Task[Play]] = OrderedDict()
        self._free = asyncio.Semaphore(_MOST_AT_ONCE)
        self._preparing = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._idle: dict[Process, asyncio.TimerHandle] = {}

    async def plays(self, script: Script, *, partitions: int, seed: int) -> list[Play | None]:
        """Return the play of each generation; None for one that is still being made after a moment.

        Raises `LabError` for one that cannot be played.
        """
        asked = [
            PlayRequest(generation=each, script=str(script), partitions=partitions, seed=seed) for each in Generation
        ]
        making = [self._play(each) for each in asked]
        await asyncio.wait(making, timeout=_FIRST_ANSWER_S)
        for each, task in zip(asked, making, strict=True):
            if task.done() and task.exception():
                self._plays.pop(each, None)  # the next request tries again
        return [task.result() if task.done() else None for task in making]

    async def prepare(self) -> None:
        """Start processes for a user who will probably ask for a play."""
        async with self._preparing:
            with contextlib.suppress(UnavailableError):
                while len(self._idle) + self._making < _MOST_AT_ONCE:
                    self._rest(await _started())

    async def close(self) -> None:
        """Cancel the running plays, and end all processes."""
        tasks = list(self._plays.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            await self._end(process)
        await asyncio.gather(*self._ending)

    @property
    def _making(self) -> int:
        return sum(not task.done() for task in self._plays.values())

    def _play(self, asked: PlayRequest) -> asyncio.Task[Play]:
        task = self._plays.get(asked)
        if task is None:
            if self._making >= _MOST_WAITING:
                raise UnavailableError("too many plays are being made: try again in a minute")
            task = self._plays[asked] = asyncio.create_task(self._make(asked), name=f"play {asked}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its viewer may have left
        self._plays.move_to_end(asked)
        for old in [each for each, made in self._plays.items() if made.done()][:-_MOST_KEPT]:
            del self._plays[old]
        return task

    async def _make(self, asked: PlayRequest) -> Play:
        async with self._free:
            answer = await self._answer(asked)
        if answer.play is None:
            raise LabError(f"generation {asked.generation} cannot be played: {answer.error[:300]}")
        return answer.play

    async def _answer(self, asked: PlayRequest) -> PlayAnswer:
        process, timer = self._idle.popitem() if self._idle else (await _started(), None)
        if timer is not None:
            timer.cancel()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(_LIMIT_S):
                process.stdin.write(json.encode(asked) + b"\n")
                answer = json.decode(await process.stdout.readline(), type=PlayAnswer)
        except BaseException as error:
            await self._end(process)
            if isinstance(error, TimeoutError):
                sentence = f"the play took longer than {_LIMIT_S:.0f} s: try again, or with fewer members"
                raise UnavailableError(sentence) from None
            if isinstance(error, OSError | DecodeError):
                return PlayAnswer(error="its process has ended, see the log of the page")
            raise
        self._rest(process)
        return answer

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
