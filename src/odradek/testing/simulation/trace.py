"""The events of a simulation: a digest of all events, and the last ones as text.

Two runs with the same seed have the same digest, unless code takes time, order or randomness from outside `runtime`.
"""

import zlib
from collections import deque
from typing import Final

_KEPT: Final = 100
"""Number of events that are kept as text."""


class Trace:
    """A checksum of all events, and the text of the last ones."""

    def __init__(self) -> None:
        self._count = 0
        self._crc = 0
        self._last: deque[tuple[float, str]] = deque(maxlen=_KEPT)

    def add(self, at_s: float, event: str) -> None:
        """Record that `event` happened `at_s` seconds after the start."""
        self._count += 1
        self._crc = zlib.crc32(f"{at_s:.9f} {event}\n".encode(), self._crc)
        self._last.append((at_s, event))

    @property
    def count(self) -> int:
        """The number of events."""
        return self._count

    @property
    def digest(self) -> str:
        """The number of events, and a checksum over their times, texts and order."""
        return f"{self._count}-{self._crc:08x}"

    def last(self, count: int = 20) -> list[str]:
        """Return the latest events, oldest first, one line each."""
        events = list(self._last)[-count:] if count else []
        return [f"{at_s:12.6f} s  {event}" for at_s, event in events]
