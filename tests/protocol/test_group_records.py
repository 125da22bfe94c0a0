"""Records of `__consumer_offsets`, byte for byte as Kafka's message definitions have them (M8)."""

import dataclasses
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.groups.machine.records import GroupMetadataRecord, GroupRecordCodec, OffsetCommitRecord
from odradek.model import TopicPartition
from odradek.protocol.errors import MalformedMessageError, UnknownRecordVersionError
from odradek.protocol.internal_records.group_records import (
    GROUP_RECORDS,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    TopicMetadata,
    TopicPartitions,
)
from odradek.protocol.internal_records.record_types import UnknownKey

OFFSET_KEY = OffsetCommitKey(group="g", topic="topic", partition=3)
GROUP_KEY = GroupMetadataKey(group="g")
OFFSET = OffsetCommitValue(offset=258, leader_epoch=4, metadata="m", commit_timestamp=1)
MEMBER = MemberMetadata(
    member_id="m-1",
    group_instance_id="i",
    client_id="c",
    client_host="/h",
    rebalance_timeout=300_000,
    session_timeout=10_000,
    subscription=b"sub",
    assignment=b"",
)
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=2,
    protocol="range",
    leader="m-1",
    current_state_timestamp=5,
    members=(MEMBER,),
)
MEMBER_BYTES = b"\0\3m-1\0\1i\0\1c\0\2/h\0\4\x93\xe0\0\0\x27\x10\0\0\0\3sub\0\0\0\0"


TOPIC_ID = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)
ID = TOPIC_ID.bytes


def value_bytes(value: OffsetCommitValue | GroupMetadataValue, version: int | None = None) -> bytes:
    key = OFFSET_KEY if isinstance(value, OffsetCommitValue) else GROUP_KEY
    encoded = GROUP_RECORDS.encode(key, value, version)[1]
    assert encoded is not None
    return encoded


def decode_value(key: object, data: bytes) -> Any:
    return GROUP_RECORDS.decode(GROUP_RECORDS.encode(key, None)[0], data)[1]


def test_keys_are_those_of_kafka():
    assert GROUP_RECORDS.encode(OFFSET_KEY, None) == (b"\0\1\0\1g\0\5topic\0\0\0\3", None)
    assert GROUP_RECORDS.encode(GROUP_KEY, None) == (b"\0\2\0\1g", None)
    assert GROUP_RECORDS.decode(b"\0\1\0\1g\0\5topic\0\0\0\3", None) == (OFFSET_KEY, None)
    assert GROUP_RECORDS.decode(b"\0\0\0\1g\0\5topic\0\0\0\3", None) == (OFFSET_KEY, None)
    assert GROUP_RECORDS.decode(memoryview(b"\0\2\0\1g"), None) == (GROUP_KEY, None)


@pytest.mark.parametrize("number", [9, 10, 15, 17, 100, -1])
def test_keys_of_other_types_are_named_and_not_decoded(number):
    key = number.to_bytes(2, "big", signed=True) + b"whatever"
    assert GROUP_RECORDS.decode(key, b"anything") == (UnknownKey(type=number), None)


def test_offsets_are_those_of_kafka():
    assert value_bytes(OFFSET) == b"\0\3\0\0\0\0\0\0\1\2\0\0\0\4\0\1m\0\0\0\0\0\0\0\1"
    assert value_bytes(OFFSET, 0) == b"\0\0\0\0\0\0\0\0\1\2\0\1m\0\0\0\0\0\0\0\1"
    assert value_bytes(OFFSET, 4) == b"\0\4\0\0\0\0\0\0\1\2\0\0\0\4\2m\0\0\0\0\0\0\0\1\0"
    value = OffsetCommitValue(offset=258, leader_epoch=4, metadata="m", commit_timestamp=1, topic_id=TOPIC_ID)
    tagged = value_bytes(OFFSET, 4)[:-1] + b"\1\0\x10" + ID
    assert value_bytes(value, 4) == tagged
    assert decode_value(OFFSET_KEY, tagged) == value


def test_an_offset_with_its_own_retention_is_encoded_in_the_version_that_has_it():
    codec = GroupRecordCodec()
    value = OffsetCommitValue(offset=258, metadata="m", commit_timestamp=1, expire_timestamp=9)
    record = OffsetCommitRecord("g", TopicPartition("topic", 3), value)
    key, encoded = codec.encode(record)
    assert encoded == b"\0\1\0\0\0\0\0\0\1\2\0\1m\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x09"
    assert codec.decode(key, encoded) == record


def test_groups_are_those_of_kafka():
    start = b"\0\x08consumer\0\0\0\2\0\5range\0\3m-1"
    assert value_bytes(GROUP) == b"\0\3" + start + b"\0\0\0\0\0\0\0\5\0\0\0\1" + MEMBER_BYTES
    empty = GroupMetadataValue(protocol_type="consumer", generation=2, protocol=None, leader=None)
    assert value_bytes(empty, 0) == b"\0\0\0\x08consumer\0\0\0\2\xff\xff\xff\xff\0\0\0\0"


