"""Exponential backoff with jitter, so that many clients do not retry at the same time."""

from typing import Final

from odradek.runtime import Entropy

_JITTER: Final = 0.2
"""KIP-580: each delay is up to 20 % shorter or longer."""


class Backoff:
    """A counter of failed attempts that returns the delay before the next one."""

    __slots__ = ("_entropy", "_first_ms", "_most_ms", "failures")

    def __init__(self, first_ms: int, most_ms: int, entropy: Entropy) -> None:
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)
        self._entropy = entropy
        self.failures = 0

    def failed(self) -> float:
        """Count a failure and return the delay in seconds."""
        # The exponent is limited so that the float cannot overflow during a long outage.
        pause_ms = min(self._first_ms * 2.0 ** min(self.failures, 20), self._most_ms)
        self.failures += 1
        return pause_ms * self._entropy.uniform(1 - _JITTER, 1 + _JITTER) / 1000

    def succeeded(self) -> None:
        """Reset to the first delay."""
        self.failures = 0
