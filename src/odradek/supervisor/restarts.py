"""The exponential backoff of restarts."""

from typing import Final

FIRST_DELAY_S: Final = 0.2
LONGEST_DELAY_S: Final = 15.0
GOOD_WHILE_S: Final = 60.0


class Restarts:
    """The delay before a broker's restart: it doubles each time, and resets after a run of `GOOD_WHILE_S`.

    Times are monotonic seconds.
    """

    def __init__(self) -> None:
        self._delay_s = FIRST_DELAY_S
        self._started_at = 0.0

    def started(self, now: float) -> None:
        """Record the time of a start."""
        self._started_at = now

    def died(self, now: float) -> float:
        """Return the seconds to wait before the next start."""
        if now - self._started_at >= GOOD_WHILE_S:
            self._delay_s = FIRST_DELAY_S
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, LONGEST_DELAY_S)
        return delay_s
