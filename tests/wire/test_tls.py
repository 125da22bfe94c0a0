"""TLS between a client's connection and a broker's listener, by real sockets and new certificates (X2)."""

import asyncio
import hmac
import itertools
import logging
import os
import re
import socket
import ssl
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trustme
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import AuthenticationError, ConfigurationError, UnavailableError
from odradek.runtime import pending_connections, system_runtime
from odradek.runtime.tls import ServerTls, TlsSettings, client_context, server_context
from odradek.runtime.tls_server import MOST_RECORDS_AT_ONCE, MOST_RECORDS_IN_TURN, _RecordReader
from odradek.runtime.turns import MOST_TURNS
from odradek.wire.client_authentication import ClientSecurity
from odradek.wire.client_connection import ClientConnection, open_connection
from tests.world.scenes import awaited

AUTHORITY = trustme.CA()


def pem(*names: str, authority: trustme.CA = AUTHORITY) -> str:
    return authority.issue_cert(*names).private_key_and_cert_chain_pem.bytes().decode()


def split(text: str) -> dict[str, str]:
    key, certificates = text.split("-----BEGIN CERTIFICATE-----", 1)
    return {"own_key": key, "own_chain": f"-----BEGIN CERTIFICATE-----{certificates}"}


TRUSTED = AUTHORITY.cert_pem.bytes().decode()


class Echo(asyncio.Protocol):
    """A server that sends back what it gets, and notes the client's certificate."""

    certificate: "asyncio.Future[dict[str, object]] | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from asyncio's
        if Echo.certificate is not None:
            Echo.certificate.set_result(transport.get_extra_info("peercert"))

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Plain(Echo):
    """A server that does not speak TLS."""

    def data_received(self, data: bytes) -> None:
        self.transport.write(bytes(8))


class Closing(Plain):
    """A server that closes the connection."""

    def data_received(self, data: bytes) -> None:
        self.transport.close()


async def connect(tls: ServerTls, client: ssl.SSLContext | None) -> ClientConnection:
    runtime = system_runtime()
    listener = await runtime.network.listen(Echo, "127.0.0.1", 0, tls=tls.context)
    try:
        return await open_connection(
            runtime, "127.0.0.1", listener.port, client_id="c", request_timeout_ms=5_000, setup_timeout_ms=5_000,
            max_response_bytes=1 << 20, negotiate=False, security=ClientSecurity(tls=client),
        )  # fmt: skip
    finally:
        listener.close()


def server(settings: TlsSettings, client_auth: str = "none") -> ServerTls:
    return ServerTls(settings, lambda: 0.0, client_auth=client_auth)


@awaited
async def test_a_client_trusts_the_authority_and_shows_its_own_certificate() -> None:
    Echo.certificate = asyncio.get_running_loop().create_future()
    own = split(pem("alice@example.com"))
    tls = server(TlsSettings(trusted=TRUSTED, **split(pem("127.0.0.1"))), "required")
    connection = await connect(tls, client_context(TlsSettings(trusted=TRUSTED, **own), check_name=True))
    async with asyncio.timeout(5):
        assert (await Echo.certificate)["subjectAltName"] == (("email", "alice@example.com"),)
    Echo.certificate = None
    connection.close()


@pytest.mark.parametrize(
    ("names", "trusted", "check_name", "said"),
    [
        (("other.example.com",), TRUSTED, True, "certificate is not accepted: .*mismatch"),
        (("other.example.com",), TRUSTED, False, None),
        (("127.0.0.1",), trustme.CA().cert_pem.bytes().decode(), True, "is not accepted: .*set ssl.truststore"),
    ],
)  # fmt: skip
@awaited
async def test_a_client_refuses_a_certificate_of_another_name_or_authority(
    names: tuple[str, ...], trusted: str, check_name: bool, said: str | None
) -> None:
    context = client_context(TlsSettings(trusted=trusted), check_name=check_name)
    tls = server(TlsSettings(**split(pem(*names))))
    if said is None:
        (await connect(tls, context)).close()
        return
    with pytest.raises(AuthenticationError, match=said):
        await connect(tls, context)


