"""Response frames: size, header, body."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from odradek.broker.counters import BrokerCounters
from odradek.model import KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import RequestHeader, response_is_flexible
from odradek.protocol.messages.message_codec import encode_response
from odradek.wire import Buffers

_PLAIN: Final = struct.Struct(">ii")
_FLEXIBLE: Final = struct.Struct(">iix")


def frame(header: RequestHeader, body: bytes | bytearray) -> Buffers:
    """Return the frame in one piece, for small bodies."""
    if response_is_flexible(header.api_key, header.api_version):
        return (_FLEXIBLE.pack(len(body) + 5, header.correlation_id) + body,)
    return (_PLAIN.pack(len(body) + 4, header.correlation_id) + body,)


def gathered_frame(header: RequestHeader, pieces: Sequence[bytes | bytearray | memoryview]) -> Buffers:
    """Return the frame in pieces; nothing is copied."""
    size = sum(map(len, pieces))
    if response_is_flexible(header.api_key, header.api_version):
        return (_FLEXIBLE.pack(size + 5, header.correlation_id), *pieces)
    return (_PLAIN.pack(size + 4, header.correlation_id), *pieces)


def refusal(header: RequestHeader, request: Any, error: KafkaError) -> dict[str, Any]:
    """Return a response that reports `error` for everything in `request`, the decoded message."""
    from odradek.broker.serving.error_responses import error_response  # its imports are slow, and rarely needed

    return error_response(ApiKey(header.api_key), header.api_version, request, error.code, str(error))


def names_entries(api_key: int, version: int) -> bool:
    """Return whether a `refusal` depends on the request's entries."""
    from odradek.broker.serving.error_responses import names_entries  # its imports are slow, and rarely needed

    return names_entries(ApiKey(api_key), version)


def counted_refusal(counters: BrokerCounters, header: RequestHeader, request: Any, error: KafkaError) -> Buffers:
    """Return the frame of a `refusal`, and count its errors: for handlers of frames, which count their own."""
    from odradek.broker.serving.response_errors import count_errors  # its imports are slow, and rarely needed

    message = refusal(header, request, error)
    count_errors(counters, header, message)
    return message_frame(header, message)


def message_frame(header: RequestHeader, message: dict[str, object]) -> Buffers:
    """Return the frame of a message in the version of the request."""
    return frame(header, encode_response(header.api_key, header.api_version, message))
