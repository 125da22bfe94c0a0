"""How far the opening of a broker's logs is: told by the threads that open them, said in a line every few seconds.

```
310 of 1000 logs are open; 3100 of 10000 MiB checked in 5 s, about 11 s to go
1000 logs are open after 16.1 s: 998 recovered, 9981 MiB checked; 2 were not whole: 4711 bytes and 0 segments are cut
```
"""

import logging
from collections.abc import Callable
from threading import Lock
from typing import Final

from odradek.log.recovery.log_loader import TruncatedBytes
from odradek.model import OdradekError

_logger = logging.getLogger("odradek.log")
_EVERY_S: Final = 5.0


class LoadingStoppedError(OdradekError):
    """Somebody wants the broker to end before its logs are open."""

    def __init__(self) -> None:
        super().__init__("the broker was told to stop while it opened its logs")


class LoadingProgress:
    """See the module. `monotonic` is a clock in seconds; `logs` and `size` say how much there is to open, and to check.

    A log may turn out to need no check: `size` is the most that is read, in bytes. Any thread may call it.
    """

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
        self._cuts: list[TruncatedBytes] = []
        self.is_stopped = False

    def checked(self, size: int) -> None:
        """So many bytes more. Raises `LoadingStoppedError` after `stop`."""
        if self.is_stopped:
            raise LoadingStoppedError
        with self._lock:
            self._checked += size
            self._say()

    def opened(self, *, skipped: int, is_recovered: bool, truncated: TruncatedBytes) -> None:
        """A log more. `skipped` bytes of it needed no check."""
        with self._lock:
            self._opened += 1
            self._skipped += skipped
            self._recovered += is_recovered
            if truncated.size or truncated.segments:
                self._cuts.append(truncated)
            self._say()

    def stop(self) -> None:
        """Let every thread end soon; what it has in hand and is done with counts."""
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
        _logger.info("%s", text)

    def end(self) -> None:
        """Say how long it took, and what was lost."""
        text = f"{self._opened} logs are open after {self._monotonic() - self._began:.1f} s"
        if self._recovered:
            text += f": {self._recovered} recovered, {self._checked >> 20} MiB checked"
        if self._cuts:
            lost, segments = sum(cut.size for cut in self._cuts), sum(cut.segments for cut in self._cuts)
            text += f"; {len(self._cuts)} were not whole: {lost} bytes and {segments} segments are cut"
        _logger.info("%s", text)
