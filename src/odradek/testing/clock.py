"""A clock that stands still until it is told to move: by the virtual loop, or by a test that has no loop."""

from typing import Final

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z: where a virtual wall clock starts, so that timestamps in a trace are the same every time."""

_BOOTED_S: Final = 1_000.0
"""What `monotonic` starts at: not 0, so that code that takes 0 for "never" is found out."""


class VirtualClock:
    """`runtime.Clock` over a number. Both times start at fixed values and move together."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        """See `runtime.Clock`."""
        return EPOCH_MS + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        """See `runtime.Clock`."""
        return _BOOTED_S + self._elapsed_s

    def busy_s(self) -> float:
        """See `runtime.Clock`; work takes no virtual time."""
        return 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once. A test that runs a virtual loop need not call this: the loop does."""
        assert seconds >= 0, f"time does not go back by {-seconds} s"
        self._elapsed_s += seconds

    def advance_to(self, monotonic: float) -> None:
        """Let time pass until `monotonic()` is at least that; nothing happens if it is already."""
        self._elapsed_s = max(self._elapsed_s, monotonic - _BOOTED_S)
