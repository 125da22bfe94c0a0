"""Memory of incomplete requests and unread responses is bounded, and connections that make no progress are closed."""

import asyncio
import logging
from typing import Any

import pytest

from odradek.runtime import pending_connections
from odradek.runtime.pending_connections import PendingConnections
from odradek.runtime.rate_limited_log import MOST_KEYS, RateLimitedLog
from odradek.testing import Simulation
from odradek.wire.buffers import SMALL_BUFFER_BYTES, SMALLEST_BUFFER_BYTES, BufferPool
from odradek.wire.connection import Connection
from odradek.wire.connection_group import ConnectionGroup
from odradek.wire.memory_pressure import CHECK_INTERVAL_S, LEAST_PROGRESS_BYTES
from odradek.wire.reply import NO_REPLY, PendingReply, Reply
from tests.wire.scene import Transport, framed, send
from tests.world.scenes import played_by

LIMIT = 4 * SMALLEST_BUFFER_BYTES
A_TURN_S = 0.001
"""Until all that is ready has run."""


class Service:
    """Counts what is served, by the first letter, and answers with `answer`."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.answer: Reply = NO_REPLY

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        self.served.append(bytes(frame[:1]))
        return self.answer

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None: ...


class Scene:
    """Connections of one group, whose buffers may be `limit_bytes` in all."""

    def __init__(self, response_bytes: int = 1 << 40, limit_bytes: int = LIMIT) -> None:
        self.service = Service()
        self.pool = BufferPool(limit_bytes=limit_bytes)
        self.group = ConnectionGroup(pool=self.pool, response_bytes=response_bytes)

    def connect(self) -> tuple[Connection, Transport]:
        connection, transport = Connection(self.service, self.group), Transport()
        connection.connection_made(transport)
        return connection, transport


def frame(size: int, letter: bytes = b"x") -> bytes:
    return framed(letter * size)


def play(scene: Any) -> None:
    Simulation(1).run(scene())


@played_by(play)
async def test_the_start_of_a_frame_is_kept_without_its_buffer() -> None:
    it = Scene()
    for _ in range(1000):
        send(*it.connect(), frame(1000)[:500])
    assert it.pool.used_bytes == 0
    connection, transport = it.connect()
    for byte in frame(3) + frame(2):
        send(connection, transport, bytes([byte]))
    assert it.service.served == [b"x", b"x"]


@played_by(play)
async def test_incomplete_frames_hold_at_most_the_limit_and_small_requests_are_served() -> None:
    it = Scene()
    half = frame(3 * SMALLEST_BUFFER_BYTES)[:-1]
    for _ in range(50):
        send(*it.connect(), half)
    assert it.pool.used_bytes <= LIMIT + 2 * SMALLEST_BUFFER_BYTES * 2 + 50 * SMALL_BUFFER_BYTES
    connection, transport = it.connect()
    assert send(connection, transport, frame(5, b"s") * 3) == 27
    assert it.service.served == [b"s"] * 3


@played_by(play)
async def test_a_connection_waiting_for_memory_continues_when_others_close() -> None:
    it = Scene()
    holders = [it.connect() for _ in range(2)]
    for holder in holders:
        send(*holder, frame(SMALLEST_BUFFER_BYTES * 3 // 2)[:-1])
    connection, transport = it.connect()
    data = frame(SMALLEST_BUFFER_BYTES, b"w")
    taken = send(connection, transport, data)
    assert taken < len(data)
    assert transport.is_paused
    for holder, _ in holders:
        holder.connection_lost(None)
    await asyncio.sleep(A_TURN_S)
    assert not transport.is_paused
    assert send(connection, transport, data[taken:]) == len(data) - taken
    assert it.service.served == [b"w"]
    assert it.pool.used_bytes == 0


@played_by(play)
async def test_silent_connections_are_closed_while_memory_is_short_and_sending_ones_stay() -> None:
    it = Scene()
    silent = [it.connect() for _ in range(4)]
    for each in silent:
        send(*each, frame(100_000)[:-1])
    connection, transport = it.connect()
    data = frame(3 * SMALLEST_BUFFER_BYTES, b"w")
    taken = send(connection, transport, data)
    assert transport.is_paused
    await asyncio.sleep(CHECK_INTERVAL_S + 1)
    assert all(each.is_closing() for _, each in silent)
    for each, _ in silent:
        each.connection_lost(None)
    await asyncio.sleep(A_TURN_S)
    assert not transport.is_paused
    assert send(connection, transport, data[taken:]) == len(data) - taken
    assert it.service.served == [b"w"]


@played_by(play)
async def test_if_no_connection_is_stuck_the_longest_waiter_is_closed_one_at_a_time() -> None:
    it = Scene()
    busy = it.pool.take(LIMIT)
    waiting = [it.connect() for _ in range(3)]
    for each in waiting:
        send(*each, frame(SMALLEST_BUFFER_BYTES)[:-1])
    assert all(transport.is_paused for _, transport in waiting)
    await asyncio.sleep(CHECK_INTERVAL_S + 1)
    assert [transport.is_closing() for _, transport in waiting] == [True, False, False]
    waiting[0][0].connection_lost(None)
    it.pool.give(busy)
    await asyncio.sleep(A_TURN_S)
    assert not any(transport.is_paused for _, transport in waiting[1:])
    await asyncio.sleep(10 * CHECK_INTERVAL_S)
    assert [transport.is_closing() for _, transport in waiting] == [True, False, False]


@played_by(play)
async def test_a_waiter_is_not_closed_if_memory_was_freed_in_the_iteration_of_the_check() -> None:
    it = Scene()
    busy = it.pool.take(LIMIT)
    connection, transport = it.connect()
    send(connection, transport, frame(SMALLEST_BUFFER_BYTES)[:-1])
    await asyncio.sleep(CHECK_INTERVAL_S / 2)
    it.pool.give(busy)
    it.group.memory_pressure._check()
    await asyncio.sleep(A_TURN_S)
    assert (transport.is_closing(), transport.is_paused) == (False, False)


@played_by(play)
async def test_requests_of_a_connection_waiting_for_memory_are_served_once_and_in_order() -> None:
    it = Scene(limit_bytes=SMALLEST_BUFFER_BYTES)
    connection, transport = it.connect()
    it.service.answer = first = PendingReply()
    first.exclusive = True
    data = b"".join(frame(96 if number < 10 else 3000, bytes([number])) for number in range(60))
    taken = send(connection, transport, data)
    assert (taken, connection.memory_use().waits) == (SMALLEST_BUFFER_BYTES, True)
    it.service.answer = NO_REPLY
    # All that came is served, its buffer given back, and with that there is memory for whom it belonged to.
    first.complete((b"answer",))
    await asyncio.sleep(A_TURN_S)
    assert send(connection, transport, data[taken:]) == len(data) - taken
    assert it.service.served == [bytes([number]) for number in range(60)]
    assert it.pool.used_bytes == 0


@played_by(play)
async def test_without_memory_pressure_no_connection_is_closed() -> None:
    it = Scene()
    connection, transport = it.connect()
    send(connection, transport, frame(100_000)[:-1])
    await asyncio.sleep(20 * CHECK_INTERVAL_S)
    assert not transport.is_closing()


@played_by(play)
async def test_unread_responses_leave_no_room_until_their_connections_close() -> None:
    it = Scene(response_bytes=1_000_000)
    pressure = it.group.memory_pressure
    readers = [it.connect() for _ in range(3)]
    for connection, transport in readers:
        pressure.answered(400_000)
        transport.unsent = 400_000
        connection.pause_writing()
    assert pressure.response_room() == 0
    readers[0][1].unsent = 300_000
    await asyncio.sleep(CHECK_INTERVAL_S / 2)
    readers[0][1].unsent = 200_000
    await asyncio.sleep(CHECK_INTERVAL_S)
    assert [transport.is_closing() for _, transport in readers] == [False, True, True]
    for connection, transport in readers[1:]:
        transport.unsent = 0
        connection.connection_lost(None)
    await asyncio.sleep(CHECK_INTERVAL_S)
    assert pressure.response_room() == 800_000


@played_by(play)
async def test_a_large_response_counts_as_a_whole_until_its_last_byte_is_sent() -> None:
    it = Scene(response_bytes=1_000_000)
    pressure = it.group.memory_pressure
    it.service.answer = (bytes(5), memoryview(bytes(300_000)))
    readers = [it.connect() for _ in range(4)]
    for connection, transport in readers:
        transport.unsent = 100_000
        pressure.answered(300_000)
        send(connection, transport, frame(5))
    assert pressure.response_room() == 0
    readers[0][1].unsent = 1000
    readers[1][1].unsent = 100_000 - LEAST_PROGRESS_BYTES + 1
    await asyncio.sleep(CHECK_INTERVAL_S + 1)
    assert [transport.is_closing() for _, transport in readers] == [False, True, True, True]
    for connection, _ in readers[1:]:
        connection.connection_lost(None)
    assert pressure.response_room() == 1_000_000 - 300_005
    readers[0][1].unsent = 0
    pressure.answered(1_000_000)
    await asyncio.sleep(1)
    assert pressure.response_room() == 1_000_000


@played_by(play)
async def test_a_client_that_has_just_got_its_response_is_not_closed() -> None:
    """Its request was served before the check, its response sent since: it had no time yet to read it."""
    it = Scene(response_bytes=1_000_000)
    it.service.answer = pending = PendingReply()
    connection, transport = it.connect()
    send(connection, transport, frame(5))
    it.group.memory_pressure.begin()
    await asyncio.sleep(CHECK_INTERVAL_S - 1)
    transport.unsent = 1_000_000
    pending.complete((bytes(2_000_000),))
    await asyncio.sleep(2)
    assert not transport.is_closing()
    await asyncio.sleep(CHECK_INTERVAL_S)
    assert transport.is_closing(), "now it had"


@played_by(play)
async def test_only_large_responses_with_unsent_bytes_count() -> None:
    it = Scene()
    connection, transport = it.connect()
    it.service.answer = (bytes(200_000),)
    transport.unsent = 200_001
    send(connection, transport, frame(5) * 3)
    assert connection.memory_use().response_bytes == 400_000
    it.service.answer = (bytes(1000),)
    transport.unsent = 60_000
    send(connection, transport, frame(5) * 10)
    assert connection.memory_use().response_bytes == 200_000
    transport.unsent = 10_000
    assert connection.memory_use().response_bytes == 10_000


@played_by(play)
async def test_responses_read_meanwhile_are_counted_when_there_seems_to_be_no_room() -> None:
    it = Scene(response_bytes=1_000_000)
    for _ in range(100):
        it.group.memory_pressure.answered(400_000)
    assert it.group.memory_pressure.response_room() == 1_000_000


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"ruok", "a ZooKeeper command"),
        (b"SSH-2.0-x", "SSH"),
    ],
)
def test_a_client_of_another_protocol_is_closed_with_a_log_line_that_names_it(
    first: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        it = Scene()
        connection, transport = it.connect()
        send(connection, transport, first)
        assert transport.is_closing()

    with caplog.at_level("INFO"):
        play(scene)
    assert len(caplog.records) == 1
    assert f"it looks like {said}" in caplog.text


# ---- Repeated log lines ----------------------------------------------------------------------------------------------


def test_a_flood_costs_its_first_line_and_a_count_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("odradek.wire"))
        for number in range(130):
            log.log("a", logging.INFO, "a client did it %d times", number)
            log.log("b", logging.WARNING, "another did, too")
            await asyncio.sleep(1)
        await asyncio.sleep(120)
        log.log("a", logging.INFO, "again")

    with caplog.at_level("INFO"):
        Simulation(0).run(scene())
    first = "a client did it 0 times"
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.INFO] == [
        first,
        f"59 more lines like this one in the last 60 s: {first}",
        f"60 more lines like this one in the last 60 s: {first}",
        f"10 more lines like this one in the last 60 s: {first}",
        "again",
    ]


def test_a_client_that_makes_up_kinds_of_lines_gets_one_for_all_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("odradek.wire"))
        for number in range(1_000):
            log.log(number, logging.INFO, "an invalid frame size of %d bytes", number)
        await asyncio.sleep(200)

    with caplog.at_level("INFO"):
        Simulation(0).run(scene())
    assert len(caplog.records) == MOST_KEYS + 2
    assert caplog.messages[-1].startswith(f"{1_000 - MOST_KEYS - 1} more lines like this one")


def test_lines_of_one_owner_do_not_hide_those_of_another(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("odradek.wire"))
        for number in range(1_000):
            log.log(number, logging.INFO, "mallory does %d", number, owner="mallory")
        log.log("login", logging.INFO, "alice is refused", owner="alice")
        await asyncio.sleep(200)

    with caplog.at_level("INFO"):
        Simulation(0).run(scene())
    assert caplog.messages.count("alice is refused") == 1
    assert len([each for each in caplog.messages if each.startswith("mallory")]) == MOST_KEYS + 1


# ---- Pending connections ---------------------------------------------------------------------------------------------


def test_at_the_limit_the_oldest_of_the_address_with_the_most_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pending_connections, "MOST_PENDING", 4)
    closed: list[str] = []

    async def scene() -> None:
        pending = PendingConnections("the listener CLIENTS")
        for number, host in enumerate(["good", "flood", "flood", "flood", "flood", "flood", "other", "other"]):
            pending.add(number, host, lambda place=f"{host} {number}": closed.append(place))

    asyncio.run(scene())
    assert closed == ["flood 1", "flood 2", "flood 3", "flood 4"]
    (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert line == (
        "Closed a connection from flood to the listener CLIENTS, because 4 others have not authenticated yet"
    )


def test_authenticated_and_closed_connections_make_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "MOST_PENDING", 2)
    closed: list[int] = []

    async def scene() -> None:
        pending = PendingConnections("a listener")
        for number in range(5):
            pending.add(number, "host", lambda number=number: closed.append(number))
            if number < 3:
                pending.remove(number, "host")
                pending.remove(number, "host")
        assert not closed
        pending.add(5, "host", lambda: None)

    asyncio.run(scene())
    assert closed == [3]
