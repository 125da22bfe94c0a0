"""The interface `Assignor`, its input `GroupSubscription` and its result `Assignment`."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Protocol

from msgspec import Struct, field

from odradek.model import TopicPartition

Assignment = Mapping[str, Sequence[TopicPartition]]
"""Partitions by member id; members without partitions are included."""

NO_GENERATION = -1
"""The generation of a member that has not joined the group before."""


class MemberSubscription(Struct, frozen=True, kw_only=True):
    """A member's subscribed topics and owned partitions."""

    topics: Collection[str]
    owned: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION
    """The generation in which the member owned `owned`."""
    rack: str | None = None
    instance_id: str | None = None
    """`group.instance.id` of a static member (KIP-345)."""
    user_data: bytes | None = None
    """The bytes that `Assignor.user_data` returned in the member."""


class GroupSubscription(Struct, frozen=True, kw_only=True):
    """The complete input of an assignor."""

    partitions: Mapping[str, int]
    """Partition counts by topic; topics that do not exist are absent."""
    members: Mapping[str, MemberSubscription]
    replica_racks: Mapping[str, Sequence[Collection[str]]] = field(default_factory=dict)
    """By topic, the racks of each partition's replicas (KIP-881); empty if unknown."""
    partition_ids: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """In generation 1, the ascending partition ids by topic; the assignment has positions in these lists."""


class RebalanceProtocol(StrEnum):
    """When members revoke partitions in a rebalance (KIP-429)."""

    EAGER = "eager"
    """A member revokes all partitions before it rejoins."""
    COOPERATIVE = "cooperative"
    """A member rejoins with its partitions, and then revokes those that are not in its new assignment."""


class Assignor(Protocol):
    """An algorithm that assigns every partition of a subscribed topic to one of its subscribers.

    Each consumer has its own instance, which may keep state from `on_assignment` for the next `user_data`.
    """

    name: str
    """The name of the protocol in JoinGroup."""
    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)
    """A consumer is cooperative if all its assignors support `COOPERATIVE`."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the user data of this member's subscription to `topics`, for the leader's assignor."""
        return None

    @abstractmethod
    def assign(self, group: GroupSubscription) -> Assignment:
        """Return the assignment of the group; only its leader calls this."""

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        """Receive the partitions that this member got in `generation`."""
        return


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return member ids in the order that assignors use: static members by instance id, then others by member id."""
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


def subscribers_by_topic(group: GroupSubscription) -> dict[str, list[str]]:
    """Return the subscribers of each existing topic; topics and subscribers are sorted. Equal lists are one object."""
    by_subscription: dict[frozenset[str], list[str]] = {}
    order = {member: position for position, member in enumerate(sorted_members(group.members))}
    for member in order:
        by_subscription.setdefault(frozenset(group.members[member].topics), []).append(member)
    together: dict[str, list[list[str]]] = {}
    for topics, members in by_subscription.items():
        for topic in topics:
            together.setdefault(topic, []).append(members)
    merged: dict[tuple[int, ...], list[str]] = {}

    def subscribers(topic: str) -> list[str]:
        lists = together[topic]
        if len(lists) == 1:
            return lists[0]
        key = tuple(map(id, lists))
        if key not in merged:
            merged[key] = sorted(chain.from_iterable(lists), key=order.__getitem__)
        return merged[key]

    return {topic: subscribers(topic) for topic in sorted(together) if group.partitions.get(topic, 0) > 0}
