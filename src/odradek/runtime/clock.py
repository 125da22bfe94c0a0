"""Wall-clock time, monotonic time and processor time."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time: the wall clock for records, the monotonic clock for time-outs."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970; it may jump."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment; never goes back and equals the event loop's `time()`."""

    def busy_s(self) -> float:
        """Return the processor time of the calling thread in seconds."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    busy_s = staticmethod(time.thread_time)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
