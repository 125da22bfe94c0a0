"""How the controller and the brokers of a cluster talk: the four messages that kio lacks, in its shape.

    LeaderAndIsr 7         controller → broker   who leads and follows the partitions that the broker has replicas of
    StopReplica 4          controller → broker   replicas that the broker no longer has; maybe their data goes, too
    UpdateMetadata 8       controller → broker   what the broker tells clients: all partitions, and who is alive
    ControlledShutdown 3   broker → controller   a broker that is about to stop wants to lead nothing any more

Each is the last version that Kafka had, in 3.9, the last release with ZooKeeper, and has one tagged field more. All are
flexible. They never cross from one system to the other: a cluster's brokers are either Kafka's or ours.
"""

import uuid
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from odradek.model.values import dataclass, field
from odradek.protocol.api import ApiKey

_BOOL: Final = {"kafka_type": "bool"}
_INT8: Final = {"kafka_type": "int8"}
_INT16: Final = {"kafka_type": "int16"}
_INT32: Final = {"kafka_type": "int32"}
_INT64: Final = {"kafka_type": "int64"}
_STRING: Final = {"kafka_type": "string"}
_UUID: Final = {"kafka_type": "uuid"}
_ERROR_CODE: Final = {"kafka_type": "error_code"}


class _Part:
    """What kio's readers and writers ask of a struct."""

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
    """What makes a struct a whole request."""

    __slots__ = ()
    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response:
    """What makes a struct a whole response."""

    __slots__ = ()
    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


# ---- LeaderAndIsr ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_LeaderAndIsr):
    """A partition, as its replicas need to know it.

    `partition_epoch` is the version of the state's node. `is_new`: the broker is not expected to have it already.
    `leader_recovery_state` is 1 after an unclean election, until the leader has recovered.
    """

    partition_index: i32 = field(metadata=_INT32)
    controller_epoch: i32 = field(metadata=_INT32)
    leader: BrokerId = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[BrokerId, ...] = field(metadata=_INT32)
    partition_epoch: i32 = field(metadata=_INT32)
    replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    adding_replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    removing_replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    is_new: bool = field(metadata=_BOOL, default=False)
    leader_recovery_state: i8 = field(metadata=_INT8, default=i8(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(_LeaderAndIsr):
    """A topic's partitions that the broker has replicas of."""

    topic_name: TopicName = field(metadata=_STRING)
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_LeaderAndIsr):
    """Where a leader that is named is reached by brokers."""

    broker_id: BrokerId = field(metadata=_INT32)
    host_name: str = field(metadata=_STRING)
    port: i32 = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_Request, _LeaderAndIsr):
    """Lead, or follow. `type`: 0 unknown, 1 some partitions, 2 all that the broker has (KIP-516).

    `broker_epoch` is the receiver's registration, so that one that came back is not taken for the one that left.
    """

    controller_id: BrokerId = field(metadata=_INT32)
    is_k_raft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))
    type: i8 = field(metadata=_INT8)
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(_LeaderAndIsr):
    """What became of a partition."""

    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_LeaderAndIsr):
    """What became of a topic's partitions."""

    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_Response, _LeaderAndIsr):
    """`error_code` is STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if nothing was looked at."""

    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    topics: tuple[LeaderAndIsrTopicError, ...]


# ---- StopReplica ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(_StopReplica):
    """A replica to be stopped; `leader_epoch` -2: whatever the broker knows of it (its topic is deleted)."""

    partition_index: i32 = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32, default=i32(-1))
    delete_partition: bool = field(metadata=_BOOL)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_StopReplica):
    """A topic's replicas to be stopped."""

    topic_name: TopicName = field(metadata=_STRING)
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_Request, _StopReplica):
    """Stop following, and delete what the partition states say."""

    controller_id: BrokerId = field(metadata=_INT32)
    is_k_raft_controller: bool = field(metadata=_BOOL, default=False)
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_StopReplica):
    """What became of a replica; FENCED_LEADER_EPOCH if the broker knows a newer leader (KIP-570)."""

    topic_name: TopicName = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)
    error_code: ErrorCode = field(metadata=_ERROR_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_Response, _StopReplica):
    """`error_code` is STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if nothing was looked at."""

    error_code: ErrorCode = field(metadata=_ERROR_CODE)
    partition_errors: tuple[StopReplicaPartitionError, ...]


# ---- UpdateMetadata -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_UpdateMetadata):
    """A partition, as clients need to know it. `leader` -2: its topic is being deleted. `zk_version`: of its state."""

    partition_index: i32 = field(metadata=_INT32)
    controller_epoch: i32 = field(metadata=_INT32)
    leader: BrokerId = field(metadata=_INT32)
    leader_epoch: i32 = field(metadata=_INT32)
    isr: tuple[BrokerId, ...] = field(metadata=_INT32)
    zk_version: i32 = field(metadata=_INT32)
    replicas: tuple[BrokerId, ...] = field(metadata=_INT32)
    offline_replicas: tuple[BrokerId, ...] = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_UpdateMetadata):
    """Partitions of a topic that are new, or not as they were."""

    topic_name: TopicName = field(metadata=_STRING)
    topic_id: uuid.UUID | None = field(metadata=_UUID)
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_UpdateMetadata):
    """Where a broker answers. `security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    port: i32 = field(metadata=_INT32)
    host: str = field(metadata=_STRING)
    listener: str = field(metadata=_STRING)
    security_protocol: i16 = field(metadata=_INT16)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_UpdateMetadata):
    """A broker that is alive.

    `epoch` is of its registration: a leader tells by it whether a fetch is the follower's that lives (KIP-841). Kafka's
    message does not have it, and its leaders with ZooKeeper could not tell.
    """

    id: BrokerId = field(metadata=_INT32)
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata=_STRING)
    epoch: i64 = field(metadata={**_INT64, "tag": 0}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_Request, _UpdateMetadata):
    """What the cluster looks like: all live brokers, and of the partitions those that changed, or all.

    `type`: 0 unknown, 1 some partitions, 2 all of them (KIP-866).
    """

    controller_id: BrokerId = field(metadata=_INT32)
    is_k_raft_controller: bool = field(metadata=_BOOL, default=False)
    type: i8 = field(metadata={**_INT8, "tag": 0}, default=i8(0))
    controller_epoch: i32 = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_Response, _UpdateMetadata):
    """`error_code` is STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH if it was not believed."""

    error_code: ErrorCode = field(metadata=_ERROR_CODE)


# ---- ControlledShutdown ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(_Request, _ControlledShutdown):
    """The broker is about to stop."""

    broker_id: BrokerId = field(metadata=_INT32)
    broker_epoch: i64 = field(metadata=_INT64, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_ControlledShutdown):
    """A partition that the broker still leads."""

    topic_name: TopicName = field(metadata=_STRING)
    partition_index: i32 = field(metadata=_INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_Response, _ControlledShutdown):
    """The broker may stop without harm if nothing remains, else it asks again."""

    error_code: ErrorCode = field(metadata=_ERROR_CODE)
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