def test_a_group_of_the_flexible_version_has_compact_fields():
    expected = (
        b"\0\4\x09consumer\0\0\0\2\6range\4m-1\0\0\0\0\0\0\0\5\2\4m-1\2i\2c\3/h\0\4\x93\xe0\0\0\x27\x10\4sub\1\0\0"
    )
    assert value_bytes(GROUP, 4) == expected
    assert decode_value(GROUP_KEY, expected) == GROUP


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_read(version):
    offset = decode_value(OFFSET_KEY, value_bytes(OFFSET, version))
    assert (offset.offset, offset.metadata, offset.commit_timestamp) == (258, "m", 1)
    assert offset.leader_epoch == (4 if version >= 3 else -1)
    group = decode_value(GROUP_KEY, value_bytes(GROUP, version))
    assert (group.generation, group.protocol, group.leader) == (2, "range", "m-1")
    assert group.current_state_timestamp == (5 if version >= 2 else -1)
    (member,) = group.members
    assert (member.member_id, member.subscription, member.session_timeout) == ("m-1", b"sub", 10_000)
    assert member.rebalance_timeout == (300_000 if version >= 1 else -1)
    assert member.group_instance_id == ("i" if version >= 3 else None)


CLASSIC = ClassicMemberMetadata(
    session_timeout_ms=5, supported_protocols=(ClassicProtocol(name="range", metadata=b"md"),)
)
PARTITIONS = TopicPartitions(topic_id=TOPIC_ID, partitions=(0, 7))
PARTITIONS_BYTES = ID + b"\3\0\0\0\0\0\0\0\7\0"
CURRENT = CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 7))
CURRENT_WITH_EPOCHS = CurrentTopicPartitions(topic_id=TOPIC_ID, partitions=(0, 7), assignment_epochs=(2, 3))
CURRENT_WITH_EPOCHS_BYTES = PARTITIONS_BYTES[:-1] + b"\1\0\x09\3\0\0\0\2\0\0\0\3"
PLAIN_MEMBER = ConsumerGroupMemberMetadataValue(
    instance_id=None,
    rack_id="r",
    client_id="c",
    client_host="/h",
    subscribed_topic_names=("t", "u"),
    subscribed_topic_regex=None,
    rebalance_timeout_ms=9,
    server_assignor="uniform",
    classic_member_metadata=None,
)
PLAIN_MEMBER_BYTES = b"\0\0\0\2r\2c\3/h\3\2t\2u\0\0\0\0\x09\x08uniform"
CLASSIC_MEMBER = dataclasses.replace(PLAIN_MEMBER, classic_member_metadata=CLASSIC)
EMPTY_MEMBER = dataclasses.replace(PLAIN_MEMBER, classic_member_metadata=ClassicMemberMetadata())
MEMBER_KEY = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
RACKS = PartitionMetadata(partition=1, racks=("a", "b"))
TOPIC = TopicMetadata(topic_id=TOPIC_ID, topic_name="t", num_partitions=2, partition_metadata=(RACKS,))

CONSUMER_GROUP_RECORDS = [
    (ConsumerGroupMetadataKey(group_id="g"), b"\0\3\0\1g", ConsumerGroupMetadataValue(epoch=7), b"\0\0\0\0\0\7\0"),
    (
        ConsumerGroupMetadataKey(group_id="g"),
        b"\0\3\0\1g",
        ConsumerGroupMetadataValue(epoch=7, metadata_hash=-2),
        b"\0\0\0\0\0\7\1\0\x08" + b"\xff" * 7 + b"\xfe",
    ),
    (
        ConsumerGroupPartitionMetadataKey(group_id="g"),
        b"\0\4\0\1g",
        ConsumerGroupPartitionMetadataValue(topics=(TOPIC,)),
        b"\0\0\2" + ID + b"\2t\0\0\0\2\2\0\0\0\1\3\2a\2b\0\0\0",
    ),
    # Of a member without the tag Kafka reads an empty struct, so that null takes a tag of one byte.
    (MEMBER_KEY, b"\0\5\0\1g\0\1m", PLAIN_MEMBER, PLAIN_MEMBER_BYTES + b"\1\0\1\0"),
    (MEMBER_KEY, b"\0\5\0\1g\0\1m", EMPTY_MEMBER, PLAIN_MEMBER_BYTES + b"\0"),
    (
        MEMBER_KEY,
        b"\0\5\0\1g\0\1m",
        CLASSIC_MEMBER,
        PLAIN_MEMBER_BYTES + b"\1\0\x11\1\0\0\0\5\2\6range\3md\0\0",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        b"\0\6\0\1g",
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=8),
        b"\0\0\0\0\0\x08\0",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        b"\0\7\0\1g\0\1m",
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=(PARTITIONS,)),
        b"\0\0\2" + PARTITIONS_BYTES + b"\0",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"),
        b"\0\x08\0\1g\0\1m",
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=3,
            previous_member_epoch=2,
            state=1,
            assigned_partitions=(CURRENT,),
            partitions_pending_revocation=(CURRENT_WITH_EPOCHS,),
        ),
        b"\0\0\0\0\0\3\0\0\0\2\1\2" + PARTITIONS_BYTES + b"\2" + CURRENT_WITH_EPOCHS_BYTES + b"\0",
    ),
    (
        ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="t.*"),
        b"\0\x10\0\1g\0\3t.*",
        ConsumerGroupRegularExpressionValue(topics=("t1",), version=4, timestamp=5),
        b"\0\0\2\3t1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\5\0",
    ),
]


