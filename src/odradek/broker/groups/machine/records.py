"""The records of `__consumer_offsets` as values, and their codec."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from odradek.broker.coordinators.machine import CoordinatorResult, Reply
from odradek.model import TopicPartition
from odradek.protocol.internal_records.group_records import (
    EXPIRING_VERSION,
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.internal_records.record_types import UnknownKey

_CACHED_KEYS: Final = 16_384


class GroupMetadataRecord(NamedTuple):
    """A classic group's generation, members and assignments; a value of None deletes the group."""

    group_id: str
    value: GroupMetadataValue | None


class OffsetCommitRecord(NamedTuple):
    """A group's committed offset of one partition; a value of None deletes the offset."""

    group_id: str
    partition: TopicPartition
    value: OffsetCommitValue | None


class ConsumerGroupRecord(NamedTuple):
    """A record of a consumer group: key and value are types of `group_records`; a value of None is a tombstone."""

    key: Any
    value: Any

    @property
    def group_id(self) -> str:
        group_id: str = self.key.group_id
        return group_id


GroupRecord = GroupMetadataRecord | OffsetCommitRecord | ConsumerGroupRecord


class GroupRecordCodec:
    """Encodes and decodes keys and values, in the versions that Kafka writes."""

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        if isinstance(record, GroupMetadataRecord):
            return GROUP_RECORDS.encode(GroupMetadataKey(group=record.group_id), record.value)
        if isinstance(record, ConsumerGroupRecord):
            return GROUP_RECORDS.encode(record.key, record.value)
        key, value = _offset_commit_key(record.group_id, record.partition), record.value
        if value is None:
            return key, None
        version = EXPIRING_VERSION if value.expire_timestamp >= 0 else None
        return key, GROUP_RECORDS.encode_value(OffsetCommitKey, value, version)

    def decode(self, key: bytes | None, value: bytes | None) -> GroupRecord | None:
        if key is None:
            return None
        known, decoded = GROUP_RECORDS.decode(key, value)
        if isinstance(known, OffsetCommitKey):
            return OffsetCommitRecord(known.group, TopicPartition(known.topic, known.partition), decoded)
        if isinstance(known, GroupMetadataKey):
            return GroupMetadataRecord(known.group, decoded)
        return None if isinstance(known, UnknownKey) else ConsumerGroupRecord(known, decoded)


@lru_cache(maxsize=_CACHED_KEYS)
def _offset_commit_key(group_id: str, partition: TopicPartition) -> bytes:
    """Return the key of a commit, cached because a group commits the same partitions repeatedly."""
    return GROUP_RECORDS.encode_key(
        OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    )


class ResultBuilder:
    """The records, replies and events of one result for a group."""

    __slots__ = ("events", "key", "records", "replies")

    def __init__(self, key: str) -> None:
        self.key = key
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self.events: list[object] = []

    def reply(self, to: object, value: object) -> None:
        """Reply `value` to `to` after the records are committed."""
        self.replies.append(Reply(to=to, value=value))

    def build(self) -> CoordinatorResult[GroupRecord]:
        return CoordinatorResult(key=self.key, records=self.records, replies=self.replies, events=self.events)


def answer(key: str, to: object, value: object, records: Sequence[GroupRecord] = ()) -> CoordinatorResult[GroupRecord]:
    """Return the result that appends `records` and then replies `value` to one request."""
    return CoordinatorResult(key=key, records=records, replies=(Reply(to=to, value=value),))
