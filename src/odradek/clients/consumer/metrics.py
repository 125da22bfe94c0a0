"""The consumer's metrics, with Kafka's names in snake_case: totals, averages and maxima since the start.

Kafka's averages and rates cover the last 30 seconds; here, compute them from the difference of two snapshots.
"""

from collections.abc import Iterable
from typing import Final

from odradek.clients.average import Average
from odradek.clients.consumer.subscription_state import TopicPartitionState

_NEVER: Final = -1.0


class ConsumerMetrics:
    """The counters that the parts of a consumer update; `snapshot` returns them by name."""

    def __init__(self) -> None:
        self.records_consumed_total = 0
        self.bytes_consumed_total = 0
        self.rebalance_total = 0
        self.poll_started_at = self.rebalanced_at = _NEVER
        """Monotonic seconds."""
        self._fetch_latencies_ms = Average()
        self._fetch_sizes = Average()
        self._throttle_times_ms = Average()
        self._commit_latencies_ms = Average()
        self._times_between_polls_ms = Average()
        self._callback_times_ms = Average()

    def fetched(self, latency_s: float, size: int, throttle_time_ms: int) -> None:
        """Count a Fetch response with `size` bytes of records."""
        self._fetch_latencies_ms.add(latency_s * 1000)
        self._fetch_sizes.add(size)
        self._throttle_times_ms.add(throttle_time_ms)

    def committed(self, latency_s: float) -> None:
        self._commit_latencies_ms.add(latency_s * 1000)

    def callback_completed(self, latency_s: float) -> None:
        self._callback_times_ms.add(latency_s * 1000)

    def poll_started(self, now: float) -> None:
        if self.poll_started_at != _NEVER:
            self._times_between_polls_ms.add((now - self.poll_started_at) * 1000)
        self.poll_started_at = now

    def snapshot(
        self, states: Iterable[TopicPartitionState], *, is_committed_only: bool, now: float
    ) -> dict[str, float]:
        """Return all metrics by name. Sizes are in bytes, times in ms unless the name says otherwise."""
        lags = {state.partition: state.lag(is_committed_only=is_committed_only) for state in states}
        known = {f"{partition}.records_lag": float(lag) for partition, lag in lags.items() if lag is not None}
        latency, size, throttle = self._fetch_latencies_ms, self._fetch_sizes, self._throttle_times_ms
        commit, poll, callback = self._commit_latencies_ms, self._times_between_polls_ms, self._callback_times_ms
        return {
            "records_consumed_total": self.records_consumed_total,
            "bytes_consumed_total": self.bytes_consumed_total,
            "fetch_total": latency.count,
            "fetch_latency_avg": latency.mean,
            "fetch_latency_max": latency.maximum,
            "fetch_size_avg": size.mean,
            "fetch_size_max": size.maximum,
            "fetch_throttle_time_avg": throttle.mean,
            "fetch_throttle_time_max": throttle.maximum,
            "records_lag_max": max(known.values(), default=0.0),
            "assigned_partitions": len(lags),
            "commit_total": commit.count,
            "commit_latency_avg": commit.mean,
            "commit_latency_max": commit.maximum,
            "rebalance_total": self.rebalance_total,
            "last_rebalance_seconds_ago": _ago(self.rebalanced_at, now),
            "rebalance_callback_time_avg": callback.mean,
            "rebalance_callback_time_max": callback.maximum,
            "time_between_poll_avg": poll.mean,
            "time_between_poll_max": poll.maximum,
            "last_poll_seconds_ago": _ago(self.poll_started_at, now),
            **known,
        }


def _ago(at: float, now: float) -> float:
    return _NEVER if at == _NEVER else now - at