@pytest.mark.parametrize(("key", "key_bytes", "value", "expected"), CONSUMER_GROUP_RECORDS)
def test_records_of_consumer_groups_are_those_of_kafka(key, key_bytes, value, expected):
    assert GROUP_RECORDS.encode(key, value) == (key_bytes, expected)
    assert GROUP_RECORDS.decode(key_bytes, expected) == (key, value)


def test_an_unknown_tagged_field_is_skipped():
    data = b"\0\0\0\0\0\7\2\0\x08" + bytes(7) + b"\1\x7f\3abc"
    decoded = GROUP_RECORDS.decode(b"\0\3\0\1g", data)[1]
    assert decoded == ConsumerGroupMetadataValue(epoch=7, metadata_hash=1)


@pytest.mark.parametrize("data", [b"\0\5" + bytes(40), b"\xff\xff" + bytes(40)])
@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_values_of_unknown_versions_are_distinguished_from_malformed_ones(key, data):
    with pytest.raises(UnknownRecordVersionError, match=r"has version (5|-1); this release knows 0 to 4"):
        decode_value(key, data)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\3", b"\0\3" + bytes(3), b"\0\4" + bytes(8) + b"\xff" * 30])
@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_values_that_end_too_early_or_claim_too_much_are_malformed(key, data):
    with pytest.raises(MalformedMessageError) as caught:
        decode_value(key, data)
    assert not isinstance(caught.value, UnknownRecordVersionError)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1", b"\0\1\0\1g\0\5topic\0\0", b"\0\2\xff\xff"])
def test_keys_that_end_too_early_or_lack_a_string_are_malformed(key):
    with pytest.raises(MalformedMessageError):
        GROUP_RECORDS.decode(key, None)


@given(data=st.binary(max_size=60), version=st.integers(0, 4), key=st.sampled_from([OFFSET_KEY, GROUP_KEY]))
def test_random_bytes_are_decoded_or_malformed(data, version, key):
    try:
        decoded = decode_value(key, version.to_bytes(2, "big") + data)
    except MalformedMessageError:
        return
    assert type(decoded) is (OffsetCommitValue if key is OFFSET_KEY else GroupMetadataValue)


@given(data=st.binary(max_size=30), version=st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 16]))
def test_random_keys_are_decoded_or_malformed(data, version):
    try:
        decoded, _ = GROUP_RECORDS.decode(version.to_bytes(2, "big") + data, None)
    except MalformedMessageError:
        return
    assert GROUP_RECORDS.encode(decoded, None)[0][2:] == data[: len(GROUP_RECORDS.encode(decoded, None)[0]) - 2]


TEXTS = st.text(max_size=20) | st.just("long" * 40)
INT32S = st.integers(-(1 << 31), (1 << 31) - 1)
INT64S = st.integers(-(1 << 63), (1 << 63) - 1)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXTS,
    group_instance_id=st.none() | TEXTS,
    client_id=TEXTS,
    client_host=TEXTS,
    rebalance_timeout=INT32S,
    session_timeout=INT32S,
    subscription=st.binary(max_size=200),
    assignment=st.binary(max_size=20),
)
OFFSETS = st.builds(
    OffsetCommitValue,
    offset=INT64S,
    leader_epoch=INT32S,
    metadata=TEXTS,
    commit_timestamp=INT64S,
    topic_id=st.none() | st.uuids(),
)
GROUPS = st.builds(
    GroupMetadataValue,
    protocol_type=TEXTS,
    generation=INT32S,
    protocol=st.none() | TEXTS,
    leader=st.none() | TEXTS,
    current_state_timestamp=INT64S,
    members=st.lists(MEMBERS, max_size=3).map(tuple),
)


@given(value=OFFSETS | GROUPS, cut=st.integers(0, 10_000))
def test_values_of_the_last_version_are_decoded_as_encoded_and_their_prefixes_refused(value, cut):
    key = OFFSET_KEY if isinstance(value, OffsetCommitValue) else GROUP_KEY
    assert GROUP_RECORDS.decode(*GROUP_RECORDS.encode(key, value, 4)) == (key, value)
    encoded = value_bytes(value, 4)
    with pytest.raises(MalformedMessageError):
        decode_value(key, encoded[: cut % len(encoded)])


@given(value=GROUPS, group=TEXTS)
def test_a_group_is_read_as_it_was_written_and_so_is_its_tombstone(value, group):
    codec = GroupRecordCodec()
    record = GroupMetadataRecord(group, value)
    assert codec.decode(*codec.encode(record)) == record
    tombstone = GroupMetadataRecord(group, None)
    assert codec.decode(*codec.encode(tombstone)) == tombstone
