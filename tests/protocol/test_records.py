"""Records in batches, compared with two Python clients' codecs in both directions, and on changed bytes (M1)."""

import struct
from contextlib import suppress
from typing import Any
from unittest import mock

import kafka.record
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import records as records_module
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    read_header,
    set_log_append_time,
    verify_crc,
    write_header,
)
from odradek.protocol.batches.records import (
    NO_HEADERS,
    Record,
    decode_records,
    encode_batch,
    encode_headers,
    encode_record,
    encode_rows,
    parse_records,
    record_size_bound,
)
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.varint import VARINTS, encode_varint, read_varint, varint

NULLABLE_BYTES = st.none() | st.binary(max_size=40) | st.integers(60, 9000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=3)
RECORDS = st.lists(
    st.tuples(st.integers(0, 2**42), NULLABLE_BYTES, NULLABLE_BYTES, HEADERS.map(tuple)), min_size=1, max_size=30
)
EXAMPLES = [
    (1_700_000_000_000, b"key", b"value", ()),
    (1_700_000_000_005, None, b"value", (("name", b"content"), ("name", None), ("é", b""))),
    (1_699_999_999_000, b"", None, ()),
    (1_700_000_900_000, bytes(200), bytes(20_000), (("", bytes(200)),)),
]


def plain(records):
    return [(r.offset, r.timestamp, r.key, r.value, tuple(tuple(h) for h in r.headers)) for r in records]


@given(records=RECORDS, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**50))
def test_records_are_decoded_unchanged(records, codec, base_offset):
    data = encode_batch(records, codec=codec, base_offset=base_offset)
    assert verify_crc(data, 0, read_header(data))
    assert decode_records(data) == [Record(base_offset + n, *record) for n, record in enumerate(records)]
    assert read_header(data).max_timestamp == max(record[0] for record in records)


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_aiokafka_decodes_batches_encoded_here(records, codec):
    data = bytes(encode_batch(records, codec=codec, base_offset=3))
    other = DefaultRecordBatch(data)
    assert other.validate_crc()
    assert plain(other) == [(3 + n, *record) for n, record in enumerate(records)]


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_batches_of_aiokafka_are_decoded_and_encoded_identically(records, codec):
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, list(headers))
    data = bytes(builder.build())
    assert decode_records(data) == [Record(n, *record) for n, record in enumerate(records)]
    if codec == Codec.NONE:
        assert data == encode_batch(records, leader_epoch=read_header(data).partition_leader_epoch)


@pytest.mark.parametrize("codec", Codec)
def test_kafka_python_decodes_batches_encoded_here(codec):
    data = bytes(encode_batch(EXAMPLES, codec=codec, base_offset=3))
    (other,) = list(_batches(kafka.record.MemoryRecords(data)))
    assert other.validate_crc()
    assert plain(other) == [(3 + n, *record) for n, record in enumerate(EXAMPLES)]


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_kafka_python_are_decoded_here(codec):
    builder = kafka.record.MemoryRecordsBuilder(2, codec, 1 << 20, producer_id=9, producer_epoch=1, base_sequence=8)
    for timestamp, key, value, headers in EXAMPLES:
        builder.append(timestamp, key, value, list(headers))
    builder.close()
    data = bytes(builder.buffer())
    assert read_header(data).producer_id == 9
    assert decode_records(data) == [Record(n, *record) for n, record in enumerate(EXAMPLES)]


def _batches(memory_records):
    while memory_records.has_next():
        yield memory_records.next_batch()


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_rows_are_encoded_as_records_are(records, codec):
    timestamps, keys, values, headers = zip(*records, strict=True)
    encoded = [encode_headers(each) if each else NO_HEADERS for each in headers]
    size = len(encode_batch(records))
    identity = {"producer_id": 1, "producer_epoch": 2, "base_sequence": 3, "is_transactional": True}
    batch = encode_rows(timestamps, keys, values, encoded, size, codec=codec, **identity)
    assert batch == encode_batch(records, codec=codec, **identity)


def test_a_batch_without_records_keeps_its_offsets():
    data = encode_batch([], base_offset=8)
    header = read_header(data)
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 8, 8)
    assert decode_records(data) == []


def test_more_records_than_the_table_of_varints_has_entries():
    records = [(n * 3, None, b"v", ()) for n in range(len(VARINTS) + 100)]
    assert decode_records(encode_batch(records)) == [Record(n, *record) for n, record in enumerate(records)]


