"""Clients that live as long as a Spark worker's Python process: the next task needs neither a connection nor metadata.

PySpark runs one task after another in a process, each by a plain call. So an event loop runs only during a call, and a
client is idle between tasks. A client whose task did not end well is closed, since requests of it may be in flight.
"""

import asyncio
import atexit
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar, cast

import uvloop

MOST_CLIENTS: Final = 8
"""Idle clients per thread: more than the queries that commonly share the workers of an executor."""


class Client(Protocol):
    """A client of `odradek.clients`."""

    async def close(self) -> None:
        """Close the connections."""


C = TypeVar("C", bound=Client)


class WorkerClients:
    """An event loop and its idle clients by key, for one thread."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._idle: dict[Hashable, Client] = {}
        """The client that was used last is the last one."""

    @contextmanager
    def lend(self, key: Hashable, open_client: Callable[[], Awaitable[C]]) -> Iterator[C]:
        """Yield the idle client of `key`, or a new one, which belongs to the block; close it if the block raises."""
        client = cast("C | None", self._idle.pop(key, None))
        # The loop has to see first which connections brokers have closed meanwhile.
        lent = self.loop.run_until_complete(_opened(open_client) if client is None else _awake(client))
        try:
            yield lent
        except BaseException:
            self._close(lent)
            raise
        replaced = self._idle.pop(key, None)
        self._idle[key] = lent
        if replaced is not None:
            self._close(replaced)
        if len(self._idle) > MOST_CLIENTS:
            self._close(self._idle.pop(next(iter(self._idle))))

    def close(self) -> None:
        """Close the idle clients and the loop."""
        while self._idle:
            self._close(self._idle.popitem()[1])
        self.loop.close()

    def _close(self, client: Client) -> None:
        self.loop.run_until_complete(client.close())


async def _opened(open_client: Callable[[], Awaitable[C]]) -> C:
    return await open_client()


async def _awake(client: C) -> C:
    for _ in range(2):
        await asyncio.sleep(0)
    return client


_local = threading.local()
_are_frozen = False
_of_parents: Final[list[object]] = []
"""Clients of a process before it was forked: closing them would take the parent's sockets out of its selector."""


def worker_clients() -> WorkerClients:
    """Return the clients of the calling thread."""
    clients: WorkerClients | None = getattr(_local, "clients", None)
    if clients is None:
        clients = _local.clients = WorkerClients()
    return clients


def close_worker_clients() -> None:
    """Close the clients of the calling thread; `worker_clients` makes new ones."""
    clients: WorkerClients | None = _local.__dict__.pop("clients", None)
    if clients is not None:
        clients.close()


def keep_imports_out_of_collections() -> None:
    """Move all objects of a Spark worker, once, to where the garbage collector does not look.

    PySpark collects garbage after every task, which takes 35 ms with numba's and pyarrow's modules and 1 ms without.
    """
    from pyspark import TaskContext

    global _are_frozen
    # `gc.get_freeze_count` walks through every object.
    if not _are_frozen and TaskContext.get() is not None:
        _are_frozen = True
        gc.collect()
        gc.freeze()


def _forget_parent() -> None:
    _of_parents.append(_local.__dict__.pop("clients", None))


atexit.register(close_worker_clients)
os.register_at_fork(after_in_child=_forget_parent)
