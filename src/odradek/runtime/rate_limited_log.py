"""Log lines about misbehaving clients, limited so that a flood of bad connections does not flood the log."""

import asyncio
import logging
from typing import Final

MOST_LINES: Final = 10
"""Lines logged per interval; a summary line counts the others."""
INTERVAL_S: Final = 10.0


class RateLimitedLog:
    """A rate limit in front of a logger, by the clock of the running event loop."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._lines = 0
        self._timer: asyncio.TimerHandle | None = None

    def log(self, level: int, text: str, *args: object, error: BaseException | None = None) -> None:
        """Log a line, with the traceback of `error`, or count it if too many were logged in this interval."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._summarise)
        self._lines += 1
        if self._lines <= MOST_LINES:
            self._logger.log(level, text, *args, exc_info=error)

    def _summarise(self) -> None:
        lines, self._lines, self._timer = self._lines, 0, None
        if lines > MOST_LINES:
            self._logger.warning("%d more such lines were suppressed in %.0f s", lines - MOST_LINES, INTERVAL_S)
