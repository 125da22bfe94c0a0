"""The time of day and the time that only goes forward."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: the wall's, which records carry, and the monotonic one, which time-outs count."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock; may jump."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back, and is the event loop's `time()`."""

    def busy_s(self) -> float:
        """Seconds that the processor worked for the calling thread."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """See `Clock`."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See `Clock`."""
        return time.monotonic()

    def busy_s(self) -> float:
        """See `Clock`."""
        return time.thread_time()
