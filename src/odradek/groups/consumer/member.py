"""A member of a group of the consumer protocol: its subscription, its epoch and its partitions."""

import uuid
from collections.abc import Collection, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from odradek.model.values import dataclass, field
from odradek.protocol.internal_records.group_records import (
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

JOINING_EPOCH: Final = 0
LEAVING_STATIC_EPOCH: Final = -2
"""The epoch of a static member that left temporarily: its partitions wait for it until its session expires."""

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id, without empty sets."""

Topics = tuple[tuple[str, ...], str]
"""The topic names and the regular expression of a subscription, empty if it has none."""

NO_PARTITIONS: Final[Assignment] = MappingProxyType({})


class MemberState(IntEnum):
    """Where a member is on the way to its target; the numbers are in Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions before it gets the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127
    """A state of another release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    """One member; a record changes it as a whole."""

    member_id: str
    subscription: ConsumerGroupMemberMetadataValue
    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    revoking: Assignment = field(default_factory=dict)
    """Partitions that it must give up, and that nobody else gets until it has."""

    @property
    def topics(self) -> Topics:
        """Return the topic names and the regular expression that it subscribes to."""
        return self.subscription.subscribed_topic_names, self.subscription.subscribed_topic_regex or ""

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes of memory it takes."""
        return subscription_size(*self.topics) + sum(len(each.metadata) for each in self.classic_protocols)

    @property
    def is_classic(self) -> bool:
        """Return whether it uses the classic protocol."""
        return self.subscription.classic_member_metadata is not None

    @property
    def classic_protocols(self) -> tuple[ClassicProtocol, ...]:
        """Return the protocols that a classic member supports, the preferred one first."""
        metadata = self.subscription.classic_member_metadata
        return () if metadata is None else metadata.supported_protocols

    def session_timeout_ms(self, of_group_ms: int) -> int:
        """Return its own session timeout if it is a classic member, else that of the group."""
        metadata = self.subscription.classic_member_metadata
        return of_group_ms if metadata is None else metadata.session_timeout_ms

    @property
    def has_left_temporarily(self) -> bool:
        """Return whether it is static and left temporarily."""
        return self.epoch == LEAVING_STATIC_EPOCH

    def current_assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the value of its record."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=to_record(self.assigned),
            partitions_pending_revocation=to_record(self.revoking),
        )


_MEMBER_BYTES: Final = 2048
"""Memory taken by a member without its subscription, in bytes."""
_TEXT_BYTES: Final = 64
"""Memory taken by a text beside its letters, in bytes."""


def subscription_size(topic_names: Collection[str], regex: str | None) -> int:
    """Return about how many bytes of memory a member with this subscription takes."""
    return _MEMBER_BYTES + sum(map(len, topic_names)) + _TEXT_BYTES * len(topic_names) + len(regex or "")


def to_record(assignment: Assignment) -> tuple[TopicPartitions, ...]:
    """Return an assignment as records have it."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in assignment.items()
    )


def from_record(partitions: tuple[TopicPartitions, ...]) -> Assignment:
    """Return the assignment of a record."""
    return {each.topic_id: frozenset(each.partitions) for each in partitions if each.topic_id and each.partitions}


def to_state(number: int) -> MemberState:
    """Return the state with a number, `UNKNOWN` for one of another release."""
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN
