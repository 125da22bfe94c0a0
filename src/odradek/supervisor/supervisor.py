"""The supervisor of broker processes: one task per broker starts it, waits for its end and restarts it.

```
starting ──ready──► running ──ends──► waiting ──► starting      without a limit
    └─ends before it was ever ready: start() fails, since a restart would end the same way
```
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from odradek.model import UnavailableError
from odradek.runtime import Clock

STOP_S: Final = 60.0
"""Time-out of a broker's controlled shutdown."""

_READY: Final = "ready: "
_ERROR_PREFIX: Final = "odradek: "
_log = logging.getLogger("odradek.up")
FIRST_DELAY_S: Final = 0.2
LONGEST_DELAY_S: Final = 15.0
GOOD_WHILE_S: Final = 60.0


class Restarts:
    """The delay before a broker's restart: it doubles each time, and resets after a run of `GOOD_WHILE_S`.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._delay_s = FIRST_DELAY_S
        self._started_at = 0.0

    def started(self, now: float) -> None:
        """Record the time of a start."""
        self._started_at = now

    def died(self, now: float) -> float:
        """Return the seconds to wait before the next start."""
        if now - self._started_at >= GOOD_WHILE_S:
            self._delay_s = FIRST_DELAY_S
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, LONGEST_DELAY_S)
        return delay_s


class BrokerCommand(Struct, frozen=True, kw_only=True):
    """The command line of a broker, and the file that its standard error is appended to.

    The broker's standard input is a pipe that closes when the supervisor ends, even by SIGKILL; `arguments` must make
    the broker stop then.
    """

    broker_id: int
    arguments: tuple[str, ...]
    log_file: Path


class Supervisor:
    """The supervisor of the processes of `commands`."""

    def __init__(self, commands: Sequence[BrokerCommand], clock: Clock) -> None:
        self._clock = clock
        self._brokers = [_Broker(command, clock) for command in commands]

    @property
    def addresses(self) -> list[str]:
        """`HOST:PORT` of each broker, from its line `ready:`."""
        return [broker.address for broker in self._brokers]

    @property
    def pids(self) -> list[int | None]:
        """The process id of each broker, None while it does not run."""
        return [broker.pid for broker in self._brokers]

    async def start(self) -> None:
        """Return when every broker is ready. If one fails, stop all and raise `UnavailableError`."""
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
        """Stop every broker with SIGTERM; kill those that do not stop in `STOP_S`."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))


class _Broker:
    """The successive processes of one broker."""

    def __init__(self, command: BrokerCommand, clock: Clock) -> None:
        self.address = ""
        self._command = command
        self._clock = clock
        self._restarts = Restarts()
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the broker, and restart it whenever it ends. Raises `UnavailableError` if the first start fails."""
        await self._launch()
        if not self.address:
            assert self._process is not None, "_launch started it"
            await self._process.wait()
            self._process = None
            raise UnavailableError(f"broker {self._command.broker_id} did not start: {self._last_error()}")
        self._task = asyncio.create_task(self._supervise(), name=f"supervisor of broker {self._command.broker_id}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            _log.error("broker %d did not stop within %.0f s; killing it", self._command.broker_id, STOP_S)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _supervise(self) -> None:
        while True:
            process = self._process
            assert process is not None, "the first process was started"
            status = await process.wait()
            delay_s = self._restarts.died(self._clock.monotonic())
            _log.error(
                "broker %d (process %d) %s; restarting it in %.1f s; see its log %s",
                self._command.broker_id, process.pid, _ending(status), delay_s, self._command.log_file,
            )  # fmt: skip
            await asyncio.sleep(delay_s)
            try:
                await self._launch()
            except OSError as error:
                _log.error("Failed to restart broker %d: %s", self._command.broker_id, error)

    async def _launch(self) -> None:
        """Start a process and wait until it is ready or ends."""
        self._restarts.started(self._clock.monotonic())
        with self._command.log_file.open("ab") as log:
            self._log_start = log.tell()
            # `odradek serve` would take KAFKA_ variables as the keys of each broker, though `up` does not.
            variables = {name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}
            self._process = await asyncio.create_subprocess_exec(
                *self._command.arguments, stdin=PIPE, stdout=PIPE, stderr=log, env=variables, start_new_session=True
            )
        assert self._process.stdout is not None, "its output is a pipe"
        line = (await self._process.stdout.readline()).decode(errors="replace")
        if line.startswith(_READY):
            self.address = line.removeprefix(_READY).strip()
            _log.info("broker %d serves at %s, process %d", self._command.broker_id, self.address, self._process.pid)

    def _last_error(self) -> str:
        """Return the last error line of the latest process, from its part of the log file."""
        with suppress(OSError), self._command.log_file.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").splitlines()
            errors = [line.removeprefix(_ERROR_PREFIX) for line in lines if line.startswith(_ERROR_PREFIX)] or lines
            if errors:
                return errors[-1]
        return f"its log {self._command.log_file} has no error"


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
