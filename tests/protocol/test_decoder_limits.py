"""Requests that claim or bring too much are refused before it costs anything."""

import struct
import tracemalloc

import pytest

from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.message_codec import decode_request, encode_request
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_request, encode_produce_request
from odradek.protocol.primitives import Meter
from odradek.protocol.varint import encode_unsigned_varint

FLAGS = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def metadata_of(*names: str, version: int = 8) -> bytes:
    return encode_request(ApiKey.METADATA, version, {"topics": [{"name": name} for name in names], **FLAGS})


def test_a_body_with_too_many_entries_is_refused_and_one_with_just_enough_is_not() -> None:
    body = metadata_of(*map(str, range(1000)))
    assert len(decode_request(ApiKey.METADATA, 8, body, meter=Meter(1000)).topics) == 1000
    with pytest.raises(MalformedMessageError, match="more than 999 entries"):
        decode_request(ApiKey.METADATA, 8, body, meter=Meter(999))


def test_the_entries_of_nested_arrays_are_counted_together() -> None:
    topics = [
        {"name": f"{topic}", "partitions": [{"partition_index": n, "offset": 0} for n in range(9)]}
        for topic in range(10)
    ]
    body = encode_request(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout": 1})
    assert len(decode_request(ApiKey.DELETE_RECORDS, 2, body, meter=Meter(100)).topics) == 10
    with pytest.raises(MalformedMessageError, match="more than 99 entries"):
        decode_request(ApiKey.DELETE_RECORDS, 2, body, meter=Meter(99))


def test_unknown_tagged_fields_are_counted_and_not_kept() -> None:
    body = encode_request(
        ApiKey.HEARTBEAT, 4, {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    )
    tags = b"".join(encode_unsigned_varint(1000 + tag) + b"\x00" for tag in range(500))
    tagged = body[:-1] + encode_unsigned_varint(500) + tags
    assert decode_request(ApiKey.HEARTBEAT, 4, tagged, meter=Meter(500)).member_id == "m"
    with pytest.raises(MalformedMessageError, match="more than 499 entries"):
        decode_request(ApiKey.HEARTBEAT, 4, tagged, meter=Meter(499))


def test_a_refused_request_allocates_nothing() -> None:
    body = encode_unsigned_varint(10_000_001) + bytes(20_000_000)
    with pytest.raises(MalformedMessageError):
        decode_request(ApiKey.METADATA, 9, body, meter=Meter(1))  # compiles
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError, match="entries"):
            decode_request(ApiKey.METADATA, 9, body, meter=Meter(100_000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_count_that_the_bytes_cannot_hold_is_refused_before_the_first_item() -> None:
    body = struct.pack(">i", 400) + bytes(1000)
    with pytest.raises(MalformedMessageError, match="600 items in"):
        decode_request(ApiKey.METADATA, 4, struct.pack(">i", 600) + bytes(1000))
    assert len(decode_request(ApiKey.METADATA, 4, body).topics) == 400


@pytest.mark.parametrize("version", [8, 9])
def test_a_string_is_never_longer_than_an_int16_can_say(version: int) -> None:
    assert decode_request(ApiKey.METADATA, version, metadata_of("x" * 32_767, version=version))
    if version == 9:
        with pytest.raises(MalformedMessageError, match="a string of 32768 bytes"):
            decode_request(ApiKey.METADATA, version, metadata_of("x" * 32_768, version=version))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_produce_counts_its_partitions_too(version: int) -> None:
    body = b"".join(
        encode_produce_request(
            version, [ProduceTopic("t", None, [(n, None) for n in range(50)])] * 2, acks=1, timeout_ms=1
        )
    )
    assert len(decode_produce_request(version, body, meter=Meter(102)).topics) == 2
    with pytest.raises(MalformedMessageError, match="more than 101 entries"):
        decode_produce_request(version, body, meter=Meter(101))
