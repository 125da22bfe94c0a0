"""A scraper's and a probe's HTTP, on virtual time: what is answered, and what is cut off."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus

import pytest

from odradek.broker.observing.http import Answer, HttpService, parse_head
from odradek.testing import Simulation
from tests.world.scenes import played_by

HEAD = b"GET /x?y=1 HTTP/1.1\r\nHost: h\r\nACCEPT:  text/plain \r\n\r\n"


async def respond(path: str, accept: str) -> Answer:
    if path == "/broken":
        raise ValueError("no such luck")
    if path == "/slow":
        await asyncio.sleep(3600)
    return Answer(body=f"{path} {accept}\n".encode())


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""
        self.closed_at: float | None = None
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed_at = asyncio.get_running_loop().time()


Connect = Callable[[], Awaitable[Client]]


def play(seed: int, scene: Callable[[HttpService, Connect], Awaitable[None]]) -> None:
    simulation = Simulation(seed)
    server, clients = simulation.runtime("server"), simulation.runtime("client")

    async def main() -> None:
        service = HttpService(respond)
        await server.network.listen(service.connection, "server", 80)

        async def connect() -> Client:
            _, client = await clients.network.connect(Client, "server", 80)
            return client

        await scene(service, connect)

    simulation.run(main())


def ask(seed: int, *pieces: bytes) -> bytes:
    answers = []

    async def scene(_: HttpService, connect: Connect) -> None:
        client = await connect()
        for piece in pieces:
            client.transport.write(piece)
            await asyncio.sleep(1)
        assert client.closed_at is not None
        answers.append(client.received)

    play(seed, scene)
    return answers[0]


def test_a_question_is_answered_and_the_connection_closed(seed: int) -> None:
    answer = ask(seed, HEAD)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 14\r\n")
    assert answer.endswith(b"Connection: close\r\n\r\n/x text/plain\n")


def test_a_question_may_come_in_pieces(seed: int) -> None:
    assert ask(seed, HEAD[:7], HEAD[7:-2], HEAD[-2:]).endswith(b"/x text/plain\n")


def test_a_head_is_answered_without_a_body(seed: int) -> None:
    answer = ask(seed, HEAD.replace(b"GET", b"HEAD"))
    assert b"Content-Length: 14\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"\x00\xff\n\n"])
def test_anything_else_is_not_allowed(seed: int, head: bytes) -> None:
    answer = ask(seed, head)
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"Allow: GET, HEAD\r\n" in answer


def test_the_cause_of_a_failed_answer_is_only_logged(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = ask(seed, b"GET /broken HTTP/1.1\r\n\r\n")
    assert answer.startswith(f"HTTP/1.1 {HTTPStatus.INTERNAL_SERVER_ERROR} ".encode())
    assert b"luck" not in answer
    assert "Failed to respond to /broken" in caplog.text


def test_a_head_without_end_is_cut_off(seed: int) -> None:
    assert ask(seed, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2000) == b""


@pytest.mark.parametrize("piece", [b"", b"GET", b"GET /slow HTTP/1.1\r\n\r\n"])
@played_by(play)
async def test_a_client_that_sends_too_slowly_is_disconnected(
    service: HttpService, connect: Connect, *, piece: bytes
) -> None:
    client = await connect()
    began = asyncio.get_running_loop().time()
    client.transport.write(piece)
    await asyncio.sleep(60)
    assert client.closed_at is not None
    assert 29 < client.closed_at - began < 31
    assert client.received == b""


@played_by(play)
async def test_a_crowd_that_waits_for_answers_keeps_others_out(service: HttpService, connect: Connect) -> None:
    crowd = [await connect() for _ in range(64)]
    for client in crowd:
        client.transport.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await asyncio.sleep(1)
    with suppress(ConnectionResetError):  # it may come before this end knows that it is connected
        late = await connect()
        await asyncio.sleep(1)
        assert late.closed_at is not None
    assert all(client.closed_at is None for client in crowd)
    crowd[0].transport.abort()
    await asyncio.sleep(1)
    asking = await connect()
    asking.transport.write(HEAD)
    await asyncio.sleep(1)
    assert asking.received.endswith(b"/x text/plain\n")
    service.close()
    await asyncio.sleep(1)
    assert all(client.closed_at is not None for client in crowd)


def test_a_head_is_taken_apart() -> None:
    assert parse_head(HEAD) == ("GET", "/x", "text/plain")
    assert parse_head(b"") == ("", "", "")
    assert parse_head(b"GET\r\n") == ("GET", "", "")


@played_by(play)
async def test_silent_clients_never_keep_out_one_that_sends_a_request(service: HttpService, connect: Connect) -> None:
    silent = [await connect() for _ in range(200)]
    silent[150].transport.write(b"GET / HTTP/1.1\r\n")
    asking = await connect()
    asking.transport.write(HEAD)
    await asyncio.sleep(1)
    assert b"200 OK" in asking.received
    assert sum(client.closed_at is None for client in silent) <= 64
    await asyncio.sleep(60)
    assert all(client.closed_at is not None for client in silent)
