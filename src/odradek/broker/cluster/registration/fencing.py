"""The fence of a broker: it may act on its registration, partitions and controller epoch only while its session lives.

```
             a session's end is near, or it is lost            the image is of a living session
   open ────────────────────────────────────────────► closed ─────────────────────────────────► open
```
A broker without a connection to the tree is considered dead when its session times out, and is not notified. So it
uses its own clock: the store knows until when the session certainly lives. Timers and sockets are not enough, because
a process that was stopped handles requests before timers when it continues; so acknowledgements need a `check` first,
once per turn of the event loop. (Kafka with ZooKeeper had no fence: a broker that was cut off went on to acknowledge,
with acks=1, records that the next leader did not have.)
"""

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from odradek.metadata.store import Store
from odradek.runtime import Clock

_CHECK_AGAIN_S: Final = 0.1
"""The interval at which a closed fence checks whether the session is alive again."""
_SHORTEST_S: Final = 0.001
"""Event loops count in milliseconds: a timer that fires a little early starts another one."""
_log = logging.getLogger("odradek.broker")


class Fence:
    """One broker's fence, closed at first; the metadata loop calls `is_alive` and `open_for`."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.closures = 0
        """How often the fence was closed."""
        self._store = store
        self._clock = clock
        self._session = 0
        self._is_closed = True
        self._was_open = False
        self._alive_until = -math.inf
        self._on_closed: list[Callable[[], None]] = []
        self._on_opened: list[Callable[[], None]] = []
        self._wake: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._alive_again = asyncio.Event()
        self._has_notified = True
        self._has_stopped = False

    def on_change(self, *, closed: Callable[[], None], opened: Callable[[], None] | None = None) -> None:
        """Call back at once when the fence closes, and when it opens."""
        self._on_closed.append(closed)
        if opened is not None:
            self._on_opened.append(opened)

    def start(self, *, wake: Callable[[], None]) -> None:
        """Start the timers; `wake` makes the metadata loop read the tree when the session is alive again."""
        self._wake = wake
        self._check()

    def stop(self) -> None:
        """Stop the timers; a closed fence stays closed."""
        self._wake, self._has_stopped = None, True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_closed(self) -> bool:
        """Whether this broker is fenced, and so leads nothing."""
        return self._is_closed

    def check(self) -> bool:
        """Return whether the broker may act at this moment; the fence closes if not."""
        # A session's certain lifetime never shrinks, so most calls need not ask the store.
        return self._clock.monotonic() < self._alive_until or self._ask()

    def _ask(self) -> bool:
        if self._is_closed:
            return False
        if self.is_alive(self._session):
            self._alive_until = self._store.alive_until
            return True
        self.close()
        return False

    def close(self) -> None:
        """Close the fence until `open_for` opens it."""
        if self._is_closed:
            return
        self._is_closed, self._has_notified, self._alive_until = True, False, -math.inf
        self.closures += 1
        _log.warning("Session may have expired: the broker is fenced and leads no partition until it has a session")
        for closed in self._on_closed:
            closed()
        self._check_after(_CHECK_AGAIN_S)

    def is_alive(self, session: int) -> bool:
        """Return whether this is the store's session, and certainly lives."""
        return session == self._store.session_id and self._clock.monotonic() < self._store.alive_until

    def open_for(self, session: int, *, was_alive: bool) -> None:
        """Open the fence if `session`, which the broker is registered by and has read its image in, is alive.

        `was_alive` is whether the session was alive before the image was read; if not, the image is read again.
        """
        if not self._is_closed or self._has_stopped:
            return
        if not was_alive or not self.is_alive(session):
            self.notify_again()
            return
        self._session, self._is_closed = session, False
        self._alive_again.clear()
        if self._was_open:
            _log.info("The session is alive: the broker is unfenced and leads its partitions again")
        self._was_open = True
        for opened in self._on_opened:
            opened()
        self._check_after(self._store.alive_until - self._clock.monotonic())

    def notify_again(self) -> None:
        """Have `wake` called again when a session is alive: the last call came too late."""
        self._has_notified = False

    async def back_off(self, seconds: float) -> None:
        """Sleep, but not past the moment when a session is alive again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._alive_again.wait()
        self._alive_again.clear()

    def _check(self) -> None:
        """Close the fence in time, or call `wake` once when it may be opened."""
        if self._ask():
            self._check_after(self._store.alive_until - self._clock.monotonic())
            return
        is_alive = self.is_alive(self._store.session_id)
        if is_alive and not self._has_notified and self._wake is not None:
            self._alive_again.set()
            self._wake()
        self._has_notified = is_alive
        self._check_after(_CHECK_AGAIN_S)

    def _check_after(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._wake is not None:
            self._timer = asyncio.get_running_loop().call_later(max(delay_s, _SHORTEST_S), self._check)
