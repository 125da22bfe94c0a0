"""Limits on the number of connections, in all and per IP address, and on the rate of new ones.

Pure: time is an argument. `max.connections` and `max.connections.per.ip` close a new connection at once; Kafka leaves
the former in the kernel's queue, where a client cannot tell a full broker from a dead one.
`max.connection.creation.rate` accepts a connection and delays its first request.
"""

from collections import Counter
from typing import Final

from odradek.config import BrokerConfig, parse_ip_counts

_BURST_S: Final = 1.0
"""Connections that the rate allowed in this time, and that did not come, may come at once later."""


class ConnectionQuotas:
    """Counts open connections, refuses or delays new ones. `most_open`: how many the limit for open files allows."""

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self._open = 0
        self._by_ip: Counter[str] = Counter()
        self._next_s = 0.0

    def admit(self, config: BrokerConfig, ip: str) -> str | None:
        """Count a new connection and return None, or return the limit that it exceeds, for the log."""
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
        """Remove an admitted connection from the counts."""
        self._open -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]

    def delay_s(self, config: BrokerConfig, now_s: float) -> float:
        """Return how long a connection that comes now has to wait before it is served."""
        self._next_s = max(self._next_s, now_s - _BURST_S) + 1 / config.max_connection_creation_rate
        return max(self._next_s - now_s, 0.0)
