"""The records of the group coordinator as values, and their codec for `__consumer_offsets`."""

from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.protocol.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
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
    """The bytes of keys and values, in Kafka's format."""

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        value = None if record.value is None else encode_value(record.value)
        if isinstance(record, GroupMetadataRecord):
            return encode_key(GroupMetadataKey(group=record.group_id)), value
        topic, number = record.partition
        return encode_key(OffsetCommitKey(group=record.group_id, topic=topic, partition=number)), value

    def decode(self, key: bytes | None, value: bytes | None) -> GroupRecord | None:
        known = None if key is None else decode_key(key)
        if isinstance(known, GroupMetadataKey):
            group = None if value is None else decode_value(known, value)
            assert group is None or isinstance(group, GroupMetadataValue)
            return GroupMetadataRecord(known.group, group)
        if isinstance(known, OffsetCommitKey):
            offset = None if value is None else decode_value(known, value)
            assert offset is None or isinstance(offset, OffsetCommitValue)
            return OffsetCommitRecord(known.group, TopicPartition(known.topic, known.partition), offset)
        return None
