"""Computes the target assignment of a consumer group with the assignor that most members request."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from odradek.assignors import GroupSubscription, MemberSubscription
from odradek.broker.groups.machine.consumer.member import NO_PARTITIONS, Assignment, ConsumerGroupMember
from odradek.broker.groups.machine.consumer.subscriptions import replica_racks
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition


class ServerAssignor(Protocol):
    """The interface of an assignor in the coordinator."""

    def assign(self, group: GroupSubscription) -> Mapping[str, Sequence[TopicPartition]]:
        """Return the partitions of each member; `owned` of a member in `group` is its last target."""


class ConsumerGroupSettings(Struct, frozen=True, kw_only=True):
    """The broker's `group.consumer.*` settings of one group."""

    assignors: Mapping[str, ServerAssignor] = field(default_factory=dict)
    """Assignors by name; the first is the default."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignment_interval_ms: int = 1_000
    """The longest pause between two computations of a group's targets."""
    traces_rebalances: bool = False
    """Whether each rebalance is reported with its cause and durations (`group_trace`)."""
    migration_policy: str = "bidirectional"
    """Which conversions of groups with members are allowed: disabled, upgrade, downgrade, bidirectional."""
    regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are matched with all topics again."""


def preferred_assignor(members: Mapping[str, ConsumerGroupMember], assignors: Mapping[str, ServerAssignor]) -> str:
    """Return the name of the assignor that most members request; by default the broker's first one."""
    votes = Counter(
        name for member in members.values() if (name := member.subscription.server_assignor) and name in assignors
    )
    order = {name: position for position, name in enumerate(assignors)}
    return min(votes, key=lambda name: (-votes[name], order[name])) if votes else next(iter(assignors))


def compute_targets(
    what: str,
    members: Mapping[str, ConsumerGroupMember],
    topics: Mapping[str, frozenset[str]],
    previous: Mapping[str, Assignment],
    image: ClusterImage,
    assignors: Mapping[str, ServerAssignor],
) -> dict[str, Assignment]:
    """Return the targets by member id; `topics` and `previous` are subscribed topics and last targets by member id.

    `what` names the epoch and the group in errors. Raises `KafkaError` UNKNOWN_SERVER_ERROR if the assignor fails or
    assigns a partition twice.
    """
    subscriptions = {
        member_id: MemberSubscription(
            topics=topics[member_id],
            owned=_named(previous.get(member_id, NO_PARTITIONS), image),
            rack=member.subscription.rack_id or None,
            instance_id=member.subscription.instance_id,
        )
        for member_id, member in members.items()
    }
    names = frozenset[str]().union(*{id(each): each for each in topics.values()}.values())
    existing = sorted(name for name in names if name in image.topics)
    has_racks = any(each.rack for each in subscriptions.values())
    subscription = GroupSubscription(
        partitions={name: len(image.topics[name].partitions) for name in existing},
        members=subscriptions,
        replica_racks={name: replica_racks(name, image) for name in existing} if has_racks else {},
    )
    name = preferred_assignor(members, assignors)
    try:
        return _by_id(assignors[name].assign(subscription), members, image)
    except Exception as error:  # an installed assignor may raise anything
        raise KafkaError(ErrorCode.unknown_server_error, f"assignor {name} failed for {what}: {error}") from error


def _named(assignment: Assignment, image: ClusterImage) -> list[TopicPartition]:
    """Return the partitions with topic names, without those of deleted topics."""
    return [
        TopicPartition(topic.name, number)
        for topic_id, numbers in assignment.items()
        if (topic := image.topic_by_id(topic_id)) is not None
        for number in numbers
    ]


def _by_id(
    assigned: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, ConsumerGroupMember], image: ClusterImage
) -> dict[str, Assignment]:
    seen: set[tuple[str, int]] = set()
    count = 0
    targets: dict[str, Assignment] = {}
    for member_id in members:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        partitions = assigned.get(member_id, ())
        for topic, number in partitions:
            by_topic[topic].append(number)
        seen.update(partitions)
        count += len(partitions)
        targets[member_id] = {_id(image, topic): frozenset(numbers) for topic, numbers in by_topic.items()}
    if len(seen) != count:
        raise ValueError("it gave a partition to two members")
    return targets


def _id(image: ClusterImage, topic: str) -> uuid.UUID:
    return image.topics[topic].topic_id
