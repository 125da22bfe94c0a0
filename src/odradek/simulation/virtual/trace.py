"""The events of a simulation: a digest of all events, and the last ones as text.

Two runs with the same seed have the same digest, unless code takes time, order or randomness from outside `runtime`.
"""

import zlib
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

_KEPT: Final = 100
"""Number of events that are kept as text."""
_CHUNK: Final = 1_000
"""Number of lines whose checksum is computed at once."""


class Trace:
    """A checksum of all events, and the text of the last ones."""

    def __init__(self) -> None:
        self._count = 0
        self._crc = 0
        self._at_s = -1.0
        self._unsummed: list[str] = []
        self._last: deque[tuple[float, str]] = deque(maxlen=_KEPT)
        self._notes: deque[tuple[float, str]] = deque(maxlen=_KEPT)

    def add(self, at_s: float, event: str) -> None:
        """Record that `event` happened `at_s` seconds after the start."""
        self._count += 1
        lines = self._unsummed
        if at_s != self._at_s:
            self._at_s = at_s
            lines.append(f"{at_s:.9f}")
        lines.append(event)
        if len(lines) > _CHUNK:
            self._sum()
        self._last.append((at_s, event))

    def note(self, at_s: float, event: str) -> None:
        """Record an event that people understand: a message, a connection or a fault."""
        self.add(at_s, event)
        self._notes.append((at_s, event))

    @property
    def count(self) -> int:
        return self._count

    @property
    def digest(self) -> str:
        """The number of events, and a checksum over their times, texts and order."""
        self._sum()
        return f"{self._count}-{self._crc:08x}"

    def _sum(self) -> None:
        """Add the last lines to the checksum; a time is a line of its own, before the events that happen at it."""
        if self._unsummed:
            self._crc = zlib.crc32("\n".join([*self._unsummed, ""]).encode(), self._crc)
            self._unsummed.clear()

    def last(self, count: int = 20) -> list[str]:
        """Return the latest events, oldest first, one line each."""
        return _lines(list(self._last)[-count:] if count else [])

    def most_common(self) -> str:
        """Return the text of the most frequent of the latest events."""
        return Counter(event for _, event in self._last).most_common(1)[0][0] if self._last else ""

    def last_notes(self) -> list[str]:
        """Return the latest messages, connections and faults, oldest first, one line each."""
        return _lines(self._notes)


def _lines(events: Iterable[tuple[float, str]]) -> list[str]:
    return [f"{at_s:12.6f} s  {event}" for at_s, event in events]
