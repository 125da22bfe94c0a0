"""Scripted brokers on the simulated network, for responses that a real broker rarely sends."""

import asyncio
import inspect
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.batches.record_batch import BatchHeader, read_header
from odradek.protocol.messages.fetch import FetchedPartition, FetchedTopic, encode_fetch_response
from odradek.protocol.messages.headers import decode_request_header, encode_response_header
from odradek.protocol.messages.message_codec import decode_request, encode_response
from odradek.protocol.messages.produce import (
    PartitionResponse,
    TopicResponse,
    decode_produce_request,
    encode_produce_response,
)
from odradek.testing import Simulation


class Close(NamedTuple):
    """A scripted response: close the connection without one."""


class Request(NamedTuple):
    """A received request. `message` is kio's, or the hand-written decoder's for Produce."""

    api: ApiKey
    version: int
    message: Any


Answer = Callable[[Request], Any]


class ScriptedBroker:
    """A broker with a list of topics. `answers` has a function per API; without one there is no answer at all.

    A function gets the request and gives a dict, bytes of a whole body, None (never answer) or `Close()`; it may be a
    coroutine function. Partitions of `topics` are `{number: leader}`.
    """

    def __init__(self, simulation: Simulation, node_id: int = 0, host: str = "broker") -> None:
        self.node_id = node_id
        self.host = host
        self.port = 9092 + node_id
        self.nodes: list[ScriptedBroker] = [self]
        self.topics: dict[str, dict[int, int]] = {}
        self.leader_epoch = 0
        self.topic_errors: dict[str, ErrorCode] = {}
        self.versions: dict[int, tuple[int, int]] = {
            api: (schema_versions(api)[0], schema_versions(api)[-1]) for api in ApiKey if schema_versions(api)
        }
        self.requests: list[Request] = []
        self.connections: set[asyncio.Transport] = set()
        self.answers: dict[ApiKey, Answer] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
            ApiKey.INIT_PRODUCER_ID: lambda _: {"producer_id": 7, "producer_epoch": 0},
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
        }
        self._network = simulation.runtime(host).network

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def start(self) -> "ScriptedBroker":
        self._listener = await self._network.listen(lambda: _Connection(self), self.host, self.port)
        return self

    def stop(self) -> None:
        """Close the port and all connections."""
        self._listener.close()
        self.disconnect()

    def disconnect(self) -> None:
        for transport in list(self.connections):
            transport.abort()

    def asked(self, api: ApiKey) -> list[Request]:
        return [request for request in self.requests if request.api == api]

    # Usual answers

    def api_versions(self, _request: Request) -> dict[str, Any]:
        keys = [{"api_key": api, "min_version": low, "max_version": high} for api, (low, high) in self.versions.items()]
        return {"api_keys": keys}

    def metadata(self, request: Request) -> dict[str, Any]:
        wanted = self.topics if request.message.topics is None else [topic.name for topic in request.message.topics]
        return {
            "brokers": [{"node_id": node.node_id, "host": node.host, "port": node.port} for node in self.nodes],
            "cluster_id": "scripted",
            "controller_id": self.node_id,
            "topics": [self._topic(name) for name in wanted],
        }

    def _topic(self, name: str) -> dict[str, Any]:
        error = self.topic_errors.get(name, ErrorCode.none)
        if name not in self.topics:
            error = error or ErrorCode.unknown_topic_or_partition
        partitions = [
            {
                "partition_index": number,
                "leader_id": leader,
                "leader_epoch": self.leader_epoch,
                "replica_nodes": [leader],
                "isr_nodes": [leader],
                "offline_replicas": [],
            }
            for number, leader in self.topics.get(name, {}).items()
        ]
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        return {
            "error_code": error.value,
            "name": name,
            "topic_id": topic_id,
            "is_internal": name.startswith("__"),
            "partitions": partitions if error == ErrorCode.none else [],
        }

    def find_coordinator(self, request: Request) -> dict[str, Any]:
        here = {"node_id": self.node_id, "host": self.host, "port": self.port, "error_message": None}
        keys = getattr(request.message, "coordinator_keys", ())
        return {**here, "coordinators": [{"key": key, **here} for key in keys]}


class Taken(NamedTuple):
    """A batch that a `Log` has taken."""

    partition: int
    header: BatchHeader
    records: bytes