@pytest.mark.parametrize(
    ("protocol", "error", "said"),
    [
        (Plain, AuthenticationError, "does not speak TLS on this port: set security.protocol"),
        (Closing, UnavailableError, "in the TLS handshake: if its port has no TLS, set security.protocol"),
    ],
)
@awaited
async def test_a_client_that_expects_tls_says_that_a_port_has_none(
    protocol: type[asyncio.Protocol], error: type[Exception], said: str
) -> None:
    runtime = system_runtime()
    listener = await runtime.network.listen(protocol, "127.0.0.1", 0)
    context = client_context(TlsSettings(trusted=TRUSTED), check_name=True)
    with pytest.raises(error, match=said):
        await open_connection(
            runtime, "127.0.0.1", listener.port, client_id="c", request_timeout_ms=5_000, setup_timeout_ms=5_000,
            max_response_bytes=1 << 20, negotiate=False, security=ClientSecurity(tls=context),
        )  # fmt: skip
    listener.close()


@awaited
async def test_a_client_refuses_a_certificate_that_has_expired() -> None:
    expired = AUTHORITY.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC))
    tls = server(TlsSettings(**split(expired.private_key_and_cert_chain_pem.bytes().decode())))
    with pytest.raises(AuthenticationError, match="certificate is not accepted: certificate has expired"):
        await connect(tls, client_context(TlsSettings(trusted=TRUSTED), check_name=True))


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_a_connect_that_is_cancelled_when_its_handshake_is_done_waits_for_nothing_of_tls(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = server(TlsSettings(**split(pem("127.0.0.1")))).context()

    def read_to_the_end(listening: socket.socket) -> bytes:
        accepted = listening.accept()[0]
        beneath = accepted.dup()
        with beneath, context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as tls:
            tls.settimeout(2)
            beneath.settimeout(2)
            with suppress(ssl.SSLError, ConnectionResetError):  # it ends with close_notify, or without
                tls.do_handshake()
                assert tls.recv(1) == b""
                return beneath.recv(1)
            return b""

    async def connect_and_cancel(port: int) -> None:
        connecting = asyncio.current_task()
        assert connecting is not None
        monkeypatch.setattr(
            ClientConnection, "connection_made", lambda *made: (established(*made), connecting.cancel())
        )
        await open_connection(
            system_runtime(), "127.0.0.1", port, client_id="c", request_timeout_ms=5_000, setup_timeout_ms=5_000,
            max_response_bytes=1 << 20, negotiate=False,
            security=ClientSecurity(tls=client_context(TlsSettings(trusted=TRUSTED), check_name=True)),
        )  # fmt: skip

    established = ClientConnection.connection_made
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read_to_the_end, listening)
        with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(asyncio.CancelledError):
            runner.run(connect_and_cancel(listening.getsockname()[1]))
        assert reading.result() == b""


def test_a_file_with_a_new_certificate_is_used_by_the_next_connection(tmp_path: Path) -> None:
    now_s = [0.0]
    path = tmp_path / "broker.pem"
    path.write_text(pem("a.example.com"))
    tls = ServerTls(TlsSettings(own_file=str(path)), lambda: now_s[0], client_auth="none")
    first = tls.context()
    path.write_text(pem("b.example.com"))
    os.utime(path, ns=(1, 1))
    assert tls.context() is first, "the file is looked at once a second"
    now_s[0] = 2.0
    second = tls.context()
    assert second is not first
    path.write_text("broken")
    os.utime(path, ns=(2, 2))
    now_s[0] = 4.0
    assert tls.context() is second


