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
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Final, NoReturn, TypeVar, TypeVarTuple, Unpack

from odradek.simulation.virtual.clock import HOST, VirtualClock
from odradek.simulation.virtual.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MOST_TURNS_AT_ONE_MOMENT: Final = 100_000
"""Limit of loop turns at one virtual time; beyond it, the loop raises `LivelockError`."""
_WATCHED_TASKS: Final = 1_000
"""Number of tasks after which those that need no more attention are dropped."""


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
        self._soon: list[_Handle] = []
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timer_count = 0
        self._task_count = 0
        self._turns_now = 0
        self._watched: list[_NumberedTask[Any]] = []
        """Tasks that are not done, and failed ones. asyncio's references to tasks are weak: without this list, the
        garbage collector would destroy tasks that wait for ever, such as those of a host that is cut off."""
        self._paused: dict[str, list[_Handle]] = {}

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

    def _due(self, handle: "_Handle") -> float:
        """Return the virtual time of a timer, whose own time is by the clock of its host."""
        clock = self._clock.drifting.get(handle.host) if self._clock.drifting else None
        return handle.when() if clock is None else clock.when(handle.when())

    # ---- scheduling ---------------------------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run `callback` in the next turn, after the callbacks registered before."""
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        handle = _Handle(0.0, callback, args, self, context)
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
        handle = _Handle(when, callback, args, self, context)
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
        if len(self._watched) >= _WATCHED_TASKS:
            self._watched = [each for each in self._watched if not each.done() or _is_unheeded(each)]
        self._watched.append(task)
        return task

    def cancel_tasks(self) -> None:
        """Cancel all tasks in the order of their creation, and wait for them.

        `asyncio.Runner` does this in the order of a weak set, which depends on the garbage collector.
        """
        tasks = self._remaining()
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.wait(tasks))

    def _remaining(self) -> "list[_NumberedTask[Any]]":
        """Return the tasks that are not done, in the order of their creation."""
        tasks = (task for task in asyncio.all_tasks(self) if isinstance(task, _NumberedTask))
        return sorted(tasks, key=lambda task: task.number)

    def unheeded_failures(self) -> list[BaseException]:
        """Return the exceptions of failed tasks that were never retrieved, and mark them as retrieved."""
        unheeded = [task for task in self._watched if task.done() and _is_unheeded(task)]
        self._watched.clear()
        return [error for task in unheeded if (error := task.exception()) is not None]

    # ---- one turn -----------------------------------------------------------------------------------------------

    def _run_once(self) -> None:
        """Run one turn; `BaseEventLoop.run_forever` calls this until the loop is stopped."""
        if not self._soon:
            self._let_time_pass()
        self._turns_now += 1
        if self._turns_now > _MOST_TURNS_AT_ONE_MOMENT:
            busiest = self._trace.most_common()
            raise LivelockError(f"{self._turns_now} turns and no time passes, most of {busiest}:\n{self._who_waits()}")
        turn, self._soon = self._soon, []
        if len(turn) > 1:
            self._order_tasks(turn)
        elapsed_s = self._clock.elapsed_s
        for place, handle in enumerate(turn):
            if self._paused and (waiting := self._paused.get(handle.host)) is not None:
                waiting.append(handle)
            elif not handle.is_cancelled:
                if label := handle.label():
                    self._trace.add(elapsed_s, label)
                try:
                    handle.run()
                except (KeyboardInterrupt, SystemExit):
                    self._soon[:0] = turn[place + 1 :]  # the rest of the turn stays ready, as in asyncio
                    raise

    def _live_timers(self) -> list[tuple[float, int, "_Handle"]]:
        """Return the heap of timers; the first one is not cancelled."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heapq.heappop(timers)
        return timers

    def idle_s(self) -> float:
        """Return the virtual seconds until the next timer is due; 0 without one."""
        timers = self._live_timers()
        return timers[0][0] - self._clock.monotonic() if timers else 0.0

    def _let_time_pass(self) -> None:
        """Advance the clock to the next timer, and make all timers that are due ready, in random order."""
        timers = self._live_timers()
        if not timers:
            raise DeadlockError(f"nothing is ready, no timer is set, and these wait for ever:\n{self._who_waits()}")
        when = timers[0][0]
        if when > self._limit_s:
            raise LivelockError(f"virtual time is over its limit, and these still wait:\n{self._who_waits()}")
        self._clock.advance_to(when)
        self._turns_now = 0
        now = self._clock.monotonic()
        due: list[_Handle] = []
        while timers and timers[0][0] <= now:
            due.append(heapq.heappop(timers)[2])
        if len(due) > 1:
            self._entropy.shuffle(due)
        self._soon.extend(due)

    def _order_tasks(self, turn: "list[_Handle]") -> None:
        """Shuffle the task steps of this turn among their positions; plain callbacks keep theirs.

        Steps are first sorted by task number, because they may come from a set (`TaskGroup` cancels its tasks so).
        """
        steps = [(handle.task.number, place) for place, handle in enumerate(turn) if handle.task is not None]
        if len(steps) < 2:
            return
        places = [place for _, place in steps]
        order = [place for _, place in sorted(steps)]
        self._entropy.shuffle(order)
        for place, handle in zip(places, [turn[place] for place in order], strict=True):
            turn[place] = handle

    def _who_waits(self) -> str:
        return "\n".join(f"  {task.get_name()}: {_where(task)}" for task in self._remaining())

    # ---- what is refused or not needed --------------------------------------------------------------------------

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:
        """Raise `RuntimeError`: a seed cannot repeat the timing of threads."""
        raise RuntimeError(f"no threads in virtual time: {getattr(func, '__qualname__', func)} must run on the loop")

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
        self.label = ""
        """Its name and that of its coroutine, once it has run."""
        super().__init__(coro, loop=loop, context=context, name=f"task {number}" if name is None else str(name))

    def __hash__(self) -> int:
        """Return the number, not the address, so that sets of tasks have the same order in every run."""
        return self.number


class _Handle(asyncio.TimerHandle):
    """A callback that is ready or has a time. It does without what asyncio's own handles do for their debug mode."""

    __slots__ = ("_callback", "_context", "is_cancelled", "task")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._loop = loop
        self._when = when
        self._callback: Callable[..., object] | None = callback
        self._args: Any = args
        self._context = copy_context() if context is None else context
        self.is_cancelled = False
        owner = getattr(callback, "__self__", None)
        self.task = owner if isinstance(owner, _NumberedTask) else None
        """The task that it starts or wakes, or None for a plain callback."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._callback!r}>"

    def cancel(self) -> None:
        """Drop the callback; the loop drops the handle when it is due."""
        self.is_cancelled = True
        self._callback = self._args = self.task = None

    def cancelled(self) -> bool:
        return self.is_cancelled

    @property
    def host(self) -> str:
        return self._context.get(HOST, "")

    def run(self) -> None:
        """Call the callback, and give its exception to the loop's exception handler."""
        callback = self._callback
        assert callback is not None
        try:
            self._context.run(callback, *self._args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the outermost edge of a callback, as in asyncio
            context = {"message": f"Exception in callback {_name(callback)}", "exception": error, "handle": self}
            self._loop.call_exception_handler(context)

    def label(self) -> str:
        """Return the name of the callback, without its memory address.

        It is empty for callbacks of asyncio itself, which differ between releases of Python.
        """
        task = self.task
        if task is not None:
            task.label = task.label or f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', '')}"
            return task.label
        callback: Any = self._callback
        function = getattr(callback, "__func__", None)
        if function is None:
            return _name(callback)
        label = _METHODS.get(function)
        if label is None:
            label = _METHODS[function] = _name(callback)
        return label


async def pass_time(at_least_s: float) -> None:
    """Sleep for virtual seconds, or longer, until the first timer that is set now is due.

    Before that timer, only callbacks that are ready now run; the caller sees their effects when it wakes.
    """
    loop = asyncio.get_running_loop()
    idle_s = loop.idle_s() if isinstance(loop, VirtualLoop) else 0.0
    await asyncio.sleep(max(at_least_s, idle_s))


_METHODS: Final[dict[Any, str]] = {}
"""The labels of methods that have run as callbacks."""


def _name(callback: Any) -> str:
    while hasattr(callback, "func"):  # functools.partial, possibly nested
        callback = callback.func
    if (getattr(callback, "__module__", None) or "").startswith("asyncio."):
        return ""
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def _is_unheeded(task: asyncio.Task[Any]) -> bool:
    """Return whether a task that is done has failed, and its exception was not retrieved.

    A later await may still retrieve it, and `task.exception()` here would mark it as retrieved.
    """
    return bool(getattr(task, "_log_traceback", False))


def _where(task: asyncio.Task[Any]) -> str:
    """Return the innermost line in which a task waits."""
    awaited: Any = task.get_coro()
    place = "not started"
    while (frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)) is not None:
        place = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return place
