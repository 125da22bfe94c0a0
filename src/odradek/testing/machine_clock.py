"""The machine's clock, read from the C library, for waits and brokers in the process of a test.

Tests replace Python's clocks: freezegun replaces names in modules, and time-machine the C functions behind them. A
broker with such a clock would refuse the records of other clients, and lose its leases when the clock jumps.
"""

import ctypes
import time
from typing import Final

from odradek.runtime import SystemClock


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_clock_gettime: Final = ctypes.CDLL(None).clock_gettime


def _now_ns(clock: int) -> int:
    now = _TimeSpec()
    _clock_gettime(clock, ctypes.byref(now))
    return int(now.seconds) * 1_000_000_000 + int(now.nanoseconds)


def monotonic() -> float:
    """Return what `time.monotonic` returns while no test has replaced it."""
    return _now_ns(time.CLOCK_MONOTONIC) / 1e9


class MachineClock(SystemClock):
    """The machine's clocks, whatever the test does to Python's."""

    monotonic = staticmethod(monotonic)

    def now_ms(self) -> int:
        return _now_ns(time.CLOCK_REALTIME) // 1_000_000
