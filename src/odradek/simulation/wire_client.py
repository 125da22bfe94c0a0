"""Test clients that send any request in any version, valid or not, and return the response or the disconnection.

`WireClient` runs on an event loop, real or virtual; `BlockingWireClient` on a plain socket. Both match a response to
its request by correlation id, and decode it in the request's version.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self
from uuid import UUID

from odradek.model import AuthenticationError
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.messages.fetch import FetchedPartition, FetchResponse, decode_fetch_response
from odradek.protocol.messages.headers import decode_response_header, encode_request_header
from odradek.protocol.messages.message_codec import decode_response, encode_request
from odradek.protocol.messages.produce import (
    PartitionResponse,
    ProduceResponse,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.protocol.messages.schemas import Message
from odradek.runtime.network import Network
from odradek.wire.client_authentication import Login, Prove

PRODUCE_VERSION: Final = 11
FETCH_VERSION: Final = 12
_CREATE_TOPICS_VERSION: Final = 5

TopicRef = str | UUID
"""A topic's name, or its id in the versions of Produce and Fetch that have ids."""


def frame(payload: bytes) -> bytes:
    """Return `payload` with its length in front."""
    return struct.pack(">i", len(payload)) + payload


def produce_body(
    topic: TopicRef,
    records: bytes | bytearray | None,
    *,
    partition: int = 0,
    version: int = PRODUCE_VERSION,
    acks: int = -1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> bytes:
    name, topic_id = (topic, None) if isinstance(topic, str) else (None, topic)
    pieces = encode_produce_request(
        version,
        [ProduceTopic(name, topic_id, [(partition, records)])],
        acks=acks,
        timeout_ms=timeout_ms,
        transactional_id=transactional_id,
    )
    return b"".join(pieces)


def fetch_message(
    wanted: Sequence[tuple[TopicRef, int, int]],
    *,
    version: int = FETCH_VERSION,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
    forgotten: Sequence[tuple[TopicRef, int]] = (),
) -> Message:
    """Return a Fetch request; `wanted` has (topic, partition, offset), `session` is (session id, epoch)."""
    key = "topic" if version < 13 else "topic_id"
    limits = {
        "partition_max_bytes": partition_max_bytes,
        "current_leader_epoch": leader_epoch,
        "last_fetched_epoch": last_fetched_epoch,
    }
    return {
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [
            {key: topic, "partitions": [{"partition": partition, "fetch_offset": offset, **limits}]}
            for topic, partition, offset in wanted
        ],
        "forgotten_topics_data": [{key: topic, "partitions": [partition]} for topic, partition in forgotten],
    }


def create_topic_message(
    name: str, partitions: int = 1, replication_factor: int = 1, config: Mapping[str, str] | None = None
) -> Message:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in (config or {}).items()],
    }
    return {"topics": [topic], "timeout": 10_000}


class _Requests:
    """The requests of one connection that have no response yet, by correlation id. No I/O."""

    def __init__(self, client_id: str) -> None:
        self.prove: Prove | None = None
        self._client_id = client_id
        self._last_id = 0
        self._sent: dict[int, tuple[int, int]] = {}

    def payload(
        self, api: int, message: Message | bytes, version: int | None, client_id: str | None = None
    ) -> tuple[int, bytes]:
        """Return `(correlation_id, header + body)` of a new request; `message` may be an encoded body."""
        is_encoded = isinstance(message, bytes)
        number = version if is_encoded and version is not None else _supported(api, version)
        self._last_id += 1
        self._sent[self._last_id] = api, number
        body = message if isinstance(message, bytes) else encode_request(api, number, message)
        proof = b"" if self.prove is None else self.prove(api, number, self._last_id, (body,))
        header = encode_request_header(api, number, self._last_id, client_id or self._client_id, proof)
        return self._last_id, header + body

    def start(self, response: bytes) -> tuple[int, int, int]:
        """Return the request's API key and version, and the position of the response's body."""
        api, version = self._sent.pop(correlation_id(response))
        _, offset = decode_response_header(api, version, response)
        return api, version, offset

    def decode(self, response: bytes) -> Any:
        api, version, offset = self.start(response)
        return decode_response(api, version, response, offset)


