"""Arrow columns to record batches, against the plain encoder (M11), and keys to partitions, against murmur2 (M2)."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.columns import HEADERS_TYPE, encode_columns, key_partitions
from odradek.partitioners.murmur2 import murmur2
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE, read_header, verify_crc
from odradek.protocol.batches.records import decode_records, encode_batch

NULLABLE_BYTES = st.none() | st.binary(max_size=40) | st.integers(60, 9000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(0, 2**42), NULLABLE_BYTES, NULLABLE_BYTES, HEADERS), max_size=30)


def table(records, unit="ms"):
    factor = {"s": 1, "ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record[1] for record in records], pa.binary()),
            pa.array([record[2] for record in records], pa.binary()),
            pa.array([record[0] * factor for record in records], pa.int64()).cast(pa.timestamp(unit, "UTC")),
            pa.array([[{"key": k, "value": v} for k, v in record[3]] for record in records], HEADERS_TYPE),
            pa.array(["ignored"] * len(records)),
        ],
        ["key", "value", "timestamp", "headers", "another"],
    )


def records_of(batches):
    return [tuple(record[1:]) for batch, *_ in batches for record in decode_records(batch)]


@given(records=ROWS, codec=st.sampled_from(Codec))
def test_one_batch_is_that_of_the_plain_encoder(records, codec):
    batches = list(encode_columns(table(records), default_timestamp_ms=0, codec=codec, max_bytes=1 << 20))
    assert [batch for batch, *_ in batches] == ([encode_batch(records, codec=codec)] if records else [])
    assert sum(batch.record_count for batch in batches) == len(records)


@given(records=ROWS, max_bytes=st.integers(1, 20_000), start=st.integers(0, 30), length=st.integers(0, 30))
def test_slices_become_batches_of_a_bounded_size(records, max_bytes, start, length):
    batches = list(encode_columns(table(records).slice(start, length), default_timestamp_ms=0, max_bytes=max_bytes))
    assert records_of(batches) == records[start : start + length]
    assert all(len(batch) <= max_bytes or count == 1 for batch, count, _ in batches)
    assert all(verify_crc(batch, 0, read_header(batch)) for batch, *_ in batches)


@given(records=ROWS, chance=st.randoms(use_true_random=False))
def test_rows_are_chosen_by_number(records, chance):
    rows = [chance.randrange(len(records)) for _ in range(10)] if records else []
    batches = list(encode_columns(table(records), default_timestamp_ms=0, rows=np.array(rows, np.int64)))
    assert records_of(batches) == [records[row] for row in rows]


@pytest.mark.parametrize("rows", [[-1], [3], [0, 1 << 40]])
def test_rows_that_there_are_not_are_refused(rows):
    data = table([(1, b"k", b"v", ())] * 3)
    with pytest.raises(ValueError, match="row numbers"):
        list(encode_columns(data, default_timestamp_ms=0, rows=np.array(rows)))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_become_milliseconds(unit):
    ((batch, *_),) = encode_columns(table([(1_700_000_000, b"k", b"v", ())], unit), default_timestamp_ms=0)
    assert decode_records(batch)[0].timestamp == (1_700_000_000_000 if unit == "s" else 1_700_000_000)


def test_absent_columns_are_null_and_absent_timestamps_are_the_default():
    data = pa.RecordBatch.from_arrays([pa.array(["a", None], pa.string())], ["value"])
    ((batch, count, _),) = encode_columns(data, default_timestamp_ms=77)
    assert count == 2
    assert records_of([(batch, count)]) == [(77, None, b"a", ()), (77, None, None, ())]
    data = data.append_column("timestamp", pa.array([None, 5], pa.timestamp("ms", "UTC")))
    assert [record[0] for record in records_of(encode_columns(data, default_timestamp_ms=77))] == [77, 5]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.large_string(), pa.binary_view(), pa.binary(3), pa.string()])
def test_other_kinds_of_text_and_bytes_are_taken(kind):
    values = [b"abc", None, b"def"] if not pa.types.is_string(kind) else ["abc", None, "def"]
    data = pa.RecordBatch.from_arrays([pa.array(values).cast(kind)], ["value"])
    assert [record[2] for record in records_of(encode_columns(data, default_timestamp_ms=0))] == [b"abc", None, b"def"]


def test_null_lists_are_no_headers_and_the_items_under_them_are_not_looked_at():
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()),
        pa.array([{"key": "a", "value": b"1"}, {"key": None, "value": b"2"}, {"key": "c", "value": None}]),
        mask=pa.array([False, True, False]),
    )
    data = pa.RecordBatch.from_arrays([pa.array([b"v"] * 3), lists], ["value", "headers"])
    expected = [(("a", b"1"),), (), (("c", None),)]
    assert [record[3] for record in records_of(encode_columns(data, default_timestamp_ms=0))] == expected
    assert [record[3] for record in records_of(encode_columns(data.slice(1), default_timestamp_ms=0))] == expected[1:]


def test_a_header_without_a_key_is_refused():
    lists = pa.array([[{"key": None, "value": b"1"}]], HEADERS_TYPE)
    data = pa.RecordBatch.from_arrays([pa.array([b"v"]), lists], ["value", "headers"])
    with pytest.raises(ValueError, match="must have a key"):
        list(encode_columns(data, default_timestamp_ms=0))


def test_sequences_of_an_idempotent_producer_go_on_from_batch_to_batch():
    data = table([(n, b"k", b"v", ()) for n in range(10)])
    batches = encode_columns(
        data,
        default_timestamp_ms=0,
        max_bytes=HEADER_SIZE + 40,
        producer_id=5,
        producer_epoch=1,
        base_sequence=2**31 - 4,
    )
    headers = [read_header(batch) for batch, *_ in batches]
    assert {header.producer_id for header in headers} == {5}
    sequence = 2**31 - 4
    for header in headers:
        assert header.base_sequence == sequence
        sequence = (sequence + header.record_count) % 2**31
    assert len(headers) > 2


@given(keys=st.lists(NULLABLE_BYTES, max_size=40), partition_count=st.integers(1, 1000), start=st.integers(0, 5))
def test_keys_go_where_javas_murmur2_sends_them(keys, partition_count, start):
    partitions = key_partitions(pa.array(keys, pa.binary()).slice(start), partition_count)
    assert partitions.tolist() == [
        -1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count for key in keys[start:]
    ]


@pytest.mark.parametrize("partition_count", [0, -1, 1 << 31, 1 << 32])
def test_keys_need_partitions(partition_count):
    """A division by zero in C would end the process."""
    with pytest.raises(ValueError, match=f"keys cannot be placed on {partition_count} partitions"):
        key_partitions(pa.array([b"k"]), partition_count)


def test_strings_go_where_their_bytes_go():
    words = ["", "21", "foobar", "é"]
    expected = key_partitions(pa.array([word.encode() for word in words]), 100).tolist()
    assert key_partitions(pa.array(words), 100).tolist() == expected
    # Kafka's own published hashes: UtilsTest.testMurmur2.
    assert expected[1:3] == [(-973932308 & 0x7FFFFFFF) % 100, (-790332482 & 0x7FFFFFFF) % 100]
