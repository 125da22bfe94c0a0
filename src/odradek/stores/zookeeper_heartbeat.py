"""Until when a ZooKeeper session surely lives: what the servers do not tell a client that has lost them.

A session lives for its time-out from when the leader last heard of it, so that whatever a client sent and a quorum has
answered proves its life for the time-out from when it was *sent*. Reads and ZooKeeper's own pings prove nothing: a
server that is cut off from its leader answers them for a while. What is sent here is therefore a write that changes
nothing, a transaction of a check alone; it is one entry in ZooKeeper's log per third of a session time-out.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient

from odradek.runtime import Clock

_BEATS_PER_TIMEOUT: Final = 3
_ANY_VERSION: Final = -1
_READ_TIMEOUTS_PER_SESSION: Final = 1.5
"""kazoo gives a connection two thirds of what the server granted, and keeps only that."""


class Heartbeat:
    """That of `client`'s session. `tell` has the event loop call a function, from any thread.

    `alive_until` is in monotonic seconds.
    """

    def __init__(self, client: KazooClient, clock: Clock, tell: Callable[..., None]) -> None:
        self.alive_until = 0.0
        self._client = client
        self._clock = clock
        self._tell = tell
        self._timeout_s = client._session_timeout / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._connect = client._connection._connect
        client._connection._connect = self._connect_and_learn

    def start(self) -> None:
        """There is a connection: prove that its session lives, now and again."""
        self.stop()
        self._beat()

    def forget(self) -> None:
        """There is another session, of which nothing is proved."""
        self.alive_until = 0.0

    def proved(self, sent: float) -> None:
        """What was sent then has been done by a quorum."""
        self.alive_until = max(self.alive_until, sent + self._timeout_s)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _connect_and_learn(self, *server: Any) -> tuple[float, float]:
        """Connect as kazoo does, on its thread, and keep what the server granted: it may be less than was asked for."""
        read_timeout_ms, connect_timeout_ms = self._connect(*server)
        self._timeout_s = read_timeout_ms * _READ_TIMEOUTS_PER_SESSION / 1000
        return read_timeout_ms, connect_timeout_ms

    def _beat(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s / _BEATS_PER_TIMEOUT, self._beat)
        sent, session = self._clock.monotonic(), self._client.client_id
        transaction = self._client.transaction()
        transaction.check("/", _ANY_VERSION)
        transaction.commit_async().rawlink(lambda result: self._tell(self._answered, result, sent, session))

    def _answered(self, result: Any, sent: float, session: object) -> None:
        if result.successful() and result.get_nowait() == [True] and session == self._client.client_id:
            self.proved(sent)
