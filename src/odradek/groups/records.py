"""The records of the group coordinator as values, and their codec for `__consumer_offsets`."""

from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.protocol.group_records import (
    EXPIRING_VERSION,
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


class GroupMetadataRecord(NamedTuple):
    """A classic group after a change of its generation; a value of None deletes it."""

    group_id: str
    value: GroupMetadataValue | None


class OffsetCommitRecord(NamedTuple):
    """The committed offset of a group for one partition; a value of None deletes it."""

    group_id: str
    partition: TopicPartition
    value: OffsetCommitValue | None


GroupRecord = GroupMetadataRecord | OffsetCommitRecord


class GroupRecordCodec:
    """The bytes of keys and values, in the versions that Kafka writes."""

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        if isinstance(record, GroupMetadataRecord):
            return GROUP_RECORDS.encode(GroupMetadataKey(group=record.group_id), record.value)
        topic, number = record.partition
        expires = record.value is not None and record.value.expire_timestamp >= 0
        return GROUP_RECORDS.encode(
            OffsetCommitKey(group=record.group_id, topic=topic, partition=number),
            record.value,
            EXPIRING_VERSION if expires else None,
        )

    def decode(self, key: bytes | None, value: bytes | None) -> GroupRecord | None:
        if key is None:
            return None
        known, decoded = GROUP_RECORDS.decode(key, value)
        if isinstance(known, OffsetCommitKey):
            return OffsetCommitRecord(known.group, TopicPartition(known.topic, known.partition), decoded)
        if isinstance(known, GroupMetadataKey):
            return GroupMetadataRecord(known.group, decoded)
        return None
