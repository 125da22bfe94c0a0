"""The turns of the event loop that all connections of a server share, by a clock that each request moves."""

import asyncio
from collections import Counter

import pytest

from odradek.wire.connection import Connection
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits
from odradek.wire.connection_scheduler import SHARED_REQUESTS, TIME_SLICE_S, ConnectionScheduler
from odradek.wire.reply import Reply
from tests.wire import scene
from tests.wire.scene import Transport, framed

pytestmark = [pytest.mark.long, pytest.mark.asyncio]
REQUESTS_IN_A_TURN = 10


class Server:
    """A group of connections, of whose requests ten are a turn."""

    def __init__(self, *, has_clock: bool = True, **limits: int) -> None:
        self.served: list[bytes] = []
        self._now = 0.0
        scheduler = ConnectionScheduler((lambda: self._now) if has_clock else None)
        self._group = ConnectionGroup(limits=ConnectionLimits(**limits), scheduler=scheduler)

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        self.served.append(bytes(frame))
        self._now += TIME_SLICE_S / (REQUESTS_IN_A_TURN - 0.5)  # no sum of them is a turn but for a rounding error
        return [b"answer"]

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None: ...

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = Connection(self, self._group), Transport()
        connection.connection_made(transport)
        return connection, transport


def send(connection: Connection, name: bytes, count: int) -> None:
    scene.send(connection, None, framed(*[name] * count))


async def all_have_a_backlog(server: Server, connections: int) -> None:
    """Return when every connection, named by its requests, had as many served as go before a backlog."""
    while len(counts := Counter(server.served)) < connections or min(counts.values()) < SHARED_REQUESTS:
        await asyncio.sleep(0)


async def test_a_request_waits_for_one_turn_however_much_others_have_pipelined() -> None:
    server = Server()
    for number in range(500):
        connection, _ = server.connect()
        send(connection, b"%d" % number, 256)
    assert len(server.served) == REQUESTS_IN_A_TURN
    good, _ = server.connect()
    for _ in range(20):
        served_then = len(server.served)
        await asyncio.sleep(0)
        served_before = len(server.served)
        send(good, b"good", 1)
        assert server.served[served_before:] == [b"good"]
        assert served_before - served_then <= 2 * REQUESTS_IN_A_TURN


async def test_requests_that_arrived_after_the_turn_are_served_before_a_backlog() -> None:
    server = Server()
    for number in range(500):
        connection, _ = server.connect()
        send(connection, b"%d" % number, 256)
    await all_have_a_backlog(server, 500)
    # One more connection uses up the turn before the good one's request arrives.
    (other, _), (good, _) = server.connect(), server.connect()
    send(other, b"other", 256)
    send(good, b"good", 2)
    assert b"good" not in server.served
    for _ in range(2):  # the rest of the other one's turn, and the good one's
        await asyncio.sleep(0)
    assert server.served.count(b"good") == 2


async def test_a_request_waits_for_few_of_each_connection_that_was_before_it() -> None:
    server = Server()
    for number in range(500):
        send(server.connect()[0], b"%d" % number, SHARED_REQUESTS - 1)
    send(server.connect()[0], b"good", 1)
    while b"good" not in server.served:
        await asyncio.sleep(0)
    assert len(server.served) <= 500 * 2 + 4 * REQUESTS_IN_A_TURN


async def test_connections_with_a_backlog_take_turns() -> None:
    server = Server()
    for name in (b"a", b"b", b"c"):
        send(server.connect()[0], name, 256)
    await all_have_a_backlog(server, 3)
    begun = len(server.served)
    for _ in range(9):
        await asyncio.sleep(0)
    assert Counter(server.served[begun:]) == dict.fromkeys((b"a", b"b", b"c"), 3 * REQUESTS_IN_A_TURN)


async def test_a_single_connection_continues_in_each_turn_and_reads_again() -> None:
    server = Server()
    connection, transport = server.connect()
    send(connection, b"x", 25)
    seen = [(len(server.served), transport.is_paused)]
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append((len(server.served), transport.is_paused))
    assert seen == [(10, True), (20, True), (25, False), (25, False)]


async def test_a_connection_has_few_requests_in_a_row_while_others_wait() -> None:
    server = Server(has_clock=False, turn_requests=40)
    (first, _), (second, _) = server.connect(), server.connect()
    send(first, b"first", 100)
    send(second, b"second", 100)
    assert (server.served.count(b"first"), server.served.count(b"second")) == (40, SHARED_REQUESTS)


async def test_a_connection_that_closed_while_queued_is_skipped() -> None:
    server = Server()
    (gone, _), (waiting, _) = server.connect(), server.connect()
    send(gone, b"gone", 30)
    send(waiting, b"waiting", 1)
    gone.connection_lost(None)
    await asyncio.sleep(0)
    assert server.served == [b"gone"] * REQUESTS_IN_A_TURN + [b"waiting"]