@awaited
async def test_silent_clients_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "MOST_PENDING", 3)
    runtime = system_runtime()
    tls = ServerTls(TlsSettings(**split(pem("127.0.0.1"))), lambda: 0.0, client_auth="none")
    listener = await runtime.network.listen(Echo, "127.0.0.1", 0, tls=tls.context)
    silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(5)]
    _, connection = await runtime.network.connect(
        Echo, "127.0.0.1", listener.port, tls=client_context(TlsSettings(trusted=TRUSTED), check_name=True)
    )
    async with asyncio.timeout(5):
        assert await silent[0][0].read() == b"", "the oldest one is closed"
    connection.transport.close()
    for _, writer in silent:
        writer.close()
    listener.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_few_steps_of_handshakes_are_done_at_once(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A step may sign with the server's key, and all clients may send what it needs at the same time."""
    clients, iteration, steps = 40, 0, Counter[int]()

    class Counted(ssl.SSLObject):
        def do_handshake(self) -> None:
            steps[iteration] += 1
            super().do_handshake()

    async def iterate(most_steps: int) -> None:
        nonlocal iteration
        async with asyncio.timeout(30):
            while steps.total() < most_steps:
                iteration += 1
                await asyncio.sleep(0)

    async def scene() -> None:
        context = server(TlsSettings(**split(pem("127.0.0.1")))).context()
        context.sslobject_class = Counted
        listener = await system_runtime().network.listen(Echo, "127.0.0.1", 0, tls=lambda: context)
        sockets = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(clients)]
        await iterate(clients)  # they have begun, and wait for the first bytes
        steps.clear()
        for each in sockets:
            each.sendall(_client_hello())
        await iterate(clients)
        assert max(steps.values()) <= MOST_TURNS
        listener.close()
        for each in sockets:
            each.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("clients", "kind"), [(1, "key updates"), (1, "bytes"), (20, "bytes")])
