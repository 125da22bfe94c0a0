"""Pauses between tries: they double up to a limit, and chance keeps many clients from coming back at once."""

from typing import Final

from odradek.runtime import Entropy

_JITTER: Final = 0.2
"""KIP-580: each pause is up to a fifth shorter or longer."""


class Backoff:
    """Counts tries that failed, and says how long to wait before the next."""

    __slots__ = ("_entropy", "_first_ms", "_most_ms", "failures")

    def __init__(self, first_ms: int, most_ms: int, entropy: Entropy) -> None:
        self._first_ms = first_ms
        self._most_ms = max(first_ms, most_ms)
        self._entropy = entropy
        self.failures = 0

    def failed(self) -> float:
        """Count a failure; seconds to wait."""
        # Doubling stops mattering long before 2**20, and a float must not overflow in a night without a broker.
        pause_ms = min(self._first_ms * 2.0 ** min(self.failures, 20), self._most_ms)
        self.failures += 1
        return pause_ms * self._entropy.uniform(1 - _JITTER, 1 + _JITTER) / 1000

    def succeeded(self) -> None:
        """Start again from the first pause."""
        self.failures = 0
