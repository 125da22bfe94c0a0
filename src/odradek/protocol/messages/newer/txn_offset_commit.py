"""TxnOffsetCommit 6: topic ids in place of names (KIP-1319). `generation_id` may be a member epoch."""

import uuid
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.txn_offset_commit.v5 import request, response
from kio.static.constants import EntityType
from kio.static.primitive import i16

from odradek.protocol.api import ApiKey
from odradek.protocol.field_types import UUID


class _Topic:
    """Attributes of a nested struct, as in kio's classes."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(6)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ApiKey.TXN_OFFSET_COMMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic(_Topic):
    """Offsets of a topic's partitions."""

    topic_id: uuid.UUID | None = field(metadata=UUID)
    partitions: tuple[request.TxnOffsetCommitRequestPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest(request.TxnOffsetCommitRequest):
    """The offsets, with the group's member and the producer."""

    __version__: ClassVar[i16] = i16(6)
    topics: tuple[TxnOffsetCommitRequestTopic, ...]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponseTopic(_Topic):
    """Errors of a topic's partitions."""

    topic_id: uuid.UUID | None = field(metadata=UUID)
    partitions: tuple[response.TxnOffsetCommitResponsePartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse(response.TxnOffsetCommitResponse):
    """One error for each partition."""

    __version__: ClassVar[i16] = i16(6)
    topics: tuple[TxnOffsetCommitResponseTopic, ...]  # type: ignore[assignment]


REQUEST: Final = TxnOffsetCommitRequest
RESPONSE: Final = TxnOffsetCommitResponse