def test_few_short_records_are_read_at_once(
    clients: int, kind: str, new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """OpenSSL accepts any number of key updates, and each costs 8 µs; a record of one byte costs as much."""
    iteration, read_bytes = 0, Counter[int]()
    record_bytes = 27 if kind == "key updates" else 23

    class Counted(ssl.SSLObject):
        @classmethod
        def _create(cls, incoming: ssl.MemoryBIO, *others: object, **options: object) -> "Counted":
            made: Counted = super()._create(incoming, *others, **options)  # type: ignore[misc]
            made.incoming = incoming  # type: ignore[attr-defined]
            return made

        def read(self, size: int = 1024, buffer: Any = None) -> Any:
            before = self.incoming.pending  # type: ignore[attr-defined]
            try:
                return super().read(size, buffer)
            finally:
                read_bytes[iteration] += before - self.incoming.pending  # type: ignore[attr-defined]

    async def scene() -> None:
        nonlocal iteration
        context = server(TlsSettings(**split(pem("127.0.0.1")))).context()
        context.sslobject_class = Counted
        listener = await system_runtime().network.listen(Echo, "127.0.0.1", 0, tls=lambda: context)
        async with asyncio.timeout(60):
            opened = [await RawClient.connect(listener.port, tmp_path / f"keys{each}") for each in range(clients)]
            floods = [each.key_updates(8192) if kind == "key updates" else each.small_records(8192) for each in opened]
            read_bytes.clear()
            sent = [asyncio.ensure_future(each.send(flood)) for each, flood in zip(opened, floods, strict=True)]
            while read_bytes.total() < clients * 8192 * record_bytes:
                iteration += 1
                await asyncio.sleep(0)
            await asyncio.gather(*sent)
        most_records = MOST_TURNS * MOST_RECORDS_IN_TURN + clients * MOST_RECORDS_AT_ONCE
        assert max(read_bytes.values()) <= (most_records + clients) * record_bytes
        for each in opened:
            each.socket.close()
        listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("part_bytes", [1, 2, 3, 4, 5, 7, 4096])
def test_records_may_arrive_in_any_parts(
    part_bytes: int, new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def scene() -> None:
        context = server(TlsSettings(**split(pem("127.0.0.1")))).context()
        listener = await system_runtime().network.listen(Echo, "127.0.0.1", 0, tls=lambda: context)
        async with asyncio.timeout(60):
            client = await RawClient.connect(listener.port, tmp_path / "keys")
            data = client.small_records(50) + client.records(b"yz" * 300) + client.small_records(2000)
            for at in range(0, len(data), part_bytes):
                await client.send(data[at : at + part_bytes] if at < 200 * part_bytes else data[at:])
                if at >= 200 * part_bytes:
                    break
                await asyncio.sleep(0)
            assert await client.receive(2650) == b"x" * 50 + b"yz" * 300 + b"x" * 2000
        client.socket.close()
        listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


class Paused(Echo):
    """Reads nothing."""

    opened: "list[asyncio.Transport]"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self.opened.append(self.transport)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_short_records_wait_while_nothing_is_read(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def scene() -> None:
        Paused.opened = []
        context = server(TlsSettings(**split(pem("127.0.0.1")))).context()
        listener = await system_runtime().network.listen(Paused, "127.0.0.1", 0, tls=lambda: context)
        client = await RawClient.connect(listener.port, tmp_path / "keys")
        flood = client.small_records(5000) * 20  # nothing of it is decrypted
        sending = asyncio.ensure_future(client.send(flood))
        async with asyncio.timeout(60):
            sizes = [-1, 0]
            while sizes[-1] != sizes[-2] or not sizes[-1]:  # until nothing more is read
                for _ in range(500):
                    await asyncio.sleep(0)
                sizes.append(Paused.opened[0].get_read_buffer_size())  # type: ignore[attr-defined]
        assert 256 * 1024 <= sizes[-1] <= 512 * 1024
        sending.cancel()
        client.socket.close()
        Paused.opened[0].abort()
        listener.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


class Collector:
    """A TLS without encryption: a buffer, and the bytes that were passed on."""

    def __init__(self) -> None:
        self.space, self.read = bytearray(1 << 16), b""
        self.counts: list[int] = []
        self.eof_received = self.pause_writing = self.resume_writing = None
        self.transport = SimpleNamespace(set_read_buffer_limits=lambda *_: None)

    def get_buffer(self, _: int) -> memoryview:
        return memoryview(self.space)

    def buffer_updated(self, count: int) -> None:
        self.read += self.space[:count]
        self.counts.append(count)

    def connection_made(self, _: object) -> None: ...

    def _get_app_transport(self) -> SimpleNamespace:
        return self.transport


@awaited
async def test_bytes_that_arrive_while_records_wait_for_their_turn_come_after_them() -> None:
    """The TLS may resume reading, which it had paused, before all records of an earlier read were passed on."""
    tls, over = Collector(), asyncio.get_running_loop().create_future()
    over.set_result(None)
    reader = _RecordReader(tls, over)
    reading: list[str] = []
    reader.connection_made(
        cast("Any", SimpleNamespace(
            pause_reading=lambda: reading.append("paused"),
            resume_reading=lambda: reading.append("resumed"),
            is_closing=lambda: False,
        ))
    )  # fmt: skip
    sent = b""
    for count, each in ((1, 30), (4 * MOST_RECORDS_IN_TURN, 3), (5, 200), (700, 1)):
        data = b"".join(bytes((23, 3, 3, 0, each)) + bytes([number % 251] * each) for number in range(count))
        sent += data
        reader.get_buffer(-1)[: len(data)] = data
        reader.buffer_updated(len(data))
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert tls.read == sent
    assert reading[-1] == "resumed"


RUNS = st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 12) | st.sampled_from([255, 256, 700])), max_size=4)


@given(runs=RUNS, cuts=st.lists(st.integers(1, 9) | st.integers(1, 9000), min_size=1), pauses=st.integers(0, 3))
def test_records_that_are_cut_anywhere_are_passed_on_in_order_and_few_at_once(
    runs: list[tuple[int, int]], cuts: list[int], pauses: int
) -> None:
    records = [bytes((23, 3, 3, *size.to_bytes(2, "big"), *bytes(size))) for count, size in runs for _ in range(count)]
    sent = b"".join(records)[: 1 << 16]

    async def scene() -> Collector:
        tls, over = Collector(), asyncio.get_running_loop().create_future()
        over.set_result(None)
        reader = _RecordReader(tls, over)
        nothing = SimpleNamespace(pause_reading=bool, resume_reading=bool, is_closing=bool)
        reader.connection_made(cast("Any", nothing))
        ends = itertools.accumulate(itertools.islice(itertools.cycle(cuts), 500), initial=0)
        for begin, end in itertools.pairwise(ends):
            if part := sent[begin:end]:
                reader.get_buffer(-1)[: len(part)] = part
                reader.buffer_updated(len(part))
                for _ in range(pauses):
                    await asyncio.sleep(0)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert tls.read == sent[:end]
        return tls

    tls = asyncio.run(scene())
    begins = [0, *itertools.accumulate(map(len, records))]
    calls = [bisect_left(begins, end) for end in itertools.accumulate(tls.counts, initial=0)]
    assert all(after - before <= MOST_RECORDS_IN_TURN for before, after in itertools.pairwise(calls))


