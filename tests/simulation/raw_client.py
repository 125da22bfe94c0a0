"""A client that says what a test tells it to, in the version that it tells it to."""

import asyncio
import itertools
import struct
from typing import Any

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.headers import decode_response_header, encode_request_header
from odradek.protocol.messages import decode_response, encode_request


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
