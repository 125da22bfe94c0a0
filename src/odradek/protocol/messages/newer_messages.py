"""Schemas of versions newer than kio's, in the format of its dataclasses.

The response of ApiVersions 5 has the fields of version 4.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.request_header.v2.header import RequestHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from odradek.protocol.api import LAST_API_VERSIONS, ApiKey
from odradek.protocol.field_types import INT32, STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """The client's software, and the cluster and broker that it means to reach (KIP-1242); null and -1: any."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(LAST_API_VERSIONS)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ApiKey.API_VERSIONS)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    client_software_name: str = field(metadata=STRING)
    client_software_version: str = field(metadata=STRING)
    cluster_id: str | None = field(metadata=STRING, default=None)
    node_id: i32 = field(metadata=INT32, default=i32(-1))
