"""Listening sockets that accept connections again after a shortage of memory or file descriptors.

If memory runs out while uvloop's own server opens a connection, libuv never accepts another one on the port; asyncio's
logs a traceback for each connection while the process has no descriptor. Here a connection that cannot be opened is
closed, and the listener goes on.

A client whose TLS handshake fails, or takes longer than ten seconds, is closed with a log line. Their number
is limited, with that of other connections whose clients have not authenticated yet (`pending_connections`).
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import Final

from odradek.model import PreconditionError, address_text
from odradek.runtime.pending_connections import PendingConnections
from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.runtime.tls_server import open_tls

_MOST_PER_TURN: Final = 64
"""Limit of connections accepted per turn of the event loop."""
_PAUSE_S: Final = 0.5
"""The pause after a shortage, in which connections wait in the kernel's queue."""
_QUIET_S: Final = 60.0
"""The shortest time between two log lines about shortages."""
_SHORTAGES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger("odradek.runtime")


class SystemListener:
    """The listening sockets of one host, which have the same port; `factory` makes the protocols of connections.

    `tls`, if any, returns the context of a new connection's TLS; `pending` counts its handshakes.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        factory: Callable[[], asyncio.BaseProtocol],
        tls: Callable[[], ssl.SSLContext] | None = None,
        pending: PendingConnections | None = None,
    ) -> None:
        self.port: int = sockets[0].getsockname()[1]
        self._sockets = sockets
        self._factory = factory
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._opening: dict[asyncio.Task[object], socket.socket] = {}
        self._pending = pending or PendingConnections(f"port {self.port}")
        self._quiet_until_s = 0.0
        self._rate_limited_log = RateLimitedLog(_log)
        self._resume()

    def close(self) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            with contextlib.suppress(OSError):  # macOS has no shutdown for it
                listening.shutdown(socket.SHUT_RDWR)  # a child of this process may have the socket, too
            listening.close()
        self._sockets.clear()
        for accepted in self._opening.values():  # their handshakes fail
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

    def _resume(self) -> None:
        self._resuming = self._loop.call_later(_PAUSE_S, self._resume)  # in case the next lines raise MemoryError
        for listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)
        self._resuming.cancel()
        self._resuming = None

    def _accept(self, listening: socket.socket) -> None:
        try:
            for _ in range(_MOST_PER_TURN):
                accepted, address = listening.accept()
                accepted.setblocking(False)
                self._open(accepted, address[0])
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _SHORTAGES:
                raise
            self._wait(error)
        except MemoryError as error:
            self._wait(error)

    def _open(self, accepted: socket.socket, host: str) -> None:
        """Open a connection on an accepted socket; close the socket if that fails."""
        try:
            protocol, inode = self._factory(), os.fstat(accepted.fileno()).st_ino
            opening: asyncio.Task[object] = self._loop.create_task(
                self._loop.connect_accepted_socket(lambda: protocol, accepted)
                if self._tls is None
                else open_tls(protocol, accepted, self._tls())
            )
            self._opening[opening] = accepted
            if self._tls is not None:
                self._pending.add(opening, host, opening.cancel)
            opening.add_done_callback(lambda task: self._opened(task, accepted, inode, host))
        except BaseException:
            accepted.close()
            raise

    def _opened(self, opening: asyncio.Task[object], accepted: socket.socket, inode: int, host: str) -> None:
        self._opening.pop(opening, None)
        self._pending.remove(opening, host)
        error = None if opening.cancelled() else opening.exception()
        if error is None and not opening.cancelled():
            return
        # The event loop may have closed the descriptor already, and its number may be another file's by now.
        descriptor = accepted.detach()
        with contextlib.suppress(OSError):
            if os.fstat(descriptor).st_ino == inode:
                os.close(descriptor)
        is_shortage = isinstance(error, OSError) and error.errno in _SHORTAGES
        if error is not None and (is_shortage or isinstance(error, MemoryError)):
            if self._sockets:
                self._wait(error)
        elif isinstance(error, OSError) and self._sockets:
            reason = getattr(error, "reason", None) or str(error) or "the client closed it"
            text = "a connection from %s to port %d failed in its TLS handshake: %s"
            self._rate_limited_log.log((host, reason), logging.INFO, text, host, self.port, reason)
        elif error is not None and self._sockets:
            _log.error("a connection could not be opened", exc_info=error)

    def _wait(self, error: BaseException) -> None:
        """Accept nothing for a while: the process lacks descriptors or memory."""
        self._pause_accepting()
        if self._loop.time() >= self._quiet_until_s:
            self._quiet_until_s = self._loop.time() + _QUIET_S
            what = "memory" if isinstance(error, MemoryError) else "file descriptors (ulimit -n) or memory"
            _log.warning("connections to port %d wait, as the process lacks %s: %s", self.port, what, error)

    def _pause_accepting(self) -> None:
        if self._resuming is None:
            self._resuming = self._loop.call_later(_PAUSE_S, self._resume)
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())


def listening_error(host: str, port: int, error: OSError, purpose: str = "") -> PreconditionError:
    """Return the error for an address that cannot be listened on: the system's reason without the loop's prefix."""
    reasons = {
        errno.EADDRINUSE: "another process has that port; stop it, or choose another port",
        errno.EADDRNOTAVAIL: f"{host} is not an address of this machine; localhost and 0.0.0.0 are",
    }
    reason = reasons.get(error.errno or 0) or (error.strerror or str(error)).rpartition(": ")[2]
    return PreconditionError(f"can't listen on {address_text(host, port)}{purpose}: {reason}")


async def check_address(host: str, port: int, purpose: str = "") -> None:
    """Raise `PreconditionError` if this process cannot listen on the address now; nothing stays open."""
    try:
        for each in await bind(host, port, backlog=None, send_buffer_bytes=-1, receive_buffer_bytes=-1):
            each.close()
    except OSError as error:
        raise listening_error(host, port, error, purpose) from None


async def bind(
    host: str, port: int, *, backlog: int | None, send_buffer_bytes: int, receive_buffer_bytes: int
) -> list[socket.socket]:
    """Return sockets for every address of `host`, with the same port: listening with a `backlog`. Raises `OSError`."""
    infos = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)  # accepted sockets inherit it
            chosen = sockets[0].getsockname()[1] if len(sockets) > 1 else port
            listening.bind((address[0], chosen, *address[2:]))
            if backlog is not None:
                listening.listen(backlog)
    except BaseException:
        for listening in sockets:
            listening.close()
        raise
    return sockets
