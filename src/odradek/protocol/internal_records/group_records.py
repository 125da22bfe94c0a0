"""The records of `__consumer_offsets`, declared as in Kafka 4.3's definitions, with its names, types and versions.

These are committed offsets, classic groups, and groups of the consumer protocol (KIP-848); other keys are decoded as
`UnknownKey`. Times are ms since 1970, timeouts are ms.
"""

import uuid
from dataclasses import dataclass, field
from typing import Final

from odradek.protocol.field_types import BYTES, INT8, INT32, INT64, STRING, UUID
from odradek.protocol.internal_records.record_types import RecordType, RecordTypes

_TAG_0: Final = {"tag": 0}

# ---- committed offsets and classic groups ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """The key of a committed offset. Record types 0 and 1 have the same fields; type 1 is written."""

    group: str = field(metadata=STRING)
    topic: str = field(metadata=STRING)
    partition: int = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue:
    """A committed offset: the next to read. `expire_timestamp` is -1 unless the commit had its own retention time."""

    offset: int = field(metadata=INT64)
    leader_epoch: int = field(metadata={**INT32, "versions": "3+"}, default=-1)
    metadata: str = field(metadata=STRING, default="")
    commit_timestamp: int = field(metadata=INT64)
    expire_timestamp: int = field(metadata={**INT64, "versions": "1"}, default=-1)
    topic_id: uuid.UUID | None = field(metadata={**UUID, **_TAG_0, "versions": "4+"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """The key of a classic group."""

    group: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member of a classic group; `rebalance_timeout` is -1 in records of version 0, which lack it."""

    member_id: str = field(metadata=STRING)
    group_instance_id: str | None = field(metadata={**STRING, "versions": "3+"}, default=None)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    rebalance_timeout: int = field(metadata={**INT32, "versions": "1+"}, default=-1)
    session_timeout: int = field(metadata=INT32)
    subscription: bytes = field(metadata=BYTES)
    assignment: bytes = field(metadata=BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A classic group's generation, protocol, leader and members; an empty group has no members."""

    protocol_type: str = field(metadata=STRING)
    generation: int = field(metadata=INT32)
    protocol: str | None = field(metadata=STRING)
    leader: str | None = field(metadata=STRING)
    current_state_timestamp: int = field(metadata={**INT64, "versions": "2+"}, default=-1)
    members: tuple[MemberMetadata, ...] = ()


# ---- groups of the consumer protocol --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataKey:
    """The key of a group's epoch."""

    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadataValue:
    """A group's epoch. `metadata_hash` is a hash of the subscribed topics, since Kafka 4.1 (KIP-1101)."""

    epoch: int = field(metadata=INT32)
    metadata_hash: int = field(metadata={**INT64, **_TAG_0}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataKey:
    """The key of the topics that a group has subscribed to."""

    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The racks of a partition's replicas. Kafka 4.0 and later leave them out."""

    partition: int = field(metadata=INT32)
    racks: tuple[str, ...] = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """A topic that the group has subscribed to."""

    topic_id: uuid.UUID | None = field(metadata=UUID)
    topic_name: str = field(metadata=STRING)
    num_partitions: int = field(metadata=INT32)
    partition_metadata: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupPartitionMetadataValue:
    """The topics that a group has subscribed to, until Kafka 4.0; later releases record only `metadata_hash`."""

    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataKey:
    """The key of a member's subscription."""

    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicProtocol:
    """An assignor that a classic member supports, and its encoded subscription."""

    name: str = field(metadata=STRING)
    metadata: bytes = field(metadata=BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberMetadata:
    """The additional fields of a classic member in a group of the consumer protocol."""

    session_timeout_ms: int = field(metadata=INT32, default=0)
    supported_protocols: tuple[ClassicProtocol, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMemberMetadataValue:
    """A member's subscription. `classic_member_metadata` is None if the member uses the consumer protocol.

    Kafka reads an absent tag as the empty struct, so that is the default, and None is written as null.
    """

    instance_id: str | None = field(metadata=STRING)
    rack_id: str | None = field(metadata=STRING)
    client_id: str = field(metadata=STRING)
    client_host: str = field(metadata=STRING)
    subscribed_topic_names: tuple[str, ...] = field(metadata=STRING)
    subscribed_topic_regex: str | None = field(metadata=STRING)
    rebalance_timeout_ms: int = field(metadata=INT32, default=-1)
    server_assignor: str | None = field(metadata=STRING)
    classic_member_metadata: ClassicMemberMetadata | None = field(metadata=_TAG_0, default=ClassicMemberMetadata())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The key of the epoch of a group's target assignment."""

    group_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch that the target assignment was computed for."""

    assignment_epoch: int = field(metadata=INT32)
    assignment_timestamp: int = field(metadata={**INT64, **_TAG_0}, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid.UUID | None = field(metadata=UUID)
    partitions: tuple[int, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions of a member's target assignment."""

    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTopicPartitions(TopicPartitions):
    """Partitions of a topic that a member has, with the epochs at which it got them (KIP-1251), which Odradek lacks."""

    assignment_epochs: tuple[int, ...] | None = field(metadata={**INT32, **_TAG_0}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: str = field(metadata=STRING)
    member_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a member has, and those that it must revoke. `state` is Kafka's MemberState."""

    member_epoch: int = field(metadata=INT32)
    previous_member_epoch: int = field(metadata=INT32)
    state: int = field(metadata=INT8)
    assigned_partitions: tuple[CurrentTopicPartitions, ...]
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionKey:
    """The key of a regular expression that members have subscribed to."""

    group_id: str = field(metadata=STRING)
    regular_expression: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that match the expression; `version` is of Kafka's metadata image."""

    topics: tuple[str, ...] = field(metadata=STRING)
    version: int = field(metadata=INT64)
    timestamp: int = field(metadata=INT64)


# ---- types ----------------------------------------------------------------------------------------------------------


def _offset_commit(number: int) -> RecordType:
    return RecordType(
        number=number, key=OffsetCommitKey, value=OffsetCommitValue, last_version=4, flexible_from=4, writes=3
    )


def _consumer_group(number: int, key: type, value: type) -> RecordType:
    return RecordType(number=number, key=key, value=value, flexible_from=0)


EXPIRING_VERSION: Final = 1
"""The only version of `OffsetCommitValue` that has `expire_timestamp`."""

GROUP_RECORDS: Final = RecordTypes(
    _offset_commit(0),
    _offset_commit(1),
    RecordType(number=2, key=GroupMetadataKey, value=GroupMetadataValue, last_version=4, flexible_from=4, writes=3),
    _consumer_group(3, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    _consumer_group(4, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    _consumer_group(5, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    _consumer_group(6, ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    _consumer_group(7, ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    _consumer_group(8, ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    _consumer_group(16, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
