"""Findings of the fuzzers as permanent cases: the input, and the fault that it showed."""

import struct
from dataclasses import replace

import pytest

from conformance.fuzz.fuzz_engine import load
from conformance.fuzz.fuzz_files import _GROUP, _GROUP_KEY, _TRANSACTION, _TRANSACTION_KEY, _record_input
from conformance.fuzz.fuzz_handshakes import stream_of
from conformance.fuzz.fuzz_messages import _APIS
from odradek.broker.log.checkpoints.checkpoint_file import decode_offsets
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.checkpoints.meta_properties import decode_meta_properties
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.segments.offset_index import MAX_RELATIVE_OFFSET
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.segment import Segment
from odradek.columns import RecordColumns, decode_batches
from odradek.config.properties import parse_properties
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import (
    BrokerNode,
    ClusterIdNode,
    ControllerNode,
    PartitionStateNode,
    ProducerIdBlockNode,
    TopicNode,
    decode_integer,
)
from odradek.model import ConfigurationError, parse_host_port
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import HEADER_SIZE, assign_offset, read_header, write_header
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.protocol.errors import CorruptBatchError, MalformedMessageError
from odradek.protocol.internal_records.group_records import GROUP_RECORDS
from odradek.protocol.internal_records.transaction_records import TRANSACTION_RECORDS
from odradek.protocol.messages import headers
from odradek.protocol.messages.fetch import decode_fetch_response
from odradek.protocol.messages.message_codec import decode_request, encode_request, milliseconds
from odradek.protocol.messages.produce import decode_produce_response, encode_produce_response
from odradek.protocol.primitives import encode_tags
from odradek.protocol.varint import encode_varint
from odradek.simulation.virtual.disk import MemoryDisk

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


# ---- Findings in files and nodes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", ["9" * 19, "9" * 20, "1_0", "٣", "+1", "1" * 5000])
def test_a_checkpoint_has_numbers_that_kafka_can_read(number):
    """An offset beyond 64 bits went through, to fail wherever it was packed; 5,000 digits were no DamagedFileError."""
    with pytest.raises(DamagedFileError):
        decode_offsets(f"0\n1\nt 0 {number}\n".encode(), "f")
    with pytest.raises(DamagedFileError):
        decode_offsets(f"0\n{number}\nt 0 5\n".encode(), "f")
    with pytest.raises(DamagedFileError):
        LeaderEpochs.decode(f"0\n1\n{number} 5\n".encode(), "f")
    with pytest.raises(DamagedFileError):
        decode_meta_properties(f"version=0\nbroker.id={number}\n".encode(), "f")


def test_half_a_character_is_none_and_two_halves_are_one():
    """A cluster id with half a character was taken, and could not be sent to anybody."""
    assert parse_properties(r"key=\ud83d\ude00") == {"key": "😀"}
    with pytest.raises(ConfigurationError, match="half a character"):
        parse_properties(r"key=\ud83d")
    assert ClusterIdNode.decode("/p", rb'{"id":"\ud83d\ude00"}').cluster_id == "😀"
    with pytest.raises(BrokenNodeError):
        ClusterIdNode.decode("/p", rb'{"id":"\uD83D"}')


@pytest.mark.parametrize("port", ["0000001234567", "0" * 5000, "65536", "٣"])
def test_a_port_is_one_of_65536(port):
    """Only its first six digits were looked at."""
    with pytest.raises(ConfigurationError):
        parse_host_port(f"host:{port}")


STATE = '{"leader":%s,"leader_epoch":5,"isr":[%s],"controller_epoch":1,"version":1}'


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (PartitionStateNode, STATE % (1 << 31, 1)),
        (PartitionStateNode, STATE % (1, 1 << 31)),
        (ControllerNode, '{"brokerid":2147483648,"timestamp":"5"}'),
        (ControllerNode, '{"brokerid":1,"timestamp":"9223372036854775808"}'),
        (ProducerIdBlockNode, '{"broker":1,"block_start":"0","block_end":"9223372036854775808"}'),
        (TopicNode, '{"partitions":{"2147483648":[1]}}'),
        (TopicNode, '{"partitions":{"00":[1]}}'),
        (BrokerNode, '{"host":"h","port":65536}'),
        (BrokerNode, '{"host":"A://h:1","port":1}'),
    ],
)
def test_a_node_has_numbers_and_names_that_messages_can_carry(kind, data):
    """One foreign node with a large number made every answer fail that it was in."""
    with pytest.raises(BrokenNodeError):
        kind.decode("/path", data.encode())


def test_an_integer_of_a_node_has_64_bits():
    assert decode_integer("/p", b"9223372036854775807") == (1 << 63) - 1
    with pytest.raises(BrokenNodeError):
        decode_integer("/p", b"9223372036854775808")


@pytest.mark.parametrize("offset", [0, 1 << 40, -5])
def test_a_batch_that_is_out_of_place_does_not_keep_a_closed_log_from_being_opened(offset):
    """Where indexes were missing too, its offset was packed into one, and the broker died at every start."""
    disk, config = MemoryDisk(), LogConfig(segment_bytes=100)
    log = Log.open(disk, "/t-0", config, now_ms=5)
    for _ in range(3):
        log.append_as_leader(encode_batch([(5, None, b"v" * 30, ())]), leader_epoch=0, now_ms=5)
        log.write()
    log.close()
    path = f"/t-0/{1:020d}"
    batch = bytearray(disk.read_file(f"{path}.log"))
    assign_offset(batch, 0, offset, 0)
    disk.replace_file(f"{path}.log", bytes(batch))
    disk.remove(f"{path}.index")
    again = Log.open(disk, "/t-0", config, now_ms=5, clean=True)
    assert again.log_end_offset == 3


def test_the_generation_after_the_last_one_of_32_bits_is_the_first():
    """The record of the next rebalance could not be written, so that the group had none any more."""
    group = replace(_GROUP, generation=(1 << 31) - 1)
    record = _record_input(b"g", *GROUP_RECORDS.encode(_GROUP_KEY, group))
    load("coordinators").check(stream_of([record]))


@pytest.mark.parametrize("field", ["producer_epoch", "next_producer_epoch"])
def test_a_transaction_whose_record_has_the_last_epoch_can_be_aborted(field):
    """No producer has this epoch, but a record may; the epoch that should fence it could not be recorded."""
    value = replace(_TRANSACTION, next_producer_id=8, **{field: (1 << 15) - 1})
    record = _record_input(b"t", *TRANSACTION_RECORDS.encode(_TRANSACTION_KEY, value))
    load("coordinators").check(stream_of([record]))


def test_indexes_are_not_rebuilt_from_a_batch_whose_offset_no_index_can_have():
    """Its offset was packed into an index, and the read for which the index was rebuilt failed with `struct.error`."""
    header = read_header(encode_batch([(5, None, b"v", ())]))
    far = header._replace(base_offset=1 << 40)
    segment = Segment(FilePool(MemoryDisk()), "/t-0", 0, LogConfig(index_interval_bytes=50), now_ms=0)
    with pytest.raises(CorruptBatchError):
        list(segment.add_batches([(0, header), (header.size, far)], 2 * header.size, MAX_RELATIVE_OFFSET))
