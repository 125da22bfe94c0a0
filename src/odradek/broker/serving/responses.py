"""Response frames: size, header, body; and the throttle time, which is known only when the rest is encoded."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Final

from odradek.broker.apis import APIS
from odradek.broker.counters import BrokerCounters
from odradek.model import KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import RequestHeader, response_is_flexible
from odradek.protocol.messages.message_codec import encode_response
from odradek.protocol.messages.produce import decode_produce_response, encode_produce_response
from odradek.protocol.messages.schemas import load_response_schema
from odradek.protocol.primitives import INT32, read_count
from odradek.wire.reply import Buffers

_PLAIN: Final = struct.Struct(">ii")
_FLEXIBLE: Final = struct.Struct(">iix")
_HEAD_BYTES: Final = 8
_FIELD: Final = "throttle_time"
_FIXED_BYTES: Final = {"error_code": 2}
"""The sizes of fields before the throttle time."""
_API_BYTES: Final = 6
"""The size of an API in ApiVersions; flexible versions add the tags."""
_API_VERSIONS_FLEXIBLE_FROM: Final = 3


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


def refusal(header: RequestHeader, request: object, error: KafkaError) -> dict[str, object]:
    """Return a response that reports `error` for everything in `request`, the decoded message."""
    from odradek.broker.serving.error_responses import error_response  # its imports are slow, and rarely needed

    return error_response(ApiKey(header.api_key), header.api_version, request, error.code, str(error))


def names_entries(api_key: int, version: int) -> bool:
    """Return whether a `refusal` depends on the request's entries."""
    from odradek.broker.serving.error_responses import names_entries  # its imports are slow, and rarely needed

    return names_entries(ApiKey(api_key), version)


def counted_refusal(counters: BrokerCounters, header: RequestHeader, request: object, error: KafkaError) -> Buffers:
    """Return the frame of a `refusal`, and count its errors: for handlers of frames, which count their own."""
    message = refusal(header, request, error)
    count_errors(counters, header, message)
    return message_frame(header, message)


def count_errors(counters: BrokerCounters, header: RequestHeader, message: Mapping[str, object]) -> None:
    from odradek.broker.serving.error_responses import error_codes  # its imports are slow, and rarely needed

    for code in error_codes(header.api_key, header.api_version, message):
        counters.erred(header.api_key, code)


def message_frame(header: RequestHeader, message: dict[str, object]) -> Buffers:
    """Return the frame of a message in the version of the request."""
    return frame(header, encode_response(header.api_key, header.api_version, message))


def with_throttle_time(header: RequestHeader, buffers: Buffers, throttle_ms: int) -> Buffers:
    """Return a response's frame with this throttle time, if its version has one."""
    if not buffers:
        return buffers
    api_key, version = header.api_key, header.api_version
    data = bytearray(b"".join(buffers))
    body = _HEAD_BYTES + response_is_flexible(api_key, version)
    if api_key == ApiKey.PRODUCE:
        topics, _, endpoints = decode_produce_response(version, data, body)
        encoded = encode_produce_response(version, topics, throttle_time_ms=throttle_ms, node_endpoints=endpoints)
        return frame(header, encoded)
    if api_key == ApiKey.API_VERSIONS:
        if version not in APIS[api_key].served or not version:
            return buffers  # the response to an unknown version is of version 0
        flexible = version >= _API_VERSIONS_FLEXIBLE_FROM
        count, start = read_count(data, body + _FIXED_BYTES["error_code"], flexible=flexible)
        offset: int | None = start + count * (_API_BYTES + flexible)
    else:
        place = throttle_time_offset(api_key, version)
        offset = None if place is None else body + place
    if offset is None:
        return buffers
    INT32.pack_into(data, offset, throttle_ms)
    return (data,)


@cache
def throttle_time_offset(api_key: int, version: int) -> int | None:
    """Return where a response's throttle time is in its body; None if the version has none."""
    from kio.serial._introspect import get_field_tag  # slow to import, and rarely needed

    names = [each.name for each in fields(load_response_schema(api_key, version)) if get_field_tag(each) is None]
    return sum(_FIXED_BYTES[name] for name in names[: names.index(_FIELD)]) if _FIELD in names else None
