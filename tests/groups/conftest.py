"""A broker on virtual time, and clients that say what a test tells them to, in the version that it tells them to."""

import asyncio
import itertools
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.broker.lifecycle import Broker
from odradek.config import load
from odradek.controller import NewTopic
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.headers import decode_response_header, encode_request_header
from odradek.protocol.messages import decode_response, encode_request
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation


class RawClient(asyncio.Protocol):
    """One connection. Answers come in the order of the questions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transport: asyncio.Transport
        self._received = bytearray()
        self._waiting: list[tuple[int, int, asyncio.Future[Any]]] = []
        self._correlation_ids = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < size + 4:
                return
            frame = bytes(self._received[4 : size + 4])
            del self._received[: size + 4]
            api_key, version, future = self._waiting.pop(0)
            _, offset = decode_response_header(api_key, version, frame)
            future.set_result(decode_response(api_key, version, frame, offset))

    def connection_lost(self, error: Exception | None) -> None:
        for _, _, future in self._waiting:
            future.set_exception(ConnectionResetError())

    def send(self, api_key: ApiKey, message: dict[str, Any], version: int | None = None) -> "asyncio.Future[Any]":
        """Ask; `version` is the newest by default, and cut to what the API has."""
        versions = schema_versions(api_key)
        number = versions[-1] if version is None else min(max(version, versions[0]), versions[-1])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((api_key, number, future))
        header = encode_request_header(api_key, number, next(self._correlation_ids), self.name)
        body = encode_request(api_key, number, message)
        self.transport.write(struct.pack(">i", len(header) + len(body)) + header + body)
        return future

    async def ask(self, api_key: ApiKey, message: dict[str, Any], version: int | None = None) -> Any:
        """Ask and wait."""
        return await self.send(api_key, message, version)

    def close(self) -> None:
        self.transport.close()


class Stage:
    """A host with a broker that can die and come back, and a metadata tree that stays."""

    def __init__(self, simulation: Simulation, config: dict[str, str]) -> None:
        self.simulation = simulation
        self.config = {
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "2",
            "listeners": "PLAINTEXT://broker:9092",
            "log.dirs": "/data",
            "num.partitions": "3",
        } | config
        self.tree = MemoryTree()
        self.broker: Broker
        self.store: MemoryStore

    async def start(self) -> None:
        runtime = self.simulation.runtime("broker")
        self.store = MemoryStore(self.tree)
        self.broker = Broker(load(None, self.config), runtime, self.store)
        await self.broker.start()

    async def kill(self) -> None:
        """As kill -9 does."""
        self.broker.kill()
        self.simulation.kill("broker")
        self.store.abandon()
        self.tree.expire(self.store.session_id)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def time_passes(self, seconds: float) -> None:
        """It takes none: the clock is virtual."""
        await asyncio.sleep(seconds)

    async def client(self, name: str = "client") -> RawClient:
        network = self.simulation.runtime(f"host of {name}").network
        _, protocol = await network.connect(lambda: RawClient(name), "broker", 9092)
        return protocol

    async def create_topic(self, name: str, partitions: int = 3) -> None:
        (created,) = await self.broker.create_topics([NewTopic(name=name, num_partitions=partitions)])
        assert created.error is None


@pytest.fixture
def play(seed: int) -> Callable[..., None]:
    """Run a scenario on a stage; keywords are the broker's configuration, with `_` for `.`."""

    def run(scenario: Callable[[Stage], Coroutine[Any, Any, None]], **config: str) -> None:
        simulation = Simulation(seed, limit_s=100_000)
        stage = Stage(simulation, {key.replace("_", "."): value for key, value in config.items()})

        async def main() -> None:
            await stage.start()
            try:
                await scenario(stage)
            finally:
                await stage.broker.stop()

        simulation.run(main())

    return run
