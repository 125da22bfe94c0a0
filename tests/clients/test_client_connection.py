"""One connection: framing, versions, time-outs, and what happens to requests when it ends."""

import asyncio
import errno
import struct
from collections.abc import Collection

import pytest

from odradek.model import KafkaError, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_request_header, encode_response_header
from odradek.protocol.messages.message_codec import encode_response
from odradek.testing import Simulation
from odradek.wire.client_connection import ClientConnection, open_connection
from tests.world.scenes import in_simulation


class Peer(asyncio.Protocol):
    """The other end: keeps whole frames, and writes what a test gives it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + (size := struct.unpack_from(">i", self._buffer)[0]):
            self.frames.put_nowait(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]

    def send(self, payload: bytes) -> None:
        self.transport.write(struct.pack(">i", len(payload)) + payload)

    async def answer(self, body: bytes = b"", *, version: int | None = None) -> None:
        """Answer the next request, in its own version or in another one."""
        header = decode_request_header(await self.frames.get())
        shape = header.api_version if version is None else version
        self.send(encode_response_header(header.api_key, shape, header.correlation_id) + body)


def versions(version: int, *, error_code: int = 0, highest: int = 4, metadata: tuple[int, int] = (0, 13)) -> bytes:
    keys = [
        {"api_key": ApiKey.API_VERSIONS, "min_version": 0, "max_version": highest},
        {"api_key": ApiKey.METADATA, "min_version": metadata[0], "max_version": metadata[1]},
    ]
    return encode_response(ApiKey.API_VERSIONS, version, {"error_code": error_code, "api_keys": keys})


async def connect(simulation: Simulation, peer: Peer, *, max_response_bytes: int = 1 << 20) -> ClientConnection:
    runtime = simulation.runtime("client")
    await simulation.runtime("broker").network.listen(lambda: peer, "broker", 9092)
    return await open_connection(
        runtime,
        "broker",
        9092,
        client_id="test",
        request_timeout_ms=2_000,
        setup_timeout_ms=1_000,
        max_response_bytes=max_response_bytes,
    )


async def connected(simulation: Simulation, peer: Peer, **options: int) -> ClientConnection:
    opening = asyncio.ensure_future(connect(simulation, peer, **options))
    await peer.answer(versions(4))
    return await opening


@in_simulation
async def test_the_highest_version_that_both_sides_know_is_chosen(simulation: Simulation) -> None:
    peer = Peer()
    connection = await connected(simulation, peer)
    assert connection.version(ApiKey.METADATA) == 13
    assert connection.version(ApiKey.METADATA, at_most=9) == 9
    assert connection.supports(ApiKey.METADATA)
    assert not connection.supports(ApiKey.FETCH)
    with pytest.raises(KafkaError, match="does not support FETCH"):
        connection.version(ApiKey.FETCH)
    connection.close()


@in_simulation
async def test_an_unsupported_api_versions_request_is_repeated_in_the_brokers_version(simulation: Simulation) -> None:
    """KIP-511: the refusal comes in version 0, with the versions that the broker knows."""
    peer = Peer()
    opening = asyncio.ensure_future(connect(simulation, peer))
    await peer.answer(versions(0, error_code=35, highest=2), version=0)
    header = decode_request_header(await peer.frames.get())
    assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, 2)
    peer.send(encode_response_header(ApiKey.API_VERSIONS, 2, header.correlation_id) + versions(2))
    connection = await opening
    assert connection.version(ApiKey.API_VERSIONS) == 4
    connection.close()


@in_simulation
async def test_an_unreadable_refusal_of_api_versions_leads_to_version_0(simulation: Simulation) -> None:
    peer = Peer()
    opening = asyncio.ensure_future(connect(simulation, peer))
    await peer.answer(b"\x00\x23\x01", version=0)
    header = decode_request_header(await peer.frames.get())
    assert header.api_version == 0
    peer.send(encode_response_header(ApiKey.API_VERSIONS, 0, header.correlation_id) + versions(0))
    (await opening).close()


@pytest.mark.parametrize("size", [1, 8_000, 70_000, 900_000])
@in_simulation
async def test_answers_of_any_size_arrive_whole_and_in_order(simulation: Simulation, size: int) -> None:
    """However the network cuts them, and however many come at once."""
    peer = Peer()
    connection = await connected(simulation, peer)
    futures = [connection.exchange(ApiKey.METADATA, 0, (b"",)) for _ in range(7)]
    bodies = [bytes([number]) * (size + number) for number in range(7)]
    for body in bodies:
        await peer.answer(body)
    replies = await asyncio.gather(*futures)
    assert [bytes(reply.frame[reply.offset :]) for reply in replies] == bodies
    assert connection.in_flight == 0
    connection.close()


@in_simulation
async def test_a_request_timeout_closes_the_connection_and_fails_all_requests_in_flight(simulation: Simulation) -> None:
    peer = Peer()
    connection = await connected(simulation, peer)
    patient = connection.exchange(ApiKey.METADATA, 0, (b"",), timeout_ms=60_000)
    hasty = connection.exchange(ApiKey.METADATA, 0, (b"",), timeout_ms=500)
    started = simulation.clock.elapsed_s
    with pytest.raises(UnavailableError, match="did not answer METADATA within 500 ms"):
        await hasty
    assert simulation.clock.elapsed_s - started == pytest.approx(0.5)
    with pytest.raises(UnavailableError):
        await patient
    assert connection.closed
    with pytest.raises(UnavailableError, match="broker:9092"):
        await connection.exchange(ApiKey.METADATA, 0, (b"",))


@pytest.mark.parametrize("bytes_sent", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x04\x00\x00\x03\xe7"])
@in_simulation
async def test_an_invalid_frame_closes_the_connection(simulation: Simulation, bytes_sent: bytes) -> None:
    """2 GiB, a negative size, and a correlation id of no request."""
    peer = Peer()
    connection = await connected(simulation, peer)
    future = connection.exchange(ApiKey.METADATA, 0, (b"",))
    peer.transport.write(bytes_sent)
    with pytest.raises(UnavailableError):
        await future
    assert connection.closed


@in_simulation
async def test_a_malformed_response_raises_unavailable_error(simulation: Simulation) -> None:
    peer = Peer()
    connection = await connected(simulation, peer)
    asking = asyncio.ensure_future(connection.request(ApiKey.METADATA, {"topics": []}, at_most=1))
    await peer.answer(b"\x7f\x00\x00")
    with pytest.raises(UnavailableError, match="METADATA response is malformed"):
        await asking
    assert connection.closed


@in_simulation
async def test_a_cancelled_request_does_not_disturb_the_others(simulation: Simulation) -> None:
    peer = Peer()
    connection = await connected(simulation, peer)
    first = connection.exchange(ApiKey.METADATA, 0, (b"",))
    second = connection.exchange(ApiKey.METADATA, 0, (b"",))
    first.cancel()
    await peer.answer(b"a")
    await peer.answer(b"b")
    reply = await second
    assert bytes(reply.frame[reply.offset :]) == b"b"
    connection.close()


@in_simulation
async def test_a_refused_connection_is_an_error_with_the_address(simulation: Simulation) -> None:
    with pytest.raises(UnavailableError, match="broker nowhere:1: connection refused"):
        await open_connection(
            simulation.runtime("client"),
            "nowhere",
            1,
            client_id="test",
            request_timeout_ms=1_000,
            setup_timeout_ms=1_000,
            max_response_bytes=1_000,
        )


@in_simulation
async def test_connecting_times_out(simulation: Simulation) -> None:
    with pytest.raises(UnavailableError, match="it did not answer ApiVersions within 1000 ms"):
        await connect(simulation, Peer())


@in_simulation
async def test_a_connection_is_closed_if_the_system_fails_after_it_was_opened(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when no file descriptor is left to import a codec."""
    opened: list[ClientConnection] = []

    async def negotiate(connection: ClientConnection, unlisted: Collection[int]) -> None:
        del unlisted
        opened.append(connection)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(ClientConnection, "negotiate", negotiate)
    with pytest.raises(UnavailableError, match="Too many open files"):
        await connect(simulation, Peer())
    assert opened[0].closed
