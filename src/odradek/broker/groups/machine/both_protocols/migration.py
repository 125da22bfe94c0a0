"""The conversion of a group with members between the protocols (KIP-848, `group.consumer.migration.policy`).

A conversion is one batch: tombstones of one protocol, records of the other. Members keep their ids and partitions, and
rejoin. The first member of the consumer protocol converts a group to that protocol. When the last such member left, was
removed, or was replaced by a classic static member, the group is converted back.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Set
from typing import Final
from uuid import UUID

from msgspec import Struct

from odradek.broker.coordinators.machine import Now, Reply
from odradek.broker.groups.machine.classic.classic_group import ClassicGroup, State
from odradek.broker.groups.machine.classic.classic_groups import ClassicGroups
from odradek.broker.groups.machine.classic.members import Member
from odradek.broker.groups.machine.classic.rebalance import prepare_rebalance
from odradek.broker.groups.machine.consumer.consumer_group import (
    ConsumerGroup,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
    tombstones,
)
from odradek.broker.groups.machine.consumer.member import Assignment, ConsumerGroupMember
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.broker.groups.machine.rebalance_trace import Cause
from odradek.broker.groups.machine.records import ConsumerGroupRecord, GroupMetadataRecord, GroupRecord, ResultBuilder
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from odradek.protocol.consumer_protocol import Assignment as EmbeddedAssignment
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)

_UPGRADES: Final = ("upgrade", "bidirectional")
_DOWNGRADES: Final = ("downgrade", "bidirectional")


class Upgrade(Struct, frozen=True, kw_only=True):
    """A classic group converted to the consumer protocol, and the records of the conversion."""

    group: ConsumerGroup
    records: list[GroupRecord]


class Migration:
    """Conversions between `classic` groups and consumer groups."""

    def __init__(self, classic: ClassicGroups, settings: Callable[[str], ConsumerGroupSettings]) -> None:
        self._classic = classic
        self._settings = settings
        self._successors: dict[str, ClassicGroup] = {}
        """Classic groups that replace a consumer group when the tombstones of that group are applied."""

    # -- classic → consumer --------------------------------------------------------------------------------------------

    def upgrade(self, classic: ClassicGroup, image: ClusterImage) -> Upgrade:
        """Return the conversion of a group to the consumer protocol; the caller adds the new member in the same batch.

        Raises `KafkaError` GROUP_ID_NOT_FOUND if the policy forbids it, the group is too large, or its members do not
        use the embedded protocol `consumer` or have unreadable metadata.
        """
        settings, group_id = self._settings(classic.group_id), classic.group_id
        if settings.migration_policy not in _UPGRADES:
            text = f"group {group_id} has classic members; group.consumer.migration.policy={settings.migration_policy}"
            raise KafkaError(ErrorCode.group_id_not_found, text)
        if classic.members and classic.protocol_type != PROTOCOL_TYPE:
            text = f"group {group_id} has members of the protocol type {classic.protocol_type}, not {PROTOCOL_TYPE}"
            raise KafkaError(ErrorCode.group_id_not_found, text)
        members = [member for member in classic.members if not member.is_new]
        if len(members) >= settings.max_size:
            text = f"group {group_id} has more members than group.consumer.max.size={settings.max_size}"
            raise KafkaError(ErrorCode.group_id_not_found, text)
        try:
            upgraded = _upgraded_members(classic, members, image)
        except MalformedMessageError as error:
            text = f"the metadata of a member of group {group_id} cannot be read: {error}"
            raise KafkaError(ErrorCode.group_id_not_found, text) from error
        group = ConsumerGroup(group_id)
        records = _consumer_records(group, upgraded, classic.generation) if upgraded else []
        for record in records:
            group.apply(record.key, record.value)
        return Upgrade(group=group, records=[GroupMetadataRecord(group_id, None), *records])

    def upgraded(self, classic: ClassicGroup) -> list[Reply]:
        """End the requests that wait in a converted group, and return their replies, REBALANCE_IN_PROGRESS."""
        out = ResultBuilder(classic.group_id)
        for member in classic.members:
            classic.fail_join(member, ErrorCode.rebalance_in_progress, "" if member.is_new else member.member_id, out)
            classic.fail_sync(member, ErrorCode.rebalance_in_progress, out)
        return out.replies

    # -- consumer → classic --------------------------------------------------------------------------------------------

    def downgrade(
        self, group: ConsumerGroup, without: Collection[str], cause: Cause, image: ClusterImage, now: Now
    ) -> ResultBuilder | None:
        """Convert a group to a classic one if the members `without` are its last ones of the consumer protocol.

        The classic group starts a rebalance with `cause`. Return None if the group is not converted, also
        because of the policy, too many members, or no common protocol.
        """
        group_id, settings = group.group_id, self._settings(group.group_id)
        stay = [member for member_id, member in group.members.items() if member_id not in without]
        if (
            not stay
            or not all(each.is_classic for each in stay)
            or all(group.members[each].is_classic for each in without)
        ):
            return None
        classic = self._classic.new(group_id)
        if settings.migration_policy not in _DOWNGRADES or len(stay) > classic.settings.max_size:
            return None
        for member in stay:
            classic.members.add(_downgraded_member(member))
        if not classic.members.has_common_protocol:
            return None
        out = ResultBuilder(group_id)
        out.records += _tombstones(group)
        classic.protocol_type, classic.state = PROTOCOL_TYPE, State.STABLE
        assignments = {member.member_id: embedded_assignment(member, image) for member in stay}
        value = classic.new_record(group.epoch, classic.members.select_protocol(), assignments, now.wall_ms)
        out.records.append(GroupMetadataRecord(group_id, value))
        classic.apply(value)
        for loaded in classic.members:
            classic.reschedule_heartbeat(loaded, now.ms)
        prepare_rebalance(classic, cause, now, out)
        for waiting in group.joins:
            out.reply(waiting.to, KafkaError(ErrorCode.rebalance_in_progress))
        group.joins.clear()
        self._successors[group_id] = classic
        return out

    def replace(self, group: ConsumerGroup, classic: ClassicGroup) -> list[ConsumerGroupRecord]:
        """Return the tombstones of a group without members that `classic` replaces."""
        self._successors[group.group_id] = classic
        return group.tombstones()

    def take_successor(self, group_id: str) -> ClassicGroup | None:
        """Remove and return the classic group that replaces a consumer group, which is gone; None if there is none."""
        return self._successors.pop(group_id, None)

    def reset(self, group_id: str) -> None:
        """Drop the classic group of records that could not be appended."""
        classic = self._successors.pop(group_id, None)
        if classic is not None:
            classic.clear_deadlines()


# ---- the parts of a conversion --------------------------------------------------------------------------------------


def _upgraded_members(
    classic: ClassicGroup, members: Iterable[Member], image: ClusterImage
) -> list[ConsumerGroupMember]:
    """Return the members with their partitions. Raises `MalformedMessageError` if their data is unreadable."""
    found: list[ConsumerGroupMember] = []
    taken: set[TopicPartition] = set()
    assigned_to_any = frozenset(
        each for data in classic.assignments.values() for each in decode_assignment(data).partitions
    )
    for member in members:
        metadata = member.metadata(classic.protocol_name) or member.protocols[0][1]
        subscription = decode_subscription(metadata)
        assignment = decode_assignment(classic.assignment(member.member_id)).partitions
        listed = still_listed(subscription, assigned_to_any)
        owned = [each for each in dict.fromkeys((*assignment, *listed)) if each not in taken]
        taken.update(owned)
        assigned = by_id(owned, image)
        protocols = tuple(ClassicProtocol(name=name, metadata=data) for name, data in member.protocols)
        found.append(
            ConsumerGroupMember(
                member_id=member.member_id,
                epoch=classic.generation,
                previous_epoch=classic.generation,
                assigned=assigned,
                subscription=ConsumerGroupMemberMetadataValue(
                    instance_id=member.instance_id,
                    rack_id=subscription.rack_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=tuple(sorted(set(subscription.topics))),
                    subscribed_topic_regex=None,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    server_assignor=None,
                    classic_member_metadata=ClassicMemberMetadata(
                        session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols
                    ),
                ),
            )
        )
    return found


def still_listed(subscription: Subscription, assigned: Set[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that a member listed as owned when it joined, and that are assigned to no member.

    A cooperative member may still own them; when it joins the converted group, it lists those that it still owns.
    """
    return [each for each in subscription.owned_partitions if each not in assigned]


