"""Which brokers are better not asked first: those that could not be reached, and those that stand still.

A broker that could not be reached has its pause before the next try (`reconnect.backoff.ms`, and longer each time:
KIP-144). One that stands still takes connections all the same: it is the last connection to it that knows.
"""

from odradek.clients.backoff import Backoff
from odradek.clients.settings import ClientSettings
from odradek.model.values import dataclass
from odradek.runtime import Runtime
from odradek.wire.outgoing import Connection


@dataclass(slots=True)
class _Failures:
    backoff: Backoff
    retry_at: float = 0.0
    """The monotonic second of the next try."""


class ConnectionBackoff:
    """What speaks against the brokers at some addresses (`host:port`, as connections call them)."""

    def __init__(self, settings: ClientSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._failed_addresses: dict[str, _Failures] = {}
        self._late_connections: dict[str, Connection] = {}

    def __contains__(self, address: str) -> bool:
        """Whether the broker there is late, or could not be reached when that was last tried."""
        late = self._late_connections.get(address)
        return address in self._failed_addresses or (late is not None and (late.is_late or late.closed))

    def connection_delay_s(self, address: str) -> float:
        """How long to wait before the broker there is tried again, in seconds; not above 0 if not at all."""
        failures = self._failed_addresses.get(address)
        return 0.0 if failures is None else failures.retry_at - self._runtime.clock.monotonic()

    def connection_failed(self, address: str) -> None:
        """It could not be connected to: the next try has its time."""
        settings = self._settings
        failures = self._failed_addresses.get(address)
        if failures is None:
            backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._runtime.entropy)
            failures = self._failed_addresses[address] = _Failures(backoff)
        failures.retry_at = self._runtime.clock.monotonic() + failures.backoff.failed()

    def connected(self, address: str) -> None:
        """A new connection leads there: nothing speaks against it."""
        self._failed_addresses.pop(address, None)
        self._late_connections.pop(address, None)

    def response_late(self, connection: Connection) -> None:
        """An answer of this connection's is late; until it comes, or for good if the connection ends before."""
        self._late_connections[connection.address] = connection
