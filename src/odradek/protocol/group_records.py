"""Keys and values of `__consumer_offsets` for classic groups, in Kafka's format.

```
key    version int16: 0, 1 offset commit: group string | topic string | partition int32
                      2 group metadata:   group string
value  version int16, then
  offset commit 0-4   offset int64 | 3+: leader_epoch int32 | metadata string | commit_timestamp int64
                      1: expire_timestamp int64 | 4+: tag 0 topic_id uuid
  group metadata 0-4  protocol_type string | generation int32 | protocol string? | leader string?
                      2+: current_state_timestamp int64 | members [ member_id string | 3+: group_instance_id string?
                      client_id string | client_host string | 1+: rebalance_timeout int32 | session_timeout int32
                      subscription bytes | assignment bytes ]
```
Version 4 of both is flexible; Kafka writes 3 (and 1 for an offset with an expiry time of its own), and so do we. A
null value is a tombstone of the offset or the group. Times are ms since 1970, time-outs are ms.
"""

import struct
import uuid
from typing import Final

from odradek.model.values import dataclass
from odradek.protocol.compression import Buffer
from odradek.protocol.primitives import (
    DECODE_ERRORS,
    INT16,
    INT32,
    encode_length,
    encode_string,
    encode_tags,
    malformed,
    read_count,
    read_string,
    read_tags,
    read_text,
    read_uuid,
    read_view,
    skip_tags,
)

_INT64: Final = struct.Struct(">q")
_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_VALUE_VERSION: Final = 3
_EXPIRING_VERSION: Final = 1
_FLEXIBLE_FROM: Final = 4
_LAST_VERSION: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataKey:
    """The key of a group's metadata."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKey:
    """A key of a version that is skipped: KIP-848 and share groups write more kinds into the same topic."""

    version: int


Key = OffsetCommitKey | GroupMetadataKey | UnknownKey


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue:
    """The next offset to read. `expire_timestamp` is -1 unless the commit asked for its own retention time."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int
    expire_timestamp: int = -1
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member of a classic group; `rebalance_timeout` is -1 in records of version 0, which had none."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    rebalance_timeout: int = -1
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """A classic group after a change of its generation; without members it is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int = -1
    members: tuple[MemberMetadata, ...] = ()


Value = OffsetCommitValue | GroupMetadataValue


def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    """Encode a record's key."""
    group = encode_string(key.group, flexible=False)
    if isinstance(key, GroupMetadataKey):
        return INT16.pack(_GROUP_KEY_VERSION) + group
    topic = encode_string(key.topic, flexible=False)
    return INT16.pack(_OFFSET_KEY_VERSION) + group + topic + INT32.pack(key.partition)


def decode_key(data: Buffer) -> Key:
    """Decode a record's key. Raises `MalformedMessageError`."""
    try:
        (version,) = INT16.unpack_from(data)
        if not 0 <= version <= _GROUP_KEY_VERSION:
            return UnknownKey(version=version)
        group, offset = read_text(data, INT16.size, flexible=False)
        if version == _GROUP_KEY_VERSION:
            return GroupMetadataKey(group=group)
        topic, offset = read_text(data, offset, flexible=False)
        return OffsetCommitKey(group=group, topic=topic, partition=INT32.unpack_from(data, offset)[0])
    except DECODE_ERRORS as error:
        raise malformed("key of a group record", error) from error


def encode_value(value: Value, version: int | None = None) -> bytes:
    """Encode a record's value, in the version that Kafka would write unless `version` names one."""
    if isinstance(value, GroupMetadataValue):
        return _encode_group(value, _VALUE_VERSION if version is None else version)
    if version is None:
        version = _VALUE_VERSION if value.expire_timestamp < 0 else _EXPIRING_VERSION
    return _encode_offset(value, version)


def decode_value(key: Key, data: Buffer) -> Value:
    """Decode the value that belongs to `key`. Raises `MalformedMessageError`, also for a version later than 4."""
    view = memoryview(data)
    try:
        (version,) = INT16.unpack_from(view)
        if not 0 <= version <= _LAST_VERSION:
            raise ValueError(f"its version {version} is not known")
        if isinstance(key, OffsetCommitKey):
            return _decode_offset(view, version)
        if isinstance(key, GroupMetadataKey):
            return _decode_group(view, version)
        raise ValueError(f"its key has the unknown version {key.version}")
    except DECODE_ERRORS as error:
        raise malformed("value of a group record", error) from error


