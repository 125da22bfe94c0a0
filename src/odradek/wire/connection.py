"""One client's connection: frames to a service, its replies back in order, and a limit on everything.

Requests that the service lets overlap (produce, fetch) are served as they come, with up to `most_in_flight` unanswered;
every other one is served alone, after all before it are answered and before any after it, as Kafka does with all of
them. What can't be served yet waits in the read buffer, and reading stops: the client's TCP feels it.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Protocol, cast

from odradek.wire.buffers import BufferPool
from odradek.wire.frames import FrameBuffer, FrameSizeError
from odradek.wire.reply import NO_REPLY, Buffers, PendingReply, Reply

_log = logging.getLogger("odradek.wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What one connection may use. `idle_ms` 0 or less: it may be idle for ever."""

    largest_frame_bytes: int = 104_857_600
    """Kafka's `socket.request.max.bytes`."""
    idle_ms: int = 600_000
    """Kafka's `connections.max.idle.ms`, looked at once per such time. Who waits for an answer is not idle."""
    most_in_flight: int = 128
    """Unanswered requests; the buffers that their records lie in are bounded by it."""
    most_in_flight_bytes: int = 8 * 1024 * 1024
    """Bytes of unanswered requests, above which no more are served; one request may be larger than this."""
    turn_bytes: int = 1024 * 1024
    """Read budget per turn of the event loop; measured: without one, a fast producer makes others wait 350 ms."""
    turn_requests: int = 256
    """Requests served per turn, so that a pipeline of small ones can't hold the loop either."""
    write_high_bytes: int = 1024 * 1024
    """Unsent replies above which nothing more is served, until they are down to a quarter of this."""


class RequestBudget:
    """What all connections of a server may have in flight together, in bytes: Kafka's `queued.max.request.bytes`.

    One that would exceed it stalls until others are answered; -1 is no limit. One request alone may be larger.
    """

    __slots__ = ("_limit", "_waiting", "used_bytes")

    def __init__(self, limit_bytes: int = -1) -> None:
        self._limit = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[Connection, None] = {}

    def admits(self, connection: "Connection", size: int) -> bool:
        """Whether a request of `size` may be served; else its connection is told when to ask again."""
        if self._limit < 0 or not self.used_bytes or self.used_bytes + size <= self._limit:
            return True
        self._waiting[connection] = None
        return False

    def take(self, size: int) -> None:
        """A request of `size` is in flight."""
        self.used_bytes += size

    def give_back(self, size: int) -> None:
        """It is answered, or given up."""
        self.used_bytes -= size
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.go_on()


class Service(Protocol):
    """What stands above a connection."""

    def overlaps(self, frame: memoryview) -> bool:
        """Whether this request may be served while others of its connection are unanswered, and they while it is."""

    def serve(self, connection: "Connection", frame: memoryview) -> Reply:
        """Answer a request. `frame` may be kept for as long as needed. Must not raise."""

    def opened(self, connection: "Connection") -> bool:
        """A client has connected; False turns it away."""

    def closed(self, connection: "Connection") -> None:
        """The connection is gone, after `opened` said True."""


