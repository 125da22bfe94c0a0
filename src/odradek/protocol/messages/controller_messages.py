"""Schemas, in kio's format, of the four messages between controller and brokers that kio lacks.

    LeaderAndIsr 7         controller → broker   leader, followers and ISR of the broker's partitions
    StopReplica 4          controller → broker   replicas to stop, and which of them to delete
    UpdateMetadata 8       controller → broker   the metadata for clients: partitions, live brokers
    ControlledShutdown 3   broker → controller   the broker stops, and requests to move its leaderships

Each has the last version in Kafka 3.9, the last release with ZooKeeper; UpdateMetadata has an additional tagged field.
All are flexible. They are never exchanged with Kafka's brokers: a cluster has only brokers of one kind.
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
from odradek.protocol.field_types import BOOL, ERROR_CODE, INT8, INT16, INT32, INT64, STRING, UUID


class _Part:
    """Attributes of every struct, as in kio's classes."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True


class _LeaderAndIsr(_Part):
    __slots__ = ()
    __version__: ClassVar[i16] = i16(7)
    __api_key__: ClassVar[i16] = i16(ApiKey.LEADER_AND_ISR)


class _StopReplica(_Part):
    __slots__ = ()
    __version__: ClassVar[i16] = i16(4)
    __api_key__: ClassVar[i16] = i16(ApiKey.STOP_REPLICA)


class _UpdateMetadata(_Part):
    __slots__ = ()
    __version__: ClassVar[i16] = i16(8)
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


# ---- LeaderAndIsr ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_LeaderAndIsr):
    """The state of a partition, for its replicas.

    `partition_epoch` is the version of the state's znode. If `is_new`, the broker is not expected to have the log.
    `leader_recovery_state` is 1 from an unclean election until the leader has recovered.
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
    is_new: bool = field(metadata=BOOL, default=False)
    leader_recovery_state: i8 = field(metadata=INT8, default=i8(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(_LeaderAndIsr):
    """Partition states of one topic."""

    topic_name: TopicName = field(metadata=STRING)
    topic_id: uuid.UUID | None = field(metadata=UUID)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_LeaderAndIsr):
    """The inter-broker endpoint of a leader in the request."""

    broker_id: BrokerId = field(metadata=INT32)
    host_name: str = field(metadata=STRING)
    port: i32 = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_Request, _LeaderAndIsr):
    """Leaders and followers of partitions. `type`: 0 unknown, 1 some partitions, 2 all that the broker has (KIP-516).

    `broker_epoch` is the epoch of the receiver's registration; another epoch is refused.
    """

    controller_id: BrokerId = field(metadata=INT32)
    is_k_raft_controller: bool = field(metadata=BOOL, default=False)
    controller_epoch: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64, default=i64(-1))
    type: i8 = field(metadata=INT8)
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(_LeaderAndIsr):
    """The result for one partition."""

    partition_index: i32 = field(metadata=INT32)
    error_code: ErrorCode = field(metadata=ERROR_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_LeaderAndIsr):
    """The results for one topic's partitions."""

    topic_id: uuid.UUID | None = field(metadata=UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_Response, _LeaderAndIsr):
    """The response; `error_code` is STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if the whole request was refused."""

    error_code: ErrorCode = field(metadata=ERROR_CODE)
    topics: tuple[LeaderAndIsrTopicError, ...]


# ---- StopReplica ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(_StopReplica):
    """A replica to stop. `leader_epoch` -2 means that its topic is being deleted, and is not compared."""

    partition_index: i32 = field(metadata=INT32)
    leader_epoch: i32 = field(metadata=INT32, default=i32(-1))
    delete_partition: bool = field(metadata=BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_StopReplica):
    """Replicas of one topic to stop."""

    topic_name: TopicName = field(metadata=STRING)
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_Request, _StopReplica):
    """Replicas to stop; each partition state says whether the log is deleted too."""

    controller_id: BrokerId = field(metadata=INT32)
    is_k_raft_controller: bool = field(metadata=BOOL, default=False)
    controller_epoch: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64, default=i64(-1))
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_StopReplica):
    """The result for one replica; FENCED_LEADER_EPOCH if the broker has a newer leader epoch (KIP-570)."""

    topic_name: TopicName = field(metadata=STRING)
    partition_index: i32 = field(metadata=INT32)
    error_code: ErrorCode = field(metadata=ERROR_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_Response, _StopReplica):
    """The response; `error_code` is STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if the whole request was refused."""

    error_code: ErrorCode = field(metadata=ERROR_CODE)
    partition_errors: tuple[StopReplicaPartitionError, ...]


# ---- UpdateMetadata -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_UpdateMetadata):
    """The state of a partition, for clients.

    `leader` is -2 if its topic is being deleted; `zk_version` is the version of the state's znode.
    """

    partition_index: i32 = field(metadata=INT32)
    controller_epoch: i32 = field(metadata=INT32)
    leader: BrokerId = field(metadata=INT32)
    leader_epoch: i32 = field(metadata=INT32)
    isr: tuple[BrokerId, ...] = field(metadata=INT32)
    zk_version: i32 = field(metadata=INT32)
    replicas: tuple[BrokerId, ...] = field(metadata=INT32)
    offline_replicas: tuple[BrokerId, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_UpdateMetadata):
    """New or changed partitions of one topic."""

    topic_name: TopicName = field(metadata=STRING)
    topic_id: uuid.UUID | None = field(metadata=UUID)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadata):
    """An endpoint of a broker. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    port: i32 = field(metadata=INT32)
    host: str = field(metadata=STRING)
    listener: str = field(metadata=STRING)
    security_protocol: i16 = field(metadata=INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadata):
    """A live broker.

    `epoch` is the epoch of its registration; a leader compares it with a follower's fetch, to detect a restarted
    follower (KIP-841). Kafka's message lacks this field.
    """

    id: BrokerId = field(metadata=INT32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=STRING)
    epoch: i64 = field(metadata={**INT64, "tag": 0}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_Request, _UpdateMetadata):
    """All live brokers, and partitions. `type`: 0 unknown, 1 changed partitions, 2 all partitions (KIP-866)."""

    controller_id: BrokerId = field(metadata=INT32)
    is_k_raft_controller: bool = field(metadata=BOOL, default=False)
    type: i8 = field(metadata={**INT8, "tag": 0}, default=i8(0))
    controller_epoch: i32 = field(metadata=INT32)
    broker_epoch: i64 = field(metadata=INT64, default=i64(-1))
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_Response, _UpdateMetadata):
    """The response. A stale request gets the `error_code` STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH."""

    error_code: ErrorCode = field(metadata=ERROR_CODE)


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
    ApiKey.LEADER_AND_ISR: LeaderAndIsrRequest,
    ApiKey.STOP_REPLICA: StopReplicaRequest,
    ApiKey.UPDATE_METADATA: UpdateMetadataRequest,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
}
RESPONSES: Final[dict[int, Any]] = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrResponse,
    ApiKey.STOP_REPLICA: StopReplicaResponse,
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
}
