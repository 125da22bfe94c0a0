"""Encodes and decodes request and response headers.

```
request   api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string (int16 length) | tags?
response  correlation_id int32 | tags?
```
Tags are present in flexible versions, except in ApiVersions responses, which clients of any version must be able to
read. The only known tag is Odradek's own `PROOF_TAG`, in requests between its brokers.
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from odradek.protocol.api import ApiKey, is_flexible, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.primitives import Meter, encode_tags, malformed, read_tags, skip_tags

_REQUEST: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")
PROOF_TAG: Final = 0x0D8A
PROOF_BYTES: Final = 16
"""The tag and the size of a proof (`broker.security.request_proofs`)."""
_MOST_TAGS: Final = 64
"""Limit of a header's tagged fields; Kafka defines none."""


class RequestHeader(NamedTuple):
    """A request's header, and the offset of its body in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    proof: bytes = b""


# The cache is bounded because clients choose the numbers.
@lru_cache(maxsize=1024)
def request_is_flexible(api_key: int, version: int) -> bool:
    """Return whether this version's request header has tagged fields; False for unknown versions."""
    return version in schema_versions(api_key) and is_flexible(api_key, version)


def response_is_flexible(api_key: int, version: int) -> bool:
    """Return whether this version's response header has tagged fields."""
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version)


def decode_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Decode the header at the start of `frame`. Raises `MalformedMessageError`."""
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame)
        offset = _REQUEST.size
        client_id, proof = None, b""
        if length >= 0:
            client_id = str(frame[offset : offset + length], "utf-8")
            offset += length
        if request_is_flexible(api_key, version):
            if frame[offset] == 0:
                offset += 1
            else:
                tags, offset = read_tags(frame, offset, (PROOF_TAG,), Meter(_MOST_TAGS))
                proof = bytes(frame[slice(*tags.get(PROOF_TAG, (0, 0)))])
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise malformed("request header", error) from error
    if offset > len(frame):
        raise MalformedMessageError("malformed request header: it is longer than its frame")
    return RequestHeader(api_key, version, correlation_id, client_id, offset, proof)


def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, proof: bytes = b""
) -> bytes:
    """Encode a request header. A version without tagged fields has no room for `proof`."""
    name = b"" if client_id is None else client_id.encode()
    header = _REQUEST.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if not request_is_flexible(api_key, version):
        return header
    return header + encode_tags([(PROOF_TAG, proof)] if proof else [])


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Encode a response header that has no tagged field."""
    header = _CORRELATION.pack(correlation_id)
    return header + b"\x00" if response_is_flexible(api_key, version) else header


def decode_response_header(api_key: int, version: int, frame: bytes | memoryview) -> tuple[int, int]:
    """Return `(correlation_id, offset of the body)`. Raises `MalformedMessageError`."""
    offset = _CORRELATION.size
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        if response_is_flexible(api_key, version):
            offset = skip_tags(frame, offset)
    except (struct.error, IndexError) as error:
        raise malformed("response header", error) from error
    return correlation_id, offset


__all__ = [
    "RequestHeader",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
    "request_is_flexible",
    "response_is_flexible",
]
