"""Limits on the number of connections, in total and per IP address, and on the rate of new ones.

Pure: time is an argument. A connection beyond `max.connections` (Kafka leaves it in the kernel's queue) or
`max.connections.per.ip` is closed at once. Beyond `max.connection.creation.rate`, a connection is accepted, and its
first request is delayed; it is closed if that would take more than five seconds. Beyond the quota
`connection_creation_rate` of its IP address, it is accepted, and closed after a delay, as in Kafka (KIP-612).
"""

from collections import Counter
from typing import Final

from odradek.broker.security.quotas.rates import Rate
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import parse_ip_counts

_BURST_S: Final = 1.0
"""The longest burst: after a pause, as many connections are served at once as the rate allows in this time."""
LONGEST_DELAY_S: Final = 5.0
"""Connections that would wait longer are closed: a client that creates many must not delay others without limit."""
_MOST_IPS: Final = 10_000
"""How many addresses have a rate, before idle ones are forgotten."""


class ConnectionQuotas:
    """Counts open connections, and refuses or delays new ones. The limit of open files allows `most_open`."""

    def __init__(self, most_open: int, config: BrokerConfig) -> None:
        self._most_open = most_open
        self._window = config.quota_window_num, float(config.quota_window_size_seconds)
        self._rates: dict[str, Rate] = {}
        self._open = 0
        self._by_ip: Counter[str] = Counter()
        self._next_s = 0.0

    def admit(self, config: BrokerConfig, ip: str) -> str | None:
        """Count a new connection and return None, or return a text about the limit that it exceeds."""
        if self._open >= config.max_connections:
            return f"{self._open} are connected, which is max.connections"
        if self._open >= self._most_open:
            return f"{self._open} are connected, and the limit for open files has room for no more"
        most = parse_ip_counts(config.max_connections_per_ip_overrides).get(ip, config.max_connections_per_ip)
        if self._by_ip[ip] >= most:
            return f"{most} are connected from {ip}, which is max.connections.per.ip"
        self._open += 1
        self._by_ip[ip] += 1
        return None

    def dismiss(self, ip: str) -> None:
        self._open -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]

    def delay_s(self, config: BrokerConfig, now_s: float) -> float:
        """Record a new connection, and return for how many seconds it must wait before it is served.

        More than `LONGEST_DELAY_S` means that it is to be closed, and is not recorded.
        """
        next_s = max(self._next_s, now_s - _BURST_S) + 1 / config.max_connection_creation_rate
        if next_s - now_s <= LONGEST_DELAY_S:
            self._next_s = next_s
        return max(next_s - now_s, 0.0)

    def ip_delay_s(self, ip: str, limit: float, now_s: float) -> float:
        """Record a new connection unless its address creates more than `limit` per second.

        Then return for how many seconds the connection is neither served nor closed: at most one sample of the rate.
        """
        if len(self._rates) >= _MOST_IPS:
            self._rates = {each: rate for each, rate in self._rates.items() if not rate.is_idle(now_s)}
        rate = self._rates.setdefault(ip, Rate(*self._window))
        rate.record(1, now_s)
        delay_s = min(rate.throttle_time_s(limit, now_s), rate.sample_s)
        if delay_s > 0:
            rate.record(-1, now_s)
        return delay_s

    def ip_rates(self, now_s: float) -> dict[str, float]:
        """Return the accepted connections per second of each address that had a limit for them recently."""
        return {ip: rate.per_second(now_s) for ip, rate in self._rates.items() if not rate.is_idle(now_s)}