def test_log_append_time_replaces_the_records_own():
    data = encode_batch(EXAMPLES)
    set_log_append_time(data, 0, read_header(data), 77)
    assert {record.timestamp for record in decode_records(data)} == {77}


def test_a_batch_in_the_middle_of_a_buffer_is_decoded():
    first = encode_batch(EXAMPLES[:1])
    buffer = memoryview(first + encode_batch(EXAMPLES[1:2], base_offset=1) + b"more")
    assert decode_records(buffer, len(first)) == [Record(1, *EXAMPLES[1])]


def test_a_header_name_that_is_not_utf_8_gets_replacement_characters():
    body = b"\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x01"
    data = bytearray(HEADER_SIZE) + varint(len(body)) + body
    write_header(data, read_header(encode_batch([(0, None, None, ())])))
    assert decode_records(data)[0].headers == (("��", None),)


@given(records=RECORDS)
def test_the_size_bound_holds(records):
    for timestamp, key, value, headers in records:
        assert len(encode_record(timestamp, 8191, key, value, headers)) <= record_size_bound(key, value, headers)


# ---- lies -----------------------------------------------------------------------------------------------------------


@given(records=RECORDS, place=st.integers(0), value=st.integers(0, 255), codec=st.sampled_from(Codec))
def test_a_changed_byte_gives_records_or_a_kafka_error(records, place, value, codec):
    data = encode_batch(records, codec=codec)
    data[place % len(data)] = value
    with suppress(CorruptBatchError):
        assert all(type(record) is Record for record in decode_records(data, max_bytes=1 << 22))


@given(section=st.binary(max_size=60), count=st.integers(-3, 30))
def test_random_records_give_records_or_a_kafka_error(section, count):
    header = read_header(encode_batch([]))._replace(record_count=count)
    with suppress(CorruptBatchError):
        assert len(parse_records(header, section)) == count


@given(cut=st.integers(0))
def test_a_truncated_batch_is_corrupt(cut):
    data = encode_batch(EXAMPLES)
    with pytest.raises(CorruptBatchError):
        decode_records(data[: cut % len(data)])


@pytest.mark.parametrize("count", [-1, 3, 5, 2**31 - 1])
def test_a_wrong_number_of_records_is_corrupt(count):
    data = encode_batch(EXAMPLES)
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(CorruptBatchError):
        decode_records(data)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_claims_too_many_records_is_refused(codec):
    bomb = encode_batch([(0, None, bytes(32 << 20), ())], codec=codec)
    with pytest.raises(CorruptBatchError):
        decode_records(bomb, max_bytes=1 << 20)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x00\x00\x01\x01\x01",  # -1 headers
        b"\x00\x00\x00\x01\x01\x02\x01\x01",  # a header whose key is null
        b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f",  # two thousand million headers
        b"\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00",  # a key longer than everything
        b"\x00" + b"\x80" * 11 + b"\x00\x00\x01\x01\x00",  # a varint that does not end
    ],
)
def test_impossible_records_are_corrupt(body):
    header = read_header(encode_batch([]))._replace(record_count=1)
    with pytest.raises(CorruptBatchError):
        parse_records(header, varint(len(body)) + body)


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_are_decoded_unchanged(value):
    encoded = encode_varint(value)
    assert varint(value) == encoded
    assert read_varint(encoded + b"more", 0) == (value, len(encoded))
    for cut in range(len(encoded)):
        with pytest.raises(IndexError):
            read_varint(encoded[:cut], 0)


@given(
    records=st.lists(
        st.tuples(
            st.integers(-1, 2**62),
            st.one_of(st.none(), st.binary(max_size=4)),
            st.one_of(st.none(), st.binary(max_size=80)),
            st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2),
        ),
        min_size=5,
        max_size=12,
    ),
    spoils=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=2),
    changes=st.sampled_from([{}, {}, {"attributes": LOG_APPEND_TIME}, {"base_offset": 2**63 - 9}, {"record_count": 6}]),
)
def test_the_library_and_python_find_the_same_records(
    records: Any, spoils: list[tuple[int, int]], changes: dict[str, int]
) -> None:
    batch = encode_batch(records)
    header = read_header(batch)._replace(**changes)
    data = bytearray(batch[HEADER_SIZE:])
    for place, byte in spoils:
        data[place % len(data)] = byte

    def parsed() -> list[Record] | str:
        try:
            return parse_records(header, bytes(data))
        except CorruptBatchError as error:
            return str(error)

    found = parsed()
    with mock.patch.object(records_module, "LIBRARY", None):
        assert parsed() == found
