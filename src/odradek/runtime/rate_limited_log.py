"""Log lines about repeated events, limited so that clients and failing brokers cannot flood the log."""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable
from typing import Final

MOST_KEYS: Final = 10
"""Kinds of lines that are counted apart: a client chooses what it sends, and so how many kinds there are."""


class RateLimitedLog:
    """A rate limit in front of a logger: `most_lines` of each kind per `interval_s`, by the running event loop's clock.

    At the end of an interval, one more line counts the others of its kind.
    """

    def __init__(self, logger: logging.Logger, *, most_lines: int = 1, interval_s: float = 60.0) -> None:
        self._logger = logger
        self._most_lines = most_lines
        self._interval_s = interval_s
        self._counts: Counter[Hashable] = Counter()

    def log(self, kind: Hashable, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """Log a line, with the traceback of `error`, or count it if there were too many of its `kind`."""
        if kind not in self._counts and len(self._counts) >= MOST_KEYS:
            kind = None
        if kind not in self._counts:
            self._summarise_later(kind, level, text % args)
        self._counts[kind] += 1
        if self._counts[kind] <= self._most_lines:
            self._logger.log(level, text, *args, exc_info=error)

    def _summarise_later(self, kind: Hashable, level: int, line: str) -> None:
        asyncio.get_running_loop().call_later(self._interval_s, self._summarise, kind, level, line)

    def _summarise(self, kind: Hashable, level: int, line: str) -> None:
        more = self._counts.pop(kind) - self._most_lines
        if more > 0:
            text = "%d more lines like this one in the last %.0f s: %s"
            self._logger.log(level, text, more, self._interval_s, line)
            # The summary is the first line of the next interval.
            self._counts[kind] = self._most_lines
            self._summarise_later(kind, level, line)
