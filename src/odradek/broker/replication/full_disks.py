"""Data directories that have no room: what the log and `/healthz` say of them, in one line however many are refused.

```
refused ──► an outage begins: one line ──► a write, the first after QUIET_S without a refusal: it has ended, one line
```
While a disk is almost full, small writes pass and large ones do not: that is one outage, not many.
"""

import logging
from typing import Final

from odradek.runtime import Clock

QUIET_S: Final = 5.0
_log = logging.getLogger("odradek.broker")


class FullDisks:
    """One broker's; true while there is one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_refusal_s: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._last_refusal_s)

    def refused(self, directory: str, reason: str) -> None:
        """A write to a log in `directory` was taken back, for the time being."""
        if directory not in self._last_refusal_s:
            _log.error("%s takes no writes until there is room, and is read on: %s", directory, reason)
        self._last_refusal_s[directory] = self._clock.monotonic()

    def written(self, directory: str) -> None:
        """A write to a log in `directory` went well."""
        last_s = self._last_refusal_s.get(directory)
        if last_s is not None and self._clock.monotonic() - last_s >= QUIET_S:
            del self._last_refusal_s[directory]
            _log.info("%s takes writes again", directory)

    def sentences(self) -> list[str]:
        """One for each directory that was not written to since it refused."""
        now_s = self._clock.monotonic()
        return [
            f"{directory} had no room for a write {now_s - last_s:.0f} s ago"
            for directory, last_s in self._last_refusal_s.items()
        ]
