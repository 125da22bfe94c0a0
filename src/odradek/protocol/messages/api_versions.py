"""Hand-written codec of ApiVersions, versions 0 to 5.

Every connection begins with it, so this module must not import a schema. Version notes: 1 adds the throttle time, 3 is
flexible and adds the client's software (KIP-511) and features (KIP-584), 4 has features whose levels begin at 0
(KIP-1022), 5 adds the broker that the client means to reach (KIP-1242).
"""

import struct
from collections.abc import Collection
from typing import Final, NamedTuple

from odradek.model import Buffer
from odradek.protocol.primitives import (
    DECODE_ERRORS,
    INT32,
    Meter,
    encode_length,
    encode_string,
    encode_tags,
    malformed,
    read_string,
    read_text,
    skip_tags,
)

FLEXIBLE_FROM: Final = 3

_ERROR: Final = struct.Struct(">h")
_API: Final = struct.Struct(">hhh")
_FLEXIBLE_API: Final = struct.Struct(">hhhx")
_LEVELS: Final = struct.Struct(">hhx")
_EPOCH: Final = struct.Struct(">q")
_NOT_THROTTLED: Final = INT32.pack(0)
_NO_TAGS: Final = b"\x00"
_LEVELS_FROM_0: Final = 4
_TARGET_FROM: Final = 5


class Feature(NamedTuple):
    """A feature of the cluster (KIP-584): the levels that a broker supports, and the finalized one."""

    name: str
    lowest: int
    highest: int
    finalized: int


class ApiVersionsRequest(NamedTuple):
    """The client's software, and the cluster and broker that it means to reach; a `cluster_id` of None: any."""

    software_name: str = ""
    software_version: str = ""
    cluster_id: str | None = None
    node_id: int = -1


def decode_api_versions_request(
    version: int, buffer: Buffer, offset: int = 0, *, meter: Meter | None = None
) -> ApiVersionsRequest:
    """Decode a request; fields that its version lacks have their defaults. Raises `MalformedMessageError`."""
    if version < FLEXIBLE_FROM:
        return ApiVersionsRequest()
    cluster_id, node_id = None, -1
    try:
        name, offset = read_text(buffer, offset, flexible=True)
        software_version, offset = read_text(buffer, offset, flexible=True)
        if version >= _TARGET_FROM:
            cluster_id, offset = read_string(buffer, offset, flexible=True)
            (node_id,) = INT32.unpack_from(buffer, offset)
            offset += INT32.size
        skip_tags(buffer, offset, meter)
    except DECODE_ERRORS as error:
        raise malformed("message", error) from error
    return ApiVersionsRequest(name, software_version, cluster_id, node_id)


def encode_api_versions_response(
    version: int,
    api_keys: Collection[tuple[int, int, int]],
    *,
    features: Collection[Feature] = (),
    features_epoch: int = -1,
    error_code: int = 0,
) -> bytes:
    """Encode a response's body; `api_keys` are `(api_key, min_version, max_version)`, and an epoch of -1 is unknown."""
    flexible = version >= FLEXIBLE_FROM
    pack = _FLEXIBLE_API.pack if flexible else _API.pack
    parts = [_ERROR.pack(error_code), encode_length(len(api_keys), flexible=flexible)]
    parts += (pack(*api) for api in api_keys)
    if version >= 1:
        parts.append(_NOT_THROTTLED)
    if flexible:
        parts.append(_features(version, features, features_epoch) if features else _NO_TAGS)
    return b"".join(parts)


def _features(version: int, features: Collection[Feature], epoch: int) -> bytes:
    """Encode the tagged fields of features. Version 3 omits supported ones from level 0, which some clients refuse."""
    supported = [each for each in features if each.lowest > 0 or version >= _LEVELS_FROM_0]
    return encode_tags(
        [
            (0, _feature_levels([(each.name, each.lowest, each.highest) for each in supported])),
            (1, _EPOCH.pack(epoch)),
            (2, _feature_levels([(each.name, each.finalized, each.finalized) for each in features if each.finalized])),
        ]
    )


def _feature_levels(levels: Collection[tuple[str, int, int]]) -> bytes:
    parts = [encode_length(len(levels), flexible=True)]
    parts += (encode_string(name, flexible=True) + _LEVELS.pack(*pair) for name, *pair in levels)
    return b"".join(parts)
