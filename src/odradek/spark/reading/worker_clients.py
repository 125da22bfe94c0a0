"""Caches Kafka clients in a Spark worker's process, so that its next task needs no new connections and metadata.

A client whose task failed is closed, because its requests may still be in flight.
"""

import gc
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, Protocol, TypeVar, cast

from odradek.clients.blocking.loop_thread import LoopThread, loop_thread

MOST_CLIENTS: Final = 8
"""Idle clients of a process: more than the queries that commonly share the workers of an executor."""


class Client(Protocol):
    """A client of `odradek.clients`."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)

_are_frozen = False


@contextmanager
def lend_client(key: Hashable, open_client: Callable[[], Awaitable[C]]) -> Iterator[C]:
    """Yield the idle client of `key`, or a new one, for this block alone; close it if the block raises."""
    thread = loop_thread()
    idle = _idle_clients(thread)
    lent = cast("C", idle.pop(key, None) or thread.run(open_client))
    try:
        yield lent
    except BaseException:
        thread.run(lent.close)
        raise
    replaced = idle.pop(key, None)
    idle[key] = lent
    if replaced is None and len(idle) > MOST_CLIENTS:
        replaced = idle.pop(next(iter(idle)))
    if replaced is not None:
        thread.run(replaced.close)


def close_idle_clients() -> None:
    """Close the clients that no task uses."""
    idle = _idle_clients(loop_thread())
    while idle:
        loop_thread().run(idle.popitem()[1].close)


@cache
def _idle_clients(thread: LoopThread) -> dict[Hashable, Client]:
    """Return the clients of a process that no task uses, by key; the least recently used one is the first."""
    idle: dict[Hashable, Client] = {}

    async def close() -> None:
        while idle:
            await idle.popitem()[1].close()

    thread.on_exit(id(idle), close)
    return idle


def keep_imports_out_of_collections() -> None:
    """Exclude all present objects of a Spark worker from garbage collection, once.

    PySpark collects garbage after every task, which takes 35 ms with pyarrow's and other modules and 1 ms without.
    """
    from pyspark import TaskContext

    global _are_frozen
    # `gc.get_freeze_count` walks through every object.
    if not _are_frozen and TaskContext.get() is not None:
        _are_frozen = True
        gc.collect()
        gc.freeze()
