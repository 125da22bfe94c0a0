"""A running average, as clients' metrics have them: of all values since the start."""


class Average:
    """A sum, a count and a maximum."""

    __slots__ = ("count", "maximum", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.maximum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.total += value
        self.count += 1
        self.maximum = max(self.maximum, value)

    @property
    def mean(self) -> float:
        """Return the average, 0 without values."""
        return self.total / self.count if self.count else 0.0
