"""The broker's end of a client connection: it reads requests, serves them, and sends the replies in order.

Requests that may overlap (produce, fetch) are served as they arrive, up to `most_in_flight` unanswered ones. For any
other request the service returns `LATER` until no request is in flight, and later requests wait for its reply, as Kafka
serves every request. Requests that cannot be served yet stay in the read buffer and reading stops, so that TCP flow
control slows the client down.
"""

import asyncio
import logging
from collections import deque
from typing import Final, Protocol, cast

from odradek.model import address_text
from odradek.wire.connection_group import ConnectionGroup, gather, limit_unsent
from odradek.wire.connection_scheduler import SHARED_REQUESTS
from odradek.wire.frames import FrameBuffer, FrameSizeError
from odradek.wire.memory_pressure import CHECK_INTERVAL_S, RECOUNT_S, MemoryUse
from odradek.wire.paced_transport import PacedTransport
from odradek.wire.reply import LATER, Buffers, PendingReply, Reply

_log = logging.getLogger("odradek.wire")
_LARGE_BYTES: Final = 64 * 1024
"""From this size on, a response counts as in memory until its last byte is sent."""


class Serve(Protocol):
    """The type of `Service.serve` and of functions that wrap it."""

    def __call__(self, connection: "Connection", frame: memoryview, *, alone: bool) -> Reply:
        """Serve one request."""


class Service(Protocol):
    """The layer above a connection that decodes and answers requests."""

    def serve(self, connection: "Connection", frame: memoryview, *, alone: bool) -> Reply:
        """Serve one request and return the reply. The service may keep `frame`, and must not raise.

        `alone`: whether no other request of the connection is unanswered. The service returns `LATER` for a request
        that must be served alone and is not, and after `connection.hold`; `serve` is then called again with it.
        """

    def opened(self, connection: "Connection") -> bool:
        """Accept a new connection, or return False to close it."""

    def closed(self, connection: "Connection") -> None:
        """Release the state of a closed connection that `opened` accepted."""


