"""Arguments and results of `Admin`: topics, groups, brokers, configuration entries."""

import uuid
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from odradek.clients.arguments import broker_ids, instances_of, whole_number
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.metadata import PartitionMetadata, TopicMetadata
from odradek.config.properties import property_texts
from odradek.model import KafkaError, TopicPartition, address_text
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE, Subscription, decode_assignment, decode_subscription
from odradek.protocol.messages.message_codec import optional


class NewTopic(Struct, frozen=True, kw_only=True):
    """A topic to create; -1 means the cluster's default.

    `assignments` (partition → broker ids) replaces `partitions` and `replication_factor`.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, Any] = field(default_factory=dict)
    assignments: Mapping[int, Iterable[int]] = field(default_factory=dict)

    def message(self) -> dict[str, Any]:
        """Return the topic's entry in CreateTopics. Raises `TypeError` for values of other types."""
        (name,) = instances_of(str, [self.name])
        partitions = whole_number("partitions", self.partitions, bits=32)
        replicas = whole_number("replication_factor", self.replication_factor, bits=16)
        return {
            "name": name,
            "num_partitions": -1 if self.assignments else partitions,
            "replication_factor": -1 if self.assignments else replicas,
            "assignments": [
                {"partition_index": whole_number("a partition", partition, bits=32), "broker_ids": broker_ids(brokers)}
                for partition, brokers in self.assignments.items()
            ],
            "configs": [{"name": key, "value": text} for key, text in property_texts(self.configs).items()],
        }


class TopicDescription(Struct, frozen=True, kw_only=True):
    """A topic with its partitions in ascending order."""

    name: str
    topic_id: uuid.UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]

    @property
    def replication_factor(self) -> int:
        """Return the number of replicas of the first partition; 0 without partitions."""
        return len(next(iter(self.partitions.values())).replicas) if self.partitions else 0


class BrokerDescription(Struct, frozen=True, kw_only=True):
    """A broker; a fenced broker is registered but not alive."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False

    @property
    def address(self) -> str:
        """Host and port as one text."""
        return address_text(self.host, self.port)


class ClusterDescription(Struct, frozen=True, kw_only=True):
    """The brokers, sorted by id; `controller_id` is -1 without a controller."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


class GroupListing(Struct, frozen=True, kw_only=True):
    """A group's id, type and state; a field that the broker is too old to return is empty."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


class MemberDescription(Struct, frozen=True, kw_only=True):
    """A member of a group with its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    topics: tuple[str, ...] = ()
    """The topics to which the member subscribes by name; in a classic group that is not stable empty.

    While a classic group is joining, Odradek's brokers name those of the members that have joined already."""
    rack: str | None = None
    epoch: int | None = None
    """The epoch of a member of a consumer group; None in a classic group."""
    target: tuple[TopicPartition, ...] = ()
    """The member's target assignment in a consumer group."""


class GroupPartition(Struct, frozen=True, kw_only=True):
    """A group's committed offset and lag in a partition; fields are None without a commit, a leader or an owner."""

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag: int | None
    member_id: str | None
    client_id: str | None
    client_host: str | None

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        committed: OffsetAndMetadata | None,
        end_offset: int | None,
        member: MemberDescription | None,
    ) -> "GroupPartition":
        """Create a partition's progress from its committed offset, end offset and owning member; compute the lag."""
        lag = None if committed is None or end_offset is None else max(end_offset - committed.offset, 0)
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            committed_offset=committed.offset if committed is not None else None,
            end_offset=end_offset,
            lag=lag,
            member_id=member.member_id if member is not None else None,
            client_id=member.client_id if member is not None else None,
            client_host=member.client_host if member is not None else None,
        )


class GroupDescription(Struct, frozen=True, kw_only=True):
    """A group with its members and partitions. `protocol` is the assignor, empty while a classic group is unstable."""

    group_id: str
    group_state: str
    protocol_type: str
    protocol: str
    coordinator: BrokerDescription | None
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...] = ()
    epoch: int | None = None
    """The epoch of a consumer group; None for a classic group."""
    assignment_epoch: int | None = None
    """The epoch of the target assignment of a consumer group; None for a classic group."""

    def with_partitions(self, partitions: Iterable[GroupPartition]) -> "GroupDescription":
        """Return a copy with `partitions`."""
        return replace(self, partitions=tuple(partitions))

    @property
    def lag(self) -> int | None:
        """Return the sum of the known lags of the partitions; None if none is known."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None


class ConfigResourceType(IntEnum):
    """The type of a configuration resource, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


class ConfigResource(Struct, frozen=True, kw_only=True):
    """A topic, group, broker or its loggers by name; a broker's name is its id, or empty for all brokers."""

    type: ConfigResourceType
    name: str


class ConfigSource(IntEnum):
    """The source of a configuration value, by Kafka's numbers; unknown numbers become UNKNOWN."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigEntry(Struct, frozen=True, kw_only=True):
    """A configuration key with its value (None if sensitive or unset) and source."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[str, str | None, ConfigSource], ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Return whether the value is the default."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def topic_description(topic: TopicMetadata) -> TopicDescription:
    """Describe a topic from its metadata."""
    return TopicDescription(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=topic.partitions
    )


def group_description(group: Any, coordinator: BrokerDescription | None) -> GroupDescription:
    """Convert a group of a DescribeGroups response (kio's). Without type `consumer`, assignments are empty."""
    return GroupDescription(
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=optional(member, "group_instance_id", None),
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_assignment(group.protocol_type, member.member_assignment),
                topics=(subscription := _subscription(group.protocol_type, member.member_metadata)).topics,
                rack=subscription.rack_id,
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def consumer_group_description(group: Any, coordinator: BrokerDescription | None) -> GroupDescription:
    """Convert a group of a ConsumerGroupDescribe response (kio's)."""
    return GroupDescription(
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        protocol=group.assignor_name,
        coordinator=coordinator,
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        members=tuple(
            MemberDescription(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                assignment=_partitions(member.assignment),
                topics=tuple(member.subscribed_topic_names),
                rack=member.rack_id,
                epoch=member.member_epoch,
                target=_partitions(member.target_assignment),
            )
            for member in sorted(group.members, key=lambda member: member.member_id)
        ),
    )


def _partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


def config_entry(entry: Any) -> ConfigEntry:
    """Convert an entry of a DescribeConfigs response (kio's)."""
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_source(entry.config_source),
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple((each.name, each.value, _source(each.source)) for each in entry.synonyms),
        documentation=optional(entry, "documentation", None),
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN


def _assignment(protocol_type: str, data: bytes) -> tuple[TopicPartition, ...]:
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return tuple(sorted(decode_assignment(data).partitions))
    except KafkaError:
        # An assignment may be any bytes; a malformed one is shown as empty.
        return ()


def _subscription(protocol_type: str, data: bytes) -> Subscription:
    if protocol_type != PROTOCOL_TYPE or not data:
        return Subscription(topics=())
    try:
        return decode_subscription(data)
    except KafkaError:
        # A subscription may be any bytes; a malformed one is shown as empty.
        return Subscription(topics=())
