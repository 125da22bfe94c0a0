"""A clock that moves only when the virtual loop, or a test without a loop, advances it."""

from typing import Final

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, the start of the virtual wall clock in every run."""

_BOOTED_S: Final = 1_000.0
"""The start of `monotonic`: not 0, so that code that uses 0 as "never" fails."""


class VirtualClock:
    """A `runtime.Clock` whose wall time and monotonic time start at fixed values and advance together."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0
        self.wall_offset_ms = 0
        """Added to the wall clock, not to monotonic time; tests change it to make the wall clock jump."""

    def now_ms(self) -> int:
        return EPOCH_MS + self.wall_offset_ms + round(self._elapsed_s * 1000)

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
        """Advance by `seconds`, in tests without a virtual loop."""
        assert seconds >= 0, f"time does not go back by {-seconds} s"
        self._elapsed_s += seconds

    def advance_to(self, monotonic: float) -> None:
        """Advance until `monotonic()` returns at least `monotonic`; a virtual loop calls this."""
        self._elapsed_s = max(self._elapsed_s, monotonic - _BOOTED_S)
