"""Puts the throttle time into a response that is encoded already: it is known only when the response is."""

from dataclasses import fields
from functools import cache
from typing import Final

from odradek.broker.serving.apis import apis
from odradek.broker.serving.responses import frame
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import RequestHeader, response_is_flexible
from odradek.protocol.messages.produce import decode_produce_response, encode_produce_response
from odradek.protocol.messages.schemas import load_response_schema
from odradek.protocol.primitives import INT32, read_count
from odradek.wire import Buffers

_HEAD_BYTES: Final = 8
_FIELD: Final = "throttle_time"
_FIXED_BYTES: Final = {"error_code": 2}
"""The sizes of fields before the throttle time."""
_API_BYTES: Final = 6
"""The size of an API in ApiVersions; flexible versions add the tags."""
_API_VERSIONS_FLEXIBLE_FROM: Final = 3


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
        if version not in apis()[api_key].served or not version:
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
