"""When a broker that died is started again: soon at first, later each time, soon again after a good while."""

from typing import Final

FIRST_DELAY_S: Final = 0.2
LONGEST_DELAY_S: Final = 15.0
GOOD_WHILE_S: Final = 60.0


class Restarts:
    """One broker's. Times are seconds of a clock that nobody sets."""

    def __init__(self) -> None:
        self._delay_s = FIRST_DELAY_S
        self._started_at = 0.0

    def started(self, now: float) -> None:
        """It runs, as of now."""
        self._started_at = now

    def died(self, now: float) -> float:
        """How many seconds to wait before it is started again."""
        if now - self._started_at >= GOOD_WHILE_S:
            self._delay_s = FIRST_DELAY_S
        delay_s, self._delay_s = self._delay_s, min(self._delay_s * 2, LONGEST_DELAY_S)
        return delay_s
