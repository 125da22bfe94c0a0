"""Keeps brokers running: one task each, that starts the process, waits for its end, and starts it again.

```
starting ──ready──► running ──ends──► waiting ──► starting      as often as it takes
    └─ends before it was ever ready: the supervisor gives up, since it would end so again
```
"""

import asyncio
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from odradek.model import UnavailableError
from odradek.model.values import dataclass
from odradek.runtime import Clock
from odradek.supervisor.restarts import Restarts

STOP_S: Final = 60.0
"""How long a broker may take to stop: it hands its work over and writes what it has."""

_READY: Final = "ready: "
_LAST_WORDS: Final = "odradek: "
_log = logging.getLogger("odradek.up")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCommand:
    """How a broker is started, and where what it says goes: `log_file` is appended to.

    Its standard input is a pipe that ends with the supervisor, however that ends: `arguments` tell it to stop then.
    """

    broker_id: int
    arguments: tuple[str, ...]
    log_file: Path


class Supervisor:
    """Runs `commands` until `stop`. `addresses` are what the brokers said when they were ready, in their order."""

    def __init__(self, commands: Sequence[BrokerCommand], clock: Clock) -> None:
        self._clock = clock
        self._brokers = [_Broker(command, clock) for command in commands]

    @property
    def addresses(self) -> list[str]:
        """`HOST:PORT` of each broker."""
        return [broker.address for broker in self._brokers]

    @property
    def pids(self) -> list[int | None]:
        """The process of each broker, None while it has none."""
        return [broker.pid for broker in self._brokers]

    async def start(self) -> None:
        """Return when every broker serves. Raises `UnavailableError` if one does not; none is left running then."""
        starts = [asyncio.ensure_future(broker.start()) for broker in self._brokers]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every broker as an operator does; one that does not stop in `STOP_S` is killed."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))


class _Broker:
    """One broker's processes, one after the other."""

    def __init__(self, command: BrokerCommand, clock: Clock) -> None:
        self.address = ""
        self._command = command
        self._clock = clock
        self._restarts = Restarts()
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start it for the first time, and keep it running from then on. Raises `UnavailableError`."""
        await self._launch()
        if not self.address:
            assert self._process is not None, "it was launched"
            await self._process.wait()
            self._process = None
            raise UnavailableError(f"broker {self._command.broker_id} did not start: {self._last_words()}")
        self._keeper = asyncio.create_task(self._keep(), name=f"keeper of broker {self._command.broker_id}")

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            _log.error("broker %d did not stop in %.0f s and is killed", self._command.broker_id, STOP_S)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _keep(self) -> None:
        while True:
            process = self._process
            assert process is not None, "there is a process to keep"
            status = await process.wait()
            delay_s = self._restarts.died(self._clock.monotonic())
            _log.error(
                "broker %d (process %d) %s; it is started again in %.1f s; its log is %s",
                self._command.broker_id, process.pid, _ending(status), delay_s, self._command.log_file,
            )  # fmt: skip
            await asyncio.sleep(delay_s)
            try:
                await self._launch()
            except OSError as error:
                _log.error("broker %d could not be started: %s", self._command.broker_id, error)

    async def _launch(self) -> None:
        """Start a process and wait until it serves, or ends."""
        self._restarts.started(self._clock.monotonic())
        with self._command.log_file.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *self._command.arguments, stdin=PIPE, stdout=PIPE, stderr=log, start_new_session=True
            )
        assert self._process.stdout is not None, "its output is a pipe"
        line = (await self._process.stdout.readline()).decode(errors="replace")
        if line.startswith(_READY):
            self.address = line.removeprefix(_READY).strip()
            _log.info("broker %d serves at %s, process %d", self._command.broker_id, self.address, self._process.pid)

    def _last_words(self) -> str:
        """The sentence with which the last process ended; another one, still running, may write into the same file."""
        with suppress(OSError), self._command.log_file.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
            words = [line.removeprefix(_LAST_WORDS) for line in lines if line.startswith(_LAST_WORDS)] or lines
            if words:
                return words[-1]
        return f"it said nothing in {self._command.log_file}"


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
