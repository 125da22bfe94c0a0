"""Estimated compression ratios per topic, so that `batch.size` limits compressed bytes (Kafka's rules and constants).

The size of a compressed batch is not known while records are appended to it. An estimate that is too low makes
batches that brokers refuse, so it rises at once and falls slowly.
"""

from typing import Final

_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05
_SAFETY: Final = 1.05
"""Batches may compress worse than those before: reckon with 5 % more bytes."""


class CompressionRatioEstimator:
    """The ratio of compressed to uncompressed bytes of a producer's topics, 1 at first."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimation(self, topic: str) -> float:
        """Return the estimated bytes in a request per uncompressed byte."""
        return self._ratios.get(topic, 1.0) * _SAFETY

    def update(self, topic: str, observed: float) -> None:
        """Take the ratio of an encoded batch into account."""
        current = self._ratios.get(topic, 1.0)
        if observed > current:
            self._ratios[topic] = max(current + _DETERIORATING_STEP, observed)
        elif observed < current:
            self._ratios[topic] = max(current - _IMPROVING_STEP, observed)

    def reset(self, topic: str, observed: float) -> None:
        """Start again after a batch was too large, with at least 1."""
        self._ratios[topic] = max(1.0, observed)
