"""The network in memory keeps TCP's promises, and asyncio's, under every seed."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.simulation.virtual.clock import VirtualClock
from odradek.simulation.virtual.loop import DeadlockError, VirtualLoop
from odradek.simulation.virtual.network import CONNECT_TIMEOUT_S, MemoryNetwork
from odradek.simulation.virtual.trace import Trace
from tests.world.scenes import played_by

SEEDS = range(20)


class Recorder:
    """Records a protocol's calls as text; `replies` is its response to everything it reads."""

    transport: asyncio.Transport

    def __init__(self, *, echo: bool = False, keep_half_open: bool = False) -> None:
        self.seen: list[str] = []
        self.read = bytearray()
        self.lost: Exception | None = None
        self.gone = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._echo = echo
        self._keep_half_open = keep_half_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.seen.append("made")

    def take(self, data: bytes) -> None:
        self.read += data
        if self._echo:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.seen.append("eof")
        return self._keep_half_open

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = error
        self.seen.append("lost")
        self.gone.set()

    def pause_writing(self) -> None:
        self.seen.append("pause")
        self.writable.clear()

    def resume_writing(self) -> None:
        self.seen.append("resume")
        self.writable.set()


class Streaming(Recorder, asyncio.Protocol):
    """A protocol that is given its data."""

    def data_received(self, data: bytes) -> None:
        self.take(data)


class Buffered(Recorder, asyncio.BufferedProtocol):
    """A protocol that has its data written into a buffer, a small one."""

    room = bytearray(1000)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        self.take(bytes(self.room[:nbytes]))


Scenario = Callable[[MemoryNetwork], Coroutine[Any, Any, Any]]


def run(scenario: Scenario, seed: int = 0) -> Any:
    clock, trace = VirtualClock(), Trace()
    network = MemoryNetwork(clock, random.Random(seed), trace)

    def loop() -> VirtualLoop:
        made = VirtualLoop(clock, random.Random(seed), trace)
        made.set_exception_handler(lambda _, context: network.note(f"unheeded: {context['message']}"))
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(scenario(network)), trace


async def pair(
    network: MemoryNetwork, client: Callable[[], Any] = Streaming, server: Callable[[], Any] = Streaming
) -> tuple[Any, Any]:
    """A connected client of host `c` and server of host `s`."""
    servers: list[Any] = []

    def accept() -> Any:
        servers.append(server())
        return servers[-1]

    listener = await network.host("s").listen(accept, "127.0.0.1", 0)
    _, near = await network.host("c").connect(client, "localhost", listener.port)
    await until(lambda: bool(servers) and "made" in servers[0].seen)
    return near, servers[0]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [Streaming, Buffered])
def test_bytes_arrive_in_order_whatever_the_pieces(kind: type[Any], seed: int):
    sent = random.Random(seed).randbytes(300_000)

    async def scenario(network: MemoryNetwork) -> None:
        client, server = await pair(network, kind, lambda: kind(echo=True))
        for start in range(0, len(sent), 7_001):
            client.transport.write(memoryview(sent)[start : start + 7_001])
            if start % 3 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(client.read) == len(sent))
        assert server.read == client.read == sent

    _, trace = run(scenario, seed)
    assert trace.digest != run(scenario, seed + 1)[1].digest
    assert trace.digest == run(scenario, seed)[1].digest


@played_by(run)
async def test_the_closing_side_loses_its_connection_at_once_and_the_other_after_all_data(
    network: MemoryNetwork,
) -> None:
    client, server = await pair(network)
    client.transport.write(b"last words")
    client.transport.close()
    client.transport.write(b"too late")
    await client.gone.wait()
    await server.gone.wait()
    assert client.seen == ["made", "lost"]
    assert server.seen == ["made", "eof", "lost"]
    assert server.read == b"last words"
    assert client.lost is server.lost is None


@played_by(run)
async def test_a_half_closed_connection_still_carries_the_answer(network: MemoryNetwork) -> None:
    client, server = await pair(network, Streaming, lambda: Streaming(keep_half_open=True))
    client.transport.write(b"question")
    client.transport.write_eof()
    with pytest.raises(RuntimeError, match="after write_eof"):
        client.transport.write(b"more")
    await until(lambda: "eof" in server.seen)
    server.transport.write(b"answer")
    server.transport.close()
    await client.gone.wait()
    assert (server.read, client.read) == (b"question", b"answer")


@played_by(run)
async def test_an_aborted_connection_is_reset_at_the_other_end_and_unsent_bytes_are_dropped(
    network: MemoryNetwork,
) -> None:
    client, server = await pair(network)
    client.transport.write(b"never seen")
    client.transport.abort()
    await server.gone.wait()
    assert isinstance(server.lost, ConnectionResetError)
    assert server.read == b""
    assert client.lost is None


@played_by(run)
async def test_writing_to_an_end_that_is_gone_brings_a_reset(network: MemoryNetwork) -> None:
    client, server = await pair(network, lambda: Streaming(keep_half_open=True))
    server.transport.close()
    await until(lambda: "eof" in client.seen)
    client.transport.write(b"anybody there?")
    await client.gone.wait()
    assert isinstance(client.lost, ConnectionResetError)