class Connection(asyncio.BufferedProtocol):
    """One client's connection. `peer_host` is the client's address; `session` is for the service's own use.

    `peer_certificate` is the client's certificate in DER, empty without one.
    `read_at` is the time at which the requests being served were read, by `ConnectionGroup.clock`; 0 without a clock.
    """

    __slots__ = (
        "_budget",
        "_clock",
        "_closing",
        "_cork",
        "_eof",
        "_exclusive",
        "_frames",
        "_held_bytes",
        "_idle_timer",
        "_in_flight",
        "_in_flight_bytes",
        "_is_held",
        "_is_scheduled",
        "_large_responses",
        "_limits",
        "_loop",
        "_memory_pressure",
        "_offered",
        "_opened",
        "_outgoing",
        "_paused",
        "_pool",
        "_rate_limited_log",
        "_reads",
        "_scheduler",
        "_served",
        "_served_in_a_row",
        "_service",
        "_stalled",
        "_transport",
        "_turn_bytes_left",
        "_unsent",
        "_waits",
        "_written_bytes",
        "peer_certificate",
        "peer_host",
        "peer_port",
        "read_at",
        "session",
    )

    def __init__(self, service: Service, group: ConnectionGroup) -> None:
        self._service = service
        self._limits = limits = group.limits
        self._budget = group.budget
        self._cork = group.cork
        self._scheduler = group.scheduler
        self._clock = group.clock
        self._pool = group.pool
        self._memory_pressure = group.memory_pressure
        self._rate_limited_log = group.rate_limited_log
        self._frames = FrameBuffer(group.pool, limits.largest_frame_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._in_flight: deque[PendingReply] = deque()
        self._in_flight_bytes = 0
        self._outgoing: list[bytes | bytearray | memoryview] = []  # held back by the cork
        self._held_bytes = 0  # of finished replies that wait for earlier ones
        self._written_bytes = 0  # given to the transport since the connection was made
        self._large_responses: deque[tuple[int, int]] = deque()  # (`_written_bytes` after it, its size)
        self._exclusive = False  # an exclusive request is unanswered
        self._is_held = False  # the service serves no request
        self._unsent = False  # the transport's write buffer is full
        self._stalled = False  # whole frames may be waiting in the buffer
        self._paused = False  # the transport does not read
        self._closing = False
        self._eof = False
        self._opened = False
        self._offered = 0
        self._turn_bytes_left = limits.turn_bytes
        self._reads = 0
        self._served_in_a_row = 0  # requests since the buffer was last empty
        self._served = 0  # turns in which a request was served
        self._waits = False  # for memory, to go on reading
        self._is_scheduled = False  # in a queue of `_scheduler`
        self._idle_timer: asyncio.TimerHandle | None = None
        self.peer_certificate = b""
        self.peer_host = ""
        self.peer_port = 0
        self.read_at = 0.0
        self.session: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if transport.get_extra_info("sslcontext") is not None:
            self._transport = PacedTransport(self._transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = str(peer[0]), int(peer[1])
        if transport.get_extra_info("peercert"):  # which is empty for one that was not verified
            self.peer_certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        limit_unsent(self._transport, self._limits.write_high_bytes)
        self._opened = self._service.opened(self)
        if not self._opened:
            self.abort()
            return
        self._memory_pressure.add(self)
        if self._limits.idle_ms > 0:
            self._watch_idleness(self._reads, 0)

    def get_buffer(self, sizehint: int) -> memoryview:
        space = self._frames.space()
        self._offered = len(space)
        return space

    def buffer_updated(self, nbytes: int) -> None:
        self._reads += 1
        may_serve = self._frames.filled(nbytes)
        if self._stalled:
            self._pause()
            return
        if may_serve:
            if self._clock is not None:
                self.read_at = self._clock()
            self._serve_frames()
        if nbytes == self._offered:
            if self._frames.needs_more:
                self._find_memory()
            # More bytes are waiting, and libuv would go on reading from this connection in the same iteration.
            self._turn_bytes_left -= nbytes
            if self._turn_bytes_left <= 0:
                self._yield(SHARED_REQUESTS)
        else:
            self._turn_bytes_left = self._limits.turn_bytes

    def pause_writing(self) -> None:
        self._unsent = True
        if self._transport is not None:
            self._memory_pressure.answered(self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if isinstance(self._transport, PacedTransport) and not self._transport.write_more():
            return
        self._unsent = False
        self.continue_serving()

    def eof_received(self) -> bool:
        """End long polls, which may be early; return whether to stay open to serve the other requests that were read.

        A producer with acks=0 sends its last requests and closes.
        """
        for pending in tuple(self._in_flight):
            if not pending.settled:
                pending.force_complete()
        self._eof = self._stalled or bool(self._in_flight)
        return self._eof and not isinstance(self._transport, PacedTransport)  # TLS transports cannot stay half open

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._memory_pressure.remove(self)
        self._pool.forget(self)
        self._frames.close()
        abandoned, self._in_flight = self._in_flight, deque()
        self._budget.give_back(self._in_flight_bytes)
        for pending in abandoned:
            pending.on_settled = None
            if not pending.settled:
                pending.abandon()
        if self._opened:
            self._service.closed(self)

    # Methods that the service calls

    @property
    def is_open(self) -> bool:
        """Whether replies can still be sent."""
        return not self._closing

    def hold(self) -> None:
        """Serve no request until `release`."""
        self._is_held = True

    def release(self) -> None:
        """End a `hold`."""
        self._is_held = False
        self.continue_serving()

    def limit_frames(self, largest_frame_bytes: int) -> None:
        """Change the limit of a request's size, which is smaller until a client has authenticated."""
        self._frames.limit(largest_frame_bytes)

    def forget_request(self, *, kept_bytes: int) -> None:
        """Count only `kept_bytes` for the one unanswered request, if any: the rest is freed, or counted elsewhere."""
        for reply in self._in_flight:
            self.count_decoded(min(kept_bytes - reply.request_bytes, 0))

    def count_decoded(self, decoded_bytes: int) -> None:
        """Count more memory for the one unanswered request, if any."""
        for reply in self._in_flight:
            reply.request_bytes += decoded_bytes
            self._in_flight_bytes += decoded_bytes
            self._budget.give_back(-decoded_bytes)

    async def response_room(self) -> None:
        """Wait while unsent responses leave no memory for another, at most until stuck clients are closed."""
        for _ in range(round(2 * CHECK_INTERVAL_S / RECOUNT_S)):
            if self._memory_pressure.response_room() > 0:
                break
            await asyncio.sleep(RECOUNT_S)

    def count_response(self, size: int) -> None:
        """Count the bytes of a large response that is sent now."""
        self._memory_pressure.answered(size)

    def close(self, reason: str | None = None) -> None:
        """Send the replies that the cork holds back, then close; log `reason`, if any."""
        if reason is not None and not self._closing:
            self._log_closing(reason)
        self.flush()
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def exception(self, what: str, error: BaseException) -> None:
        """Log `error`, a bug of the broker, with its traceback, and close."""
        if not self._closing:
            self._log_closing(what, level=logging.ERROR, error=error)
        self.close()

    def _log_closing(self, reason: str, *, level: int = logging.INFO, error: BaseException | None = None) -> None:
        text = "closing the connection from %s: %s"
        place = address_text(self.peer_host, self.peer_port)
        self._rate_limited_log.log((self.peer_host, reason), level, text, place, reason, error=error)

    def abort(self) -> None:
        """Close at once, and drop unsent data."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    # Serving

    def _serve_frames(self) -> None:
        frames, in_flight, limits, budget = self._frames, self._in_flight, self._limits, self._budget
        serve, scheduler = self._service.serve, self._scheduler
        count = 0
        taken_bytes = 0
        self._stalled = False
        while not self._closing:
            try:
                frame = frames.next_frame()
            except FrameSizeError as error:
                self.close(str(error))
                break
            if frame is None:
                self._served_in_a_row = 0
                frames.release_if_empty()
                self._resume()
                break
            if scheduler.must_yield(count) or count == limits.turn_requests:
                frames.push_back(frame)
                self._stalled = True
                self._yield(self._served_in_a_row)
                break
            size = len(frame)
            reply: Reply = LATER
            if budget.is_exhausted:
                budget.wait(self)
            elif not (self._unsent or self._is_held) and (not in_flight or self._may_add_in_flight()):
                reply = serve(self, frame, alone=not in_flight)
            if reply is LATER:
                frames.push_back(frame)
                self._stalled = True
                break
            if not isinstance(reply, PendingReply):
                if not in_flight:
                    self._write(reply)
                else:
                    pending = PendingReply()
                    pending.complete(reply)
                    taken_bytes += self._add_in_flight(pending, size)
            else:
                taken_bytes += self._add_in_flight(reply, size)
            count += 1
            self._served_in_a_row += 1
        if count:
            self._served += 1
        if taken_bytes:
            budget.take(taken_bytes)

    def _may_add_in_flight(self) -> bool:
        limits = self._limits
        return (
            not self._exclusive
            and len(self._in_flight) < limits.most_in_flight
            and self._in_flight_bytes < limits.most_in_flight_bytes
            and self._held_bytes < limits.write_high_bytes
        )

    def _add_in_flight(self, reply: PendingReply, size: int) -> int:
        """Queue a reply behind those in flight. Return the bytes of memory that its request takes."""
        request_bytes = reply.request_bytes = size + reply.decoded_bytes
        reply.on_settled = self._on_settled
        self._in_flight.append(reply)
        self._in_flight_bytes += request_bytes
        if reply.settled:
            self._on_settled(reply)
        else:
            self._exclusive = reply.exclusive
        return request_bytes

    def _on_settled(self, reply: PendingReply) -> None:
        """Send a finished reply if it is the first in flight, and all finished ones right behind it."""
        in_flight = self._in_flight
        if in_flight[0] is not reply:
            reply.held_bytes = sum(map(len, reply.buffers))
            self._held_bytes += reply.held_bytes
            if self._clock is not None:
                reply.held_since = self._clock()
            return
        answered_bytes = 0
        while in_flight and (reply := in_flight[0]).settled:
            in_flight.popleft()
            answered_bytes += reply.request_bytes
            self._held_bytes -= reply.held_bytes
            if reply.refused is not None:
                self.close(reply.refused)
                break
            self._write(reply.buffers)
            if reply.on_answered is not None:
                reply.on_answered(reply)
        self._exclusive = bool(in_flight) and in_flight[-1].exclusive
        self._in_flight_bytes -= answered_bytes
        self._budget.give_back(answered_bytes)
        if self._eof or (self._stalled and not self._is_scheduled):
            self.continue_serving()

    def _write(self, buffers: Buffers) -> None:
        if not buffers:
            return
        if self._cork.is_in:
            if not self._outgoing:
                self._cork.add(self)
            self._outgoing += buffers
        else:
            self._send(buffers)

    def _send(self, buffers: Buffers) -> None:
        transport = self._transport
        if transport is None or self._closing or not buffers:
            return
        size = sum(map(len, buffers))
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(gather(buffers, size))
            if not self._unsent and transport.get_write_buffer_size() > self._limits.write_high_bytes:
                limit_unsent(transport, self._limits.write_high_bytes)
        self._written_bytes += size
        if size >= _LARGE_BYTES:
            self._large_responses.append((self._written_bytes, size))
            self._forget_sent(transport.get_write_buffer_size())

    def flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        self._send(outgoing)

    def continue_serving(self) -> None:
        if self._closing:
            return
        if self._stalled and not (self._unsent or self._is_held or self._is_scheduled):
            self._serve_frames()
        if self._eof and not self._stalled and not self._in_flight:
            self.close()

    # Memory

    def _find_memory(self) -> None:
        """Take the larger buffer that a frame needs, or stop reading until there is memory for it."""
        if not self._pool.is_exhausted:
            self._frames.grow()
            return
        self._waits = True
        self._pause()
        self._pool.wait(self)
        self._memory_pressure.begin()

    def has_memory(self) -> None:
        self._waits = False
        if not self._closing:
            self._frames.grow()
            if not self._stalled:
                self._resume()

    def memory_use(self) -> MemoryUse:
        frames = self._frames
        unsent_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self._forget_sent(unsent_bytes)
        response_bytes = sum(size for _, size in self._large_responses)
        held_bytes = max(unsent_bytes, response_bytes) if self._unsent or response_bytes else 0
        if held_bytes or not (self._stalled or self._in_flight):
            held_bytes += frames.held_bytes
        return MemoryUse(
            held_bytes,
            self._served,
            frames.unread_bytes,
            unsent_bytes + self._held_bytes,
            self._written_bytes - unsent_bytes,
            max(unsent_bytes, response_bytes) + self._held_bytes + sum(map(len, self._outgoing)),
            self._waits,
        )

    def _forget_sent(self, unsent_bytes: int) -> None:
        sent_bytes, answers = self._written_bytes - unsent_bytes, self._large_responses
        while answers and answers[0][0] <= sent_bytes:
            answers.popleft()

    def close_stuck(self) -> None:
        if not self._closing:
            self._log_closing("memory is exhausted, and the client neither completed a request nor read responses")
        self.abort()

    # Turns and idleness

    def _yield(self, served_in_a_row: int) -> None:
        self._pause()
        if not self._is_scheduled:
            self._is_scheduled = True
            self._scheduler.wait(self, served_in_a_row)

    def serve_next(self) -> None:
        self._is_scheduled = False
        self._turn_bytes_left = self._limits.turn_bytes
        if not self._stalled:
            self._resume()
        self.continue_serving()

    def _pause(self) -> None:
        if not self._paused and not self._closing and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True

    def _resume(self) -> None:
        may_read = not (self._waits or self._closing or self._eof)
        if self._paused and may_read and self._transport is not None:
            self._transport.resume_reading()
            self._paused = False

    def _watch_idleness(self, reads_then: int, unsent_then: int) -> None:
        """Close the connection if nothing was read or sent since the last check and no request is unanswered."""
        if self._closing:
            self.abort()  # the client did not even read the last responses
            return
        unsent_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        is_idle = self._reads == reads_then and unsent_bytes >= unsent_then
        if is_idle and self._idle_timer is not None and not self._in_flight:
            _log.debug("closing the connection from %s: idle", address_text(self.peer_host, self.peer_port))
            self.close()
            return
        delay_s = self._limits.idle_ms / 1000
        self._idle_timer = self._loop.call_later(delay_s, self._watch_idleness, self._reads, unsent_bytes)
