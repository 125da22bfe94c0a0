"""A broker on virtual time, in memory, and clients on the simulated network: `play` runs a scene."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from odradek.broker.lifecycle import Broker
from odradek.broker.serving.admission import Admission
from odradek.config import BrokerConfig
from odradek.protocol.api import ApiKey
from odradek.protocol.fetch import FetchResponse, decode_fetch_response
from odradek.protocol.headers import decode_response_header, encode_request_header
from odradek.protocol.messages import decode_response, encode_request
from odradek.protocol.produce import (
    PartitionResponse,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.protocol.record_batch import iterate_batches
from odradek.protocol.records import decode_records, encode_batch
from odradek.runtime import Runtime
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation

NOW_MS = 1_700_000_000_000


class Client(asyncio.Protocol):
    """One connection. `ask` sends a request and gives the decoded response; `None` where the broker closed it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.is_closed = False
        self._buffer = bytearray()
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._correlation_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = struct.unpack_from(">i", self._buffer)[0]
            if len(self._buffer) < 4 + size:
                return
            self._frames.put_nowait(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._frames.put_nowait(None)

    def send_bytes(self, payload: bytes) -> None:
        self.transport.write(struct.pack(">i", len(payload)) + payload)

    def send(self, api: int, version: int, body: bytes, client_id: str = "test") -> None:
        self._correlation_id += 1
        self.send_bytes(encode_request_header(api, version, self._correlation_id, client_id) + body)

    async def receive(self) -> bytes | None:
        return await self._frames.get()

    async def ask(self, api: int, version: int, message: dict[str, Any]) -> Any:
        self.send(api, version, encode_request(api, version, message))
        return await self.answer(api, version)

    async def answer(self, api: int, version: int) -> Any:
        frame = await self.receive()
        if frame is None:
            return None
        _, offset = decode_response_header(api, version, frame)
        if api == ApiKey.FETCH:
            return decode_fetch_response(version, frame, offset)
        if api == ApiKey.PRODUCE:
            return decode_produce_response(version, frame, offset)
        return decode_response(api, version, frame, offset)

    # What most scenes need

    async def create_topic(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> Any:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
        }
        answer = await self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 1000})
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0]

    def send_produce(
        self,
        topic: Any,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        version: int = 11,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> None:
        name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
        pieces = encode_produce_request(
            version,
            [ProduceTopic(name, topic_id, [(partition, records)])],
            acks=acks,
            timeout_ms=1000,
            transactional_id=transactional_id,
        )
        self.send(ApiKey.PRODUCE, version, b"".join(pieces))

    async def produce(self, topic: Any, records: bytes | bytearray | None, **options: Any) -> PartitionResponse:
        self.send_produce(topic, records, **options)
        answer = await self.answer(ApiKey.PRODUCE, options.get("version", 11))
        assert answer is not None, "the broker closed the connection"
        return answer.topics[0].partitions[0]

    async def fetch(self, topic: Any, offset: int, *, partition: int = 0, version: int = 12, **options: Any) -> Any:
        """The one partition's answer."""
        self.send_fetch([(topic, partition, offset)], version=version, **options)
        answer = await self.answer(ApiKey.FETCH, version)
        assert isinstance(answer, FetchResponse)
        assert answer.error_code == 0
        return answer.topics[0].partitions[0]

    def send_fetch(
        self,
        wanted: Sequence[tuple[Any, int, int]],
        *,
        version: int = 12,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        session: tuple[int, int] = (0, -1),
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        isolation_level: int = 0,
        forgotten: Sequence[tuple[Any, int]] = (),
    ) -> None:
        key = "topic" if version < 13 else "topic_id"
        topics = [
            {
                key: topic,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": partition_max_bytes,
                        "current_leader_epoch": leader_epoch,
                        "last_fetched_epoch": last_fetched_epoch,
                    }
                ],
            }
            for topic, partition, offset in wanted
        ]
        message = {
            "max_wait": max_wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation_level,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": topics,
            "forgotten_topics_data": [{key: topic, "partitions": [partition]} for topic, partition in forgotten],
        }
        self.send(ApiKey.FETCH, version, encode_request(ApiKey.FETCH, version, message))


class World:
    """A tree that outlives its brokers, one host for broker 0, and one for clients."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.tree = MemoryTree()
        self.runtime: Runtime = simulation.runtime("broker-0")
        self.clients = simulation.runtime("client")

    async def broker(self, *, admission: Admission | None = None, **config: Any) -> Broker:
        """A broker that serves at port 9092."""
        settings = {"listeners": ("PLAINTEXT://broker:9092",), "log_dirs": ("/data",), **config}
        broker = Broker(BrokerConfig(**settings), self.runtime, MemoryStore(self.tree), admission=admission)
        await broker.start()
        return broker

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, which takes none."""
        await asyncio.sleep(seconds)

    @staticmethod
    def batch(*values: bytes, **options: Any) -> bytearray:
        """One record batch, with a record per value."""
        return encode_batch([(NOW_MS + number, None, value, ()) for number, value in enumerate(values)], **options)

    @staticmethod
    def values(records: Any) -> list[bytes | None]:
        """The values in a fetched partition's records; a cut last batch is dropped, as clients do."""
        data = memoryview(records or b"")
        return [
            record.value
            for position, header in iterate_batches(data)
            for record in decode_records(data[position : position + header.size])
        ]

    async def client(self, port: int = 9092) -> Client:
        _, client = await self.clients.network.connect(Client, "broker", port)
        return client


Scene = Callable[[World], Awaitable[None]]


@pytest.fixture
def play(seed: int) -> Callable[[Scene], None]:
    """Run a scene to its end; brokers that it leaves running are forgotten."""

    def run(scene: Scene) -> None:
        simulation = Simulation(seed)

        async def main() -> None:
            await scene(World(simulation))

        simulation.run(main())

    return run
