"""The `Fence` of a broker: stops it from acting as leader or controller when its session may have expired.

```
             the session may have expired, or is lost          the image is of a live session
   open ────────────────────────────────────────────► closed ─────────────────────────────────► open
```
A broker that is cut off from the tree is not notified when its session expires. So it uses its own clock: the store
knows until when the session is certainly alive. Timers are not enough, because a process that was suspended may handle
requests before timers when it resumes; so acknowledgements need a `check` first, once per turn of the event loop.
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
"""The shortest timer: event loops count in milliseconds, and a timer that fires early starts another one."""
_log = logging.getLogger("odradek.broker")


class Fence:
    """One broker's fence, closed at first. The metadata loop opens it."""

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
        """Call `closed` synchronously whenever the fence closes, and `opened` whenever it opens."""
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
        """Return whether the fence is open and the session certainly alive; close the fence if the session is not."""
        # `alive_until` of a session never decreases, so most calls do not need the store.
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
        """Return whether `session` is the store's session and certainly alive."""
        return session == self._store.session_id and self._clock.monotonic() < self._store.alive_until

    def open_for(self, session: int, *, was_alive: bool) -> None:
        """Open the fence if `session`, in which the broker has registered and read its image, is alive.

        `was_alive`: whether the session was alive before the image was read. If not, the image is read again.
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
        """Let the next check call `wake` once more if the session is alive, because the fence could not be opened."""
        self._has_notified = False

    async def back_off(self, seconds: float) -> None:
        """Sleep for `seconds`, or until a session is alive again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._alive_again.wait()
        self._alive_again.clear()

    def _check(self) -> None:
        """Close the fence if the session may have expired; call `wake` once when it is alive again."""
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
