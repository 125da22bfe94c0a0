"""The event loop that serves the blocking clients of a process, in a thread of its own.

A blocking call is a task on that loop. The caller's thread waits for messages of the task: the end of the call, or a
callback that the application gave, which runs in the caller's thread, so that it may make blocking calls itself.
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import inspect
import os
import queue
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import uvloop

T = TypeVar("T")

_EXIT_TIMEOUT_S: Final = 5.0
"""Time that clients that were not closed get at the interpreter's exit, for instance to leave their groups."""

_SIGNAL_CHECK_S: Final = 0.25
"""A signal that arrives just before a wait begins does not end that wait, so waits are renewed this often."""

_FOR_THE_MAIN_THREAD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Signals that the loop's thread blocks: they interrupt the main thread, which may be waiting for a call."""


class LoopThread:
    """An event loop in a daemon thread. `run` may be called from any other thread of the process that made it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="odradek-clients", daemon=True)
        self._closers: dict[int, Callable[[], Awaitable[Any]]] = {}
        self._thread.start()

    def run(self, work: Callable[[], Any]) -> Any:
        """Call `work` on the loop, await what it returns (except a future), and return the result or raise the error.

        An exception in the waiting thread, such as KeyboardInterrupt, cancels the call and is raised when the call has
        ended. Raises `RuntimeError` in another process, on the loop's own thread, and after the interpreter's exit.
        """
        self._check_caller()
        call = _Call(self._loop, work)
        try:
            self._loop.call_soon_threadsafe(call.begin)
            return call.wait()
        except BaseException:
            if not call.is_over:
                self._loop.call_soon_threadsafe(call.cancel)
                call.wait_for_end()
            raise

    @property
    def is_usable(self) -> bool:
        """Whether this process has the thread, and the interpreter has not ended it."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def on_exit(self, key: int, close: Callable[[], Awaitable[Any]] | None) -> None:
        """Register how to close a client or an iterator at the interpreter's exit; None forgets it."""
        if close is None:
            self._closers.pop(key, None)
        else:
            self._closers[key] = close

    def stop(self) -> None:
        """Close the registered clients, cancel the remaining tasks, and end the thread."""
        if self._pid == os.getpid() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(2 * _EXIT_TIMEOUT_S)

    def _check_caller(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"this client belongs to process {self._pid} and cannot be used in its fork {os.getpid()}, "
                "which lacks the client's thread; create a client after the fork"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call on the clients' own event loop would wait for itself; call it from another thread"
            )
        if not self._thread.is_alive():
            raise RuntimeError("the event loop of the blocking clients has ended with the interpreter")

    def _main(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_MAIN_THREAD)
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT_S):
                for close in reversed(list(self._closers.values())):  # an iterator before its client
                    await asyncio.gather(close(), return_exceptions=True)
        remaining = asyncio.all_tasks() - {asyncio.current_task()}
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
        # The transports close in the next turn of the event loop.
        await asyncio.sleep(0)


class _Call:
    """One blocking call: `begin`, `cancel` and `ask` are for the loop, `wait` and `wait_for_end` for the caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        self.is_over = False
        self._loop = loop
        self._work = work
        self._messages: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._task: asyncio.Task[Any] | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # the caller's thread raises it
            self._error = error
        if inspect.isawaitable(self._result) and not isinstance(self._result, asyncio.Future):
            self._task = self._loop.create_task(self._run(self._result))
        else:
            self._end()

    def cancel(self) -> None:
        if self._task is None:
            self._end()  # not begun, or over: the message that said so may be lost by the interruption
        else:
            self._loop.call_soon(self._task.cancel)  # after its first step: a task that never began would not end here

    async def _run(self, work: Awaitable[Any]) -> None:
        _current.set(self)
        try:
            self._result = await work
        except BaseException as error:  # the caller's thread raises it
            self._error = error
        # The task is freed here: in the caller's thread, a Ctrl-C in the callback of asyncio's weak reference is lost.
        self._task = None
        # A callback of the task would run one turn of the loop later.
        self._end()

    def _end(self) -> None:
        self._messages.put(None)

    async def ask(self, callback: Callable[[], T]) -> T:
        """Run `callback` in the caller's thread and return its result."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def answer() -> None:
            try:
                future.set_result(callback())
            except Exception as error:  # the coroutine that asked raises it
                future.set_exception(error)

        self._messages.put(answer)
        return await asyncio.wrap_future(future)

    def wait(self) -> Any:
        self.wait_for_end()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback refers to this frame
        return self._result

    def wait_for_end(self) -> None:
        while (message := self._next_message()) is not None:
            message()
        self.is_over = True

    def _next_message(self) -> Callable[[], None] | None:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._messages.get(timeout=_SIGNAL_CHECK_S)


_current: ContextVar[_Call | None] = ContextVar("odradek blocking call", default=None)


def in_callers_thread(callback: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a coroutine function that runs `callback` in the thread of the blocking call that it is part of.

    A callback without such a call gets a thread of its own. A coroutine function's coroutine runs on the loop.
    """

    async def run(*args: Any) -> Any:
        call = _current.get()
        if call is None or call.is_over:
            result = await asyncio.to_thread(callback, *args)
        else:
            result = await call.ask(lambda: callback(*args))
        return await result if inspect.isawaitable(result) else result

    return run


_lock: Final = threading.Lock()
_threads: Final[dict[int, LoopThread]] = {}
"""The process's thread, by its id: after a fork, the parent's is still here and of no use."""


def loop_thread() -> LoopThread:
    """Return the process's thread for blocking clients, started at the first call."""
    with _lock:
        found = _threads.get(os.getpid())
        if found is None:
            found = _threads[os.getpid()] = LoopThread()
            atexit.register(found.stop)
        return found
