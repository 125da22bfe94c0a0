"""Heartbeats that give a lower bound of a ZooKeeper session's lifetime, for a client that may be disconnected.

ZooKeeper's leader expires a session one time-out after its last message. A write that a quorum has processed therefore
proves the session alive for the time-out from when it was *sent*. Reads and pings prove nothing: a server without a
leader still answers them for a while. The heartbeat is a write without effect, a transaction of a single check: one
entry in ZooKeeper's log per third of a session time-out. It is sent and counted on other threads than the event loop's,
which may be busy. When the loop is stuck (`STUCK_SESSIONS`), heartbeats and kazoo's own pings end, and so the session.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient

from odradek.metadata.store import STUCK_SESSIONS
from odradek.runtime import Runtime

_HEARTBEATS_PER_TIMEOUT: Final = 3
_ANY_VERSION: Final = -1
_TURN_S: Final = 0.5
"""The interval at which the event loop shows that it turns."""
_READ_TIMEOUTS_PER_SESSION: Final = 1.5
"""The granted session time-out divided by the read time-out, the only one that kazoo stores."""


class Heartbeat:
    """The heartbeat of `client`'s session."""

    def __init__(self, client: KazooClient, runtime: Runtime) -> None:
        self._client = client
        self._clock = runtime.clock
        self._ticker = runtime.ticker
        self._timeout_s = client._session_timeout / 1000
        self._confirmed = 0, 0.0
        self._turned_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._stop_sending: Callable[[], None] | None = None
        self._connect = client._connection._connect
        client._connection._connect = self._connect_and_store_timeout
        self._ping = client._connection._send_ping
        client._connection._send_ping = self._ping_unless_stuck

    def start(self) -> None:
        """Send heartbeats; called when a connection is established."""
        self.stop()
        self._turn()
        self._send()
        self._stop_sending = self._ticker.start(self._timeout_s / _HEARTBEATS_PER_TIMEOUT, self._send)

    def alive_until(self, session: int) -> float:
        """Return until when `session` lives at least, in monotonic seconds."""
        confirmed, until = self._confirmed
        return until if session == confirmed else 0.0

    def confirm(self, session: int, sent: float) -> None:
        """Extend the session's life, after a quorum has processed a request of it that was sent at `sent`."""
        self._confirmed = session, max(self.alive_until(session), sent + self._timeout_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop_sending is not None:
            self._stop_sending()
            self._stop_sending = None

    def _turn(self) -> None:
        self._turned_at = self._clock.monotonic()
        self._timer = asyncio.get_running_loop().call_later(_TURN_S, self._turn)

    @property
    def _is_stuck(self) -> bool:
        return bool(self._clock.monotonic() - self._turned_at > STUCK_SESSIONS * self._timeout_s)

    def _ping_unless_stuck(self, connect_timeout: float) -> None:
        """Send kazoo's ping, on its thread; it would keep the session of a stuck loop for ever."""
        if not self._is_stuck:
            self._ping(connect_timeout)

    def _connect_and_store_timeout(self, *server: Any) -> tuple[float, float]:
        """Connect, on kazoo's thread, and store the granted time-out, which may be below the requested one."""
        read_timeout_ms, connect_timeout_ms = self._connect(*server)
        self._timeout_s = read_timeout_ms * _READ_TIMEOUTS_PER_SESSION / 1000
        return read_timeout_ms, connect_timeout_ms

    def _send(self) -> None:
        """Send a heartbeat, on any thread."""
        sent, client_id = self._clock.monotonic(), self._client.client_id
        if client_id is None or self._is_stuck:
            return
        transaction = self._client.transaction()
        transaction.check("/", _ANY_VERSION)
        transaction.commit_async().rawlink(lambda result: self._on_response(result, sent, client_id))

    def _on_response(self, result: Any, sent: float, client_id: Any) -> None:
        if result.successful() and result.get_nowait() == [True] and client_id == self._client.client_id:
            self.confirm(client_id[0], sent)
