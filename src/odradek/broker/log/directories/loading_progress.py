"""The progress of opening a broker's logs, logged every few seconds.

```
Loading logs: 310 of 1000 logs are open; 3100 of 10000 MiB checked in 5 s, about 11 s to go
Loaded logs: 1000 logs are open after 16.1 s: 998 recovered, 9981 MiB checked; 2 truncated by 4711 bytes and 0 segments
```
"""

import logging
from collections.abc import Callable
from threading import Lock
from typing import Final

from odradek.broker.log.recovery.log_loader import TruncatedBytes
from odradek.model import OdradekError

_logger = logging.getLogger("odradek.log")
_EVERY_S: Final = 5.0


class LoadingStoppedError(OdradekError):
    """The broker was stopped before all its logs were open."""

    def __init__(self) -> None:
        super().__init__("the broker was stopped while it opened its logs")


class LoadingProgress:
    """Counts opened logs and checked bytes, on any thread. Recovery reads at most `size` bytes."""

    def __init__(self, monotonic: Callable[[], float], *, logs: int, size: int) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._began = self._said = monotonic()
        self._logs = logs
        self._size = size
        self._opened = 0
        self._checked = 0
        self._skipped = 0
        self._recovered = 0
        self._truncated: list[TruncatedBytes] = []
        self.is_stopped = False

    def checked(self, size: int) -> None:
        """Count `size` bytes as checked. Raises `LoadingStoppedError` after `stop`."""
        if self.is_stopped:
            raise LoadingStoppedError
        with self._lock:
            self._checked += size
            self._say()

    def opened(self, *, skipped: int, is_recovered: bool, truncated: TruncatedBytes) -> None:
        """Count an opened log, of which `skipped` bytes needed no check."""
        with self._lock:
            self._opened += 1
            self._skipped += skipped
            self._recovered += is_recovered
            if truncated.size or truncated.segments:
                self._truncated.append(truncated)
            self._say()

    def stop(self) -> None:
        """Make every thread stop soon; logs opened so far stay open."""
        self.is_stopped = True

    def _say(self) -> None:
        now = self._monotonic()
        if now - self._said < _EVERY_S:
            return
        self._said = now
        passed, size = now - self._began, self._size - self._skipped
        text = f"{self._opened} of {self._logs} logs are open"
        if self._checked:
            to_go = max(size - self._checked, 0) / self._checked * passed
            text += f"; {self._checked >> 20} of {size >> 20} MiB checked in {passed:.0f} s, about {to_go:.0f} s to go"
        _logger.info("Loading logs: %s", text)

    def end(self) -> None:
        text = f"{self._opened} logs are open after {self._monotonic() - self._began:.1f} s"
        if self._recovered:
            text += f": {self._recovered} recovered, {self._checked >> 20} MiB checked"
        if self._truncated:
            lost, segments = sum(each.size for each in self._truncated), sum(each.segments for each in self._truncated)
            text += f"; {len(self._truncated)} truncated by {lost} bytes and {segments} segments"
        _logger.info("Loaded logs: %s", text)
