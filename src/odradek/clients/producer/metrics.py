"""The producer's metrics, with Kafka's names in snake_case: totals, averages and maxima since the start.

Kafka's averages and rates cover the last 30 seconds; here, compute them from the difference of two snapshots.
"""

from odradek.clients.average import Average
from odradek.clients.producer.producer_batch import ProducerBatch


class ProducerMetrics:
    """The counters that the producer and its sender update; `snapshot` returns them by name."""

    def __init__(self) -> None:
        self.record_error_total = 0
        self.record_retry_total = 0
        self.batch_split_total = 0
        self.buffer_exhausted_total = 0
        self.bufferpool_wait_time_ns_total = 0
        self._records = 0
        self._batch_sizes = Average()
        self._compression_rates = Average()
        self._queue_times_ms = Average()
        self._records_per_request = Average()
        self._latencies_ms = Average()
        self._throttle_times_ms = Average()

    def request_sent(self, batches: list[ProducerBatch], now: float) -> None:
        """Count a Produce request with these encoded batches; `now` is in monotonic seconds."""
        records = 0
        for batch in batches:
            assert batch.records is not None
            records += batch.count
            size = len(batch.records)
            self._batch_sizes.add(size)
            self._compression_rates.add(size / batch.size)
            self._queue_times_ms.add((now - batch.created_at) * 1000)
        self._records += records
        self._records_per_request.add(records)

    def response_received(self, latency_s: float, throttle_time_ms: int) -> None:
        self._latencies_ms.add(latency_s * 1000)
        self._throttle_times_ms.add(throttle_time_ms)

    def snapshot(self) -> dict[str, float]:
        """Return all metrics by name. Sizes are in bytes, times in ms unless the name says otherwise."""
        size, queue, latency, throttle = (
            self._batch_sizes, self._queue_times_ms, self._latencies_ms, self._throttle_times_ms
        )  # fmt: skip
        return {
            "record_send_total": self._records,
            "record_error_total": self.record_error_total,
            "record_retry_total": self.record_retry_total,
            "batch_split_total": self.batch_split_total,
            "byte_total": int(size.total),
            "batch_size_avg": size.mean,
            "batch_size_max": size.maximum,
            "record_size_avg": size.total / self._records if self._records else 0.0,
            "compression_rate_avg": self._compression_rates.mean,
            "record_queue_time_avg": queue.mean,
            "record_queue_time_max": queue.maximum,
            "request_total": self._records_per_request.count,
            "records_per_request_avg": self._records_per_request.mean,
            "request_latency_avg": latency.mean,
            "request_latency_max": latency.maximum,
            "produce_throttle_time_avg": throttle.mean,
            "produce_throttle_time_max": throttle.maximum,
            "buffer_exhausted_total": self.buffer_exhausted_total,
            "bufferpool_wait_time_ns_total": self.bufferpool_wait_time_ns_total,
        }
