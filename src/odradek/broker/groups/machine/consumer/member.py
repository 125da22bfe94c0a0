"""A member of a group of the consumer protocol: its subscription, its epoch and its partitions."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Struct, field

from odradek.protocol.internal_records.group_records import (
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
    TopicPartitions,
)

JOINING_EPOCH: Final = 0
LEAVING_STATIC_EPOCH: Final = -2
"""The epoch of a static member that left temporarily and keeps its partitions until its session expires."""

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id, without empty sets."""

Topics = tuple[tuple[str, ...], str]
"""The topic names and the regular expression of a subscription, or "" for none."""

_Partitions = TypeVar("_Partitions", bound=TopicPartitions)

NO_PARTITIONS: Final[Assignment] = MappingProxyType({})


class MemberState(IntEnum):
    """The state of a member's reconciliation, with the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions before it gets the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127
    """A number that this release does not know."""


class ConsumerGroupMember(Struct, frozen=True, kw_only=True):
    """One member of a consumer group."""

    member_id: str
    subscription: ConsumerGroupMemberMetadataValue
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    """Partitions that the member must give up before other members get them."""

    @property
    def topics(self) -> Topics:
        """Return the subscribed topic names and regular expression."""
        return self.subscription.subscribed_topic_names, self.subscription.subscribed_topic_regex or ""

    @property
    def size_bytes(self) -> int:
        """Return the member's approximate memory."""
        return subscription_size(*self.topics) + sum(len(each.metadata) for each in self.classic_protocols)

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic_member_metadata is not None

    @property
    def classic_protocols(self) -> tuple[ClassicProtocol, ...]:
        """Return the protocols that a classic member supports, the preferred one first."""
        metadata = self.subscription.classic_member_metadata
        return () if metadata is None else metadata.supported_protocols

    def session_timeout_ms(self, of_group_ms: int) -> int:
        """Return a classic member's own session timeout; for other members return `of_group_ms`."""
        metadata = self.subscription.classic_member_metadata
        return of_group_ms if metadata is None else metadata.session_timeout_ms

    @property
    def has_left_temporarily(self) -> bool:
        return self.epoch == LEAVING_STATIC_EPOCH

    def current_assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the value of the record of the member's epoch, state and partitions."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=to_record(self.assigned, CurrentTopicPartitions),
            partitions_pending_revocation=to_record(self.revoking, CurrentTopicPartitions),
        )


_MEMBER_BYTES: Final = 2048
"""Memory of a member without its subscription."""
_TEXT_BYTES: Final = 64
"""Memory of a string besides its characters."""


def subscription_size(topic_names: Collection[str], regex: str | None) -> int:
    """Return the approximate memory of a member with this subscription, in bytes."""
    return _MEMBER_BYTES + sum(map(len, topic_names)) + _TEXT_BYTES * len(topic_names) + len(regex or "")


def to_record(assignment: Assignment, kind: type[_Partitions]) -> tuple[_Partitions, ...]:
    return tuple(kind(topic_id=topic_id, partitions=tuple(sorted(numbers))) for topic_id, numbers in assignment.items())


def from_record(partitions: Iterable[TopicPartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in partitions if each.topic_id and each.partitions}


def to_state(number: int) -> MemberState:
    """Return the state with this number; `UNKNOWN` if this release does not know it."""
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN
