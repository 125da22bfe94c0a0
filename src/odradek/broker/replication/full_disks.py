"""Data directories without space for writes: one log line per directory and episode, and the text of `/healthz`.

```
a write fails ──► an episode begins: one line ──► the first write that succeeds QUIET_S after the last failure ends it
```
While a disk is almost full, small writes succeed and large ones fail: that is one episode.
"""

import logging
from typing import Final

from odradek.runtime import Clock

QUIET_S: Final = 5.0
_log = logging.getLogger("odradek.broker")


class FullDisks:
    """The data directories of one broker in which writes fail for lack of space; true if there are any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_refusal_s: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._last_refusal_s)

    def refused(self, directory: str, reason: str) -> None:
        """Record that a write to a log in `directory` failed for lack of space."""
        if directory not in self._last_refusal_s:
            _log.error("Data directory %s has no space for writes; reads go on: %s", directory, reason)
        self._last_refusal_s[directory] = self._clock.monotonic()

    def written(self, directory: str) -> None:
        """Record that a write to a log in `directory` succeeded."""
        last_s = self._last_refusal_s.get(directory)
        if last_s is not None and self._clock.monotonic() - last_s >= QUIET_S:
            del self._last_refusal_s[directory]
            _log.info("Data directory %s has space for writes again", directory)

    def sentences(self) -> list[str]:
        """Return a sentence for each directory whose episode has not ended."""
        now_s = self._clock.monotonic()
        return [
            f"{directory} had no room for a write {now_s - last_s:.0f} s ago"
            for directory, last_s in self._last_refusal_s.items()
        ]
