"""Hand-written codec of ApiVersions, versions 0 to 4.

Every connection begins with it, so this module must not import a schema. Version notes: 1 adds the throttle time, 3 is
flexible and adds the client's software (KIP-511).
"""

import struct
from collections.abc import Collection
from typing import Final

from odradek.model import Buffer
from odradek.protocol.primitives import DECODE_ERRORS, INT32, Meter, encode_length, malformed, read_text, skip_tags

FLEXIBLE_FROM: Final = 3

_ERROR: Final = struct.Struct(">h")
_API: Final = struct.Struct(">hhh")
_FLEXIBLE_API: Final = struct.Struct(">hhhx")
_NOT_THROTTLED: Final = INT32.pack(0)
_NO_TAGS: Final = b"\x00"


def decode_api_versions_request(
    version: int, buffer: Buffer, offset: int = 0, *, meter: Meter | None = None
) -> tuple[str, str]:
    """Return the client's software name and version, empty before version 3. Raises `MalformedMessageError`."""
    if version < FLEXIBLE_FROM:
        return "", ""
    try:
        name, offset = read_text(buffer, offset, flexible=True)
        software_version, offset = read_text(buffer, offset, flexible=True)
        skip_tags(buffer, offset, meter)
    except DECODE_ERRORS as error:
        raise malformed("message", error) from error
    return name, software_version


def encode_api_versions_response(
    version: int, api_keys: Collection[tuple[int, int, int]], *, error_code: int = 0
) -> bytes:
    """Encode a response's body; `api_keys` are `(api_key, min_version, max_version)`."""
    flexible = version >= FLEXIBLE_FROM
    pack = _FLEXIBLE_API.pack if flexible else _API.pack
    parts = [_ERROR.pack(error_code), encode_length(len(api_keys), flexible=flexible)]
    parts += (pack(*api) for api in api_keys)
    if version >= 1:
        parts.append(_NOT_THROTTLED)
    if flexible:
        parts.append(_NO_TAGS)
    return b"".join(parts)