def _consumer_records(
    group: ConsumerGroup, members: Iterable[ConsumerGroupMember], generation: int
) -> list[ConsumerGroupRecord]:
    """Return the records of a converted group. Its epoch is `generation`; the targets are the members' partitions."""
    members = list(members)
    group.epoch = generation - 1  # the record is of the next epoch
    records = [member_record(group, member) for member in members]
    records.append(epoch_record(group, 0))
    records += [target_record(group, member.member_id, member.assigned) for member in members]
    records.append(target_epoch_record(group, generation))
    records += [current_record(group, member) for member in members]
    return records


def _downgraded_member(member: ConsumerGroupMember) -> Member:
    subscription = member.subscription
    return Member(
        member_id=member.member_id,
        instance_id=subscription.instance_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        session_timeout_ms=member.session_timeout_ms(0),
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        protocols=tuple((each.name, each.metadata) for each in member.classic_protocols),
        former_epoch=member.epoch,
    )


def _tombstones(group: ConsumerGroup) -> list[ConsumerGroupRecord]:
    """Return the tombstones of a group and its members, one per key."""
    records = [record for member_id in group.members for record in tombstones(group, member_id)]
    return list({record.key: record for record in (*records, *group.tombstones())}.values())


def by_id(partitions: Iterable[TopicPartition], image: ClusterImage) -> Assignment:
    """Return the partitions by topic id, without those that do not exist."""
    found: defaultdict[UUID, set[int]] = defaultdict(set)
    for name, number in partitions:
        topic = image.topics.get(name)
        if topic is not None and number in topic.partitions:
            found[topic.topic_id].add(number)
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}


def embedded_assignment(member: ConsumerGroupMember, image: ClusterImage) -> bytes:
    """Return a classic member's partitions as an encoded assignment, in the version of its subscription."""
    partitions = tuple(
        TopicPartition(topic.name, number)
        for topic_id, numbers in member.assigned.items()
        if (topic := image.topic_by_id(topic_id)) is not None
        for number in sorted(numbers)
    )
    version = subscription_version(member.classic_protocols[0].metadata) if member.classic_protocols else 0
    return encode_assignment(EmbeddedAssignment(partitions=partitions), version)
