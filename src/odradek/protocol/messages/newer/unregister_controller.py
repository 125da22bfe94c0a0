"""UnregisterController 0 (Kafka 4.4). The response has the fields of UnregisterBroker's."""

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.unregister_broker.v0.response import UnregisterBrokerResponse
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32

from odradek.protocol.api import ApiKey
from odradek.protocol.field_types import INT32


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerRequest:
    """The controller that is gone for good."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ApiKey.UNREGISTER_CONTROLLER)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    controller_id: i32 = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterControllerResponse(UnregisterBrokerResponse):
    """The result."""

    __api_key__: ClassVar[i16] = i16(ApiKey.UNREGISTER_CONTROLLER)


REQUEST: Final = UnregisterControllerRequest
RESPONSE: Final = UnregisterControllerResponse
