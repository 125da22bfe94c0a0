"""The state of one group of the consumer protocol, replayed from its records."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.consumer.member import (
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupMember,
    MemberState,
    Topics,
    from_record,
    to_record,
    to_state,
)
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest
from odradek.broker.groups.machine.consumer.subscriptions import topics_of_all
from odradek.broker.groups.machine.messages import CommitRequest, FetchOffsetsRequest, JoinRequest
from odradek.broker.groups.machine.records import ConsumerGroupRecord
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE
from odradek.protocol.internal_records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
)

NO_SUBSCRIPTION: Final = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id=None,
    client_id="",
    client_host="",
    subscribed_topic_names=(),
    subscribed_topic_regex=None,
    server_assignor=None,
    classic_member_metadata=None,
)
"""The subscription of a member that has no metadata record."""


class ConsumerGroupState(StrEnum):
    """The state of a group, derived from its epochs and its members."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group's epoch is later than the epoch of its target assignment."""
    RECONCILING = "Reconciling"
    """A member has not reached its target."""
    STABLE = "Stable"


class WaitingJoin(NamedTuple):
    """A member's request whose response waits for new targets."""

    member_id: str
    request: ConsumerGroupHeartbeatRequest | JoinRequest
    to: object
    """The receiver of the reply."""
    after_epoch: int
    """The request waits for targets of a later epoch than this."""


