"""The quotas of replication (KIP-73) and of copies between data directories (KIP-113).

A leader counts what it sends of its throttled partitions, a follower what it appends to them. Above a rate, a leader
sends no records of them to followers out of sync, and a follower out of sync does not fetch them. Replicas in sync
are counted, but never held back, as in Kafka.
"""

from collections.abc import Callable, Set
from typing import Final, NamedTuple

from odradek.broker.security.quotas.rates import SimpleRate
from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX
from odradek.config.topic import ALL_PARTITIONS
from odradek.runtime import Clock

_ALMOST_NOTHING: Final = 1e-6
"""The rate that a limit of 0 allows: one fetch, until its sample has expired."""


class ReplicationQuotaManager:
    """One rate. `limit()` returns the allowed bytes per second at the moment; `LONG_MAX` is no limit."""

    def __init__(self, clock: Clock, samples: int, sample_s: float, limit: Callable[[], int]) -> None:
        self._clock = clock.monotonic
        self._rate = SimpleRate(samples, sample_s)
        self._limit = limit

    @staticmethod
    def is_throttled(throttled: Set[int], partition: int) -> bool:
        """Return whether the partition is among the throttled ones of its topic."""
        return bool(throttled) and (partition in throttled or ALL_PARTITIONS in throttled)

    def record(self, size: int) -> None:
        """Count `size` bytes of a throttled partition."""
        self._rate.record(size, self._clock())

    def throttle_time_s(self) -> float:
        """Return in how many seconds the rate is within the limit; 0 if it is."""
        limit = self._limit()
        return 0.0 if limit == LONG_MAX else self._rate.throttle_time_s(limit or _ALMOST_NOTHING, self._clock())

    @property
    def bytes_per_second(self) -> float:
        """The rate of throttled partitions."""
        return self._rate.per_second(self._clock())


class ReplicationQuotas(NamedTuple):
    """The rates of one broker."""

    leader: ReplicationQuotaManager
    follower: ReplicationQuotaManager
    alter_log_dirs: ReplicationQuotaManager


def replication_quotas(clock: Clock, config: Callable[[], BrokerConfig]) -> ReplicationQuotas:
    """Return the quotas of a broker with this configuration, whose limits are dynamic."""
    first = config()
    window = first.replication_quota_window_num, float(first.replication_quota_window_size_seconds)
    num, seconds = (
        first.alter_log_dirs_replication_quota_window_num,
        first.alter_log_dirs_replication_quota_window_size_seconds,
    )
    return ReplicationQuotas(
        ReplicationQuotaManager(clock, *window, lambda: config().leader_replication_throttled_rate),
        ReplicationQuotaManager(clock, *window, lambda: config().follower_replication_throttled_rate),
        ReplicationQuotaManager(
            clock, num, float(seconds), lambda: config().replica_alter_log_dirs_io_max_bytes_per_second
        ),
    )
