"""Things that count. Nobody reads them until a page is asked for, so that counting is an addition and no more."""

from bisect import bisect_left
from typing import Final

MILLISECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10000.0)
"""Bounds for what takes a request's time: half of them below 10 ms, where answers are wanted."""


class Histogram:
    """How often a value fell between two of `bounds`. `counts` has one more number, of what is above them all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = MILLISECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value; one that is a bound falls below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: "Histogram") -> None:
        """Count all that `other` has counted, by the same bounds."""
        assert self.bounds == other.bounds, "histograms of other bounds can't be added"
        self.counts = [mine + others for mine, others in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class TopicTraffic:
    """What went in and out of one topic's partitions here; one for all of them, kept while leadership moves."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0


class BrokerCounters:
    """What is counted once for a broker, where no other object is at hand."""

    __slots__ = ("failed_fetches", "failed_produces")

    def __init__(self) -> None:
        self.failed_fetches = 0
        self.failed_produces = 0


class ListenerCounters:
    """The clients that came to one listener."""

    __slots__ = ("admitted", "rejected")

    def __init__(self) -> None:
        self.admitted = 0
        self.rejected = 0


class RequestCounters:
    """The requests of one API in one version. Times in ms."""

    __slots__ = ("queue_time", "request_bytes", "requests", "response_bytes", "total_time")

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.queue_time = Histogram()
        self.total_time = Histogram()

    def served(self, size: int, queue_ms: float) -> None:
        """A request of `size` bytes waited for so long. `observe` is written out here, for the cost of a call."""
        self.requests += 1
        self.request_bytes += size
        histogram = self.queue_time
        histogram.counts[bisect_left(MILLISECONDS, queue_ms)] += 1
        histogram.total += queue_ms

    def answered(self, size: int, total_ms: float) -> None:
        """Its answer of `size` bytes is on its way, after so long."""
        self.response_bytes += size
        histogram = self.total_time
        histogram.counts[bisect_left(MILLISECONDS, total_ms)] += 1
        histogram.total += total_ms