def _encode_offset(value: OffsetCommitValue, version: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    body = bytearray(INT16.pack(version))
    body += _INT64.pack(value.offset)
    if version >= 3:
        body += INT32.pack(value.leader_epoch)
    body += encode_string(value.metadata, flexible=flexible)
    body += _INT64.pack(value.commit_timestamp)
    if version == _EXPIRING_VERSION:
        body += _INT64.pack(value.expire_timestamp)
    if flexible:
        body += encode_tags([] if value.topic_id is None else [(0, value.topic_id.bytes)])
    return bytes(body)


def _decode_offset(view: memoryview, version: int) -> OffsetCommitValue:
    flexible = version >= _FLEXIBLE_FROM
    (committed,) = _INT64.unpack_from(view, 2)
    offset = 10
    leader_epoch, expire_timestamp, topic_id = -1, -1, None
    if version >= 3:
        (leader_epoch,) = INT32.unpack_from(view, offset)
        offset += 4
    metadata, offset = read_text(view, offset, flexible=flexible)
    (commit_timestamp,) = _INT64.unpack_from(view, offset)
    offset += 8
    if version == _EXPIRING_VERSION:
        (expire_timestamp,) = _INT64.unpack_from(view, offset)
    if flexible:
        tags, _ = read_tags(view, offset, (0,))
        if 0 in tags:
            topic_id, _ = read_uuid(view, tags[0][0])
    return OffsetCommitValue(
        offset=committed,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )


def _encode_group(value: GroupMetadataValue, version: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    body = bytearray(INT16.pack(version))
    body += encode_string(value.protocol_type, flexible=flexible)
    body += INT32.pack(value.generation)
    body += encode_string(value.protocol, flexible=flexible)
    body += encode_string(value.leader, flexible=flexible)
    if version >= 2:
        body += _INT64.pack(value.current_state_timestamp)
    body += encode_length(len(value.members), flexible=flexible)
    for member in value.members:
        body += encode_string(member.member_id, flexible=flexible)
        if version >= 3:
            body += encode_string(member.group_instance_id, flexible=flexible)
        body += encode_string(member.client_id, flexible=flexible)
        body += encode_string(member.client_host, flexible=flexible)
        if version >= 1:
            body += INT32.pack(member.rebalance_timeout)
        body += INT32.pack(member.session_timeout)
        for data in (member.subscription, member.assignment):
            body += encode_length(len(data), flexible=flexible)
            body += data
        if flexible:
            body.append(0)
    if flexible:
        body.append(0)
    return bytes(body)


def _decode_group(view: memoryview, version: int) -> GroupMetadataValue:
    flexible = version >= _FLEXIBLE_FROM
    protocol_type, offset = read_text(view, INT16.size, flexible=flexible)
    (generation,) = INT32.unpack_from(view, offset)
    protocol, offset = read_string(view, offset + 4, flexible=flexible)
    leader, offset = read_string(view, offset, flexible=flexible)
    current_state_timestamp = -1
    if version >= 2:
        (current_state_timestamp,) = _INT64.unpack_from(view, offset)
        offset += 8
    count, offset = read_count(view, offset, flexible=flexible)
    members = []
    for _ in range(count):
        member, offset = _decode_member(view, offset, version)
        members.append(member)
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        current_state_timestamp=current_state_timestamp,
        members=tuple(members),
    )


def _decode_member(view: memoryview, offset: int, version: int) -> tuple[MemberMetadata, int]:
    flexible = version >= _FLEXIBLE_FROM
    member_id, offset = read_text(view, offset, flexible=flexible)
    group_instance_id, rebalance_timeout = None, -1
    if version >= 3:
        group_instance_id, offset = read_string(view, offset, flexible=flexible)
    client_id, offset = read_text(view, offset, flexible=flexible)
    client_host, offset = read_text(view, offset, flexible=flexible)
    if version >= 1:
        (rebalance_timeout,) = INT32.unpack_from(view, offset)
        offset += 4
    (session_timeout,) = INT32.unpack_from(view, offset)
    subscription, offset = read_view(view, offset + 4, flexible=flexible)
    assignment, offset = read_view(view, offset, flexible=flexible)
    if flexible:
        offset = skip_tags(view, offset)
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
        subscription=bytes(subscription or b""),
        assignment=bytes(assignment or b""),
    ), offset