class ConsumerGroup:
    """One group. Only `apply` changes it, except attributes marked as not durable."""

    kind: Final = "consumer"
    protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.regexes: dict[str, tuple[str, ...]] = {}
        """The topics that match each regular expression of members."""
        self.needs_refresh = True
        """Whether topics may have changed since the group's epoch was set; not durable."""
        self.next_assignment_ms = 0
        """The earliest time of the next computation of targets; not durable."""
        self.joins: list[WaitingJoin] = []
        """Requests that wait for the next targets; not durable."""
        self.hashed: tuple[ClusterImage, frozenset[str], int] | None = None
        """`(image, topics, hash)`: the last metadata hash, and what it was computed from; not durable."""
        self.subscriptions: Counter[Topics] = Counter()
        """The number of members with each subscription."""
        self.classic_count = 0
        """The number of members of the classic protocol."""
        self._classic_protocols: Counter[str] = Counter()
        """The number of classic members that support each protocol."""
        self.size_bytes = 0
        """Approximate memory of the members."""
        self._owners: dict[tuple[uuid.UUID, int], str] = {}
        self._static: dict[str, str] = {}
        self._has_record = False
        self._apply: Final[dict[type, Callable[[Any, Any], None]]] = {
            ConsumerGroupMetadataKey: self._apply_metadata,
            ConsumerGroupMemberMetadataKey: self._apply_member,
            ConsumerGroupTargetAssignmentMetadataKey: self._apply_assignment_epoch,
            ConsumerGroupTargetAssignmentMemberKey: self._apply_target,
            ConsumerGroupCurrentMemberAssignmentKey: self._apply_current,
            ConsumerGroupRegularExpressionKey: self._apply_regex,
        }

    # -- durable state -------------------------------------------------------------------------------------------------

    def apply(self, key: Any, value: Any) -> None:
        """Apply a record of the group; a value of None is a tombstone. Unknown key types are ignored."""
        change = self._apply.get(type(key))
        if change is not None:
            change(key, value)

    def _apply_metadata(self, key: ConsumerGroupMetadataKey, value: Any) -> None:
        self._has_record = value is not None
        self.epoch = 0 if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _apply_assignment_epoch(self, key: ConsumerGroupTargetAssignmentMetadataKey, value: Any) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch

    def _apply_member(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        instance_id = None if member is None else member.subscription.instance_id
        if instance_id is not None and self._static.get(instance_id) == key.member_id:
            del self._static[instance_id]
        if member is not None:
            self.size_bytes -= member.size_bytes
            self._count(member, -1)
        if value is None:
            if member is not None:
                self._release(member)
                del self.members[key.member_id]
            return
        if value.instance_id is not None:
            self._static[value.instance_id] = key.member_id
        if member is None:
            changed = ConsumerGroupMember(member_id=key.member_id, subscription=value)
        else:
            changed = replace(member, subscription=value)
        self.members[key.member_id] = changed
        self.size_bytes += changed.size_bytes
        self._count(changed, 1)

    def _apply_target(self, key: ConsumerGroupTargetAssignmentMemberKey, value: Any) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = from_record(value.topic_partitions)

    def _apply_current(self, key: ConsumerGroupCurrentMemberAssignmentKey, value: Any) -> None:
        member = self.members.get(key.member_id)
        if member is not None:
            self._release(member)
        if value is None:
            if member is not None:
                self.members[key.member_id] = ConsumerGroupMember(
                    member_id=key.member_id, subscription=member.subscription
                )
            return
        changed = ConsumerGroupMember(
            member_id=key.member_id,
            # A compacted log may have this record before the member's own.
            subscription=NO_SUBSCRIPTION if member is None else member.subscription,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=to_state(value.state),
            assigned=from_record(value.assigned_partitions),
            revoking=from_record(value.partitions_pending_revocation),
        )
        self.members[key.member_id] = changed
        if member is None:
            self.size_bytes += changed.size_bytes
            self._count(changed, 1)
        for assignment in (changed.assigned, changed.revoking):
            for topic_id, numbers in assignment.items():
                for number in numbers:
                    self._owners[topic_id, number] = key.member_id

    def _apply_regex(self, key: ConsumerGroupRegularExpressionKey, value: Any) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = value.topics

    def _count(self, member: ConsumerGroupMember, change: int) -> None:
        """Add `change` to the counts of a member's subscription and protocols. Delete zero counts, to save memory."""
        self.subscriptions[member.topics] += change
        if not self.subscriptions[member.topics]:
            del self.subscriptions[member.topics]
        self.classic_count += change * member.is_classic
        for name in dict.fromkeys(each.name for each in member.classic_protocols):
            self._classic_protocols[name] += change
            if not self._classic_protocols[name]:
                del self._classic_protocols[name]

    def _release(self, member: ConsumerGroupMember) -> None:
        for assignment in (member.assigned, member.revoking):
            for topic_id, numbers in assignment.items():
                for number in numbers:
                    if self._owners.get((topic_id, number)) == member.member_id:
                        del self._owners[topic_id, number]

    # -- questions -----------------------------------------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        """Return whether the group has no record left."""
        return not (self._has_record or self.members or self.targets or self.regexes or self.assignment_epoch)

    @property
    def is_empty(self) -> bool:
        return not self.members

    is_deletable = is_empty

    @property
    def state(self) -> ConsumerGroupState:
        """Return the group's state, derived from its epochs and its members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self._is_reconciled(member) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def _is_reconciled(self, member: ConsumerGroupMember) -> bool:
        return member.state is MemberState.STABLE and member.epoch == self.assignment_epoch

    @property
    def offset_expiration_condition(self) -> tuple[int, frozenset[str]]:
        return -1, self.subscribed_topics()

    def subscribed_topics(self) -> frozenset[str]:
        return topics_of_all(self.subscriptions, self.regexes)

    @property
    def subscribed_regexes(self) -> set[str]:
        return {regex for _, regex in self.subscriptions if regex}

    def owner(self, topic_id: uuid.UUID, number: int) -> str | None:
        """Return the id of the member that has a partition or is revoking it, if any."""
        return self._owners.get((topic_id, number))

    def static_member(self, instance_id: str) -> ConsumerGroupMember | None:
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def supports_protocols(self, names: Iterable[str]) -> bool:
        """Return whether one of the protocols in `names` is supported by all classic members."""
        return any(self._classic_protocols[name] == self.classic_count for name in names)

    def waits_for_others(self, member: ConsumerGroupMember) -> bool:
        """Return whether another member has, or is revoking, a partition of `member`'s target."""
        return any(
            self.owner(topic_id, number) not in (None, member.member_id)
            for topic_id, numbers in self.target(member.member_id).items()
            for number in numbers
        )

    def target(self, member_id: str) -> Assignment:
        """Return a member's target assignment; empty if it has none."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def member_size_bytes(self, member_id: str) -> int:
        member = self.members.get(member_id)
        return 0 if member is None else member.size_bytes

    # -- checks and deletion -------------------------------------------------------------------------------------------

    def validate_commit(self, request: CommitRequest, now: Now) -> ErrorCode:
        del now
        is_transactional = request.producer is not None
        if is_transactional and request.generation < 0 and not request.member_id and request.instance_id is None:
            return ErrorCode.none  # such a client does not know its member (KIP-447)
        error = self._validate_member_epoch(request.member_id, request.generation)
        if error is ErrorCode.stale_member_epoch:
            return request.stale_epoch_error
        member = self.members.get(request.member_id)
        is_member = request.generation >= 0 and member is not None and not member.is_classic
        if error is ErrorCode.none and is_member and not request.has_member_epoch:
            return ErrorCode.unsupported_version
        return error

    def validate_fetch(self, request: FetchOffsetsRequest) -> ErrorCode:
        if request.member_id is None and request.member_epoch < 0:
            return ErrorCode.none
        return self._validate_member_epoch(request.member_id or "", request.member_epoch)

    def _validate_member_epoch(self, member_id: str, epoch: int) -> ErrorCode:
        """Return an error for an unknown member or another epoch.

        Epoch -1, of a client that is not a member, is valid only while the group has no members.
        """
        if epoch < 0 and not self.members:
            return ErrorCode.none
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if epoch == member.epoch:
            return ErrorCode.none
        return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch

    def tombstones(self) -> list[ConsumerGroupRecord]:
        """Return the tombstones of the group's records, without those of members."""
        group_id = self.group_id
        keys: list[Any] = [
            ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex) for regex in self.regexes
        ]
        keys += [ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=each) for each in self.targets]
        keys.append(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
        keys.append(ConsumerGroupMetadataKey(group_id=group_id))
        return [ConsumerGroupRecord(key, None) for key in keys]


def tombstones(group: ConsumerGroup, member_id: str) -> list[ConsumerGroupRecord]:
    keys = (
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id),
        ConsumerGroupMemberMetadataKey(group_id=group.group_id, member_id=member_id),
    )
    return [ConsumerGroupRecord(key, None) for key in keys]


