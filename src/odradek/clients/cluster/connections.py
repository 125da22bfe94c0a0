"""`BrokerConnections`: the connections of one client.

There is one connection per broker and purpose: brokers respond to a connection's requests in order, so heartbeats must
not wait behind a long poll. A late broker that is no longer in the metadata is disconnected, which fails its requests.
"""

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from msgspec import Struct

from odradek.clients.backoff import Backoff
from odradek.clients.cluster.tasks import ClientTasks
from odradek.clients.metadata import Node
from odradek.clients.security import client_security
from odradek.clients.settings import ClientSettings
from odradek.model import AuthenticationError, OdradekError, UnavailableError, address_text, parse_host_port
from odradek.runtime import Runtime
from odradek.wire.client_connection import LATE_MS, ClientConnection, open_connection


class _Failures(Struct):
    backoff: Backoff
    retry_at: float = 0.0
    """The monotonic second of the next attempt."""


class ConnectionBackoff:
    """The connection failures and late responses of each address (`host:port`).

    The delay before connecting to an unreachable broker again begins with `reconnect.backoff.ms` and grows (KIP-144).
    A hung broker accepts connections, so only a late response reveals it.
    """

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


class NoBrokerError(UnavailableError):
    """No connection could be opened to any known broker address."""


class ConnectionPurpose(StrEnum):
    """The purpose of a connection: requests of different purposes do not wait for each other."""

    DATA = "data"
    FETCH = "fetch"
    COORDINATOR = "coordinator"


_ConnectionKey = tuple[int, ConnectionPurpose]
_Address = tuple[str, int]


