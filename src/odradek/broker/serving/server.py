"""The listeners and connections of a broker (Kafka's SocketServer).

Clients get the brokers' addresses for the listener that they use. A connection beyond a limit is closed at once
(`connection_quotas`).
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from msgspec.structs import replace

from odradek.broker.counters import ListenerCounters
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.security.admission import Admission
from odradek.broker.security.context import Session
from odradek.broker.security.listener_security import ListenerSecurity
from odradek.broker.security.quotas.client_quotas import ClientQuotas
from odradek.broker.security.quotas.connection_quotas import LONGEST_DELAY_S, ConnectionQuotas
from odradek.broker.security.scram_users import ScramUsers
from odradek.broker.security.session_authentication import SessionAuthentication
from odradek.broker.serving.dispatch import Dispatcher
from odradek.broker.serving.request_metrics import RequestMeter
from odradek.config.broker import BrokerConfig
from odradek.config.listener_settings import listener_settings
from odradek.config.listeners import ListenerAddress, parse_listener
from odradek.metadata.image import ClusterImage
from odradek.model import AuthenticationError
from odradek.runtime import Listener, ListenOptions, Runtime
from odradek.runtime.listening import check_address, listening_error
from odradek.runtime.pending_connections import PendingConnections
from odradek.wire.buffers import BufferPool, ResponseBuffers
from odradek.wire.connection import Connection, Serve
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits, RequestBudget
from odradek.wire.connection_scheduler import ConnectionScheduler
from odradek.wire.memory_pressure import MemoryPressure

_log = logging.getLogger("odradek.broker")
_CLOSE_TIMEOUT_S: Final = 1.0
"""The time that a client has to read its last responses when the broker stops."""
PORTS_FILE: Final = "listener.ports"
"""A file in the first data directory with lines NAME=PORT: the free port that each listener with port 0 got."""
_BOTH_KINDS: Final = {"localhost": ("127.0.0.1", "::1"), "": ("0.0.0.0", "::")}
_EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})


class Server:
    """All listeners and connections of one broker."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataCache,
        dispatcher: Dispatcher,
        admission: Admission,
        quotas: ClientQuotas,
        *,
        most_connections: int,
        scram_users: ScramUsers,
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._dispatcher = dispatcher
        self._admission = admission
        self._client_quotas = quotas
        self.serve: Serve = dispatcher.serve
        """The function that serves frames; a wrapper replaces it before `open`."""
        self._listeners: list[Listener] = []
        self.response_buffers = ResponseBuffers()
        """The buffers into which fetches read records."""
        self._opened: dict[str, ListenerAddress] = {}
        self._emptied: asyncio.Future[None] | None = None
        self._is_aborted = False
        self._connections: dict[Connection, Session] = {}
        self.counters: dict[str, ListenerCounters] = {}
        """Counters by listener name."""
        self.meter: RequestMeter | None = None
        """The meter of requests, after `measure_requests`."""
        config = metadata.config
        self._quotas = ConnectionQuotas(most_connections, config)
        self._scram_users = scram_users
        self._security: dict[str, ListenerSecurity] = {}
        self._pending: dict[str, PendingConnections] = {}
        most_bytes = _most_bytes(config.queued_max_request_bytes)
        self._group = ConnectionGroup(
            limits=ConnectionLimits(
                largest_frame_bytes=config.socket_request_max_bytes, idle_ms=config.connections_max_idle_ms
            ),
            pool=BufferPool(limit_bytes=most_bytes),
            budget=RequestBudget(config.queued_max_request_bytes),
            response_bytes=most_bytes,
            scheduler=ConnectionScheduler(runtime.clock.monotonic),
        )

    @property
    def connections_by_listener(self) -> Mapping[str, int]:
        counts = dict.fromkeys(self.counters, 0)
        for session in self._connections.values():
            counts[session.listener] += 1
        return counts

    def ip_rates(self) -> dict[str, float]:
        """Return the accepted connections per second of each address that has a quota."""
        rates = self._quotas.ip_rates(self._runtime.clock.monotonic())
        return {ip: rate for ip, rate in rates.items() if self._client_quotas.ip_limit(ip) is not None}

    @property
    def sessions(self) -> Collection[Session]:
        return self._connections.values()

    @property
    def cork(self) -> AbstractContextManager[None]:
        """A context manager that holds back responses until its end (`wire.Cork`)."""
        return self._group.cork

    @property
    def memory_pressure(self) -> MemoryPressure:
        """The memory check of all connections, which limits how much fetches may read."""
        return self._group.memory_pressure

    @property
    def unanswered_bytes(self) -> int:
        return self._group.budget.used_bytes

    @property
    def may_wait(self) -> bool:
        """Whether a request may stay unanswered because its client wants to wait, not for lack of memory."""
        return self._group.budget.may_wait

    def measure_requests(self) -> RequestMeter:
        """Count and time all requests from now on. Call it before `open`."""
        clock = self._runtime.clock
        self._group = replace(self._group, clock=clock.monotonic)
        self._dispatcher.count_errors()
        self.meter = RequestMeter(self.serve, clock)
        self.serve = self.meter.serve
        return self.meter

    async def open(self) -> None:
        """Listen on every address of `listeners`; client requests wait for `accept_client_requests`.

        For port 0 a listener gets the port in `PORTS_FILE`, or a free one. Raises `ConfigurationError` for invalid
        listeners, and for addresses that cannot be opened.
        """
        remembered = self._remembered_ports()
        for text in self._metadata.config.listeners:
            wanted = parse_listener(text)
            settings = listener_settings(self._metadata.config, wanted.name)
            security = ListenerSecurity(settings, self._runtime, self._scram_users)
            self._security[wanted.name] = security
            await security.read_keys()
            try:
                port = await self._listen(wanted, remembered.get(wanted.name, 0))
            except OSError as error:
                self.close_listeners()
                raise listening_error(wanted.host, wanted.port, error) from None
            bound = self._opened[wanted.name] = wanted._replace(port=port)
            _log.info("listening at %s%s", bound, "" if wanted.host else ", on every interface of this machine")

    async def _listen(self, wanted: ListenerAddress, remembered_port: int) -> int:
        """Open one listener and return its port, one for IPv4 and IPv6. For port 0, try `remembered_port` first."""
        self.counters.setdefault(wanted.name, ListenerCounters())
        service = _ListenerService(self, wanted.name)
        pending = self._pending[wanted.name] = PendingConnections(f"the listener {wanted.name}")
        tls = self._security[wanted.name].tls
        network, config = self._runtime.network, self._metadata.config
        options = ListenOptions(
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            pending=pending,
        )

        def factory() -> Connection:
            return Connection(service, self._group)

        if wanted.port:
            listener = await network.listen(factory, wanted.host, wanted.port, options, tls=tls)
            self._listeners.append(listener)
            return listener.port
        first, *others = _BOTH_KINDS.get(wanted.host, (wanted.host,))
        try:
            listener = await network.listen(factory, first, remembered_port, options, tls=tls)
        except OSError:
            if not remembered_port:
                raise
            _log.warning("port %d of the last start is taken by another process; choosing another", remembered_port)
            listener = await network.listen(factory, first, 0, options, tls=tls)
        self._listeners.append(listener)
        for other in others:
            with contextlib.suppress(OSError):  # a machine may have only one of the two
                self._listeners.append(await network.listen(factory, other, listener.port, options, tls=tls))
        return listener.port

    def _remembered_ports(self) -> dict[str, int]:
        try:
            text = self._runtime.disk.read_file(self._ports_path).decode(errors="replace")
        except OSError:
            return {}
        lines = [line.partition("=") for line in text.splitlines()]
        # uvloop takes the last sixteen bits of larger numbers.
        return {name: int(port) for name, _, port in lines if re.fullmatch("[0-9]{1,5}", port) and int(port) <= 65_535}

    def remember_ports(self) -> None:
        """Store the ports that were chosen for port 0 in `PORTS_FILE`, for the next start."""
        before = self._remembered_ports()
        wanted = [each for each in map(parse_listener, self._metadata.config.listeners) if not each.port]
        ports = before | {each.name: self._opened[each.name].port for each in wanted}
        if ports == before:
            return
        try:
            text = "".join(f"{name}={port}\n" for name, port in ports.items())
            self._runtime.disk.replace_file(self._ports_path, text.encode())
        except OSError as error:
            _log.warning("the ports %s will be others after the next start: %s", ports, error)

    @property
    def _ports_path(self) -> str:
        return f"{self._metadata.config.log_dirs[0]}/{PORTS_FILE}"

    @property
    def endpoints(self) -> tuple[ListenerAddress, ...]:
        """The addresses for clients: `advertised.listeners` or `listeners`, the actual ports, localhost for 0.0.0.0."""
        advertised = [parse_listener(text) for text in self._metadata.config.advertised_listeners or ()]
        endpoints = []
        for address in advertised or self._opened.values():
            own = self._opened.get(address.name)
            port = address.port or (own.port if own is not None else 0)
            host = address.host
            if host in _EVERY_INTERFACE:
                # A client cannot connect to "every interface"; without an advertised name localhost is the best guess.
                host = "localhost"
            endpoints.append(address._replace(host=host, port=port))
        return tuple(endpoints)

    def accept_controller_requests(self) -> None:
        """Serve the controller's commands, which give the broker its partitions, and logins, which need the users."""
        self._dispatcher.serve_controller()
        self._serve_waiting()

    def accept_client_requests(self) -> None:
        """Serve every client, also those that connected while the broker was starting."""
        self._dispatcher.serve_clients()
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        for connection in tuple(self._connections):
            connection.release()

    def close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for security in self._security.values():
            security.close()

    async def close_connections(self) -> None:
        """Send the finished responses and close all connections; reset those that do not read them within a second."""
        for connection in tuple(self._connections):
            connection.close()
        if self._connections:
            self._emptied = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._emptied
        self.abort_connections()

    def abort_connections(self) -> None:
        """Reset all connections, and from now on each that opens."""
        self._is_aborted = True
        for connection in tuple(self._connections):
            connection.abort()

    def kill(self) -> None:
        """Close the ports, and reset all connections."""
        self.close_listeners()
        self.abort_connections()

    # Connections

    def connection_opened(self, connection: Connection, listener: str) -> bool:
        """Register a new connection and return whether it may stay open."""
        if self._is_aborted:
            return False
        counters, config = self.counters[listener], self._metadata.config
        refusal = self._quotas.admit(config, connection.peer_host)
        if refusal is not None:
            counters.rejected += 1
            self._group.rate_limited_log.log(refusal, logging.WARNING, "Rejected a connection: %s", refusal)
            return False
        session = Session(
            connection=connection,
            listener=listener,
            client_host=connection.peer_host,
            admission=self._admission,
        )
        try:
            self._secure(session)
        except AuthenticationError as error:
            counters.rejected += 1
            self._quotas.dismiss(connection.peer_host)
            self._group.rate_limited_log.log(listener, logging.WARNING, "Rejected a connection: %s", error)
            return False
        counters.admitted += 1
        self._connections[connection] = session
        connection.session = session
        now_s, loop = self._runtime.clock.monotonic(), asyncio.get_running_loop()
        ip_limit = self._client_quotas.ip_limit(connection.peer_host)
        if ip_limit is not None and (delay_s := self._quotas.ip_delay_s(connection.peer_host, ip_limit, now_s)) > 0:
            connection.hold()
            loop.call_later(delay_s, connection.close)
            return True
        delay_s = self._quotas.delay_s(config, now_s)
        if delay_s > LONGEST_DELAY_S:
            connection.close("max.connection.creation.rate is exceeded: it would wait for more than 5 seconds")
        elif delay_s > 0:
            connection.hold()
            loop.call_later(delay_s, connection.release)
        return True

    def _secure(self, session: Session) -> None:
        """Set the principal of the client's certificate, or what authenticates the client."""
        security, connection = self._security[session.listener], session.connection
        if security.sasl is None:
            session.principal = security.principal_of(connection.peer_certificate)
            return
        keys = security.settings.security
        most_bytes = min(keys.sasl_server_max_receive_size, self._metadata.config.socket_request_max_bytes)

        def suspend() -> None:
            session.fast_path = None
            connection.limit_frames(most_bytes)

        suspend()
        session.authentication = SessionAuthentication(
            security.sasl,
            self._runtime.clock,
            max_session_ms=keys.connections_max_reauth_ms,
            suspend=suspend,
            close=connection.close,
            authenticated=partial(self._forget_pending, session),
        )
        self._pending[session.listener].add(connection, connection.peer_host, connection.abort)

    def _forget_pending(self, session: Session) -> None:
        self._pending[session.listener].remove(session.connection, session.client_host)

    def connection_closed(self, connection: Connection) -> None:
        session = self._connections.pop(connection, None)
        if session is not None:
            if session.authentication is not None:
                session.authentication.close()
                self._forget_pending(session)
            # Without cycles, many short connections leave no work to the garbage collector, which would stop the loop.
            connection.session = session.authentication = session.fast_path = None
            self.counters[session.listener].closed += 1
            self._quotas.dismiss(connection.peer_host)
            self._client_quotas.forget(connection)
        if not self._connections and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)


class _ListenerService:
    """One listener as a `wire.Service`."""

    def __init__(self, server: Server, listener: str) -> None:
        self._listener = listener
        self._server = server
        self.serve = server.serve
        self.closed = server.connection_closed

    def opened(self, connection: Connection) -> bool:
        return self._server.connection_opened(connection, self._listener)


def _most_bytes(queued_max_request_bytes: int) -> int:
    """Return the limit, in bytes, of receive buffers and of unsent responses; 2**62 if requests are unlimited."""
    return queued_max_request_bytes if queued_max_request_bytes >= 0 else 1 << 62


async def check_listeners(config: BrokerConfig, runtime: Runtime) -> None:
    """Raise `ConfigurationError` if a broker could not open one of its listeners. Nothing stays open."""
    for wanted in map(parse_listener, config.listeners):
        ListenerSecurity(listener_settings(config, wanted.name), runtime, ScramUsers(ClusterImage))
        await check_address(wanted.host, wanted.port)
