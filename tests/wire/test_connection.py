"""One connection on a hand-driven transport: order, back-pressure, limits, ends."""

import asyncio
import logging
import struct

import pytest

from odradek.wire.connection import Connection
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits, RequestBudget
from odradek.wire.reply import LATER, NO_REPLY, PendingReply, Reply
from tests.wire import scene
from tests.wire.scene import Transport, framed

pytestmark = pytest.mark.asyncio


class Service:
    """Answers by the first letter: `e` echoes at once, `h` later, `c` later and alone, `n` never."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.pending: dict[bytes, PendingReply] = {}
        self.admit = True
        self.decoded_bytes = 0
        self.gone = 0
        self.abandoned: list[bytes] = []

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        request = bytes(frame)
        if request[:1] == b"c" and not alone:
            return LATER
        self.served.append(request)
        match request[:1]:
            case b"e":
                return [request]
            case b"n":
                return NO_REPLY
            case kind:
                reply = Poll(self, request) if kind == b"h" else PendingReply()
                reply.exclusive = kind in b"cx"
                reply.decoded_bytes = self.decoded_bytes
                self.pending[request] = reply
                return reply

    def opened(self, connection: Connection) -> bool:
        return self.admit

    def closed(self, connection: Connection) -> None:
        self.gone += 1


class Poll(PendingReply):
    """A long poll."""

    def __init__(self, service: Service, request: bytes) -> None:
        self._service, self._request = service, request

    def abandon(self) -> None:
        self._service.abandoned.append(self._request)

    def force_complete(self) -> None:
        self.complete([b"early"])


def connect(
    service: Service | None = None, limits: ConnectionLimits | None = None
) -> tuple[Service, Transport, Connection]:
    service = service or Service()
    connection = Connection(service, ConnectionGroup(limits=limits or ConnectionLimits()))
    transport = Transport()
    connection.connection_made(transport)
    return service, transport, connection


def send(connection: Connection, *payloads: bytes) -> None:
    scene.send(connection, None, framed(*payloads))


async def test_a_request_is_answered() -> None:
    _, transport, connection = connect()
    send(connection, b"e1")
    assert transport.sent == [b"e1"]
    assert connection.peer_host == "10.0.0.7"


async def test_replies_are_sent_in_the_order_of_requests() -> None:
    service, transport, connection = connect()
    send(connection, b"h1", b"h2", b"e3")
    assert service.served == [b"h1", b"h2", b"e3"]
    service.pending[b"h2"].complete([b"second"])
    assert transport.sent == []
    service.pending[b"h1"].complete([b"first"])
    assert transport.sent == [b"first", b"second", b"e3"]


async def test_an_exclusive_request_waits_for_earlier_ones_and_delays_later_ones() -> None:
    service, transport, connection = connect()
    send(connection, b"h1", b"c2", b"e3")
    assert service.served == [b"h1"]
    service.pending[b"h1"].complete([b"1"])
    assert service.served == [b"h1", b"c2"]
    service.pending[b"c2"].complete([b"2"])
    assert transport.sent == [b"1", b"2", b"e3"]


async def test_an_exclusive_request_that_may_overlap_delays_later_ones_also_when_earlier_ones_are_answered() -> None:
    service, transport, connection = connect()
    send(connection, b"h1", b"x2", b"e3")
    service.pending[b"h1"].complete([b"1"])
    assert service.served == [b"h1", b"x2"]
    service.pending[b"x2"].complete([b"2"])
    assert transport.sent == [b"1", b"2", b"e3"]


async def test_a_request_without_a_reply_sends_nothing() -> None:
    _, transport, connection = connect()
    send(connection, b"n1", b"e2")
    assert transport.sent == [b"e2"]


async def test_the_number_of_unanswered_requests_is_limited_and_reading_stops() -> None:
    service, transport, connection = connect(limits=ConnectionLimits(most_in_flight=2))
    send(connection, b"h1", b"h2", b"h3")
    assert service.served == [b"h1", b"h2"]
    send(connection, b"h4")
    assert transport.is_paused
    service.pending[b"h1"].complete([b"1"])
    service.pending[b"h2"].complete([b"2"])
    assert service.served == [b"h1", b"h2", b"h3", b"h4"]
    assert transport.sent == [b"1", b"2"]


async def test_the_bytes_of_unanswered_requests_are_limited() -> None:
    service, _, connection = connect(limits=ConnectionLimits(most_in_flight_bytes=1000))
    send(connection, b"h1" + bytes(2000), b"h2")
    assert len(service.served) == 1
    service.pending[b"h1" + bytes(2000)].complete([b"1"])
    assert len(service.served) == 2


async def test_the_bytes_of_all_connections_together_are_limited() -> None:
    service, budget = Service(), RequestBudget(1000)
    group = ConnectionGroup(budget=budget)
    first, second, third = (Connection(service, group) for _ in range(3))
    for connection in (first, second, third):
        connection.connection_made(Transport())
    send(first, b"h1" + bytes(700))
    send(second, b"h2" + bytes(700))
    send(third, b"h3" + bytes(200))
    assert [request[:2] for request in service.served] == [b"h1", b"h2"]
    service.pending[b"h1" + bytes(700)].complete([b"1"])
    assert service.served[2][:2] == b"h3"
    service.pending[b"h3" + bytes(200)].complete([b"3"])
    second.connection_lost(None)
    assert budget.used_bytes == 0


async def test_the_memory_of_a_decoded_request_counts_beside_its_bytes() -> None:
    service, budget = Service(), RequestBudget(1000)
    group = ConnectionGroup(budget=budget)
    first, second = Connection(service, group), Connection(service, group)
    for connection in (first, second):
        connection.connection_made(Transport())
    service.decoded_bytes = 2000
    send(first, b"h1")
    send(second, b"h2")
    assert (service.served, budget.used_bytes) == ([b"h1"], 2002)
    service.pending[b"h1"].complete([b"1"])
    assert service.served == [b"h1", b"h2"]
    second.connection_lost(None)
    assert budget.used_bytes == 0


async def test_the_kept_part_of_a_waiting_exclusive_request_counts_until_it_is_answered() -> None:
    service, budget = Service(), RequestBudget(1000)
    group = ConnectionGroup(budget=budget)
    first, second = Connection(service, group), Connection(service, group)
    for connection in (first, second):
        connection.connection_made(Transport())
    request = b"c1" + bytes(1100)
    send(first, request)
    send(second, b"h2")
    assert service.served == [request]
    first.forget_request(kept_bytes=300)
    assert (service.served[1:], budget.used_bytes) == ([b"h2"], 302)
    first.forget_request(kept_bytes=400)
    assert budget.used_bytes == 302
    service.pending[request].complete([b"1"])
    assert budget.used_bytes == 2
    first.forget_request(kept_bytes=0)
    second.connection_lost(None)
    assert budget.used_bytes == 0


async def test_replies_held_back_by_the_cork_are_sent_in_one_write() -> None:
    service, group, transport = Service(), ConnectionGroup(), Transport()
    connection = Connection(service, group)
    connection.connection_made(transport)
    send(connection, b"h1", b"h2", b"e3", b"h4", b"h5")
    with group.cork:
        with group.cork:
            service.pending[b"h2"].complete([b"2"])
            service.pending[b"h1"].complete([b"1"])
        service.pending[b"h4"].complete([b"4" * 100_000])
        assert transport.sent == []
    assert transport.sent == [b"1", b"2", b"e3", b"4" * 100_000]
    with group.cork:
        service.pending[b"h5"].complete([b"5"])
        send(connection, b"e6")
    assert transport.sent[4:] == [b"5e6"]


async def test_the_service_gets_the_times_of_requests_and_replies() -> None:
    times, left = iter([1.0, 2.0, 3.0]), list[str]()
    service, group = Service(), ConnectionGroup(clock=lambda: next(times))
    connection = Connection(service, group)
    connection.connection_made(Transport())
    send(connection, b"h1")
    send(connection, b"h2", b"c3")
    assert connection.read_at == 2.0
    send(connection, b"e4")
    assert connection.read_at == 2.0, "c3 came then, and still waits"
    for name in (b"h1", b"h2"):
        service.pending[name].on_answered = lambda reply: left.append(repr(reply.buffers))
    service.pending[b"h2"].complete([b"2"])
    assert left == []
    service.pending[b"h1"].complete([b"1"])
    assert left == ["[b'1']", "[b'2']"]


async def test_replies_that_wait_behind_a_slow_one_are_limited() -> None:
    service, transport, connection = connect(limits=ConnectionLimits(write_high_bytes=100))
    send(connection, b"h1", b"e" + bytes(200), b"e3")
    assert len(service.served) == 2
    service.pending[b"h1"].complete([b"1"])
    assert transport.sent == [b"1", b"e" + bytes(200), b"e3"]


async def test_nothing_is_served_to_a_client_that_does_not_read() -> None:
    service, transport, connection = connect()
    connection.pause_writing()
    send(connection, b"e1")
    assert service.served == []
    connection.resume_writing()
    assert transport.sent == [b"e1"]


async def test_many_small_requests_share_the_loop_with_others() -> None:
    service, transport, connection = connect(limits=ConnectionLimits(turn_requests=10))
    send(connection, *[b"e"] * 25)
    assert len(service.served) == 10
    await asyncio.sleep(0)
    assert len(service.served) == 20
    await asyncio.sleep(0)
    assert len(service.served) == 25
    assert not transport.is_paused


async def test_reading_from_a_fast_sender_pauses_when_its_turn_is_used_up() -> None:
    service, transport, connection = connect(limits=ConnectionLimits(turn_bytes=1))
    space = connection.get_buffer(-1)
    size = len(space) - 4
    space[:4] = struct.pack(">i", size)
    space[4:5] = b"n"
    del space
    connection.buffer_updated(size + 4)
    paused_then = transport.is_paused
    await asyncio.sleep(0)
    assert (paused_then, transport.is_paused) == (True, False)
    assert len(service.served) == 1


async def test_an_invalid_frame_size_closes_the_connection_with_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    _, transport, connection = connect()
    with caplog.at_level(logging.INFO):
        space = connection.get_buffer(-1)
        space[:4] = struct.pack(">i", 2**31 - 1)
        connection.buffer_updated(4)
    assert transport.is_closed
    assert len(caplog.records) == 1
    assert "10.0.0.7:4711" in caplog.text


async def test_a_refused_request_closes_the_connection_and_later_ones_are_not_served() -> None:
    service, transport, connection = connect()
    send(connection, b"h1", b"h2")
    service.pending[b"h1"].refuse("because")
    assert transport.is_closed
    service.pending[b"h2"].complete([b"2"])
    assert transport.sent == []


async def test_a_connection_that_the_service_rejects_is_closed() -> None:
    service = Service()
    service.admit = False
    _, transport, connection = connect(service)
    assert transport.is_aborted
    connection.connection_lost(None)
    assert service.gone == 0


async def test_a_lost_connection_abandons_pending_requests() -> None:
    service, transport, connection = connect()
    send(connection, b"h1", b"h2")
    service.pending[b"h1"].complete([b"1"])
    connection.connection_lost(ConnectionResetError())
    assert service.abandoned == [b"h2"]
    assert service.gone == 1
    service.pending[b"h2"].complete([b"too late"])
    assert transport.sent == [b"1"]


async def test_requests_sent_before_the_end_of_the_stream_are_served() -> None:
    service, transport, connection = connect(limits=ConnectionLimits(turn_requests=2))
    send(connection, b"n1", b"n2", b"n3")
    assert connection.eof_received() is True
    await asyncio.sleep(0)
    assert service.served == [b"n1", b"n2", b"n3"]
    assert transport.is_closed


async def test_closing_waits_for_replies_and_ends_a_long_poll() -> None:
    service, transport, connection = connect()
    send(connection, b"c1")
    assert connection.eof_received() is True
    service.pending[b"c1"].complete([b"1"])
    assert (transport.sent, transport.is_closed) == ([b"1"], True)

    service, transport, connection = connect()
    send(connection, b"h1")
    assert connection.eof_received() is False
    assert transport.sent == [b"early"]


async def test_after_the_end_of_the_stream_no_reply_is_missing_among_those_that_are_sent() -> None:
    service, transport, connection = connect()
    send(connection, b"h1", b"h2", b"e3")
    service.pending[b"h2"].complete([b"second"])
    assert connection.eof_received() is False
    assert transport.sent == [b"early", b"second", b"e3"]
