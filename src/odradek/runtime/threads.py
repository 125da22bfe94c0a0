"""Threads for blocking work, with a defined error if the system cannot start one."""

import _queue
import _thread
import asyncio
import errno
import logging
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from types import BuiltinFunctionType
from typing import Final, Protocol, TypeVar, cast

T = TypeVar("T")
_log = logging.getLogger("odradek.runtime")
_NO_THREAD: Final = "the system starts no thread"


def check_threads(what: str) -> None:
    """Raise `RuntimeError` if threads are gevent's or eventlet's, on which an event loop in a thread never returns."""
    if not isinstance(_thread.start_new_thread, BuiltinFunctionType) or queue.SimpleQueue is not _queue.SimpleQueue:
        raise RuntimeError(
            f"{what} needs Python's own threads, and gevent or eventlet has replaced them: patch all but "
            "thread and queue, as by gevent's `monkey.patch_all(thread=False, queue=False)`"
        )


class Ticker(Protocol):
    """Calls functions at intervals, also while the event loop is busy."""

    def start(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        """Call `work`, which must not raise, each `interval_s` on a thread. Return a function that ends this."""


class ThreadTicker:
    """A thread for each function. A test sets `is_paused` for a process that stands still."""

    def __init__(self) -> None:
        self.is_paused = False

    def start(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        stopped = Event()

        def run() -> None:
            while not stopped.wait(interval_s):
                if not self.is_paused:
                    work()

        thread = Thread(target=run, name="odradek-ticker", daemon=True)
        if not _has_started(thread):
            _log.warning("%s: the session with the metadata tree is renewed by the event loop alone", _NO_THREAD)
        return stopped.set


class NoTicker:
    """Calls nothing, for loops that are never busy for long."""

    def start(self, interval_s: float, work: Callable[[], None]) -> Callable[[], None]:
        del interval_s, work
        return lambda: None


class Worker(Protocol):
    """Runs work that touches nothing but its arguments."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work` beside the event loop, and return a future of the running loop."""


class LazyThread:
    """One thread that runs the submitted work in order. It is started by the first `submit`."""

    def __init__(self, name: str, *, begin: Callable[[], None] | None = None) -> None:
        """`begin` is called on the thread before anything else."""
        self._executor = ThreadPoolExecutor(1, name, initializer=begin)

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work` on the thread, and return a future of the running loop.

        If no thread can be started, `work` is not run, and the future's error is `OSError` EAGAIN or `MemoryError`.
        """
        loop = asyncio.get_running_loop()
        queued = [work]
        try:
            return loop.run_in_executor(self._executor, lambda: queued.pop()())
        except (RuntimeError, MemoryError) as error:
            queued.clear()  # the executor keeps the work, and would run it with the next one
            future: asyncio.Future[T] = loop.create_future()
            is_memory = isinstance(error, MemoryError)
            future.set_exception(error if is_memory else OSError(errno.EAGAIN, f"{_NO_THREAD}: {error}"))
            return future


_Outcome = tuple[T | None, BaseException | None]
"""The result of a piece of work, or its error."""


def run_in_threads(groups: Sequence[Sequence[Callable[[], T]]], *, threads: int) -> Iterator[T]:
    """Run all work, at most `threads` at a time of each group; yield results as they come (`Disk.run_in_threads`)."""
    queues = [deque(group) for group in groups]
    outcomes: SimpleQueue[_Outcome[T]] = SimpleQueue()
    started: list[Thread] = []
    without_thread: list[deque[Callable[[], T]]] = []
    expected = 0
    try:
        for queue in queues:
            size = len(queue)
            crew = [
                Thread(target=_work_off, args=(queue, outcomes), name="odradek-disk") for _ in range(min(threads, size))
            ]
            running = [thread for thread in crew if _has_started(thread)]
            started += running
            if running:
                expected += size
            else:
                without_thread.append(queue)
        for _ in range(expected):
            result, error = outcomes.get()
            if error is not None:
                raise error
            yield cast("T", result)
        for queue in without_thread:
            while queue:
                yield queue.popleft()()
    finally:
        for queue in queues:
            queue.clear()
        for thread in started:
            thread.join()


def _work_off(queue: deque[Callable[[], T]], outcomes: "SimpleQueue[_Outcome[T]]") -> None:
    """Run the work in `queue`, from which other threads take work, too."""
    while queue:
        with suppress(IndexError):  # another thread has taken the last one
            work = queue.popleft()
            outcomes.put(_outcome_of(work))


def _outcome_of(work: Callable[[], T]) -> _Outcome[T]:
    try:
        return work(), None
    except BaseException as error:
        return None, error


def _has_started(thread: Thread) -> bool:
    """Start a thread; return False if the system cannot."""
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return False
    return True
