"""A program on virtual time: the loop, the network and a disk for each host, all out of one seed.

```python
simulation = Simulation(seed=7)
simulation.run(scenario(simulation.runtime("broker-0"), simulation.runtime("client")))
```
Whatever goes wrong carries the seed and the last events as a note, so that a failure can be played again.
"""

import asyncio
import contextlib
import random
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from odradek.runtime import Runtime
from odradek.testing.clock import VirtualClock
from odradek.testing.disk import MemoryDisk, Survival
from odradek.testing.loop import VirtualLoop
from odradek.testing.network import MemoryNetwork
from odradek.testing.trace import Trace

T = TypeVar("T")


class Simulation:
    """Everything that a seed decides. One `Simulation` may `run` several times; its hosts' disks stay.

    `limit_s` is how much virtual time one run may take (see `VirtualLoop`).
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

    def entropy(self, name: str) -> random.Random:
        """A stream of chance of its own for `name`: what one part draws does not shift what another gets."""
        return random.Random(f"{self.seed}/{name}")

    def runtime(self, host: str = "localhost") -> Runtime:
        """The outside as the process `host` sees it; the same one, with the same disk, every time."""
        if host not in self._runtimes:
            self._runtimes[host] = Runtime(
                clock=self.clock,
                entropy=self.entropy(f"host {host}"),
                disk=self.disk(host),
                network=self.network.host(host),
            )
        return self._runtimes[host]

    def disk(self, host: str = "localhost") -> MemoryDisk:
        """The disk of `host`, with its faults."""
        if host not in self._disks:
            self._disks[host] = MemoryDisk(self.entropy(f"disk {host}"), process_id=len(self._disks) + 1)
        return self._disks[host]

    def kill(self, host: str) -> None:
        """The process `host` dies: its peers get a reset, its open files and locks are gone, what it wrote stays.

        Tasks of it still run: whoever started them cancels them.
        """
        self.network.crash(host)
        self.disk(host).kill()

    def cut_power(self, host: str, survival: Survival = Survival.ANY) -> None:
        """As `kill`, and what was not synced survives as `survival` says."""
        self.network.crash(host)
        self.disk(host).cut_power(survival)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end on a new virtual loop, cancel what it left behind, and return its result.

        Raises what `main` raises. An exception that nobody heeded, in a task or in a callback, is raised too, in an
        `ExceptionGroup`: in a test nothing goes wrong silently.
        """
        self._runs += 1
        unheeded: list[BaseException] = []
        loop = VirtualLoop(self.clock, self.entropy(f"loop {self._runs}"), self.trace, limit_s=self._limit_s)
        loop.set_exception_handler(lambda _, context: unheeded.append(_error_of(context)))
        with self._annotated():
            with asyncio.Runner(loop_factory=lambda: loop) as runner, self._annotated():
                result = runner.run(main)
            unheeded += loop.unheeded_failures()
            if unheeded:
                raise BaseExceptionGroup("nobody heeded these", unheeded)
        return result

    @contextlib.contextmanager
    def _annotated(self) -> Iterator[None]:
        """Add the seed and the last events to what goes through, before cleaning up adds events of its own."""
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
    """One host's `Runtime` out of `seed`, for what needs no loop: its clock stands still until `clock.advance(s)`."""
    return Simulation(seed).runtime()


def _error_of(context: dict[str, Any]) -> BaseException:
    """What asyncio reports to an exception handler, as an exception that can be raised."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        error.add_note(str(context["message"]))
        return error
    return RuntimeError(str(context["message"]))
