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

    __slots__ = ("bytes_in", "bytes_out", "bytes_rejected", "failed_fetches", "failed_produces", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetches = 0
        self.failed_produces = 0
        self.messages_in = 0


class BrokerCounters:
    """What is counted once for a broker, where no other object is at hand.

    `elsewhere` is what was asked of topics that this broker does not lead: clients can make up any number of names.
    `errors` are by API key and error code.
    """

    __slots__ = (
        "elsewhere",
        "errors",
        "invalid_crc_batches",
        "invalid_magic_batches",
        "invalid_sequence_batches",
        "keyless_batches",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.elsewhere = TopicTraffic()
        self.errors: dict[tuple[int, int], int] = {}
        self.invalid_crc_batches = 0
        self.invalid_magic_batches = 0
        self.invalid_sequence_batches = 0
        self.keyless_batches = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def erred(self, api_key: int, code: int) -> None:
        """An answer, or a part of one, is an error."""
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + 1


class ListenerCounters:
    """The clients that came to one listener."""

    __slots__ = ("admitted", "closed", "rejected")

    def __init__(self) -> None:
        self.admitted = 0
        self.closed = 0
        self.rejected = 0


class RequestCounters:
    """The requests of one API in one version. Times in ms."""

    __slots__ = (
        "local_time",
        "queue_time",
        "remote_time",
        "request_bytes",
        "requests",
        "response_bytes",
        "response_queue_time",
        "total_time",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.queue_time = Histogram()
        self.local_time = Histogram()
        self.remote_time = Histogram()
        self.response_queue_time = Histogram()
        self.total_time = Histogram()

    def served(self, size: int, queue_ms: float, local_ms: float) -> None:
        """A request of `size` bytes waited, and was worked on, for so long.

        `observe` is written out here, for the cost of a call.
        """
        self.requests += 1
        self.request_bytes += size
        histogram = self.queue_time
        histogram.counts[bisect_left(MILLISECONDS, queue_ms)] += 1
        histogram.total += queue_ms
        histogram = self.local_time
        histogram.counts[bisect_left(MILLISECONDS, local_ms)] += 1
        histogram.total += local_ms

    def awaited(self, remote_ms: float, queue_ms: float) -> None:
        """The answer was not known at once: it waited for others so long, and then for its turn."""
        histogram = self.remote_time
        histogram.counts[bisect_left(MILLISECONDS, remote_ms)] += 1
        histogram.total += remote_ms
        histogram = self.response_queue_time
        histogram.counts[bisect_left(MILLISECONDS, queue_ms)] += 1
        histogram.total += queue_ms

    def answered(self, size: int, total_ms: float) -> None:
        """Its answer of `size` bytes is on its way, after so long."""
        self.response_bytes += size
        histogram = self.total_time
        histogram.counts[bisect_left(MILLISECONDS, total_ms)] += 1
        histogram.total += total_ms
