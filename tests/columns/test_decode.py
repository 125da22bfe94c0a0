"""Record batches to Arrow columns, against the plain decoder of `protocol.batches.records` (M11)."""

import struct
import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.columns import COLUMNS, DEFAULT_COLUMNS, HEADERS_TYPE, RecordColumns, decode_batches, iterate_columns
from odradek.kernels import LIBRARY
from odradek.model import KafkaError
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    assign_offset,
    iterate_batches,
    read_header,
    set_log_append_time,
    write_header,
)
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.varint import varint

ALL = RecordColumns(names=COLUMNS, timestamp_unit="us")
NULLABLE_BYTES = st.none() | st.binary(max_size=40) | st.integers(60, 9000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
BATCH = st.lists(st.tuples(st.integers(0, 2**42), NULLABLE_BYTES, NULLABLE_BYTES, HEADERS), max_size=20)
BATCHES = st.lists(st.tuples(BATCH, st.sampled_from(Codec)), max_size=4)
RECORDS = [(1_700_000_000_000 + n, b"key %d" % n, b"value %d" % n, (("h", b"%d" % n),)) for n in range(100)]


def buffer_of(batches, base_offset=0):
    parts = []
    for records, codec in batches:
        parts.append(encode_batch(records, codec=codec, base_offset=base_offset))
        base_offset += max(len(records), 1)
    return b"".join(parts)


def rows_of(columns):
    """A row per record, as `decode_records` has it."""
    timestamps = columns["timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return [
        (offset, timestamp, key, value, tuple((header["key"], header["value"]) for header in headers))
        for offset, timestamp, key, value, headers in zip(
            columns["offset"].to_pylist(),
            timestamps.to_pylist(),
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            columns["headers"].to_pylist(),
            strict=True,
        )
    ]


def expected_rows(buffer, from_offset=0, up_to_offset=1 << 62):
    return [
        tuple(record)
        for position, _ in iterate_batches(buffer)
        for record in decode_records(buffer, position)
        if from_offset <= record.offset < up_to_offset
    ]


@pytest.mark.skipif(LIBRARY is None, reason="without the library arrays are made of Python's values")
def test_decoding_does_not_import_pandas():
    """pyarrow imports it, where it is installed, for a scalar or an array of Python's values: in each Spark worker."""
    code = (
        "import sys\nfrom odradek.columns import COLUMNS, PartitionBatches, RecordColumns, iterate_partitions\n"
        "from odradek.spark.reading.scan import _null_if_empty\n"
        "read = [PartitionBatches(bytes.fromhex(sys.argv[1]), topic, 0, 0, 1 << 62) for topic in ('a', 'b')]\n"
        "(batch,) = iterate_partitions(read, RecordColumns(names=COLUMNS, timestamp_unit='us'))\n"
        "headers = _null_if_empty(batch['headers'])\n"
        "print(batch['topic'][0], batch['topic'][-1], headers.null_count, 'pandas' in sys.modules)"
    )
    buffer = encode_batch([RECORDS[0], (*RECORDS[1][:3], ())], codec=Codec.NONE, base_offset=0)
    done = subprocess.run([sys.executable, "-c", code, buffer.hex()], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["a", "b", "2", "False"]


@given(batches=BATCHES, base_offset=st.integers(0, 2**50))
def test_columns_hold_what_the_records_hold(batches, base_offset):
    buffer = buffer_of(batches, base_offset)
    columns = decode_batches(buffer, ALL, topic="flights", partition=7)
    columns.validate(full=True)
    assert rows_of(columns) == expected_rows(buffer)
    assert set(columns["topic"].to_pylist()) <= {"flights"}
    assert set(columns["partition"].to_pylist()) <= {7}
    assert set(columns["timestamp_type"].to_pylist()) <= {0}


@given(batches=BATCHES, start=st.integers(0, 60), length=st.integers(0, 60))
def test_only_the_wanted_offsets_are_there(batches, start, length):
    buffer = buffer_of(batches)
    columns = decode_batches(buffer, ALL, from_offset=start, up_to_offset=start + length)
    columns.validate(full=True)
    assert rows_of(columns) == expected_rows(buffer, start, start + length)


@given(batches=BATCHES, chunk_bytes=st.integers(1, 20_000))
def test_pieces_are_together_the_whole(batches, chunk_bytes):
    buffer = buffer_of(batches)
    pieces = list(iterate_columns(buffer, ALL, chunk_bytes=chunk_bytes))
    assert [row for piece in pieces for row in rows_of(piece)] == expected_rows(buffer)
    assert all(piece.num_rows for piece in pieces)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", Codec)
def test_any_buffer_will_do(kind, codec):
    buffer = encode_batch(RECORDS, codec=codec)
    assert rows_of(decode_batches(kind(buffer), ALL)) == expected_rows(buffer)


@pytest.mark.parametrize("names", [("value",), ("headers",), ("offset", "key"), ("timestamp_type", "topic"), ()])
def test_only_the_requested_columns_are_made_in_their_order(names):
    buffer = buffer_of([(RECORDS, Codec.LZ4)])
    columns = decode_batches(buffer, RecordColumns(names=names), topic="t")
    assert tuple(columns.schema.names) == names
    full = decode_batches(buffer, RecordColumns(names=COLUMNS), topic="t")
    for name in names:
        assert columns[name].equals(full[name])


@pytest.mark.parametrize("names", [("key", "key"), ("nothing",)])
def test_columns_that_there_are_not_are_refused(names):
    with pytest.raises(ValueError, match="columns are some of"):
        RecordColumns(names=names)


def test_the_schema_is_that_of_spark_where_every_column_is_nullable():
    schema = ALL.schema
    assert decode_batches(b"", ALL).schema == schema
    assert all(field.nullable for field in schema)
    assert schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert schema.field("headers").type == HEADERS_TYPE == pa.list_(pa.struct({"key": "string", "value": "binary"}))
    assert DEFAULT_COLUMNS.schema.field("timestamp").type == pa.timestamp("ms", "UTC")


def test_batches_with_log_append_time_are_marked_and_have_one_timestamp():
    mine, broker = encode_batch(RECORDS[:3]), encode_batch(RECORDS[:2], base_offset=3)
    set_log_append_time(broker, 0, read_header(broker), 99)
    columns = decode_batches(mine + broker, RecordColumns(names=("timestamp", "timestamp_type")))
    assert columns["timestamp_type"].to_pylist() == [0, 0, 0, 1, 1]
    assert columns["timestamp"].cast(pa.int64()).to_pylist() == [record[0] for record in RECORDS[:3]] + [99, 99]


def test_control_batches_are_left_out():
    marker = encode_batch([(1, b"\0\0\0\1", b"\0" * 6, ())], is_control=True, is_transactional=True, producer_id=1)
    assign_offset(marker, 0, 100, 0)
    buffer = encode_batch(RECORDS) + marker + encode_batch(RECORDS[:1], base_offset=101)
    assert decode_batches(buffer)["offset"].to_pylist() == [*range(100), 101]


def test_the_caller_may_say_which_batches():
    buffer = buffer_of([(RECORDS[:2], Codec.NONE), (RECORDS[:2], Codec.ZSTD), (RECORDS[:2], Codec.NONE)])
    kept = [(position, header) for position, header in iterate_batches(buffer) if header.base_offset != 2]
    assert decode_batches(buffer, batches=kept)["offset"].to_pylist() == [0, 1, 4, 5]


def test_a_cut_last_batch_is_left_out():
    buffer = buffer_of([(RECORDS, Codec.NONE), (RECORDS, Codec.NONE)])
    assert decode_batches(buffer[:-1]).num_rows == 100
    assert decode_batches(buffer[:10]).num_rows == 0


def test_columns_outlive_the_buffer():
    buffer = bytearray(encode_batch(RECORDS))
    columns = decode_batches(buffer, ALL)
    buffer[:] = bytes(len(buffer))
    assert columns["value"].to_pylist() == [record[2] for record in RECORDS]


def test_header_names_that_are_no_text_get_replacement_characters():
    body = b"\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x01"
    data = bytearray(HEADER_SIZE) + varint(len(body)) + body
    write_header(data, read_header(encode_batch([(0, None, None, ())])))
    assert decode_batches(data, ALL)["headers"].to_pylist() == [[{"key": "��", "value": None}]]


# ---- lies -----------------------------------------------------------------------------------------------------------


def test_a_wrong_crc_is_found_unless_the_caller_checked_it():
    buffer = encode_batch(RECORDS)
    buffer[-2] ^= 1
    with pytest.raises(CorruptBatchError):
        decode_batches(buffer)
    assert decode_batches(buffer, check_crcs=False).num_rows == 100


@given(
    records=BATCH,
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    place=st.integers(0),
    value=st.binary(min_size=1, max_size=5),
)
def test_changed_bytes_give_columns_or_a_kafka_error(records, codec, place, value):
    buffer = encode_batch(records, codec=codec)
    place %= len(buffer)
    buffer[place : place + len(value)] = value[: len(buffer) - place]
    with suppress(KafkaError):
        decode_batches(buffer, ALL, check_crcs=False, max_bytes=1 << 22).validate(full=True)
        assert read_header(buffer).magic == 2


@given(section=st.binary(max_size=80), count=st.integers(-2, 12))
def test_random_records_give_columns_or_a_kafka_error_as_the_plain_decoder_does(section, count):
    buffer = bytearray(HEADER_SIZE) + section
    write_header(buffer, read_header(encode_batch([]))._replace(record_count=count))
    try:
        expected = decode_records(buffer)
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            decode_batches(buffer, ALL)
        return
    wanted = [record for record in expected if record.offset >= 0]
    assert decode_batches(buffer, ALL)["value"].to_pylist() == [record.value for record in wanted]


@pytest.mark.parametrize("count", [-1, 99, 101, 2**31 - 1])
def test_a_wrong_number_of_records_is_corrupt(count):
    buffer = encode_batch(RECORDS)
    struct.pack_into(">i", buffer, 57, count)
    with pytest.raises(CorruptBatchError):
        decode_batches(buffer, check_crcs=False)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x00\x00\x01\x01\x01",  # -1 headers
        b"\x00\x00\x00\x01\x01\x02\x01\x01",  # a header whose key is null
        b"\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f",  # two thousand million headers
        b"\x00\x00\x00\x01\x01\x02\x02a\x80\x80",  # a header's length without an end
        b"\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00",  # a key longer than everything
        b"\x00\x00\x00\x01\xfe\xff\xff\xff\x0f\x00",  # a value longer than everything
        b"\x00" + b"\x80" * 11 + b"\x00\x00\x01\x01\x00",  # a varint that does not end
    ],
)
def test_records_that_cannot_be_are_corrupt(body):
    buffer = bytearray(HEADER_SIZE) + varint(len(body)) + body
    write_header(buffer, read_header(encode_batch([]))._replace(record_count=1))
    with pytest.raises(CorruptBatchError):
        decode_batches(buffer, ALL)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused(codec):
    with pytest.raises(CorruptBatchError):
        decode_batches(encode_batch([(0, None, bytes(32 << 20), ())], codec=codec), max_bytes=1 << 20)
