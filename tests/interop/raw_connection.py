"""A socket that speaks just enough Kafka to break its rules."""

import contextlib
import socket
import struct
from typing import Any, Final, Self

from odradek.protocol.headers import decode_response_header, encode_request_header
from odradek.protocol.messages import decode_response, encode_request

DEADLINE_S: Final = 60.0
"""For an answer, of a broker that is not alone on its machine."""


class RawConnection:
    """One connection to `servers`; every call has a deadline."""

    def __init__(self, servers: str) -> None:
        host, _, port = servers.partition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """These bytes and no others. A connection that is closed meanwhile is found out by `receive`."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return

    def deadline(self, seconds: float) -> None:
        """What every call from now on has."""
        self._socket.settimeout(seconds)

    def finish(self) -> None:
        """Say that nothing more comes: what was sent is still answered, but nobody is made to wait."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def frame(self, api_key: int, version: int, message: dict[str, Any]) -> bytes:
        """A whole request with its length."""
        self._correlation_id += 1
        body = encode_request_header(api_key, version, self._correlation_id, "raw")
        body += encode_request(api_key, version, message)
        return struct.pack(">i", len(body)) + body

    def receive(self) -> bytes | None:
        """The next response without its length; `None` if the broker closed the connection."""
        head = self._read(4)
        return None if head is None else self._read(struct.unpack(">i", head)[0])

    def ask(self, api_key: int, version: int, message: dict[str, Any]) -> Any:
        """Send a request and decode what comes back, as `version`."""
        self.send(self.frame(api_key, version, message))
        frame = self.receive()
        assert frame is not None, "the broker closed the connection"
        correlation_id, start = decode_response_header(api_key, version, frame)
        assert correlation_id == self._correlation_id
        return decode_response(api_key, version, frame, start)

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
