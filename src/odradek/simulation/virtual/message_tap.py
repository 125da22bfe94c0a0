"""Shows a test or a player the requests that arrive at brokers, and their responses, as decoded messages."""

from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from typing import Any, Final

from msgspec import Struct

from odradek.broker.lifecycle import Broker
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_request_header, response_is_flexible
from odradek.protocol.messages.message_codec import decode_request, decode_response
from odradek.wire.connection import Connection
from odradek.wire.reply import LATER, NO_REPLY, Buffers, PendingReply, Reply

_HEADER_BYTES: Final = 8
"""The size of a response frame and its correlation id."""


class TappedRequest(Struct, frozen=True, kw_only=True):
    """A request that has arrived at `broker`; `message` is the decoded one."""

    broker: Broker
    api: ApiKey
    version: int
    client_id: str
    message: Any


class MessageTap:
    """Calls `on_request` when a request of `apis` arrives, and `on_response` before its response is sent.

    Attach it to each broker before the broker starts (`World`'s `before_start`). A response for which `on_response`
    returns False is lost.
    """

    def __init__(
        self,
        apis: Collection[ApiKey],
        on_request: Callable[[TappedRequest], object],
        on_response: Callable[[TappedRequest, Any], bool] | None = None,
    ) -> None:
        self._apis = frozenset(apis)
        self._on_request = on_request
        self._on_response = on_response
        self._waiting: dict[tuple[Connection, int], TappedRequest] = {}
        """Requests that a broker cannot serve yet, and will be given again."""

    def attach(self, broker: Broker) -> None:
        serve = broker.server.serve

        def tapped(connection: Connection, frame: memoryview, *, alone: bool) -> Reply:
            if int.from_bytes(frame[:2], "big") not in self._apis:
                return serve(connection, frame, alone=alone)
            header = decode_request_header(frame)
            key = connection, header.correlation_id
            request = self._waiting.pop(key, None)
            if request is None:
                message = decode_request(header.api_key, header.api_version, bytes(frame[header.body_offset :]))
                request = TappedRequest(
                    broker=broker,
                    api=ApiKey(header.api_key),
                    version=header.api_version,
                    client_id=header.client_id or "",
                    message=message,
                )
                self._on_request(request)
            reply = serve(connection, frame, alone=alone)
            if reply is LATER:
                self._waiting[key] = request
            elif isinstance(reply, PendingReply):
                self._await(request, reply)
            else:
                return self._shown(request, reply)
            return reply

        broker.server.serve = tapped

    def _await(self, request: TappedRequest, reply: PendingReply) -> None:
        if reply.settled:
            reply.buffers = self._shown(request, reply.buffers)
            return
        amend = reply.amend
        reply.amend = lambda buffers: self._shown(request, buffers if amend is None else amend(buffers))

    def _shown(self, request: TappedRequest, buffers: Buffers) -> Buffers:
        if self._on_response is None or not buffers:
            return buffers
        offset = _HEADER_BYTES + response_is_flexible(request.api, request.version)
        message = decode_response(request.api, request.version, b"".join(buffers), offset)
        return buffers if self._on_response(request, message) else NO_REPLY


def message_text(value: Any) -> str:
    """Return a decoded message in short: without names of types and empty fields, and of bytes only the size."""
    if is_dataclass(value) and not isinstance(value, type):
        values = {each.name: getattr(value, each.name) for each in fields(value)}
        return f"({' '.join(f'{key}={message_text(each)}' for key, each in values.items() if each not in _EMPTY)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(message_text, value))}]"
    return f"{len(value)} B" if isinstance(value, bytes | bytearray | memoryview) else str(value)


_EMPTY: Final = (None, (), "", b"")
