"""How many clients may come in, from where, and how fast. Pure: who comes and goes is told, with the time.

`max.connections` and `max.connections.per.ip` turn a client away at once; Kafka lets the former wait in the kernel's
queue, where it can't tell a full broker from a dead one. `max.connection.creation.rate` lets clients in, and serves
them when their turn has come.
"""

from collections import Counter
from typing import Final

from odradek.config import BrokerConfig, parse_ip_counts

_BURST_S: Final = 1.0
"""What was not used of the rate in this time may be used at once."""


class ConnectionQuotas:
    """Counts clients. `most_open`: what the system's limit for open files has room for."""

    def __init__(self, most_open: int) -> None:
        self._most_open = most_open
        self._open = 0
        self._by_ip: Counter[str] = Counter()
        self._next_s = 0.0

    def admit(self, config: BrokerConfig, ip: str) -> str | None:
        """Count one more, or say in a few words which limit it is beyond."""
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
        """One that was admitted has gone."""
        self._open -= 1
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]

    def delay_s(self, config: BrokerConfig, now_s: float) -> float:
        """How long a client that came now has to wait for its turn."""
        self._next_s = max(self._next_s, now_s - _BURST_S) + 1 / config.max_connection_creation_rate
        return max(self._next_s - now_s, 0.0)
