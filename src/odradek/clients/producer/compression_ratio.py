"""Estimated compression ratios per topic, so that `batch.size` limits compressed bytes (Kafka's rules and constants).

The compressed size of a batch is unknown while records are appended. A low estimate produces batches that brokers
refuse as too large, so estimates rise at once and fall slowly.
"""

from typing import Final

_IMPROVING_STEP: Final = 0.005
_DETERIORATING_STEP: Final = 0.05
_SAFETY: Final = 1.05
"""Estimates are 5 % higher, because the next batch may compress worse."""


class CompressionRatioEstimator:
    """The compression ratio (compressed per uncompressed bytes) of each topic of a producer, 1 at first."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def estimation(self, topic: str) -> float:
        """Return the estimated ratio for the topic's next batch, with the safety margin."""
        return self._ratios.get(topic, 1.0) * _SAFETY

    def update(self, topic: str, observed: float) -> None:
        """Adjust the estimate to the ratio of an encoded batch."""
        current = self._ratios.get(topic, 1.0)
        if observed > current:
            self._ratios[topic] = max(current + _DETERIORATING_STEP, observed)
        elif observed < current:
            self._ratios[topic] = max(current - _IMPROVING_STEP, observed)

    def reset(self, topic: str, observed: float) -> None:
        """Set the estimate to `observed`, at least 1, after a batch was too large."""
        self._ratios[topic] = max(1.0, observed)
