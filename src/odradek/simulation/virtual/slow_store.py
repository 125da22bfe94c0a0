"""An in-memory metadata store whose requests, watches and session renewals have the latency of a remote tree.

With a lag, a session reads as from a follower of ZooKeeper, in which other sessions' changes appear late:

- Its reads and watches show changes in order, and never go back, also after a reconnection.
- Its own writes, failed ones too, and a new session show it all that happened before.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import copy_context
from typing import Any, Final

from odradek.metadata.paths import name_of, parent
from odradek.metadata.store import Node, NoNode, Operation, Result, SessionExpired
from odradek.model import StorageError, UnavailableError
from odradek.stores import MemoryStore, MemoryTree
from odradek.stores.semantics import ROOT, Change, Record
from odradek.stores.watches import Watches

_BEATS_PER_TIMEOUT: Final = 3
_SLOW_ONES: Final = 0.02
_SLOWER_BY: Final = 10


class _Way:
    """One direction of a connection: messages arrive in the order in which they were sent."""

    def __init__(self, chance: random.Random, mean_s: float) -> None:
        self._chance = chance
        self._mean_s = mean_s
        self._last = 0.0
        self.context = copy_context()
        """The context of the process whose connection this is."""

    def arrival(self, not_before: float = 0.0) -> float:
        """Return the arrival time, by the loop's clock, of a message sent now, or at `not_before` if that is later."""
        delay_s = self._chance.expovariate(1 / self._mean_s)
        delay_s *= _SLOWER_BY if self._chance.random() < _SLOW_ONES else 1
        now = max(self.context.run(asyncio.get_running_loop().time), not_before)
        self._last = max(now + delay_s, self._last + 1e-6)
        return self._last

    async def go(self) -> None:
        """Sleep until a message that is sent now arrives."""
        arrival = self.arrival()
        await asyncio.sleep(arrival - asyncio.get_running_loop().time())


class _LateWatches(Watches):
    """Watches that fire late, but never before a response that was sent before the change."""

    def __init__(self, way: _Way) -> None:
        super().__init__()
        self._way = way

    def fire(self, changes: Iterable[Change]) -> None:
        known = [each for each in changes if self.has_data(each.path) or self.has_children(parent(each.path))]
        if known:
            loop = asyncio.get_running_loop()
            loop.call_at(self._way.arrival(), super().fire, known, context=self._way.context.copy())


class SlowStore(MemoryStore):
    """One session with a metadata tree; `mean_s` is the mean latency in each direction, `lag_s` the mean lag of reads.

    A request in flight when the connection is lost fails with `UnavailableError`, and may have been executed. As with
    ZooKeeper, `alive_until` is one session time-out after the last answered request was sent.
    """

    def __init__(self, tree: MemoryTree, chance: random.Random, mean_s: float, *, lag_s: float = 0.0) -> None:
        super().__init__(tree)
        self._there, self._back = _Way(chance, mean_s), _Way(chance, mean_s)
        self._lag = _Way(chance, lag_s) if lag_s else None
        self._unseen = deque[tuple[Sequence[tuple[str, Record | None]], Sequence[Change]]]()
        """The transactions that reads do not show yet: the former records, and the changes."""
        self._seen = 0
        self.watches = _LateWatches(self._back)
        self._connections = 0
        self._proved_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._beat()

    @property
    def alive_until(self) -> float:
        return self._proved_until

    def _beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed or not self.is_connected:
            return
        loop = asyncio.get_running_loop()
        proof = self._context.run(loop.time), self._session, self._connections
        context = self._context.copy()
        self._timer = loop.call_later(self._session_timeout_s / _BEATS_PER_TIMEOUT, self._beat, context=context)
        loop.call_at(self._back.arrival(not_before=self._there.arrival()), self._prove, *proof, context=context)

    def _prove(self, sent: float, session: int, connection: int) -> None:
        if (session, connection) == (self._session, self._connections) and not self._closed:
            self._proved_until = max(self._proved_until, sent + self._session_timeout_s)

    def disconnect(self) -> None:
        """Lose the connection; requests in flight fail."""
        self._connections += 1
        super().disconnect()

    def reconnect(self) -> None:
        super().reconnect()
        self._beat()

    def session_expired(self) -> None:
        """End the session; requests in flight fail."""
        before = self._session
        super().session_expired()
        if self._session != before:
            self._proved_until = 0.0
            self._see_all()
            self._beat()

    async def close(self) -> None:
        await super().close()
        self._beat()

    def abandon(self) -> None:
        super().abandon()
        self._beat()

    def note(self, before: Sequence[tuple[str, Record | None]], changes: Sequence[Change]) -> None:
        if self._lag is None:
            super().note(before, changes)
        elif not self._closed:
            self._unseen.append(([*before], changes))
            last = self._seen + len(self._unseen)
            context = self._lag.context.copy()
            asyncio.get_running_loop().call_at(self._lag.arrival(), self._see, last, context=context)

    def _see(self, last: int) -> None:
        """Show the transactions up to the one with this number."""
        while self._unseen and self._seen < last:
            self._seen += 1
            super().note(*self._unseen.popleft())

    def _see_all(self) -> None:
        self._see(self._seen + len(self._unseen))

    def _find(self, path: str) -> Record | None:
        former = (record for before, _ in self._unseen for changed, record in before if changed == path)
        return next(former, self.tree.find(path))

    def _names(self, path: str) -> list[str]:
        if self._find(path) is None:
            raise NoNode(path)
        names = {*self.tree.names(path)} if self.tree.find(path) is not None else set[str]()
        for before, _ in reversed(self._unseen):
            for changed, record in reversed(before):
                if changed != ROOT and parent(changed) == path:
                    (names.discard if record is None else names.add)(name_of(changed))
        return sorted(names)

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted, ask = list(paths), super().get_many
        found: list[Node | None] = await self._slowly(lambda: ask(wanted))
        return found

    async def children(self, path: str) -> list[str]:
        ask = super().children
        names: list[str] = await self._slowly(lambda: ask(path))
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        ask = self._write
        proof = asyncio.get_running_loop().time(), self._session, self._connections
        results: list[Result] = await self._slowly(lambda: ask(operations))
        self._prove(*proof)
        return results

    async def _write(self, operations: Sequence[Operation]) -> list[Result]:
        try:
            return await super().multi(operations)
        finally:
            if self.is_connected:
                self._see_all()

    async def _slowly(self, work: Callable[[], Awaitable[Any]]) -> Any:
        session, connection = self._session, self._connections
        if self.is_connected:
            await self._there.go()
        self._check(connection)
        if session != self._session:
            raise SessionExpired
        try:
            return await work()
        finally:
            await self._back.go()
            self._check(connection)
            if session != self._session:
                raise UnavailableError("the session with the metadata tree expired before the answer came")

    def _check(self, connection: int) -> None:
        if self._closed:
            raise StorageError("the metadata store is closed")
        if connection != self._connections or not self.is_connected:
            raise UnavailableError("the connection to the metadata tree is lost")
