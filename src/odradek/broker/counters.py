"""Counters and histograms of requests, topics and listeners: plain attributes, which are cheap to update."""

from bisect import bisect_left
from typing import Final

MILLISECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 10000.0)
"""Bucket bounds of request times, in ms."""


class Histogram:
    """Counts of values between `bounds`; the last item of `counts` is for values above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = MILLISECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value; one that equals a bound counts as below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        copied = Histogram(self.bounds)
        copied.add(self)
        return copied

    def add(self, other: "Histogram") -> None:
        """Add the counts of `other`, which has the same bounds."""
        assert self.bounds == other.bounds, "histograms of other bounds can't be added"
        self.counts = [mine + others for mine, others in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class TopicTraffic:
    """Counters of one topic on this broker, over all partitions; they survive changes of the leader.

    `produces` and `fetches` are those that have not failed, each once for a partition.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetches = 0
        self.failed_produces = 0
        self.fetches = 0
        self.messages_in = 0
        self.produces = 0


class BrokerCounters:
    """Counters of the whole broker.

    `elsewhere` is for all topics that this broker does not lead, because clients can send any number of names. `errors`
    is by `(API key, error code)`.
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
        "unclean_elections",
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
        self.unclean_elections = 0

    def erred(self, api_key: int, code: int, count: int = 1) -> None:
        """Count an error code that a response has `count` times."""
        self.errors[api_key, code] = self.errors.get((api_key, code), 0) + count


class ListenerCounters:
    """Counts of one listener's connections."""

    __slots__ = ("admitted", "closed", "rejected")

    def __init__(self) -> None:
        self.admitted = 0
        self.closed = 0
        self.rejected = 0


class RequestCounters:
    """Counters of one API key and version. Times are in ms."""

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
        """Count a request of `size` bytes, its time in the queue and its local time."""
        self.requests += 1
        self.request_bytes += size
        histogram = self.queue_time  # `observe` is inlined to save calls
        histogram.counts[bisect_left(MILLISECONDS, queue_ms)] += 1
        histogram.total += queue_ms
        histogram = self.local_time
        histogram.counts[bisect_left(MILLISECONDS, local_ms)] += 1
        histogram.total += local_ms

    def awaited(self, remote_ms: float, queue_ms: float) -> None:
        """Count a delayed response: its wait for other brokers or records, then for earlier responses."""
        histogram = self.remote_time
        histogram.counts[bisect_left(MILLISECONDS, remote_ms)] += 1
        histogram.total += remote_ms
        histogram = self.response_queue_time
        histogram.counts[bisect_left(MILLISECONDS, queue_ms)] += 1
        histogram.total += queue_ms

    def answered(self, size: int, total_ms: float) -> None:
        """Count a response of `size` bytes that is being sent."""
        self.response_bytes += size
        histogram = self.total_time
        histogram.counts[bisect_left(MILLISECONDS, total_ms)] += 1
        histogram.total += total_ms
