"""What the log says of clients that misbehave: a line each, as long as they are few.

A flood of bad connections must not become a flood of lines: above a number in a time, the others are only counted.
"""

import asyncio
import logging
from typing import Final

MOST_LINES: Final = 10
"""Lines in one interval; beyond them, one that says how many more there were."""
INTERVAL_S: Final = 10.0


class RateLimitedLog:
    """To be used on a running loop, whose clock it goes by."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lines = 0
        self._timer: asyncio.TimerHandle | None = None

    def log(self, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """Log a line, with the traceback of an `error`, or count it."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._summarise)
        self._lines += 1
        if self._lines <= MOST_LINES:
            self._logger.log(level, text, *args, exc_info=error)

    def _summarise(self) -> None:
        lines, self._lines, self._timer = self._lines, 0, None
        if lines > MOST_LINES:
            self._logger.warning("the same happened %d times more in %.0f s", lines - MOST_LINES, INTERVAL_S)
