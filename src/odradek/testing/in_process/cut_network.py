"""A network between brokers, over real sockets, that a test can cut; held data is delivered when the cut heals.

Each connection that a broker opens to another broker has a `_Gate`. During a cut, the gate holds written data and
stops reading, so that the connection stays open but silent, and new connections wait. Clients have no gates.
"""

import asyncio
import ssl
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from odradek.runtime import Listener, ListenOptions, Network, SystemNetwork

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Cuts:
    """The cuts between brokers, shared by the threads of a cluster. `brokers` maps ports to broker ids."""

    def __init__(self) -> None:
        self.brokers: dict[int, int] = {}
        self._pairs: frozenset[tuple[int, int]] = frozenset()
        self._lock = threading.Lock()

    def cut(self, source: int, target: int) -> None:
        """Hold back data from `source` to `target` from now on."""
        with self._lock:
            self._pairs |= {(source, target)}

    def heal(self) -> None:
        """End all cuts."""
        with self._lock:
            self._pairs = frozenset()

    def between(self, source: int, port: int) -> tuple[bool, bool]:
        """Return `(is_sending_cut, is_receiving_cut)` of the connection from `source` to the broker at `port`."""
        pairs, target = self._pairs, self.brokers.get(port)
        if not pairs or target is None:
            return False, False
        return (source, target) in pairs, (target, source) in pairs


class CutNetwork:
    """The network of one broker. It keeps the local ports of its open connections in `ports`."""

    def __init__(self, broker_id: int, cuts: Cuts, ports: set[int]) -> None:
        self._broker_id = broker_id
        self._cuts = cuts
        self._ports = ports
        self._network: Network = SystemNetwork()
        self._gates: set[_Gate] = set()
        self._changed = asyncio.Event()

    @property
    def host_name(self) -> str:
        return self._network.host_name

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        options: ListenOptions | None = None,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> Listener:
        return await self._network.listen(factory, host, port, options, tls=tls)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        while any(self._cuts.between(self._broker_id, port)):
            self._changed.clear()
            await self._changed.wait()
        protocol = factory()
        _, relay = await self._network.connect(lambda: _Relay(protocol, port, self._closed), host, port, tls=tls)
        gate = relay.gate
        self._gates.add(gate)
        self._ports.add(gate.near_port)
        gate.cut(*self._cuts.between(self._broker_id, port))
        # uvloop's transports are not subclasses of asyncio's either.
        return cast("asyncio.Transport", gate), protocol

    def _closed(self, gate: "_Gate") -> None:
        self._gates.discard(gate)
        self._ports.discard(gate.near_port)

    def look(self) -> None:
        """Apply the current cuts; called on the broker's loop."""
        self._changed.set()
        for gate in self._gates.copy():
            gate.cut(*self._cuts.between(self._broker_id, gate.port))


class _Gate:
    """A connection's transport as its protocol sees it; `port` is the other broker's."""

    def __init__(self, transport: asyncio.Transport, port: int) -> None:
        self.port = port
        self.near_port: int = transport.get_extra_info("sockname")[1]
        self._transport = transport
        self._held: list[bytes] | None = None
        self._closing = False

    def cut(self, there: bool, back: bool) -> None:  # noqa: FBT001 two ways of one thing
        """Hold (`there`) or release written data, and pause (`back`) or resume reading."""
        if self._transport.is_closing():
            return
        if back:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if there and self._held is None:
            self._held = []
        elif not there and self._held is not None:
            held, self._held = self._held, None
            self._transport.writelines(held)
            if self._closing:
                self._transport.close()

    def write(self, data: Any) -> None:
        self.writelines((data,))

    def writelines(self, pieces: Any) -> None:
        if self._held is None:
            self._transport.writelines(pieces)
        elif not self._closing:
            self._held += map(bytes, pieces)

    def close(self) -> None:
        self._closing = True
        if self._held is None:
            self._transport.close()

    def abort(self) -> None:
        self._held = None
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the transport that does not affect the data: names, sizes, limits."""
        return getattr(self._transport, name)


class _Relay(asyncio.BufferedProtocol):
    """A connection's protocol as its transport sees it."""

    def __init__(self, protocol: asyncio.BaseProtocol, port: int, closed: Callable[[_Gate], None]) -> None:
        self.gate: _Gate
        self._protocol: Any = protocol
        self._port = port
        self._closed = closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.gate = _Gate(cast("asyncio.Transport", transport), self._port)
        self._protocol.connection_made(cast("asyncio.Transport", self.gate))

    def get_buffer(self, sizehint: int) -> Any:
        # uvloop's TLS asks for a buffer before there is data, also where the protocol only waits for the end.
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            return self._protocol.get_buffer(sizehint)
        return bytearray(1)

    def buffer_updated(self, nbytes: int) -> None:
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        stays: bool | None = self._protocol.eof_received()
        return stays

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self.gate)
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()
