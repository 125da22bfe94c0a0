"""Schemas, in kio's format, of the messages between controller and brokers that kio lacks.

    UpdateMetadata 9       controller → broker   partitions, live brokers, and replicas to stop
    ControlledShutdown 3   broker → controller   the broker stops, and requests to move its leaderships

ControlledShutdown is Kafka 3.9's, the last release with ZooKeeper. UpdateMetadata has another format than Kafka's last
version, 8: it contains what Kafka's LeaderAndIsr and StopReplica add, so that a broker needs one request. Both are
flexible. They are never exchanged with Kafka's brokers: a cluster has only brokers of one kind.
"""

import uuid
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from odradek.protocol.api import ApiKey
from odradek.protocol.field_types import BOOL, ERROR_CODE, INT8, INT32, INT64, STRING, UUID


class _Part:
    """Attributes of every struct, as in kio's classes."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True


class _UpdateMetadata(_Part):
    __slots__ = ()
    __version__: ClassVar[i16] = i16(9)
    __api_key__: ClassVar[i16] = i16(ApiKey.UPDATE_METADATA)


class _ControlledShutdown(_Part):
    __slots__ = ()
    __version__: ClassVar[i16] = i16(3)
    __api_key__: ClassVar[i16] = i16(ApiKey.CONTROLLED_SHUTDOWN)


class _Request:
    """Attributes of a request's top-level struct."""

    __slots__ = ()
    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response:
    """Attributes of a response's top-level struct."""

    __slots__ = ()
    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


# ---- UpdateMetadata -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_UpdateMetadata):
    """The state of a partition.

    `partition_epoch` is the version of the state's znode. `leader_recovery_state` is 1 from an unclean election until
    the leader has recovered.
    """

    partition_index: i32 = field(metadata=INT32)
    controller_epoch: i32 = field(metadata=INT32)
    leader: BrokerId = field(metadata=INT32)
    leader_epoch: i32 = field(metadata=INT32)
    isr: tuple[BrokerId, ...] = field(metadata=INT32)
    partition_epoch: i32 = field(metadata=INT32)
    replicas: tuple[BrokerId, ...] = field(metadata=INT32)
    adding_replicas: tuple[BrokerId, ...] = field(metadata=INT32)
    removing_replicas: tuple[BrokerId, ...] = field(metadata=INT32)
    leader_recovery_state: i8 = field(metadata=INT8, default=i8(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_UpdateMetadata):
    """New or changed partitions of one topic; a deleted topic has none."""

    topic_name: TopicName = field(metadata=STRING)
    topic_id: uuid.UUID | None = field(metadata=UUID)
    is_deleted: bool = field(metadata=BOOL, default=False)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadata):
    """An endpoint of a broker."""

    port: i32 = field(metadata=INT32)
    host: str = field(metadata=STRING)
    listener: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadata):
    """A live broker.

    `epoch` is the epoch of its registration; a leader compares it with a follower's fetch, to detect a restarted
    follower (KIP-841).
    """

    id: BrokerId = field(metadata=INT32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=STRING)
    epoch: i64 = field(metadata=INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataStop(_UpdateMetadata):
    """A replica to stop, and to delete if `delete_partition`.

    A broker that knows a newer leader epoch keeps it (KIP-570). `leader_epoch` -2 means that its topic is being
    deleted, and is not compared.
    """

    topic_name: TopicName = field(metadata=STRING)
    partition_index: i32 = field(metadata=INT32)
    leader_epoch: i32 = field(metadata=INT32)
    delete_partition: bool = field(metadata=BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_Request, _UpdateMetadata):
    """All live brokers, all partitions (`is_full`) or the changed ones, and replicas to stop after that.

    `broker_epoch` is the epoch of the receiver's registration; another epoch is refused.
    """

    controller_id: BrokerId = field(metadata=INT32)
    controller_epoch: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64)
    is_full: bool = field(metadata=BOOL)
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]
    stops: tuple[UpdateMetadataStop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionError(_UpdateMetadata):
    """A replica of the broker whose log it cannot use."""

    topic_name: TopicName = field(metadata=STRING)
    partition_index: i32 = field(metadata=INT32)
    error_code: ErrorCode = field(metadata=ERROR_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_Response, _UpdateMetadata):
    """The response: the errors of the broker's replicas in the request, without those that have none.

    `error_code` is STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if the whole request was refused.
    """

    error_code: ErrorCode = field(metadata=ERROR_CODE)
    partition_errors: tuple[UpdateMetadataPartitionError, ...]


# ---- ControlledShutdown ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(_Request, _ControlledShutdown):
    """A broker's notice that it stops."""

    broker_id: BrokerId = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_ControlledShutdown):
    """A partition that the broker still leads."""

    topic_name: TopicName = field(metadata=STRING)
    partition_index: i32 = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_Response, _ControlledShutdown):
    """The partitions that the broker still leads. The broker repeats the request until there are none."""

    error_code: ErrorCode = field(metadata=ERROR_CODE)
    remaining_partitions: tuple[RemainingPartition, ...]


REQUESTS: Final[dict[int, Any]] = {
    ApiKey.UPDATE_METADATA: UpdateMetadataRequest,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
}
RESPONSES: Final[dict[int, Any]] = {
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
}
