"""An in-memory network behind `runtime.Network`: random latency, network partitions and crashed hosts, by seed.

`MemoryNetwork.host(name)` is the `runtime.Network` of one process. Hosts share one address space, as processes on one
machine do; a host's name only says which process to cut off or crash. As in TCP, data arrives in order, in pieces that
the seed chooses, or the connection is lost. A partition holds data back until `heal`. The peers of a crashed host get
a reset, and so does a write to a closed end. `transport` has the connections.
"""

import asyncio
import errno
import random
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from odradek.runtime import Listener, ListenOptions, Network
from odradek.simulation.virtual.clock import VirtualClock
from odradek.simulation.virtual.trace import Trace
from odradek.simulation.virtual.transport import Link, MemoryTransport, context_of, join

P = TypeVar("P", bound=asyncio.BaseProtocol)

_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_FIRST_FREE_PORT: Final = 49_152
"""The start of IANA's dynamic ports, given out for port 0 and for the client's end of a connection."""

CONNECT_TIMEOUT_S: Final = 127.0
"""Limit of an unanswered connection attempt: the sum of Linux's six SYN retries."""


class MemoryNetwork:
    """Hosts, open ports and the connections between them.

    `latency_s` is the minimum and maximum one-way latency, drawn for each piece of data. `distances_s` is added to it,
    by source and target, and is no fault: `heal` leaves it.
    """

    def __init__(
        self,
        clock: VirtualClock,
        entropy: random.Random,
        trace: Trace,
        *,
        latency_s: tuple[float, float] = (5e-5, 2e-3),
    ) -> None:
        self.latency_s = latency_s
        self.cut_share = 0.25
        """The share of data that travels in several pieces."""
        self.distances_s: dict[tuple[str, str], float] = {}
        self._clock = clock
        self._entropy = entropy
        self._trace = trace
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._next_port = _FIRST_FREE_PORT
        self._blocked: set[tuple[str, str]] = set()
        self._rejecting: set[str] = set()
        self._exhausted: set[str] = set()
        self._unaccepted: list[MemoryTransport] = []
        self._slow_s: dict[tuple[str, str], float] = {}
        self._healed: list[asyncio.Future[None]] = []
        self._held: dict[Link, None] = {}
        self._transports: dict[MemoryTransport, str] = {}

    def host(self, name: str) -> Network:
        """Return the network as the process `name` sees it."""
        return _HostNetwork(self, name)

    # ---- faults -------------------------------------------------------------------------------------------------

    def block(self, source: str, target: str) -> None:
        """Hold back data from `source` to `target` until `heal`."""
        self.note(f"block {source} → {target}")
        self._blocked.add((source, target))

    def slow_down(self, source: str, target: str, delay_s: float) -> None:
        """Add to the latency from `source` to `target` until `heal`."""
        self.note(f"slow down {source} → {target} by {delay_s} s")
        self._slow_s[source, target] = delay_s

    def partition(self, side: list[str], other: list[str]) -> None:
        """Cut every host of `side` off from every host of `other`, both ways, until `heal`."""
        for one in side:
            for two in other:
                self.block(one, two)
                self.block(two, one)

    def reject(self, host: str) -> None:
        """Reset all connections of `host`, and refuse new ones to it until `heal`, as a firewall can."""
        self.note(f"reject {host}")
        self._rejecting.add(host)
        for transport, owner in list(self._transports.items()):
            if owner == host:
                transport.abort()

    def exhaust(self, host: str) -> None:
        """Let `host` open and accept no more sockets until `heal`; the kernel still completes connections to it."""
        self.note(f"exhaust {host}")
        self._exhausted.add(host)

    def heal(self) -> None:
        """Undo every `block`, `partition`, `slow_down`, `reject` and `exhaust`; held data is delivered."""
        self.note("heal")
        self._blocked.clear()
        self._rejecting.clear()
        self._exhausted.clear()
        unaccepted, self._unaccepted = self._unaccepted, []
        for transport in unaccepted:
            transport.start_soon()
        self._slow_s.clear()
        held, self._held = self._held, {}
        for link in held:
            link.release()
        waiting, self._healed = self._healed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def crash(self, host: str) -> None:
        """Kill the process `host`: its ports close, its peers get a reset, and its protocols receive nothing more."""
        self.note(f"crash {host}")
        for listener in list(self._listeners.values()):
            if listener.host == host:
                listener.close()
        for transport, owner in list(self._transports.items()):
            if owner == host:
                transport.die()

    # ---- listening and connecting -------------------------------------------------------------------------------

    def listen(self, host: str, factory: Callable[[], asyncio.BaseProtocol], address: str, port: int) -> Listener:
        """Open `port` (0: a free one) at `address` for the process `host`.

        Raises `OSError` EADDRINUSE if it is taken.
        """
        port = port or self._free_port()
        if self._find(address, port) is not None or (address in _WILDCARDS and self._is_used(port)):
            raise OSError(errno.EADDRINUSE, f"address already in use: {address}:{port}")
        listener = MemoryListener(self, host, _canonical(address), port, factory)
        self._listeners[listener.address, port] = listener
        self.note(f"{host} listens on {address}:{port}")
        return listener

    async def connect(self, host: str, factory: Callable[[], P], address: str, port: int) -> tuple[MemoryTransport, P]:
        """Connect the process `host` to the listener at `address`:`port`.

        Raises `OSError` EMFILE if `host` is exhausted, `ConnectionRefusedError` without a listener,
        `ConnectionResetError` if the listener's end closes at once, and `TimeoutError` if a cut lasts
        `CONNECT_TIMEOUT_S`.
        """
        if host in self._exhausted:
            raise OSError(errno.EMFILE, "too many open files")
        listener = self._find(address, port)
        if listener is not None:
            await self._reach(host, listener.host)
        await asyncio.sleep(self.latency())
        listener = self._find(address, port)
        if listener is None or listener.host in self._rejecting:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused: {address}:{port}")
        near = (_canonical(address), self._free_port())
        client, server = join(
            asyncio.get_running_loop(),
            protocol := factory(),
            listener.new_protocol(),
            hosts=(host, listener.host),
            addresses=(near, (_canonical(address), port)),
            network=self,
        )
        if listener.host in self._exhausted:
            self._unaccepted.append(server)
        else:
            server.start_soon()
        try:
            await asyncio.sleep(self.latency())
        except BaseException:
            client.abort()
            raise
        if client.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, f"connection reset by peer: {address}:{port}")
        client.start()
        return client, protocol

    async def _reach(self, source: str, target: str) -> None:
        """Wait until neither direction is blocked. Raises `TimeoutError` after `CONNECT_TIMEOUT_S`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CONNECT_TIMEOUT_S
        while self.is_blocked(source, target) or self.is_blocked(target, source):
            healed = loop.create_future()
            self._healed.append(healed)
            await asyncio.wait([healed], timeout=max(0.0, deadline - loop.time()))
            if not healed.done():
                self._healed.remove(healed)
                raise TimeoutError(errno.ETIMEDOUT, f"connection timed out: {target}")

    # ---- the protocol `Conditions`, for transports, and listeners -----------------------------------------------

    def now_s(self) -> float:
        return self._clock.elapsed_s

    def latency(self, source: str = "", target: str = "") -> float:
        least, most = self.latency_s
        delay_s = least + (most - least) * self._entropy.random()
        if self._slow_s or self.distances_s:
            way = source, target
            delay_s += self._slow_s.get(way, 0.0) + self.distances_s.get(way, 0.0)
        return delay_s

    def cut_point(self, size: int) -> int:
        """Return how many of `size` bytes travel as one piece: all of them, or sometimes a random part."""
        return self._entropy.randrange(1, size) if size > 1 and self._entropy.random() < self.cut_share else size

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def hold(self, link: Link) -> None:
        self._held[link] = None

    def remember(self, host: str, transport: MemoryTransport) -> None:
        self._transports[transport] = host

    def forget(self, transport: MemoryTransport) -> None:
        self._transports.pop(transport, None)

    def close_listener(self, listener: "MemoryListener") -> None:
        """Close a port; open connections stay."""
        self._listeners.pop((listener.address, listener.port), None)

    def note(self, event: str) -> None:
        self._trace.note(self._clock.elapsed_s, event)

    def _find(self, address: str, port: int) -> "MemoryListener | None":
        address = _canonical(address)
        for name in (address, *sorted(_WILDCARDS)):
            if (listener := self._listeners.get((name, port))) is not None:
                return listener
        return None

    def _is_used(self, port: int) -> bool:
        return any(used == port for _, used in self._listeners)

    def _free_port(self) -> int:
        while self._is_used(self._next_port):
            self._next_port += 1
        self._next_port += 1
        assert self._next_port <= 65_536, "the network is out of ports"
        return self._next_port - 1


class MemoryListener:
    """An open port of a `MemoryNetwork`."""

    def __init__(
        self,
        network: MemoryNetwork,
        host: str,
        address: str,
        port: int,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._network = network
        self._context = context_of(host)
        self._factory = factory
        self.host = host
        self.address = address
        self.port = port

    def new_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection, made by the process that listens."""
        return self._context.run(self._factory)

    def close(self) -> None:
        self._network.close_listener(self)


class _HostNetwork:
    """`runtime.Network` for one process."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self._host = host

    @property
    def host_name(self) -> str:
        return self._host

    async def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        options: ListenOptions | None = None,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> Listener:
        del options  # they are for a kernel
        assert tls is None, "the network in memory has no TLS"
        return self._network.listen(self._host, factory, host, port)

    async def connect(
        self, factory: Callable[[], P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        assert tls is None, "the network in memory has no TLS"
        return await self._network.connect(self._host, factory, host, port)


def _canonical(address: str) -> str:
    return "127.0.0.1" if address == "localhost" else address
