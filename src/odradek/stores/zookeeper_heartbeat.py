"""A lower bound of a ZooKeeper session's lifetime, since servers cannot notify a disconnected client.

The leader expires a session after its time-out since it last heard of it. A request that a quorum has answered
therefore proves the session alive for the time-out from when it was *sent*. Reads and ZooKeeper's pings prove nothing:
a server that is cut off from its leader answers them for a while. The heartbeat is a write that changes nothing, a
transaction of a single check: one entry in ZooKeeper's log per third of a session time-out.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient

from odradek.runtime import Clock

_HEARTBEATS_PER_TIMEOUT: Final = 3
_ANY_VERSION: Final = -1
_READ_TIMEOUTS_PER_SESSION: Final = 1.5
"""kazoo keeps only the read time-out, two thirds of the session time-out that the server granted."""


class Heartbeat:
    """The heartbeat of `client`'s session. `call_soon` runs a function on the event loop from any thread.

    `alive_until` is in monotonic seconds.
    """

    def __init__(self, client: KazooClient, clock: Clock, call_soon: Callable[..., None]) -> None:
        self.alive_until = 0.0
        self._client = client
        self._clock = clock
        self._call_soon = call_soon
        self._timeout_s = client._session_timeout / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._connect = client._connection._connect
        client._connection._connect = self._connect_and_store_timeout

    def start(self) -> None:
        """Send heartbeats; called when a connection is established."""
        self.stop()
        self._send()

    def reset(self) -> None:
        """Reset `alive_until` for a new session."""
        self.alive_until = 0.0

    def confirm(self, sent: float) -> None:
        """Extend `alive_until`: a quorum has processed a request that was sent at `sent`."""
        self.alive_until = max(self.alive_until, sent + self._timeout_s)

    def stop(self) -> None:
        """Stop sending heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _connect_and_store_timeout(self, *server: Any) -> tuple[float, float]:
        """Connect as kazoo does, on its thread, and store the granted time-out, which may be less than requested."""
        read_timeout_ms, connect_timeout_ms = self._connect(*server)
        self._timeout_s = read_timeout_ms * _READ_TIMEOUTS_PER_SESSION / 1000
        return read_timeout_ms, connect_timeout_ms

    def _send(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s / _HEARTBEATS_PER_TIMEOUT, self._send)
        sent, session = self._clock.monotonic(), self._client.client_id
        transaction = self._client.transaction()
        transaction.check("/", _ANY_VERSION)
        transaction.commit_async().rawlink(lambda result: self._call_soon(self._on_response, result, sent, session))

    def _on_response(self, result: Any, sent: float, session: object) -> None:
        if result.successful() and result.get_nowait() == [True] and session == self._client.client_id:
            self.confirm(sent)
