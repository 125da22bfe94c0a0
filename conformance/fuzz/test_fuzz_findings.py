"""Findings of the fuzzers as permanent cases: the input, and the fault that it showed."""

import struct

import pytest

from conformance.fuzz.fuzz_engine import load
from conformance.fuzz.fuzz_messages import _APIS
from odradek.columns import RecordColumns, decode_batches
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import HEADER_SIZE, read_header, write_header
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError
from odradek.protocol.messages import headers
from odradek.protocol.messages.fetch import decode_fetch_response
from odradek.protocol.messages.message_codec import decode_request, encode_request, milliseconds
from odradek.protocol.messages.produce import decode_produce_response, encode_produce_response
from odradek.protocol.primitives import encode_tags
from odradek.protocol.varint import encode_varint

LONG_MAX = (1 << 63) - 1


def test_times_for_ever_are_no_malformed_message():
    """`retention_time_ms` of 2⁶³ - 1, which is what "for ever" is to Java, cost the connection."""
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}]
    message = {"group_id": "g", "generation_id_or_member_epoch": 1, "member_id": "m", "retention_time": LONG_MAX}
    encoded = encode_request(ApiKey.OFFSET_COMMIT, 2, message | {"topics": topics})
    assert milliseconds(decode_request(ApiKey.OFFSET_COMMIT, 2, encoded).retention_time) > 1 << 55


def test_a_moment_that_python_has_not_is_the_last_that_it_has():
    place = _APIS.index(ApiKey.DESCRIBE_DELEGATION_TOKEN)
    times = struct.pack(">qqq", LONG_MAX, -LONG_MAX, -1)
    token = b"\x00\x01p\x00\x01n" + times + b"\x00\x01t" + struct.pack(">ii", 0, 0)
    load("messages").check(bytes([place, 0, 1]) + b"\x00\x00" + struct.pack(">i", 1) + token + bytes(4))


@pytest.mark.parametrize("size", [8, 10, 200])
def test_a_tagged_field_ends_where_it_says(size):
    """A size that lied let a struct in a tag take bytes that were not its own, and the hand-written codec others."""
    leader = struct.pack(">ii", 1, 2) + b"\x00"
    partition = struct.pack(">ihqqq", 0, 6, -1, -1, -1) + b"\x01\x00"
    right = b"\x02\x02t\x02" + partition + encode_tags([(0, leader)]) + b"\x00" + struct.pack(">i", 0) + b"\x00"
    assert decode_produce_response(10, right).topics[0].partitions[0].current_leader == (1, 2)
    lie = right.replace(b"\x01\x00\x09" + leader, b"\x01\x00" + bytes([size]) + leader)
    with pytest.raises(MalformedMessageError):
        decode_produce_response(10, lie)
    load("produce_and_fetch").check(b"\x01\x07\x00" + lie)


@pytest.mark.parametrize(("api", "version"), [(ApiKey.PRODUCE, 9), (ApiKey.FETCH, 15)])
def test_tags_of_a_later_version_mean_nothing_in_an_earlier_one(api, version):
    """Endpoints of leaders are tag 0 from Produce 10 and Fetch 16 on; what was in that tag before was read as such."""
    head = struct.pack(">ihi", 0, 0, 0) + b"\x01" if api == ApiKey.FETCH else b"\x01" + struct.pack(">i", 0)
    body = head + encode_tags([(0, b"something else")])
    decode = decode_fetch_response if api == ApiKey.FETCH else decode_produce_response
    assert decode(version, body).node_endpoints == []
    with pytest.raises(MalformedMessageError):
        decode(version + 1, body)


def test_an_empty_error_message_is_not_none():
    """Nothing else being said, the hand-written codec made None of it."""
    partition = struct.pack(">ihqqq", 0, 6, -1, -1, -1) + struct.pack(">i", 0) + b"\x00\x00"
    body = struct.pack(">i", 1) + b"\x00\x01t" + struct.pack(">i", 1) + partition + struct.pack(">i", 0)
    answer = decode_produce_response(8, body)
    assert answer.topics[0].partitions[0].error_message == ""
    assert encode_produce_response(8, answer.topics) == body


def test_headers_of_apis_that_are_not_there_leave_nothing_behind():
    """Each number that a client made up stayed in a cache without a limit."""
    for number in range(2000):
        headers.decode_request_header(struct.pack(">hhih", 9999, number, 1, -1))
    assert headers.request_is_flexible.cache_info().currsize <= 1024


# ---- record batches -------------------------------------------------------------------------------------------------


def batch_of(*records: bytes, base_offset: int = 0, base_timestamp: int = 0) -> bytes:
    """A batch of records that are given without their lengths; its CRC is right."""
    batch = bytearray(HEADER_SIZE) + b"".join(encode_varint(len(record)) + record for record in records)
    header = read_header(encode_batch([]))._replace(
        base_offset=base_offset, base_timestamp=base_timestamp, max_timestamp=base_timestamp, record_count=len(records)
    )
    write_header(batch, header)
    return bytes(batch)


def record(time: int = 0, offset: int = 0, headers: bytes = b"\x00") -> bytes:
    return b"\x00" + encode_varint(time) + encode_varint(offset) + b"\x01\x01" + headers


def test_header_counts_whose_sum_or_double_has_more_than_64_bits_are_refused():
    """The compiled walk let 2⁶² pass, since twice that is negative; four of them are 0 in sum. It then made room for no
    header, and wrote the places of all that it found behind that room."""
    lie = record(headers=encode_varint(1 << 62) + b"\x02a\x02b" * 3000)
    batch = batch_of(lie, lie, lie, lie)
    load("columns").check(batch)
    with pytest.raises(CorruptBatchError):
        decode_batches(batch)


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(record(time=1), base_timestamp=LONG_MAX),
        batch_of(record(time=1000), base_timestamp=LONG_MAX - 500),
        batch_of(record(time=-1), base_timestamp=-LONG_MAX - 1),
        batch_of(record(offset=1 << 31)),
        batch_of(record(offset=LONG_MAX)),
        batch_of(record(), base_offset=LONG_MAX - 1),
        batch_of(b"\x00" + b"\xff" * 9 + b"\x7f" + b"\x00\x01\x01\x00"),
        batch_of(b"\x00\x00" + b"\x80" * 9 + b"\x02" + b"\x01\x01\x00"),
    ],
    ids=["time", "later time", "first time", "32 bits", "64 bits", "end of offsets", "70 bits", "65 bits"],
)
def test_numbers_beyond_those_of_kafka_are_refused_by_both_decoders(batch):
    """Plain Python went on above 64 bits, compiled code began anew below zero."""
    load("columns").check(batch)
    with pytest.raises(CorruptBatchError):
        decode_records(batch)
    with pytest.raises(CorruptBatchError):
        decode_batches(batch)


def test_the_last_time_there_is_is_read_and_in_microseconds_it_is_the_last_too():
    """It became one before 1970: a thousand times the largest number has lost its sign."""
    batch = batch_of(record(), base_timestamp=LONG_MAX)
    assert decode_records(batch)[0].timestamp == LONG_MAX
    for unit, expected in (("ms", LONG_MAX), ("us", LONG_MAX // 1000 * 1000)):
        columns = decode_batches(batch, RecordColumns(names=("timestamp",), timestamp_unit=unit))
        assert columns["timestamp"].cast("int64").to_pylist() == [expected]