def epoch_record(group: ConsumerGroup, topics_hash: int, *, after: int = 0) -> ConsumerGroupRecord:
    """Return the record of the next epoch: 1 more than the later of the group's epoch and `after`."""
    value = ConsumerGroupMetadataValue(epoch=max(group.epoch, after) + 1, metadata_hash=topics_hash)
    return ConsumerGroupRecord(ConsumerGroupMetadataKey(group_id=group.group_id), value)


def member_record(group: ConsumerGroup, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    key = ConsumerGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id)
    return ConsumerGroupRecord(key, member.subscription)


def target_record(group: ConsumerGroup, member_id: str, target: Assignment) -> ConsumerGroupRecord:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=to_record(target, TopicPartitions))
    return ConsumerGroupRecord(key, value)


def current_record(group: ConsumerGroup, member: ConsumerGroupMember) -> ConsumerGroupRecord:
    """Return the record of a member's epoch, state and current partitions."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    return ConsumerGroupRecord(key, member.current_assignment())


def target_epoch_record(group: ConsumerGroup, epoch: int) -> ConsumerGroupRecord:
    """Return the record of the epoch for which the targets were computed."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)
    return ConsumerGroupRecord(key, ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))


def regex_record(group: ConsumerGroup, regex: str, topics: tuple[str, ...] | None, now: Now) -> ConsumerGroupRecord:
    """Return the record of the topics that match a regular expression; a tombstone if `topics` is None.

    The record's `version`, in Kafka an offset of the metadata log, is 0, because this coordinator matches expressions
    again after loading.
    """
    key = ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
    if topics is None:
        return ConsumerGroupRecord(key, None)
    return ConsumerGroupRecord(
        key, ConsumerGroupRegularExpressionValue(topics=topics, version=0, timestamp=now.wall_ms)
    )
