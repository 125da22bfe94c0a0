"""Data directories without space for writes, whose partitions other brokers lead meanwhile; the text of `/healthz`.

```
a write fails ──► an episode begins: one line ──► a write fails HAND_OVER_S later: the controller is notified, other
                              │                   in-sync replicas lead, and the replicas here leave the ISR ──┐
                              └──► no write has failed for QUIET_S, and one succeeds or there is space ◄───────┘
```
While a disk is almost full, small writes succeed and large ones fail: that is one episode.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from odradek.runtime import Clock, Disk

HAND_OVER_S: Final = 3.0
"""Within it, retention or compaction may make space, and a broker that only lacked descriptors gets them back."""
QUIET_S: Final = 5.0
_FREE_BYTES: Final = 1 << 20
"""Free space that ends an episode without a write: a follower that misses no records writes nothing."""
_log = logging.getLogger("odradek.broker")


class FullDisks:
    """The data directories of one broker in which writes fail for lack of space; true if there are any.

    `when_changed` is called when `is_full` changes for a directory.
    """

    def __init__(self, disk: Disk, clock: Clock, *, when_changed: Callable[[], None]) -> None:
        self._disk = disk
        self._clock = clock
        self._when_changed = when_changed
        self._began_s: dict[str, float] = {}
        self._refusals: Counter[str] = Counter()
        self._last_refusal_s: dict[str, float] = {}
        self._full: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._has_stopped = False

    def __len__(self) -> int:
        return len(self._last_refusal_s)

    def is_full(self, directory: str) -> bool:
        """Return whether writes in `directory` have failed for so long that other replicas should lead."""
        return directory in self._full

    def refused(self, directory: str, reason: str) -> None:
        now_s = self._clock.monotonic()
        if directory not in self._last_refusal_s:
            _log.error("Data directory %s has no space for writes; reads go on: %s", directory, reason)
            self._began_s[directory] = now_s
        self._last_refusal_s[directory] = now_s
        self._refusals[directory] += 1
        if directory not in self._full and now_s >= self._began_s[directory] + HAND_OVER_S:
            _log.error("In-sync replicas elsewhere, if any, lead the partitions of %s until it has space", directory)
            self._full.add(directory)
            self._when_changed()
        self._look_later()

    def written(self, directory: str) -> None:
        """Record that a write to a log in `directory` succeeded."""
        last_s = self._last_refusal_s.get(directory)
        if last_s is not None and self._clock.monotonic() >= last_s + QUIET_S:
            self._end(directory)

    def sentences(self) -> list[str]:
        now_s = self._clock.monotonic()
        return [
            f"{directory} had no room for a write {now_s - last_s:.0f} s ago"
            + ("; in-sync replicas elsewhere, if any, lead its partitions" if directory in self._full else "")
            for directory, last_s in self._last_refusal_s.items()
        ]

    def stop(self) -> None:
        self._has_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        if self._timer is None and self._last_refusal_s and not self._has_stopped:
            self._timer = asyncio.get_running_loop().call_later(QUIET_S, self._look)

    def _look(self) -> None:
        self._timer = None
        for directory, last_s in tuple(self._last_refusal_s.items()):
            if self._clock.monotonic() >= last_s + QUIET_S and self._free_bytes(directory) >= _FREE_BYTES:
                self._end(directory)
        self._look_later()

    def _free_bytes(self, directory: str) -> int:
        try:
            return self._disk.space(directory).usable_bytes
        except OSError as error:
            _log.debug("The free space of %s is unknown: %s", directory, error)
            return 0

    def _end(self, directory: str) -> None:
        del self._last_refusal_s[directory]
        lasted_s, refusals = self._clock.monotonic() - self._began_s.pop(directory), self._refusals.pop(directory)
        _log.info(
            "Data directory %s has space for writes again: %d writes failed in %.0f s", directory, refusals, lasted_s
        )
        if directory in self._full:
            self._full.discard(directory)
            self._when_changed()
