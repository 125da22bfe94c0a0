"""The command's own process: its standard input, and the signals that end it."""

import asyncio
import logging
import os
import select
import signal
import stat
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; SIGTERM cancels `work`, and the process exits with 143."""
    task = asyncio.ensure_future(work)
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM interrupt the block as Ctrl-C does."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def stop_on_signals(log: logging.Logger) -> asyncio.Event:
    """Return an event that the first SIGTERM or SIGINT sets, for a clean stop; the second one ends the process."""
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()

    def begin_to_stop(number: int) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError):
                loop.remove_signal_handler(each)
        signal.signal(number, signal.SIG_DFL)
        log.info("%s: shutting down; a second signal ends the process at once", signal.Signals(number).name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_to_stop, number)
    return stopping


def check_output() -> None:
    """Raise `BrokenPipeError` if standard output is a pipe whose reader has closed it, before anything is written."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)  # errors only
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0)):
        raise BrokenPipeError


async def started_before(stopping: asyncio.Event, start: Coroutine[Any, Any, None]) -> bool:
    """Wait for `start`; if `stopping` is set first, cancel `start` and return False."""
    starting, stopped = asyncio.ensure_future(start), asyncio.ensure_future(stopping.wait())
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not starting.done():
        starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True


async def chunks_of_stdin(chunk_bytes: int) -> AsyncIterator[bytes]:
    """Yield chunks of standard input as they arrive, without blocking the loop on a terminal or a pipe."""
    descriptor = sys.stdin.fileno()
    mode = os.fstat(descriptor).st_mode
    # A loop can't wait for a file or for /dev/null: uvloop ends the process.
    if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(descriptor)):
        while chunk := os.read(descriptor, chunk_bytes):
            yield chunk
        return
    reader = asyncio.StreamReader()
    blocking = os.get_blocking(descriptor)
    # A duplicate: the transport closes the file that it reads from.
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while chunk := await reader.read(chunk_bytes):
                yield chunk
        finally:
            transport.close()
            # The shell shares the terminal, and does not expect it to be non-blocking.
            os.set_blocking(descriptor, blocking)
