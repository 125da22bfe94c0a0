"""Records of `__consumer_offsets`, byte for byte as Kafka's message definitions have them (M8)."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

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


def test_keys_are_those_of_kafka():
    assert encode_key(OFFSET_KEY) == b"\0\1\0\1g\0\5topic\0\0\0\3"
    assert encode_key(GROUP_KEY) == b"\0\2\0\1g"
    assert decode_key(encode_key(OFFSET_KEY)) == OFFSET_KEY
    assert decode_key(memoryview(encode_key(GROUP_KEY))) == GROUP_KEY
    assert decode_key(b"\0\0" + encode_key(OFFSET_KEY)[2:]) == OFFSET_KEY


@pytest.mark.parametrize("version", [3, 8, 100, -1])
def test_keys_of_other_group_types_are_named_and_not_decoded(version):
    assert decode_key(version.to_bytes(2, "big", signed=True) + b"whatever") == UnknownKey(version=version)


def test_offsets_are_those_of_kafka():
    assert encode_value(OFFSET) == b"\0\3\0\0\0\0\0\0\1\2\0\0\0\4\0\1m\0\0\0\0\0\0\0\1"
    assert encode_value(OFFSET, 0) == b"\0\0\0\0\0\0\0\0\1\2\0\1m\0\0\0\0\0\0\0\1"
    assert encode_value(OFFSET, 4) == b"\0\4\0\0\0\0\0\0\1\2\0\0\0\4\2m\0\0\0\0\0\0\0\1\0"


def test_an_offset_with_its_own_retention_is_encoded_in_the_version_that_has_it():
    expiring = OffsetCommitValue(offset=258, metadata="m", commit_timestamp=1, expire_timestamp=9)
    encoded = encode_value(expiring)
    assert encoded == b"\0\1\0\0\0\0\0\0\1\2\0\1m\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x09"
    assert decode_value(OFFSET_KEY, encoded) == expiring


def test_groups_are_those_of_kafka():
    start = b"\0\x08consumer\0\0\0\2\0\5range\0\3m-1"
    assert encode_value(GROUP) == b"\0\3" + start + b"\0\0\0\0\0\0\0\5\0\0\0\1" + MEMBER_BYTES
    empty = GroupMetadataValue(protocol_type="consumer", generation=2, protocol=None, leader=None)
    assert encode_value(empty, 0) == b"\0\0\0\x08consumer\0\0\0\2\xff\xff\xff\xff\0\0\0\0"


@pytest.mark.parametrize("version", range(5))
def test_every_version_is_read(version):
    offset = decode_value(OFFSET_KEY, encode_value(OFFSET, version))
    assert (offset.offset, offset.metadata, offset.commit_timestamp) == (258, "m", 1)
    assert offset.leader_epoch == (4 if version >= 3 else -1)
    group = decode_value(GROUP_KEY, encode_value(GROUP, version))
    assert (group.generation, group.protocol, group.leader) == (2, "range", "m-1")
    assert group.current_state_timestamp == (5 if version >= 2 else -1)
    (member,) = group.members
    assert (member.member_id, member.subscription, member.session_timeout) == ("m-1", b"sub", 10_000)
    assert member.rebalance_timeout == (300_000 if version >= 1 else -1)
    assert member.group_instance_id == ("i" if version >= 3 else None)


def test_the_topic_id_of_the_flexible_version_comes_back():
    value = OffsetCommitValue(offset=1, commit_timestamp=2, topic_id=uuid.UUID(int=5))
    assert decode_value(OFFSET_KEY, encode_value(value, 4)) == value


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\5" + bytes(40), b"\xff\xff" + bytes(40)])
@pytest.mark.parametrize("key", [OFFSET_KEY, GROUP_KEY])
def test_values_of_unknown_versions_are_malformed(key, data):
    with pytest.raises(MalformedMessageError):
        decode_value(key, data)


@given(data=st.binary(max_size=60), version=st.integers(0, 4), key=st.sampled_from([OFFSET_KEY, GROUP_KEY]))
def test_random_bytes_are_decoded_or_malformed(data, version, key):
    try:
        decoded = decode_value(key, version.to_bytes(2, "big") + data)
    except MalformedMessageError:
        return
    assert type(decoded) is (OffsetCommitValue if key is OFFSET_KEY else GroupMetadataValue)


@given(data=st.binary(max_size=30), version=st.integers(0, 2))
def test_random_keys_are_decoded_or_malformed(data, version):
    try:
        decoded = decode_key(version.to_bytes(2, "big") + data)
    except MalformedMessageError:
        return
    assert isinstance(decoded, OffsetCommitKey | GroupMetadataKey)