class Log:
    """The produce side of a broker: answers each batch with what the test says, then as a broker would.

    It takes sequences without a hole only, and what it has taken once it does not take again.
    """

    def __init__(self, *answers: ErrorCode) -> None:
        self.taken: list[Taken] = []
        self.seen: list[Taken] = []
        self._answers = list(answers)
        self._ends: dict[int, int] = {}
        self._next: dict[tuple[int, int], int] = {}

    def __call__(self, request: Request) -> Any:
        topics = []
        for topic in request.message.topics:
            responses = [self._append(number, bytes(records)) for number, records in topic.partitions]
            topics.append(TopicResponse(topic.name, topic.topic_id, responses))
        return encode_produce_response(request.version, topics)

    def _append(self, number: int, records: bytes) -> PartitionResponse:
        batch = Taken(number, read_header(records), records)
        self.seen.append(batch)
        code = self._answers.pop(0) if self._answers else ErrorCode.none
        header = batch.header
        before = self._next.get((number, header.producer_epoch), 0)
        if code == ErrorCode.none and header.producer_id >= 0 and header.base_sequence > before:
            code = ErrorCode.out_of_order_sequence_number
        if code != ErrorCode.none:
            return PartitionResponse(number, code.value)
        if header.producer_id >= 0 and header.base_sequence < before:
            return PartitionResponse(number, ErrorCode.duplicate_sequence_number.value)
        self.taken.append(batch)
        self._next[number, header.producer_epoch] = header.base_sequence + header.record_count
        end = self._ends.get(number, 0)
        self._ends[number] = end + header.record_count
        return PartitionResponse(number, 0, end, log_append_time=-1, log_start_offset=0)


def fetch_answer(request: Request, partitions: Sequence[FetchedPartition], topic: str = "t", **more: Any) -> bytes:
    """The body of a Fetch response for one topic; `more` goes to `encode_fetch_response`."""
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, topic)
    topics = [FetchedTopic(topic, topic_id, partitions)] if partitions else []
    return b"".join(encode_fetch_response(request.version, topics, **more))


class _Connection(asyncio.Protocol):
    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._buffer = bytearray()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._broker.connections.add(transport)
        self._answering = asyncio.get_running_loop().create_task(self._answer_all())

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.discard(self._transport)
        self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and len(self._buffer) >= 4 + (size := struct.unpack_from(">i", self._buffer)[0]):
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._frames.put_nowait(frame)

    async def _answer_all(self) -> None:
        """Answer requests in order, as brokers do."""
        while True:
            await self._answer(await self._frames.get())

    async def _answer(self, frame: bytes) -> None:
        header = decode_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        decode = decode_produce_request if api == ApiKey.PRODUCE else _decoder(api)
        request = Request(api, version, decode(version, frame, header.body_offset))
        self._broker.requests.append(request)
        respond = self._broker.answers.get(api)
        answer = None if respond is None else respond(request)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Close):
            self._transport.abort()
        elif answer is not None:
            body = answer if isinstance(answer, bytes) else encode_response(api, version, answer)
            payload = encode_response_header(api, version, header.correlation_id) + body
            self._transport.write(struct.pack(">i", len(payload)) + payload)


def _decoder(api: ApiKey) -> Callable[[int, bytes, int], Any]:
    return lambda version, frame, offset: decode_request(api, version, frame, offset)


@pytest.fixture
def simulation(seed: int) -> Simulation:
    return Simulation(seed)


@pytest.fixture
def broker(simulation: Simulation) -> ScriptedBroker:
    """Broker 0, not started."""
    return ScriptedBroker(simulation)


@pytest.fixture
def other_broker(simulation: Simulation) -> ScriptedBroker:
    """Broker 1 on another host, not started, and not known to broker 0 unless a test adds it."""
    return ScriptedBroker(simulation, node_id=1, host="other")


@pytest.fixture
def new_log() -> type[Log]:
    """Makes a `Log` with the errors that it answers first."""
    return Log


@pytest.fixture
def close() -> Close:
    """The scripted response that closes the connection."""
    return Close()


@pytest.fixture
def answer_fetch() -> Callable[..., bytes]:
    """Makes a Fetch answer about the topic `t`."""
    return fetch_answer
