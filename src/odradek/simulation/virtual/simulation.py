"""The entry point of simulations: a virtual-time loop, a network and a disk for each host, all from one seed.

```python
simulation = Simulation(seed=7)
simulation.run(scenario(simulation.runtime("broker-0"), simulation.runtime("client")))
```
Every exception has a note with the seed and the last events.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from odradek.runtime import Runtime
from odradek.runtime.threads import NoTicker
from odradek.simulation.virtual.clock import HOST, VirtualClock
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from odradek.simulation.virtual.loop import VirtualLoop
from odradek.simulation.virtual.network import MemoryNetwork
from odradek.simulation.virtual.trace import Trace

T = TypeVar("T")


class InlineWorker:
    """A `Worker` that runs the work at once: nothing happens beside a simulation's event loop."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future


class Simulation:
    """A loop, a network and hosts with disks, all driven by `seed`. Disks stay when `run` is called again.

    `limit_s` limits the virtual time of one run (see `VirtualLoop`).
    """

    def __init__(self, seed: int, *, limit_s: float = 3600.0) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.trace = Trace()
        self.network = MemoryNetwork(self.clock, self.entropy("network"), self.trace)
        self._limit_s = limit_s
        self._runtimes: dict[str, Runtime] = {}
        self._disks: dict[str, MemoryDisk] = {}
        self._runs = 0
        self._loop: VirtualLoop | None = None

    def entropy(self, name: str) -> random.Random:
        """Return a new generator for `name`, so that the draws of one part do not change those of another."""
        return random.Random(f"{self.seed}/{name}")

    def runtime(self, host: str = "localhost") -> Runtime:
        """Return the runtime of the process `host`; every call for a host returns the same one."""
        if host not in self._runtimes:
            self._runtimes[host] = Runtime(
                clock=self.clock.host(host),
                entropy=self.entropy(f"host {host}"),
                disk=self.disk(host),
                network=self.network.host(host),
                ticker=NoTicker(),
                worker=InlineWorker(),
                checker=InlineWorker(),
            )
        return self._runtimes[host]

    def disk(self, host: str = "localhost") -> MemoryDisk:
        """Return the disk of `host`, on which a test injects faults."""
        if host not in self._disks:
            self._disks[host] = MemoryDisk(self.entropy(f"disk {host}"), process_id=len(self._disks) + 1)
        return self._disks[host]

    @contextlib.contextmanager
    def on(self, host: str) -> Iterator[None]:
        """Run the block, and the tasks and callbacks that it creates, as the process `host`."""
        token = HOST.set(host)
        try:
            yield
        finally:
            HOST.reset(token)

    def pause(self, host: str) -> None:
        """Stop the process `host` as SIGSTOP does, until `resume`: its sockets stay open, and nothing of it runs."""
        self.network.note(f"pause {host}")
        self._running_loop().pause(host)

    def resume(self, host: str) -> None:
        """Continue a paused process."""
        self.network.note(f"resume {host}")
        self._running_loop().resume(host)

    def set_rate(self, host: str, rate: float) -> None:
        """Let the clocks and timers of `host` run at `rate` times the speed of virtual time."""
        self.network.note(f"the clock of {host} runs at {rate}")
        self._running_loop().set_rate(host, rate)

    def _running_loop(self) -> VirtualLoop:
        assert self._loop is not None, "the simulation does not run"
        return self._loop

    def kill(self, host: str) -> None:
        """Kill the process `host`: its peers get a reset, its open files and locks are gone, its data stays.

        Its tasks still run: the caller cancels them.
        """
        self.network.crash(host)
        self.disk(host).kill()

    def cut_power(self, host: str, survival: Survival = Survival.ANY) -> None:
        """Kill the process `host`, and lose its unsynced data as `survival` says."""
        self.network.crash(host)
        self.disk(host).cut_power(survival)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end on a new virtual loop, cancel the remaining tasks, and return its result.

        Raises what `main` raises. Exceptions of tasks and callbacks that were never retrieved are raised in an
        `ExceptionGroup`.
        """
        with self.runs() as run:
            return run(main)

    @contextlib.contextmanager
    def runs(self) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
        """Give a function that runs coroutines as `run` does, one after the other on one virtual loop.

        Other tasks stay between two calls; the end of the block cancels them.
        """
        self._runs += 1
        unheeded: list[BaseException] = []
        self._loop = loop = VirtualLoop(
            self.clock, self.entropy(f"loop {self._runs}"), self.trace, limit_s=self._limit_s
        )
        loop.set_exception_handler(lambda _, context: unheeded.append(_error_of(context)))
        with self._annotated():
            with asyncio.Runner(loop_factory=lambda: loop) as runner, self._annotated():
                try:
                    yield runner.run
                finally:
                    loop.cancel_tasks()
            unheeded += loop.unheeded_failures()
            if unheeded:
                raise BaseExceptionGroup("nobody heeded these", unheeded)

    @contextlib.contextmanager
    def _annotated(self) -> Iterator[None]:
        """Add the seed and the last events to an exception, before the clean-up traces more events."""
        try:
            yield
        except BaseException as error:
            title = f"seed {self.seed}, "
            if not any(note.startswith(title) for note in getattr(error, "__notes__", ())):
                error.add_note(f"{title}{self.clock.elapsed_s:.6f} s after the start; the last events:")
                for event in self.trace.last():
                    error.add_note(event)
            raise


def simulated_runtime(seed: int) -> Runtime:
    """Return one host's `Runtime` for code without a loop: its clock stands still until `clock.advance(s)`."""
    return Simulation(seed).runtime()


def _error_of(context: dict[str, Any]) -> BaseException:
    """Return the exception in the context of an asyncio exception handler, or its message as an exception."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        error.add_note(str(context["message"]))
        return error
    return RuntimeError(str(context["message"]))
