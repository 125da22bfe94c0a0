"""An event loop in virtual time, without I/O; a seed decides the orders that asyncio leaves open.

When nothing is ready, the clock jumps to the next timer: an hour of heartbeats takes milliseconds. If there is no timer
either, the loop raises `DeadlockError`, which lists the waiting tasks. Callbacks run in the order of registration, as
asyncio guarantees. The seed orders the ready tasks, and the timers that are due at the same time.

While a host is paused, its callbacks and timers that are due wait, and run when it is resumed. `time()` and timers
are by the clock of the host whose process runs.

`run_in_executor` and file descriptors are refused.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from odradek.testing.simulation.clock import HOST, VirtualClock
from odradek.testing.simulation.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MOST_TURNS_AT_ONE_MOMENT: Final = 100_000
"""Limit of loop turns at one virtual time; beyond it, the loop raises `LivelockError`."""


class DeadlockError(RuntimeError):
    """No callback is ready and no timer is set, but tasks still wait."""


class LivelockError(RuntimeError):
    """Callbacks schedule callbacks without end, or timers go on beyond the limit of virtual time."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's base loop with a virtual clock and a seeded order.

    The loop raises `LivelockError` after `limit_s` of virtual time. Otherwise a test that waits in vain would never
    end, because a broker always has timers.
    """

    def __init__(self, clock: VirtualClock, entropy: random.Random, trace: Trace, *, limit_s: float = 3600.0) -> None:
        super().__init__()
        self._clock = clock
        self._entropy = entropy
        self._trace = trace
        self._limit_s = clock.monotonic() + limit_s
        self._soon: list[asyncio.Handle] = []
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._task_count = 0
        self._turns_now = 0
        self._failed: list[asyncio.Task[Any]] = []
        self._paused: dict[str, list[asyncio.Handle]] = {}

    def time(self) -> float:
        """Return virtual seconds, which do not advance while a callback is ready."""
        return self._clock.monotonic_of_host()

    # ---- hosts ------------------------------------------------------------------------------------------------------

    def pause(self, host: str) -> None:
        """Run nothing of a host until `resume`."""
        self._paused.setdefault(host, [])

    def resume(self, host: str) -> None:
        """Run all that a paused host has missed, in the order in which it became ready."""
        self._soon.extend(self._paused.pop(host, ()))

    def set_rate(self, host: str, rate: float) -> None:
        """Let a host's clock run at `rate` times the speed of virtual time, with the timers that are set already."""
        self._clock.host(host).set_rate(rate)
        self._timers = [(self._due(handle), number, handle) for _, number, handle in self._timers]
        heapq.heapify(self._timers)

    def _due(self, handle: asyncio.TimerHandle) -> float:
        """Return the virtual time of a timer, whose own time is by the clock of its host."""
        clock = self._clock.drifting.get(_host_of(handle)) if self._clock.drifting else None
        return handle.when() if clock is None else clock.when(handle.when())

    # ---- scheduling ---------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in the next turn, after the callbacks registered before."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        self._soon.append(handle)
        return handle

    call_soon_threadsafe = call_soon
    """There is only one thread, but asyncio's own code calls this."""

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` when `delay` virtual seconds have passed."""
        return self.call_at(self._clock.monotonic_of_host(context) + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run `callback` at virtual time `when`."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._timers, (self._due(handle), self._timer_count, handle))
        return handle

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Create a task numbered by this loop: asyncio's default names count over the whole process."""
        self._task_count += 1
        task = _NumberedTask(coro, loop=self, context=context, number=self._task_count, name=name)
        task.add_done_callback(self._note_failure)
        return task

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        # A later await may still retrieve the exception, and `task.exception()` here would mark it as retrieved.
        if not task.cancelled() and getattr(task, "_log_traceback", False):
            self._failed.append(task)

    def unheeded_failures(self) -> list[BaseException]:
        """Return the exceptions of failed tasks that were never retrieved, and mark them as retrieved."""
        unheeded = [task for task in self._failed if getattr(task, "_log_traceback", False)]
        self._failed.clear()
        return [error for task in unheeded if (error := task.exception()) is not None]

    # ---- one turn -----------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one turn; `BaseEventLoop.run_forever` calls this until the loop is stopped."""
        if not self._soon:
            self._let_time_pass()
        self._turns_now += 1
        if self._turns_now > _MOST_TURNS_AT_ONE_MOMENT:
            raise LivelockError(f"{self._turns_now} turns and no time passes:\n{self._who_waits()}")
        self._order_tasks(self._soon)
        turn, self._soon = deque(self._soon), []
        elapsed_s = self._clock.elapsed_s
        while turn:
            handle = turn.popleft()
            if self._paused and (waiting := self._paused.get(_host_of(handle))) is not None:
                waiting.append(handle)
            elif not handle.cancelled():
                if label := _label(handle):
                    self._trace.add(elapsed_s, label)
                try:
                    handle._run()
                except BaseException:
                    # KeyboardInterrupt or SystemExit: the rest of the turn stays ready, as in asyncio.
                    self._soon[:0] = turn
                    raise

    def _let_time_pass(self) -> None:
        """Advance the clock to the next timer, and make all timers that are due ready, in random order."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise DeadlockError(f"nothing is ready, no timer is set, and these wait for ever:\n{self._who_waits()}")
        when = self._timers[0][0]
        if when > self._limit_s:
            raise LivelockError(f"virtual time is over its limit, and these still wait:\n{self._who_waits()}")
        self._clock.advance_to(when)
        self._turns_now = 0
        now = self._clock.monotonic()
        due: list[asyncio.Handle] = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        self._entropy.shuffle(due)
        self._soon.extend(due)

    def _order_tasks(self, turn: list[asyncio.Handle]) -> None:
        """Shuffle the task steps of this turn among their positions; plain callbacks keep theirs.

        Steps are first sorted by task number, because they may come from a set (`TaskGroup` cancels its tasks so).
        """
        if len(turn) < 2:
            return
        steps = [(task.number, place) for place, handle in enumerate(turn) if (task := _task_of(handle))]
        if len(steps) < 2:
            return
        places = [place for _, place in steps]
        order = [place for _, place in sorted(steps)]
        self._entropy.shuffle(order)
        for place, handle in zip(places, [turn[place] for place in order], strict=True):
            turn[place] = handle

    def _who_waits(self) -> str:
        tasks = [task for task in asyncio.all_tasks(self) if isinstance(task, _NumberedTask)]
        return "\n".join(f"  {task.get_name()}: {_where(task)}" for task in sorted(tasks, key=lambda task: task.number))

    # ---- what is refused or not needed --------------------------------------------------------------------------

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        """Raise `RuntimeError`: a seed cannot repeat the timing of threads."""
        raise RuntimeError(f"no threads in virtual time: {getattr(func, '__qualname__', func)} must run on the loop")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: this loop drops cancelled timers when they are due."""

    def _write_to_self(self) -> None:
        """Do nothing: no selector has to be woken."""

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no events but callbacks."""

    def close(self) -> None:
        """Drop all callbacks and timers."""
        self._soon.clear()
        self._timers.clear()
        self._paused.clear()
        super().close()


class _NumberedTask(asyncio.Task[T]):
    """A task with a number in the order of creation, which is also its default name."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
        number: int,
        name: object,
    ) -> None:
        self.number = number
        super().__init__(coro, loop=loop, context=context, name=f"task {number}" if name is None else str(name))

    def __hash__(self) -> int:
        """Return the number, not the address, so that sets of tasks have the same order in every run."""
        return self.number


def _host_of(handle: asyncio.Handle) -> str:
    return str(getattr(handle, "_context").get(HOST, ""))  # noqa: B009 - a name that asyncio's stubs leave out


def _callback_of(handle: asyncio.Handle) -> Any:
    return getattr(handle, "_callback")  # noqa: B009 - a name that asyncio's stubs leave out


def _task_of(handle: asyncio.Handle) -> "_NumberedTask[Any] | None":
    """Return the task that `handle` starts or wakes, or None for a plain callback."""
    owner = getattr(_callback_of(handle), "__self__", None)
    return owner if isinstance(owner, _NumberedTask) else None


def _label(handle: asyncio.Handle) -> str:
    """Return the name of a callback, without its memory address.

    It is empty for callbacks of asyncio itself, which differ between releases of Python.
    """
    task = _task_of(handle)
    if task is not None:
        return f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}"
    callback = _callback_of(handle)
    while hasattr(callback, "func"):  # functools.partial, possibly nested
        callback = callback.func
    if (getattr(callback, "__module__", None) or "").startswith("asyncio."):
        return ""
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def _where(task: asyncio.Task[Any]) -> str:
    """Return the innermost line in which a task waits."""
    awaited: Any = task.get_coro()
    place = "not started"
    while (frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)) is not None:
        place = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return place
