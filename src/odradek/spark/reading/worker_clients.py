"""Caches Kafka clients in a Spark worker's process, so that its next task needs no new connections and metadata.

PySpark runs one task after another in a process, each by a plain call, so the event loop runs only during a call. A
client whose task failed is closed, because its requests may still be in flight.
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
        """The least recently used client is the first."""

    @contextmanager
    def lend(self, key: Hashable, open_client: Callable[[], Awaitable[C]]) -> Iterator[C]:
        """Yield the idle client of `key`, or a new one, for this block alone; close it if the block raises."""
        client = cast("C | None", self._idle.pop(key, None))
        # The loop must first notice the connections that brokers have closed meanwhile.
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
"""Clients inherited by a fork, never closed: closing them would remove the parent's sockets from its selector."""


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
    """Exclude all present objects of a Spark worker from garbage collection, once.

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