class BrokerConnections:
    """The open connections, to the brokers of the newest metadata and to bootstrap addresses."""

    def __init__(
        self,
        settings: ClientSettings,
        runtime: Runtime,
        tasks: ClientTasks,
        *,
        on_late: Callable[[], None],
        on_authentication_error: Callable[[AuthenticationError], None],
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._tasks = tasks
        self._on_late = on_late
        self._on_authentication_error = on_authentication_error
        self._security = client_security(settings, runtime)
        self._nodes: Mapping[int, Node] = {}
        self._connections: dict[_ConnectionKey, ClientConnection] = {}
        self._bootstrap: dict[_Address, ClientConnection] = {}
        self._opening: dict[_ConnectionKey, asyncio.Task[ClientConnection]] = {}
        self._backoff = ConnectionBackoff(settings, runtime)

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        connections = (*self._connections.values(), *self._bootstrap.values())
        for connection in connections:
            connection.close()
        self._connections.clear()
        self._bootstrap.clear()
        # The transports close in the next turn of the event loop, those of TLS when the broker has answered.
        await asyncio.sleep(0)
        if self._security.tls is not None and connections:
            await asyncio.wait([each.lost for each in connections], timeout=LATE_MS / 1000)

    def update(self, nodes: Mapping[int, Node]) -> None:
        """Adapt to the brokers of new metadata: give bootstrap connections their broker id, close outdated ones.

        Connections to moved brokers are closed, and those to removed brokers if they are late or not open yet.
        """
        self._nodes = nodes
        for (node_id, _), opening in self._opening.items():
            if node_id not in nodes:
                opening.cancel()
        for (node_id, purpose), connection in list(self._connections.items()):
            node = nodes.get(node_id)
            if node is None and connection.is_late:
                connection.close("it has left the cluster")
            if connection.closed or (node is not None and connection.address != address_text(node.host, node.port)):
                connection.close("the broker has moved")
                del self._connections[node_id, purpose]
        for node in nodes.values():
            adopted = self._bootstrap.pop((node.host, node.port), None)
            if adopted is None:
                continue
            if (node.node_id, ConnectionPurpose.DATA) in self._connections:
                adopted.close()
            else:
                self._connections[node.node_id, ConnectionPurpose.DATA] = adopted

    def existing(self, node_id: int, purpose: ConnectionPurpose = ConnectionPurpose.DATA) -> ClientConnection | None:
        """Return the open connection to a broker, if any."""
        connection = self._connections.get((node_id, purpose))
        return None if connection is None or connection.closed else connection

    async def to_broker(self, node_id: int, purpose: ConnectionPurpose = ConnectionPurpose.DATA) -> ClientConnection:
        """Return the open connection to a broker, or open one after a backoff. Raises `UnavailableError` on failure."""
        self._tasks.check_usable()
        opened = self.existing(node_id, purpose)
        if opened is not None:
            return opened
        key = (node_id, purpose)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = self._tasks.spawn(self._open_node(key), f"connect to broker {node_id}")
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        await asyncio.wait([opening])
        if opening.cancelled():
            raise UnavailableError(f"broker {node_id} is not part of the cluster any more")
        return opening.result()

    async def least_loaded(self, *, exclude: ClientConnection | None = None) -> ClientConnection:
        """Return the open connection with the fewest requests in flight, or open one.

        Late and unreachable brokers and the broker of `exclude` are tried last. Raises `NoBrokerError` if all fail.
        """
        self._tasks.check_usable()
        opened = [
            connection
            for (_, purpose), connection in self._connections.items()
            if purpose is ConnectionPurpose.DATA and not connection.closed
        ]
        opened += [connection for connection in self._bootstrap.values() if not connection.closed]

        def is_avoided(address: str) -> bool:
            return (exclude is not None and address == exclude.address) or address in self._backoff

        preferred = [connection for connection in opened if not is_avoided(connection.address)]
        if preferred:
            return min(preferred, key=lambda each: each.in_flight)
        nodes, addresses = list(self._nodes.values()), [] if opened else list(self._settings.bootstrap_servers)
        self._runtime.entropy.shuffle(nodes)
        self._runtime.entropy.shuffle(addresses)
        last = {node.node_id for node in nodes if is_avoided(address_text(node.host, node.port))}
        nodes.sort(key=lambda node: node.node_id in last)
        ways = [partial(self.to_broker, node.node_id) for node in nodes if not opened or node.node_id not in last]
        ways += [partial(self._open_bootstrap, *parse_host_port(address)) for address in addresses]
        opening: set[asyncio.Task[ClientConnection]] = set()
        failures: list[str] = []
        while ways or (opening and not opened):
            if ways:
                self._tasks.check_usable()
                opening.add(self._tasks.spawn(ways.pop(0)(), "connect to any broker"))
            # A hung broker accepts connections: the next broker is tried meanwhile.
            limit_s = LATE_MS / 1000 if ways or opened else None
            done, opening = await asyncio.wait(opening, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                error = UnavailableError("the client was closed") if each.cancelled() else each.exception()
                if error is None:
                    return each.result()
                if not isinstance(error, UnavailableError):
                    raise error
                failures.append(str(error))
        opened = [connection for connection in opened if not connection.closed]
        if opened:
            return min(opened, key=lambda each: each.in_flight)
        raise NoBrokerError(f"no broker answers: {'; '.join(dict.fromkeys(failures))}")

    async def _open_bootstrap(self, host: str, port: int) -> ClientConnection:
        connection = self._bootstrap[host, port] = await self._open(host, port)
        return connection

    async def _open_node(self, key: _ConnectionKey) -> ClientConnection:
        node = self._nodes.get(key[0])
        if node is None:
            raise UnavailableError(f"broker {key[0]} is not part of the cluster now")
        connection = self._connections[key] = await self._open(node.host, node.port)
        return connection

    async def _open(self, host: str, port: int) -> ClientConnection:
        address = address_text(host, port)
        pause = self._backoff.connection_delay_s(address)
        if pause > 0:
            await asyncio.sleep(pause)
        settings = self._settings
        try:
            connection = await open_connection(
                self._runtime,
                host,
                port,
                client_id=settings.client_id,
                request_timeout_ms=settings.request_timeout_ms,
                setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
                max_response_bytes=settings.receive_message_max_bytes,
                security=self._security,
            )
        except OdradekError as error:
            self._backoff.connection_failed(address)
            if isinstance(error, AuthenticationError):
                self._on_authentication_error(error)
            raise
        self._backoff.connected(address)
        connection.on_late(partial(self._response_late, connection))
        return connection

    def _response_late(self, connection: ClientConnection) -> None:
        self._backoff.response_late(connection)
        self._on_late()
