"""A clock that moves only when the virtual loop, or a test without a loop, advances it."""

from typing import Final

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z: the start of a virtual wall clock, so that timestamps in a trace are the same in every run."""

_BOOTED_S: Final = 1_000.0
"""The start of `monotonic`: not 0, so that code that takes 0 for "never" fails."""


class VirtualClock:
    """A `runtime.Clock` over a number. Both times start at fixed values and move together."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        return EPOCH_MS + round(self._elapsed_s * 1000)

    def monotonic(self) -> float:
        return _BOOTED_S + self._elapsed_s

    def busy_s(self) -> float:
        """Return 0: work takes no virtual time."""
        return 0.0

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the clock was made."""
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once. A virtual loop calls this itself."""
        assert seconds >= 0, f"time does not go back by {-seconds} s"
        self._elapsed_s += seconds

    def advance_to(self, monotonic: float) -> None:
        """Let time pass until `monotonic()` is at least this time."""
        self._elapsed_s = max(self._elapsed_s, monotonic - _BOOTED_S)
