"""The thread with the event loop on which the blocking clients of a process run.

A blocking call is a task on that loop. The caller's thread waits for messages of the task: the end of the call, or an
application's callback, which runs in the caller's thread, so that it may make blocking calls, too.
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

from odradek.runtime.threads import check_threads

T = TypeVar("T")

_EXIT_TIMEOUT_S: Final = 5.0
"""The time limit for closing open clients at the interpreter's exit, to flush and to leave their groups."""

_SIGNAL_CHECK_S: Final = 0.25
"""The longest single wait: a signal that arrives just before a wait does not interrupt that wait."""

_FOR_THE_MAIN_THREAD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
"""Signals that the loop's thread blocks, so that they interrupt the main thread, which may wait for a call."""


class LoopThread:
    """An event loop in a daemon thread. Any other thread of the same process may call `run`."""

    def __init__(self) -> None:
        check_threads("a blocking client")
        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="odradek-clients", daemon=True)
        self._closers: dict[int, Callable[[], Awaitable[Any]]] = {}
        self._thread.start()

    def run(self, work: Callable[[], Any]) -> Any:
        """Call `work` on the loop, await its result (except a future), and return the result or raise the error.

        An exception in the waiting thread, such as KeyboardInterrupt, cancels the call and is raised when the call has
        ended. Raises `RuntimeError` in another process, in the loop's thread, and after the loop has ended.
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
        """Whether the thread belongs to this process and is alive."""
        return self._pid == os.getpid() and self._thread.is_alive()

    def on_exit(self, key: int, close: Callable[[], Awaitable[Any]] | None) -> None:
        """Register `close`, which closes the object with id `key` at the interpreter's exit; None removes it."""
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
                for close in reversed(list(self._closers.values())):  # iterators before their clients
                    await asyncio.gather(close(), return_exceptions=True)
        remaining = asyncio.all_tasks() - {asyncio.current_task()}
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)
        # The transports close in the next turn of the event loop.
        await asyncio.sleep(0)


class _Call:
    """One blocking call. The loop runs `begin`, `cancel` and `ask`; the caller's thread runs the `wait` methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
        self.is_over = False
        self.has_ended = False
        """Whether the loop has sent the message of the end, after which the caller's thread reads no other."""
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
            self._end()  # the call has not begun or is over, and the interruption may have lost the message of its end
        else:
            self._loop.call_soon(self._task.cancel)  # after the task's first step: one that never ran sends no message

    async def _run(self, work: Awaitable[Any]) -> None:
        _current.set(self)
        try:
            self._result = await work
        except BaseException as error:  # the caller's thread raises it
            self._error = error
        # Free the task here: in the caller's thread, a Ctrl-C during asyncio's weak reference callback would be lost.
        self._task = None
        # A done callback of the task would run one turn of the loop later.
        self._end()

    def _end(self) -> None:
        self.has_ended = True
        self._messages.put(None)

    async def ask(self, callback: Callable[[], T]) -> T:
        """Run `callback` in the caller's thread and return its result."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def answer() -> None:
            try:
                future.set_result(callback())
            except Exception as error:  # the coroutine that called `ask` raises it
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
            del error  # breaks a cycle: the traceback refers to this frame
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
    """Return a coroutine function that runs `callback` in the thread that waits for the current blocking call.

    Without such a call, `callback` runs in another thread. A coroutine that `callback` returns runs on the loop.
    """

    async def run(*args: Any) -> Any:
        call = _current.get()
        if call is None or call.has_ended:
            result = await asyncio.to_thread(callback, *args)
        else:
            result = await call.ask(lambda: callback(*args))
        return await result if inspect.isawaitable(result) else result

    return run


_lock: Final = threading.Lock()
_threads: Final[dict[int, LoopThread]] = {}
"""The loop's thread by process id; after a fork, the parent's entry is unusable."""


def loop_thread() -> LoopThread:
    """Return the loop thread of this process, and start it at the first call."""
    with _lock:
        found = _threads.get(os.getpid())
        if found is None:
            found = _threads[os.getpid()] = LoopThread()
            atexit.register(found.stop)
        return found