def _supported(api: int, version: int | None) -> int:
    """Return the version nearest to `version` that has an encoder; the newest one for None."""
    versions = schema_versions(api)
    return versions[-1] if version is None else min(max(version, versions[0]), versions[-1])


def correlation_id(response: bytes) -> int:
    return int.from_bytes(response[:4], "big", signed=True)


class WireClient(asyncio.Protocol):
    """One connection on the running event loop.

    `request` returns a future of its response. Responses to `send` are read in the order of arrival by `receive`,
    `answer`, `produce_response` and `fetch_response`. If the broker closes the connection, `receive` returns None;
    the others raise `ConnectionResetError`.
    """

    def __init__(self, client_id: str = "test") -> None:
        self.transport: asyncio.Transport
        self.is_closed = False
        self._requests = _Requests(client_id)
        self._received = bytearray()
        self._responses: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @classmethod
    async def connect(cls, network: Network, host: str, port: int = 9092, client_id: str = "test") -> Self:
        """Connect to a broker."""
        _, client = await network.connect(lambda: cls(client_id), host, port)
        return client

    def act_as_broker(self, prove: Prove | None) -> None:
        """Send requests with the proof of a broker of the cluster; None: without, as a client."""
        self._requests.prove = prove

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Split the received bytes into responses."""
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            response = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            future = self._waiting.pop(correlation_id(response), None)
            if future is None:
                self._responses.put_nowait(response)
            elif not future.done():
                future.set_result(self._requests.decode(response))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._responses.put_nowait(None)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError())

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()

    async def log_in(self, login: Login) -> None:
        """Authenticate by SASL. Raises `AuthenticationError` if the broker refuses."""
        exchange = await login()
        await self.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": exchange.mechanism})
        challenge = b""
        while (token := exchange.step(challenge)) is not None:
            answer = await self.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token})
            if answer.error_code:
                raise AuthenticationError(answer.error_message)
            challenge = bytes(answer.auth_bytes)

    def send_bytes(self, payload: bytes) -> None:
        """Send `payload` with its length in front."""
        self.transport.write(frame(payload))

    def send(
        self, api: int, message: Message | bytes, version: int | None = None, *, client_id: str | None = None
    ) -> None:
        """Send a request, by default in the newest version; `message` may be an encoded body."""
        self.send_bytes(self._requests.payload(api, message, version, client_id)[1])

    def request(self, api: int, message: Message | bytes, version: int | None = None) -> "asyncio.Future[Any]":
        """Send a request and return the future of its response."""
        number, payload = self._requests.payload(api, message, version)
        self._waiting[number] = future = asyncio.get_running_loop().create_future()
        self.send_bytes(payload)
        return future

    async def ask(self, api: int, message: Message | bytes, version: int | None = None) -> Any:
        """Send a request and return its response."""
        return await self.request(api, message, version)

    async def receive(self) -> bytes | None:
        """Return the next response, encoded and without its length; None if the broker closes the connection."""
        return await self._responses.get()

    async def answer(self) -> Any:
        """Return the next response, decoded."""
        return self._requests.decode(await self._expect())

    async def produce_response(self) -> ProduceResponse:
        """Return the next response, which must be of a Produce request."""
        response = await self._expect()
        _, version, offset = self._requests.start(response)
        return decode_produce_response(version, response, offset)

    async def fetch_response(self) -> FetchResponse:
        """Return the next response, which must be of a Fetch request."""
        response = await self._expect()
        _, version, offset = self._requests.start(response)
        return decode_fetch_response(version, response, offset)

    async def _expect(self) -> bytes:
        response = await self.receive()
        if response is None:
            raise ConnectionResetError("the broker closed the connection")
        return response

    async def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Any:
        """Create a topic of one replica, and return its part of the response."""
        answer = await self.ask(ApiKey.CREATE_TOPICS, create_topic_message(name, partitions, config=config))
        assert answer.topics[0].error_code == 0, answer
        return answer.topics[0]

    def send_produce(
        self,
        topic: TopicRef,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        version: int = PRODUCE_VERSION,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> None:
        """Send a Produce request for one partition."""
        body = produce_body(
            topic, records, partition=partition, version=version, acks=acks, transactional_id=transactional_id
        )
        self.send(ApiKey.PRODUCE, body, version)

    async def produce(
        self,
        topic: TopicRef,
        records: bytes | bytearray | None,
        *,
        partition: int = 0,
        version: int = PRODUCE_VERSION,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> PartitionResponse:
        """Send a Produce request for one partition and return its part of the response."""
        self.send_produce(
            topic, records, partition=partition, version=version, acks=acks, transactional_id=transactional_id
        )
        return (await self.produce_response()).topics[0].partitions[0]

    def send_fetch(
        self, wanted: Sequence[tuple[TopicRef, int, int]], *, version: int = FETCH_VERSION, **options: Any
    ) -> None:
        """Send a Fetch request; `options` are those of `fetch_message`."""
        self.send(ApiKey.FETCH, fetch_message(wanted, version=version, **options), version)

    async def fetch(
        self, topic: TopicRef, offset: int, *, partition: int = 0, version: int = FETCH_VERSION, **options: Any
    ) -> FetchedPartition:
        """Fetch from one partition and return its part of the response."""
        self.send_fetch([(topic, partition, offset)], version=version, **options)
        answer = await self.fetch_response()
        assert answer.error_code == 0, answer
        return answer.topics[0].partitions[0]


class BlockingWireClient:
    """One connection to the first of `servers` (`HOST:PORT,…`); each call times out after `timeout_s`."""

    def __init__(self, servers: str, *, client_id: str = "test", timeout_s: float = 60.0) -> None:
        host, _, port = servers.partition(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._requests = _Requests(client_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def set_timeout(self, seconds: float) -> None:
        """Set the time-out of later calls."""
        self._socket.settimeout(seconds)

    def act_as_broker(self, prove: Prove) -> None:
        """Send requests with the proof of a broker of the cluster."""
        self._requests.prove = prove

    def finish(self) -> None:
        """Close the sending half: the broker still answers the requests it has received, then closes the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def frame(self, api: int, message: Message | bytes, version: int | None = None) -> bytes:
        """Return a whole request with its length, without sending it."""
        return frame(self._requests.payload(api, message, version)[1])

    def send_raw(self, data: bytes) -> None:
        """Send `data` without a length. A closed connection is ignored here; `receive` reports it."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(data)

    def send(self, api: int, message: Message | bytes, version: int | None = None) -> None:
        """Send a request, by default in the newest version; `message` may be an encoded body."""
        self.send_raw(self.frame(api, message, version))

    def receive(self) -> bytes | None:
        """Return the next response, encoded and without its length; None if the broker closed the connection."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def ask(self, api: int, message: Message | bytes, version: int | None = None) -> Any:
        """Send a request and return its response."""
        self.send(api, message, version)
        return self.answer()

    def answer(self) -> Any:
        """Return the next response, decoded. Raises `ConnectionResetError` if the broker closed the connection."""
        return self._requests.decode(self._expect())

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Any:
        """Create a topic of one replica, and return its part of the response."""
        message = create_topic_message(name, partitions, config=config)
        return self.ask(ApiKey.CREATE_TOPICS, message, _CREATE_TOPICS_VERSION).topics[0]

    def produce_response(self) -> PartitionResponse:
        """Return the first partition of the next response, which must be of a Produce request."""
        response = self._expect()
        _, version, offset = self._requests.start(response)
        return decode_produce_response(version, response, offset).topics[0].partitions[0]

    def _expect(self) -> bytes:
        response = self.receive()
        if response is None:
            raise ConnectionResetError("the broker closed the connection")
        return response

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return data
