"""Log lines about repeated events, limited so that clients and failing brokers cannot flood the log."""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable
from typing import Final

MOST_KEYS: Final = 10
"""Kinds of lines of one owner that are counted apart: a client chooses what it sends, and so how many there are."""
MOST_OWNERS: Final = 1000
"""Owners whose lines are counted apart."""


class RateLimitedLog:
    """A rate limit in front of a logger: `most_lines` of each kind per `interval_s`, by the running event loop's clock.

    At the end of an interval, one more line counts the others of its kind. Lines of one owner, such as a principal, do
    not use up the limit of another.
    """

    def __init__(self, logger: logging.Logger, *, most_lines: int = 1, interval_s: float = 60.0) -> None:
        self._logger = logger
        self._most_lines = most_lines
        self._interval_s = interval_s
        self._counts: dict[Hashable, Counter[Hashable]] = {}

    def log(
        self,
        kind: Hashable,
        level: int,
        text: str,
        *args: object,
        owner: Hashable = None,
        error: BaseException | None = None,
    ) -> None:
        """Log a line, with the traceback of `error`, or count it if `owner` had too many of its `kind`."""
        if owner not in self._counts and len(self._counts) >= MOST_OWNERS:
            owner = None
        counts = self._counts.setdefault(owner, Counter())
        if kind not in counts and len(counts) >= MOST_KEYS:
            kind = None
        if kind not in counts:
            self._summarise_later(owner, kind, level, text % args)
        counts[kind] += 1
        if counts[kind] <= self._most_lines:
            self._logger.log(level, text, *args, exc_info=error)

    def _summarise_later(self, owner: Hashable, kind: Hashable, level: int, line: str) -> None:
        asyncio.get_running_loop().call_later(self._interval_s, self._summarise, owner, kind, level, line)

    def _summarise(self, owner: Hashable, kind: Hashable, level: int, line: str) -> None:
        counts = self._counts[owner]
        more = counts.pop(kind) - self._most_lines
        if more > 0:
            text = "%d more lines like this one in the last %.0f s: %s"
            self._logger.log(level, text, more, self._interval_s, line)
            # The summary is the first line of the next interval.
            counts[kind] = self._most_lines
            self._summarise_later(owner, kind, level, line)
        elif not counts:
            del self._counts[owner]
