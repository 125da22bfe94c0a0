"""Waiting for other processes and threads until a condition holds or a deadline passes."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from odradek.testing.machine_clock import monotonic

T = TypeVar("T")
_PAUSE_S: Final = 0.02


def eventually(condition: Callable[[], T], *, within_s: float = 30.0, what: str = "") -> T:
    """Call `condition` until it returns a true value, and return that value.

    Raises `TimeoutError`, which names `what`, after `within_s` seconds; errors of `condition` pass through.
    """
    deadline = monotonic() + within_s
    while not (result := condition()):
        if monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what or getattr(condition, '__doc__', None) or condition}")
        time.sleep(_PAUSE_S)
    return result
