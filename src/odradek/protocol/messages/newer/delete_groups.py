"""DeleteGroups 3: a text for each group that is not deleted. The request is that of version 2."""

from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.delete_groups.v2 import response
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.static.primitive import i16

from odradek.protocol.field_types import STRING


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletableGroupResult(response.DeletableGroupResult):
    """The result for one group."""

    __version__: ClassVar[i16] = i16(3)
    error_message: str | None = field(metadata=STRING, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse(response.DeleteGroupsResponse):
    """The results."""

    __version__: ClassVar[i16] = i16(3)
    results: tuple[DeletableGroupResult, ...]


REQUEST: Final = DeleteGroupsRequest
RESPONSE: Final = DeleteGroupsResponse
