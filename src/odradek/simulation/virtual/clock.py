"""A clock that moves only when the virtual loop, or a test without a loop, advances it, and the clocks of hosts.

A host's clock may drift, and its wall clock may jump. `HOST` is the host whose process runs: tasks and callbacks
inherit it, as they inherit each context variable.
"""

from contextvars import Context, ContextVar
from typing import Final

HOST: Final = ContextVar("simulated host", default="")
"""The host whose process runs the present callback; empty for the test itself and for the network."""

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, the start of the virtual wall clock in every run."""

_BOOTED_S: Final = 1_000.0
"""The start of `monotonic`: not 0, so that code that uses 0 as "never" fails."""

_TICK_S: Final = 1e-9
"""A timer of a clock that drifts fires this much late, so that rounding never lets it fire early."""


class VirtualClock:
    """A `runtime.Clock` whose wall time and monotonic time start at fixed values and advance together."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0
        self._hosts: dict[str, HostClock] = {}
        self.drifting: dict[str, HostClock] = {}
        """The clocks of hosts whose monotonic time differs from this one."""
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
        return self._elapsed_s

    def advance(self, seconds: float) -> None:
        """Advance by `seconds`, in tests without a virtual loop."""
        assert seconds >= 0, f"time does not go back by {-seconds} s"
        self._elapsed_s += seconds

    def advance_to(self, monotonic: float) -> None:
        """Advance until `monotonic()` returns at least `monotonic`; a virtual loop calls this."""
        self._elapsed_s = max(self._elapsed_s, monotonic - _BOOTED_S)

    def host(self, name: str) -> "HostClock":
        """Return the clock of a host; every call for a host returns the same one."""
        if name not in self._hosts:
            self._hosts[name] = HostClock(self, name)
        return self._hosts[name]

    def monotonic_of_host(self, context: Context | None = None) -> float:
        """Return the monotonic time of the host whose process runs, or of the host in `context`."""
        if not self.drifting:
            return self.monotonic()
        drifting = self.drifting.get(HOST.get() if context is None else context.get(HOST, ""))
        return self.monotonic() if drifting is None else drifting.monotonic()


class HostClock:
    """A `runtime.Clock` of one host, which follows `clock` until it drifts or its wall clock jumps."""

    def __init__(self, clock: VirtualClock, name: str) -> None:
        self._clock = clock
        self._name = name
        self._rate = 1.0
        self._began_s = 0.0
        """The elapsed time of `clock` when the rate was set."""
        self._base_s = 0.0
        """The elapsed time of this clock at that moment."""
        self.wall_offset_ms = 0
        """Added to this host's wall clock; a change makes it jump."""

    def _elapsed_s(self) -> float:
        return self._base_s + (self._clock.elapsed_s - self._began_s) * self._rate

    def set_rate(self, rate: float) -> None:
        """Let this clock run at `rate` times the speed of `clock` from now on."""
        self._base_s, self._began_s, self._rate = self._elapsed_s(), self._clock.elapsed_s, rate
        self._clock.drifting[self._name] = self

    def now_ms(self) -> int:
        return EPOCH_MS + self._clock.wall_offset_ms + self.wall_offset_ms + round(self._elapsed_s() * 1000)

    def monotonic(self) -> float:
        return _BOOTED_S + self._elapsed_s()

    def busy_s(self) -> float:
        """Return 0: work takes no virtual time."""
        return 0.0

    def when(self, monotonic: float) -> float:
        """Return the `clock.monotonic()` at which this clock's is just past `monotonic`, if its rate stays."""
        return _BOOTED_S + self._began_s + (monotonic - _BOOTED_S - self._base_s) / self._rate + _TICK_S
