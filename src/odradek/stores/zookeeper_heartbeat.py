"""Heartbeats that give a lower bound of a ZooKeeper session's lifetime, for a client that may be disconnected.

ZooKeeper's leader expires a session one time-out after its last message. A write that a quorum has processed therefore
proves the session alive for the time-out from when it was *sent*. Reads and pings prove nothing: a server without a
leader still answers them for a while. The heartbeat is a write without effect, a transaction of a single check: one
entry in ZooKeeper's log per third of a session time-out.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient

from odradek.runtime import Clock

_HEARTBEATS_PER_TIMEOUT: Final = 3
_ANY_VERSION: Final = -1
_READ_TIMEOUTS_PER_SESSION: Final = 1.5
"""The granted session time-out divided by the read time-out, the only one that kazoo stores."""


class Heartbeat:
    """The heartbeat of `client`'s session, which lives at least until `alive_until`, in monotonic seconds.

    `call_soon` runs a function on the event loop from any thread.
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
        """Extend `alive_until`, after a quorum has processed a request sent at `sent`."""
        self.alive_until = max(self.alive_until, sent + self._timeout_s)

    def stop(self) -> None:
        """Stop sending heartbeats."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _connect_and_store_timeout(self, *server: Any) -> tuple[float, float]:
        """Connect, on kazoo's thread, and store the granted time-out, which may be below the requested one."""
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
