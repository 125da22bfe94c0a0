"""Builds the records and tombstones of a group of the consumer protocol."""

from odradek.broker.coordinators.machine import Now
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.member import Assignment, ConsumerGroupMember, to_record
from odradek.broker.groups.machine.records import ConsumerGroupRecord
from odradek.protocol.internal_records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
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
