"""ApiVersions 5: the cluster and broker that the client means to reach (KIP-1242); the response is version 4's."""

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.api_versions.v4 import request
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.static.primitive import i16, i32

from odradek.protocol.field_types import INT32, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(request.ApiVersionsRequest):
    """Null and -1: any cluster, any broker."""

    __version__: ClassVar[i16] = i16(5)
    cluster_id: str | None = field(metadata=STRING, default=None)
    node_id: i32 = field(metadata=INT32, default=i32(-1))


REQUEST: Final = ApiVersionsRequest
RESPONSE: Final = ApiVersionsResponse