class Connection(asyncio.BufferedProtocol):
    """See the module. `peer_host` is the client's address; `session` is the service's own, whatever it likes."""

    __slots__ = (
        "_budget",
        "_closing",
        "_eof",
        "_exclusive",
        "_frames",
        "_held_bytes",
        "_idle_timer",
        "_in_flight",
        "_in_flight_bytes",
        "_limits",
        "_loop",
        "_offered",
        "_opened",
        "_paused",
        "_reads",
        "_service",
        "_stalled",
        "_transport",
        "_turn_bytes_left",
        "_unsent",
        "peer_host",
        "peer_port",
        "session",
    )

    def __init__(
        self, service: Service, pool: BufferPool, limits: ConnectionLimits, budget: RequestBudget | None = None
    ) -> None:
        self._service = service
        self._budget = budget or RequestBudget()
        self._limits = limits
        self._frames = FrameBuffer(pool, limits.largest_frame_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[PendingReply] = deque()
        self._in_flight_bytes = 0
        self._held_bytes = 0  # of replies that are known and wait for earlier ones
        self._exclusive = False  # an unanswered request lets none follow it
        self._unsent = False  # the transport asked for no more
        self._stalled = False  # whole frames may be waiting in the buffer
        self._paused = False  # the transport was asked not to read
        self._closing = False
        self._eof = False
        self._opened = False
        self._offered = 0
        self._turn_bytes_left = limits.turn_bytes
        self._reads = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self.peer_host = ""
        self.peer_port = 0
        self.session: object = None

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio. The service may turn the client away."""
        # Not an isinstance check: uvloop's transports are asyncio's by behaviour only.
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        self._transport.set_write_buffer_limits(self._limits.write_high_bytes, self._limits.write_high_bytes // 4)
        self._opened = self._service.opened(self)
        if not self._opened:
            self.abort()
        elif self._limits.idle_ms > 0:
            self._watch_idleness(self._reads)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio."""
        space = self._frames.space()
        self._offered = len(space)
        return space

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self._reads += 1
        self._frames.filled(nbytes)
        if self._stalled:
            self._pause()
            return
        self._serve_frames()
        if nbytes == self._offered:
            # The kernel has more, and libuv would go on reading from this connection within the same turn.
            self._turn_bytes_left -= nbytes
            if self._turn_bytes_left <= 0:
                self._yield_turn()
        else:
            self._turn_bytes_left = self._limits.turn_bytes

    def pause_writing(self) -> None:
        """See asyncio: the client reads slower than it asks."""
        self._unsent = True

    def resume_writing(self) -> None:
        """See asyncio."""
        self._unsent = False
        self.go_on()

    def eof_received(self) -> bool:
        """See asyncio. What the client had sent before is still served: a producer with acks=0 writes and leaves."""
        for pending in tuple(self._in_flight):
            if pending.on_abandoned is not None and not pending.settled:
                pending.on_abandoned()
                pending.complete(NO_REPLY)
        self._eof = self._stalled or bool(self._in_flight)
        return self._eof

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio. Replies that are still pending are abandoned."""
        self._transport = None
        self._closing = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._frames.close()
        abandoned, self._in_flight = self._in_flight, deque()
        self._budget.give_back(self._in_flight_bytes)
        for pending in abandoned:
            pending.on_settled = None
            if pending.on_abandoned is not None and not pending.settled:
                pending.on_abandoned()
        if self._opened:
            self._service.closed(self)

    # What the service calls

    @property
    def is_open(self) -> bool:
        """Whether replies can still leave."""
        return not self._closing

    def hold(self) -> None:
        """Serve nothing until `resume_writing`: the server is not ready."""
        self._unsent = True

    def close(self) -> None:
        """Send what is answered, then close."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str | None = None) -> None:
        """Close at once; `reason` becomes the one line in the log."""
        if reason is not None and not self._closing:
            _log.info("closing the connection from %s:%d: %s", self.peer_host, self.peer_port, reason)
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Serving

    def _serve_frames(self) -> None:
        """Serve what has come until something must be waited for."""
        frames, in_flight, budget = self._frames, self._in_flight, self._budget
        left = self._limits.turn_requests
        self._stalled = False
        while not self._closing:
            try:
                frame = frames.next_frame()
            except FrameSizeError as error:
                self.abort(str(error))
                return
            if frame is None:
                frames.rest()
                self._resume()
                return
            if self._unsent or (in_flight and not self._may_follow(frame)) or not budget.admits(self, len(frame)):
                frames.take_back(frame)
                self._stalled = True
                return
            self._serve(frame)
            left -= 1
            if not left:
                self._stalled = True
                self._yield_turn()
                return

    def _may_follow(self, frame: memoryview) -> bool:
        """Whether this request may join those in flight."""
        limits = self._limits
        return (
            not self._exclusive
            and len(self._in_flight) < limits.most_in_flight
            and self._in_flight_bytes < limits.most_in_flight_bytes
            and self._held_bytes < limits.write_high_bytes
            and self._service.overlaps(frame)
        )

    def _serve(self, frame: memoryview) -> None:
        reply = self._service.serve(self, frame)
        if not isinstance(reply, PendingReply):
            if not self._in_flight:
                self._write(reply)
                return
            buffers, reply = reply, PendingReply()
            reply.complete(buffers)
        reply.request_bytes = len(frame)
        self._in_flight.append(reply)
        self._in_flight_bytes += len(frame)
        self._budget.take(len(frame))
        reply.on_settled = self._on_settled
        if reply.settled:
            self._on_settled(reply)
        else:
            self._exclusive = reply.exclusive

    def _on_settled(self, reply: PendingReply) -> None:
        """A reply is known; if it is the first it leaves, and with it all that are known behind it."""
        in_flight = self._in_flight
        self._held_bytes += sum(map(len, reply.buffers))
        if in_flight[0] is not reply:
            return
        answered_bytes = 0
        while in_flight and in_flight[0].settled:
            reply = in_flight.popleft()
            answered_bytes += reply.request_bytes
            self._held_bytes -= sum(map(len, reply.buffers))
            self._exclusive = False
            if reply.refused is not None:
                self.abort(reply.refused)
                break
            self._write(reply.buffers)
        self._in_flight_bytes -= answered_bytes
        self._budget.give_back(answered_bytes)
        self.go_on()

    def _write(self, buffers: Buffers) -> None:
        transport = self._transport
        if transport is None or self._closing or not buffers:
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def go_on(self) -> None:
        """Something that was waited for has come."""
        if self._closing:
            return
        if self._stalled and not self._unsent:
            self._serve_frames()
        if self._eof and not self._stalled and not self._in_flight:
            self.close()

    # Turns and idleness

    def _yield_turn(self) -> None:
        """Let the others have their turn before this connection goes on."""
        self._pause()
        self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_bytes_left = self._limits.turn_bytes
        if not self._stalled:
            self._resume()
        self.go_on()

    def _pause(self) -> None:
        if not self._paused and not self._closing and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True

    def _resume(self) -> None:
        if self._paused and not self._closing and not self._eof and self._transport is not None:
            self._transport.resume_reading()
            self._paused = False

    def _watch_idleness(self, reads_then: int) -> None:
        """Close if nothing was read since the last look, and nobody waits for an answer."""
        if self._reads == reads_then and self._idle_timer is not None and not self._in_flight:
            _log.debug("closing the connection from %s:%d: idle", self.peer_host, self.peer_port)
            self.close()
            return
        self._idle_timer = self._loop.call_later(self._limits.idle_ms / 1000, self._watch_idleness, self._reads)


__all__ = ["Connection", "ConnectionLimits", "Service"]
