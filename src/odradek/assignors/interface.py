"""What an assignor sees, and what it is. A user's own class fits `Assignor` without inheriting anything."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from odradek.model import TopicPartition
from odradek.model.values import dataclass, field

Assignment = Mapping[str, Sequence[TopicPartition]]
"""Partitions by member id; every member is there, those without a partition too."""

NO_GENERATION = -1
"""The generation of a member that was never in the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What one member wants and what it had."""

    topics: Collection[str]
    owned: Sequence[TopicPartition] = ()
    generation: int = NO_GENERATION
    """The generation in which `owned` was its own."""
    rack: str | None = None
    instance_id: str | None = None
    """`group.instance.id` of a static member (KIP-345)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubscription:
    """All that an assignor may look at; the result depends on nothing else."""

    partitions: Mapping[str, int]
    """How many partitions a topic has; topics that do not exist are absent."""
    members: Mapping[str, MemberSubscription]
    replica_racks: Mapping[str, Sequence[Collection[str]]] = field(default_factory=dict)
    """The racks that hold a replica, by topic and partition (KIP-881); empty where unknown."""


class Assignor(Protocol):
    """A rule that gives every partition of a subscribed topic to one of its subscribers."""

    @property
    def name(self) -> str:
        """What JoinGroup votes on."""

    def assign(self, group: GroupSubscription) -> Assignment:
        """Who gets what. Pure: the leader of a group may be asked again and must say the same."""


def sorted_members(members: Mapping[str, MemberSubscription]) -> list[str]:
    """Member ids in the order of every assignor: static ones first, by instance id, then the others by member id."""
    return sorted(members, key=lambda member: _rank(member, members[member].instance_id))


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


def subscribers_by_topic(group: GroupSubscription) -> dict[str, list[str]]:
    """Sorted subscribers of every topic that exists and has one, topics in order. Equal lists are one object."""
    subscribers: dict[str, list[str]] = {}
    for member in sorted_members(group.members):
        for topic in set(group.members[member].topics):
            subscribers.setdefault(topic, []).append(member)
    shared: dict[tuple[str, ...], list[str]] = {}
    return {
        topic: shared.setdefault(tuple(subscribers[topic]), subscribers[topic])
        for topic in sorted(subscribers)
        if group.partitions.get(topic, 0) > 0
    }
