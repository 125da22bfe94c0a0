"""Backoff of connections to brokers that are unreachable or hung.

The delay before connecting to an unreachable broker again begins with `reconnect.backoff.ms` and grows (KIP-144). A
hung broker accepts connections, so only a late response reveals it.
"""

from msgspec import Struct

from odradek.clients.backoff import Backoff
from odradek.clients.settings import ClientSettings
from odradek.runtime import Runtime
from odradek.wire.client_connection import ClientConnection


class _Failures(Struct):
    backoff: Backoff
    retry_at: float = 0.0
    """The monotonic second of the next attempt."""


class ConnectionBackoff:
    """The connection failures and late responses of each address (`host:port`)."""

    def __init__(self, settings: ClientSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._failed_addresses: dict[str, _Failures] = {}
        self._late_connections: dict[str, ClientConnection] = {}

    def __contains__(self, address: str) -> bool:
        """Return whether the broker at an address is late or was unreachable at the last attempt."""
        late = self._late_connections.get(address)
        return address in self._failed_addresses or (late is not None and (late.is_late or late.closed))

    def connection_delay_s(self, address: str) -> float:
        """Return the seconds to wait before the next attempt to connect; 0 or less if it may start now."""
        failures = self._failed_addresses.get(address)
        return 0.0 if failures is None else failures.retry_at - self._runtime.clock.monotonic()

    def connection_failed(self, address: str) -> None:
        settings = self._settings
        failures = self._failed_addresses.get(address)
        if failures is None:
            backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._runtime.entropy)
            failures = self._failed_addresses[address] = _Failures(backoff)
        failures.retry_at = self._runtime.clock.monotonic() + failures.backoff.failed()

    def connected(self, address: str) -> None:
        self._failed_addresses.pop(address, None)
        self._late_connections.pop(address, None)

    def response_late(self, connection: ClientConnection) -> None:
        """Avoid the address until the late response arrives or, if the connection closes, a new one opens."""
        self._late_connections[connection.address] = connection