@pytest.mark.parametrize("kind", [Streaming, Buffered])
@played_by(run)
async def test_a_reader_that_pauses_is_given_nothing_and_its_writer_is_paused_at_the_high_water_mark(
    network: MemoryNetwork, *, kind: type[Any]
) -> None:
    client, server = await pair(network, Streaming, kind)
    server.transport.pause_reading()
    written = 0
    while client.writable.is_set():
        client.transport.write(bytes(10_000))
        written += 10_000
        await asyncio.sleep(0.01)
    low, high = client.transport.get_write_buffer_limits()
    assert client.transport.get_write_buffer_size() > high > low
    assert server.read == b""
    assert not server.transport.is_reading()
    server.transport.resume_reading()
    await client.writable.wait()
    assert client.transport.get_write_buffer_size() <= low
    await until(lambda: len(server.read) == written)
    assert client.seen == ["made", "pause", "resume"]


@played_by(run)
async def test_a_close_waits_for_what_the_sockets_could_not_take(network: MemoryNetwork) -> None:
    client, server = await pair(network)
    server.transport.pause_reading()
    client.transport.write(bytes(1_000_000))
    client.transport.close()
    await asyncio.sleep(60)
    assert client.seen == ["made", "pause"]
    server.transport.resume_reading()
    await client.gone.wait()
    await server.gone.wait()
    assert len(server.read) == 1_000_000


def test_a_buffer_that_changes_before_the_turn_ends_is_found_out():
    async def scenario(network: MemoryNetwork) -> None:
        client, _ = await pair(network)
        data = bytearray(b"before")
        client.transport.write(data)
        data[:] = b"after "
        await asyncio.sleep(1)

    assert any("unheeded" in event for event in run(scenario)[1].last())


@played_by(run)
async def test_a_connection_to_a_port_without_a_listener_is_refused(network: MemoryNetwork) -> None:
    host = network.host("c")
    listener = await host.listen(Streaming, "0.0.0.0", 9092)
    with pytest.raises(OSError, match="in use"):
        await host.listen(Streaming, "127.0.0.1", 9092)
    await host.connect(Streaming, "any.name", 9092)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        await host.connect(Streaming, "any.name", 9092)


@played_by(run)
async def test_a_partition_holds_bytes_back_until_it_heals(network: MemoryNetwork) -> None:
    client, server = await pair(network)
    network.partition(["c"], ["s"])
    client.transport.write(b"held")
    client.transport.close()
    await asyncio.sleep(60)
    assert server.read == b""
    network.heal()
    await server.gone.wait()
    assert server.read == b"held"


@played_by(run)
async def test_a_block_in_one_direction_leaves_the_other_open(network: MemoryNetwork) -> None:
    client, server = await pair(network)
    network.block("s", "c")
    client.transport.write(b"ping")
    server.transport.write(b"pong")
    await asyncio.sleep(60)
    assert (server.read, client.read) == (b"ping", b"")


@played_by(run)
async def test_connecting_across_a_partition_waits_for_the_heal_or_times_out(network: MemoryNetwork) -> None:
    loop = asyncio.get_running_loop()
    listener = await network.host("s").listen(Streaming, "127.0.0.1", 0)
    network.partition(["c"], ["s"])
    started = loop.time()
    with pytest.raises(TimeoutError):
        await network.host("c").connect(Streaming, "127.0.0.1", listener.port)
    assert loop.time() - started == pytest.approx(CONNECT_TIMEOUT_S)
    loop.call_later(10, network.heal)
    await network.host("c").connect(Streaming, "127.0.0.1", listener.port)
    assert loop.time() - started == pytest.approx(CONNECT_TIMEOUT_S + 10, abs=0.1)


@played_by(run)
async def test_a_crashed_host_receives_nothing_its_peers_are_reset_and_its_ports_closed(network: MemoryNetwork) -> None:
    client, server = await pair(network)
    port = server.transport.get_extra_info("sockname")[1]
    network.crash("s")
    await client.gone.wait()
    assert isinstance(client.lost, ConnectionResetError)
    assert server.seen == ["made"]
    with pytest.raises(ConnectionRefusedError):
        await network.host("c").connect(Streaming, "127.0.0.1", port)


def test_a_failing_callback_costs_its_connection_and_is_reported():
    class Failing(Streaming):
        def data_received(self, data: bytes) -> None:
            raise ValueError("no")

    async def scenario(network: MemoryNetwork) -> None:
        client, _ = await pair(network, Streaming, Failing)
        client.transport.write(b"x")
        await client.gone.wait()
        assert isinstance(client.lost, ConnectionResetError)

    assert any("unheeded" in event for event in run(scenario)[1].last())


@played_by(run)
async def test_a_connection_attempt_that_is_cancelled_leaves_nothing_behind(network: MemoryNetwork) -> None:
    servers = list[Streaming]()

    def accept() -> Streaming:
        servers.append(Streaming())
        return servers[-1]

    listener = await network.host("s").listen(accept, "127.0.0.1", 0)
    network.latency_s = (1.0, 1.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await network.host("c").connect(Streaming, "127.0.0.1", listener.port)
    await servers[0].gone.wait()
    assert isinstance(servers[0].lost, ConnectionResetError)


@played_by(run)
async def test_each_end_knows_the_address_of_the_other(network: MemoryNetwork) -> None:
    client, server = await pair(network)
    assert client.transport.get_extra_info("peername") == server.transport.get_extra_info("sockname")
    assert client.transport.get_extra_info("sockname") == server.transport.get_extra_info("peername")


def test_waiting_for_an_answer_that_is_never_sent_is_a_deadlock():
    async def scenario(network: MemoryNetwork) -> None:
        client, _ = await pair(network)
        await client.gone.wait()

    with pytest.raises(DeadlockError):
        run(scenario)
