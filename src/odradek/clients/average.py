"""The average of all values since the start, for the metrics of clients."""


class Average:
    """The sum, count and maximum of the values added so far."""

    __slots__ = ("count", "maximum", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.maximum = 0.0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1
        self.maximum = max(self.maximum, value)

    @property
    def mean(self) -> float:
        """Return the average, 0 without values."""
        return self.total / self.count if self.count else 0.0
