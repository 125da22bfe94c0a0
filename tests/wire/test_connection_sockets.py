"""Connections over real sockets, on asyncio's loop and on uvloop: what the fake transport can't know."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
import trustme
import uvloop

from odradek.protocol.api import ApiKey
from odradek.runtime import ListenOptions, SystemNetwork, listening
from odradek.wire.buffers import ResponseBuffers
from odradek.wire.client_connection import ClientConnection
from odradek.wire.connection import Connection
from odradek.wire.connection_group import ConnectionGroup, ConnectionLimits
from odradek.wire.reply import PendingReply, Reply
from tests.world.scenes import played_by

ANSWER_BYTES = 256 * 1024
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
AUTHORITY = trustme.CA()
CLIENT_TLS, SERVER_TLS = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
AUTHORITY.configure_trust(CLIENT_TLS)
AUTHORITY.issue_cert("127.0.0.1").configure_cert(SERVER_TLS)
TRANSPORTS = pytest.mark.parametrize("tls", [None, CLIENT_TLS], ids=["TCP", "TLS"])
Scenario = Callable[[], Awaitable[None]]


class Echo:
    """Answers every frame with itself."""

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.served = 0

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        self.served += 1
        return [struct.pack(">i", len(frame)), frame]

    def opened(self, connection: Connection) -> bool:
        self.connections.add(connection)
        return True

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)


@contextlib.asynccontextmanager
async def serving(
    limits: ConnectionLimits | None = None,
    echo: Echo | None = None,
    options: ListenOptions | None = None,
    *,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[Echo, int]]:
    echo, group = echo or Echo(), ConnectionGroup(limits=limits or ConnectionLimits())
    listener = await SystemNetwork().listen(
        lambda: Connection(echo, group), "127.0.0.1", 0, options, tls=None if tls is None else lambda: SERVER_TLS
    )
    try:
        yield echo, listener.port
    finally:
        listener.close()
        for connection in tuple(echo.connections):
            connection.abort()
        while echo.connections:
            await asyncio.sleep(0)


class Reader(Echo):
    """A service that answers a number with many bytes of it, in reused memory as a fetch does."""

    def __init__(self) -> None:
        super().__init__()
        self.buffers = ResponseBuffers(most_bytes=4 * ANSWER_BYTES)

    def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
        self.served += 1
        view = self.buffers.lend(ANSWER_BYTES)[:ANSWER_BYTES]
        view[:] = bytes(frame) * ANSWER_BYTES
        return [struct.pack(">i", ANSWER_BYTES), view.toreadonly()]


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def run(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Scenario) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 30))


@TRANSPORTS
@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_frames_of_every_size_come_back_in_order(*, tls: ssl.SSLContext | None) -> None:
    payloads = [bytes([size % 256]) * size for size in (0, 1, 100, 70_000, 131_068, 131_072, 1_000_000, 5_000_000, 3)]
    async with serving(tls=tls) as (echo, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        for payload in payloads:
            writer.write(struct.pack(">i", len(payload)) + payload)
        for payload in payloads:
            assert await read_frame(reader) == payload
        assert echo.served == len(payloads)
        writer.close()
        await writer.wait_closed()


@TRANSPORTS
@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_a_client_that_does_not_read_stops_being_served(*, tls: ssl.SSLContext | None) -> None:
    count, payload = (400 if tls is None else 100), bytes(200_000)
    async with serving(ConnectionLimits(write_high_bytes=100_000), tls=tls) as (echo, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000, ssl=tls)
        for _ in range(count):
            writer.write(struct.pack(">i", len(payload)) + payload)
        before = -1
        while echo.served != before:
            before = echo.served
            for _ in range(200):
                await asyncio.sleep(0)
        assert echo.served < count
        for _ in range(count):
            assert len(await read_frame(reader)) == len(payload)
        assert echo.served == count
        writer.close()
        await writer.wait_closed()


@pytest.fixture
def _with_cve_2024_12254(monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio's transports as they are in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 (CVE-2024-12254)."""

    def writelines(transport: Any, pieces: Iterable[Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(transport, "_maybe_pause_protocol", lambda: None)
            transport.write(b"".join(pieces))

    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.writelines", writelines)


@pytest.mark.usefixtures("_with_cve_2024_12254")
def test_a_client_that_does_not_read_stops_being_served_despite_cve_2024_12254() -> None:
    test_a_client_that_does_not_read_stops_being_served(new_loop=asyncio.new_event_loop, tls=None)


@pytest.mark.usefixtures("_with_cve_2024_12254")
def test_a_client_notices_that_its_server_does_not_read_despite_cve_2024_12254() -> None:
    async def scenario() -> None:
        accepted: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda _, writer: accepted.set_result(writer), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: ClientConnection("the server", client_id="a", request_timeout_ms=30_000, max_response_bytes=1_000),
            host,
            port,
        )
        writer = await accepted
        writer.transport.pause_reading()
        posts = 0
        while connection.writable and posts < 200:
            connection.post(ApiKey.PRODUCE, 9, [bytes(200_000)])
            posts += 1
        assert posts < 200
        connection.close()
        writer.transport.abort()
        server.close()
        await server.wait_closed()

    run(asyncio.new_event_loop, scenario)


@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_unread_responses_of_slow_clients_do_not_change_while_others_are_sent(
    *, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    def numbers(first: int, count: int) -> list[bytes]:
        return [bytes([(first + number) % 256]) for number in range(count)]

    async def check(reader: asyncio.StreamReader, asked: list[bytes]) -> None:
        for number in asked:
            assert await read_frame(reader) == number * ANSWER_BYTES

    service, options = Reader(), ListenOptions(send_buffer_bytes=8192)
    async with serving(echo=service, options=options) as (_, port):
        slow = []
        for first in range(0, 40, 5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
            writer.write(b"".join(struct.pack(">i", 1) + number for number in numbers(first, 5)))
            slow.append((reader, writer, numbers(first, 5)))
        while service.served < len(slow):
            await asyncio.sleep(0)
        reader, fast = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers(100, 40):
            fast.write(struct.pack(">i", 1) + number)
            await check(reader, [number])
        if new_loop is uvloop.new_event_loop:  # asyncio's own copies what it can't send at once
            assert service.buffers.kept_bytes == 4 * ANSWER_BYTES, "they hold all that is kept"
        for reader, _, asked in slow:
            await check(reader, asked)
        for writer in (fast, *(writer for _, writer, _ in slow)):
            writer.transport.abort()


@TRANSPORTS
@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_a_large_response_that_is_not_read_counts_as_memory_and_is_sent_before_the_connection_closes(
    *, tls: ssl.SSLContext | None
) -> None:
    size = 30_000_000

    class Large(Echo):
        def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
            self.served += 1
            return [struct.pack(">i", size), memoryview(bytes(size))]

    async with serving(echo=Large(), tls=tls) as (service, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000, ssl=tls)
        writer.write(struct.pack(">i", 1) + b"x")
        while not service.served:
            await asyncio.sleep(0)
        (connection,) = service.connections
        assert connection.memory_use().response_bytes >= size
        assert connection.memory_use().unsent_bytes > size // 2
        connection.close()
        assert len(await reader.read()) == size + 4
        writer.close()


@TRANSPORTS
@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_client_that_closes_with_requests_in_flight_is_no_log_line(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tls: ssl.SSLContext | None, caplog: pytest.LogCaptureFixture
) -> None:
    class Silent(Echo):
        def serve(self, connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
            self.served += 1
            return PendingReply()

    async def scenario() -> None:
        async with serving(echo=Silent(), tls=tls) as (service, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(struct.pack(">i", 1) + b"x")
            while not service.served:
                await asyncio.sleep(0)
            writer.close()
            await writer.wait_closed()

    run(new_loop, scenario)
    assert not caplog.records


@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_a_connection_with_half_a_frame_is_closed_when_idle() -> None:
    async with serving(ConnectionLimits(idle_ms=20)) as (echo, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", 100) + b"half")
        with contextlib.suppress(ConnectionResetError):  # where half of it was not read either
            assert await reader.read() == b""
        assert echo.served == 0
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_a_frame_size_of_two_gigabytes_closes_only_that_connection() -> None:
    async with serving() as (echo, port):
        other_reader, other = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack(">i", 2**31 - 1) + b"xx")
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        other.write(struct.pack(">i", 5) + b"alive")
        assert await read_frame(other_reader) == b"alive"
        assert echo.served == 1
        for each in (other, writer):
            each.transport.abort()


@pytest.mark.parametrize("new_loop", LOOPS)
@played_by(run)
async def test_socket_buffers_have_the_configured_size() -> None:
    sizes: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    class BufferRequests(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted = transport.get_extra_info("socket")
            options = socket.SO_SNDBUF, socket.SO_RCVBUF
            sizes.set_result([accepted.getsockopt(socket.SOL_SOCKET, each) for each in options])

    options = ListenOptions(backlog=5, send_buffer_bytes=40_000, receive_buffer_bytes=50_000)
    listener = await SystemNetwork().listen(BufferRequests, "127.0.0.1", 0, options)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await sizes in ([40_000, 50_000], [80_000, 100_000]), "Linux doubles what it is asked for"
    listener.close()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("where", ["protocol", "transport"])
def test_a_listener_outlives_a_shortage_of_memory(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """uvloop's own servers accept nothing more once the protocol of a connection could not be made."""
    monkeypatch.setattr(listening, "_PAUSE_S", 0.01)
    failures = [MemoryError(), MemoryError()]

    class Greeter(asyncio.Protocol):
        def __init__(self) -> None:
            if failures and where == "protocol":
                raise failures.pop()

        def connection_made(self, transport: Any) -> None:
            transport.write(b"hello")
            transport.close()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        connect = type(loop).connect_accepted_socket

        async def connect_accepted_socket(*arguments: Any, **options: Any) -> Any:
            if failures and where == "transport":
                raise failures.pop()
            return await connect(loop, *arguments, **options)

        listener = await SystemNetwork().listen(Greeter, "127.0.0.1", 0)
        monkeypatch.setattr(listener, "_loop", Proxy(loop, connect_accepted_socket), raising=True)
        answers = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            with contextlib.suppress(ConnectionError):
                answers.append(await asyncio.wait_for(reader.read(), 10))
            writer.close()
        assert [each for each in answers if each] == [b"hello"] * 2
        assert not failures
        listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
    assert caplog.text.count("wait, as the process lacks memory") == 1


class Proxy:
    """An event loop with another way to open connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connect_accepted_socket: Callable[..., Any]) -> None:
        self._loop = loop
        self.connect_accepted_socket = connect_accepted_socket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)