@awaited
async def test_a_hello_outside_of_records_is_refused() -> None:
    """OpenSSL would accept it, but then nothing tells where the records begin."""
    tls = server(TlsSettings(**split(pem("127.0.0.1"))))
    listener = await system_runtime().network.listen(Echo, "127.0.0.1", 0, tls=tls.context)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    hello = bytes.fromhex("010303000300000010" + "00c02f") + bytes(16)
    writer.write((0x8000 | len(hello)).to_bytes(2, "big") + hello)
    async with asyncio.timeout(5):
        assert await reader.read() == b""
    writer.close()
    listener.close()


class RawClient:
    """A client of TLS 1.3 that gives its records, and encrypts key updates by itself."""

    def __init__(self, keys: Path) -> None:
        self.keys = keys
        context = client_context(TlsSettings(trusted=TRUSTED), check_name=False)
        context.keylog_filename = str(keys)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @classmethod
    async def connect(cls, port: int, keys: Path) -> "RawClient":
        client = cls(keys)
        await asyncio.get_running_loop().sock_connect(client.socket, ("127.0.0.1", port))
        await client.run(client.tls.do_handshake)
        await client.send(client.outgoing.read())
        return client

    async def run(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                await self.send(self.outgoing.read())
                self.incoming.write(await asyncio.get_running_loop().sock_recv(self.socket, 65536))

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            received += await self.run(lambda: self.tls.read(65536))
        return received

    def records(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def small_records(self, count: int) -> bytes:
        return b"".join(self.records(b"x") for _ in range(count))

    def key_updates(self, count: int) -> bytes:
        """Return messages that announce a new key, each encrypted with the one before (RFC 8446, 7.2 and 7.3)."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        secrets = re.findall(r"CLIENT_TRAFFIC_SECRET_0 \w+ (\w+)", self.keys.read_text())
        records, header, secret = [], bytes.fromhex("1703030016"), bytes.fromhex(secrets[-1])
        for _ in range(count):
            key = AESGCM(_expanded(secret, b"key", 32))
            records.append(header + key.encrypt(_expanded(secret, b"iv", 12), bytes.fromhex("180000010016"), header))
            secret = _expanded(secret, b"traffic upd", 48)
        return b"".join(records)


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes([len(label)]) + label + b"\0"
    return hmac.digest(secret, info + b"\1", "sha384")[:size]


def _client_hello() -> bytes:
    sent = ssl.MemoryBIO()
    client = client_context(TlsSettings(trusted=TRUSTED), check_name=False).wrap_bio(ssl.MemoryBIO(), sent)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


@awaited
async def test_a_listener_that_closes_ends_its_handshakes_at_once() -> None:
    tls = server(TlsSettings(**split(pem("127.0.0.1"))))
    listener = await system_runtime().network.listen(Echo, "127.0.0.1", 0, tls=tls.context)
    silent, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    async with asyncio.timeout(5):
        while not listener._opening:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        listener.close()
        assert await silent.read() == b""
    writer.close()


def test_settings_do_not_show_keys_and_passwords() -> None:
    secret = TlsSettings(own_key="SECRET", own_password="SECRET", key_password="SECRET", trusted_password="SECRET")
    assert "SECRET" not in repr(secret)


KEY, CHAIN = split(pem("a")).values()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (TlsSettings(), "needs a certificate: set ssl.keystore.location"),
        (TlsSettings(own_chain=CHAIN), "ssl.keystore.certificate.chain is set and ssl.keystore.key is not"),
        (TlsSettings(own_key=split(pem("b"))["own_key"], own_chain=CHAIN), "is not a private key and its certificate"),
        (TlsSettings(own_file="/nowhere/x.pem"), "can't read /nowhere/x.pem: No such file"),
        (TlsSettings(own_key=KEY, own_chain=CHAIN, trusted="nonsense"), "ssl.truststore.certificates has no valid"),
    ],
)
def test_certificates_that_cannot_be_used_are_named(settings: TlsSettings, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        server_context(settings, client_auth="none")


def test_a_listener_that_would_accept_no_certificate_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.client\.auth is required, and no client's .*truststore"):
        server_context(TlsSettings(own_key=KEY, own_chain=CHAIN), client_auth="required")


@pytest.mark.parametrize("own", [{}, split(pem("a@example.com", authority=trustme.CA()))], ids=["none", "foreign"])
def test_a_client_whose_certificate_is_refused_says_so_and_the_server_logs_its_address(
    own: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> None:
        runtime = system_runtime()
        tls = server(TlsSettings(trusted=TRUSTED, **split(pem("127.0.0.1"))), "required")
        listener = await runtime.network.listen(Echo, "127.0.0.1", 0, tls=tls.context)
        client = client_context(TlsSettings(trusted=TRUSTED, **own), check_name=True)
        with pytest.raises(UnavailableError, match="requires a client certificate that it trusts"):
            await open_connection(
                runtime, "127.0.0.1", listener.port, client_id="c", request_timeout_ms=5_000, setup_timeout_ms=5_000,
                max_response_bytes=1 << 20, security=ClientSecurity(tls=client),
            )  # fmt: skip
        listener.close()

    asyncio.run(scene())
    assert "a connection from 127.0.0.1 to port" in caplog.text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@awaited
async def test_versions_of_tls_before_1_2_are_refused(version: ssl.TLSVersion) -> None:
    client = client_context(TlsSettings(trusted=TRUSTED), check_name=True)
    client.minimum_version = client.maximum_version = version
    client.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((AuthenticationError, UnavailableError)):
        await connect(server(TlsSettings(**split(pem("127.0.0.1")))), client)


def encrypted(password: str) -> str:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(KEY.encode(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()


def test_a_key_with_a_password_needs_it() -> None:
    key = encrypted("geheim")
    server_context(TlsSettings(own_key=key, own_chain=CHAIN, key_password="geheim"), client_auth="none")
    with pytest.raises(ConfigurationError, match="has a password: set ssl"):
        server_context(TlsSettings(own_key=key, own_chain=CHAIN), client_auth="none")
    with pytest.raises(ConfigurationError, match="the right password") as raised:
        server_context(TlsSettings(own_key=key, own_chain=CHAIN, key_password="wrong"), client_auth="none")
    assert "wrong" not in str(raised.value)


def test_stores_of_java_are_read_or_refused_with_the_commands_that_convert_them(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12
    from cryptography.x509 import load_pem_x509_certificate

    store = tmp_path / "store.p12"
    key, certificate = load_pem_private_key(KEY.encode(), None), load_pem_x509_certificate(CHAIN.encode())
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"x", key, certificate, None, BestAvailableEncryption(b"geheim"))  # type: ignore[arg-type]
    )
    server_context(TlsSettings(own_file=str(store), own_password="geheim"), client_auth="none")
    with pytest.raises(ConfigurationError, match="can't be opened with ssl"):
        server_context(TlsSettings(own_file=str(store), own_password="x"), client_auth="none")
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigurationError, match=r"is a JKS store\. Convert it: keytool .*, then openssl pkcs12"):
        server_context(TlsSettings(own_file=str(store)), client_auth="none")
    store.write_bytes(b"hello")
    with pytest.raises(ConfigurationError, match="is neither PEM nor PKCS12"):
        server_context(TlsSettings(own_file=str(store)), client_auth="none")
