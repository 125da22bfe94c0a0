"""The interface of assignors and its values."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Protocol

from odradek.model import TopicPartition
from odradek.model.values import dataclass, field

Assignment = Mapping[str, Sequence[TopicPartition]]
"""Partitions by member id, with every member, also those without partitions."""

NO_GENERATION = -1
"""The generation of a member that never joined the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """A member's subscribed topics and owned partitions."""

    topics: Collection[str]
    owned: Sequence[tuple[str, int]] = ()
    generation: int = NO_GENERATION
    """The generation in which the member owned `owned`."""
    rack: str | None = None
    instance_id: str | None = None
    """`group.instance.id` of a static member (KIP-345)."""
    user_data: bytes | None = None
    """The bytes that the member's assignor returned from `user_data`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubscription:
    """The input of an assignor; its result depends on nothing else."""

    partitions: Mapping[str, int]
    """Partition counts by topic; topics that do not exist are absent."""
    members: Mapping[str, MemberSubscription]
    replica_racks: Mapping[str, Sequence[Collection[str]]] = field(default_factory=dict)
    """The racks that hold a replica, by topic and partition (KIP-881); empty where unknown."""


class RebalanceProtocol(StrEnum):
    """How members give partitions up before they join a group again (KIP-429)."""

    EAGER = "eager"
    """It revokes all of them."""
    COOPERATIVE = "cooperative"
    """It keeps them, and revokes later those that it does not get again."""


class Assignor(Protocol):
    """An algorithm that assigns every partition of a subscribed topic to one of its subscribers.

    Each consumer has an instance of its own, which may keep state between `on_assignment` and `user_data`.
    """

    name: str
    """The name of the protocol in JoinGroup."""
    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)
    """A consumer is cooperative if all its assignors are."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return what this member tells the group's leader beside its subscription to `topics`."""
        return None

    @abstractmethod
    def assign(self, group: GroupSubscription) -> Assignment:
        """Return the assignment, in the group's leader."""

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        """Take note of the partitions that this member has got."""
        return


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return member ids in every assignor's order: static members by instance id, then the others by member id."""
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


def subscribers_by_topic(group: GroupSubscription) -> dict[str, list[str]]:
    """Return the subscribers of every existing topic, both sorted. Equal lists are the same object."""
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
