"""The header of record batches, against the two Python clients' readers (M1)."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    assign_offset,
    iterate_batches,
    read_header,
    set_log_append_time,
    verify_crc,
)
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.errors import CorruptBatchError

RECORDS = [(1_700_000_000_000 + n, b"key", b"value %d" % n, ()) for n in range(10)]


def batch(**settings):
    return encode_batch(RECORDS, **settings)


def test_a_batch_header_describes_its_records():
    data = batch(
        codec=Codec.ZSTD,
        base_offset=100,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        is_transactional=True,
        leader_epoch=5,
    )
    header = read_header(data)
    assert header.size == len(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 109, 110)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 40)
    assert (header.base_timestamp, header.max_timestamp) == (RECORDS[0][0], RECORDS[-1][0])
    assert (header.codec, header.magic, header.partition_leader_epoch) == (Codec.ZSTD, 2, 5)
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.record_count == 10


@pytest.mark.parametrize("codec", Codec)
def test_other_readers_see_the_same_header(codec):
    data = bytes(batch(codec=codec, base_offset=9, producer_id=1, producer_epoch=2, base_sequence=3))
    header = read_header(data)
    for other in (DefaultRecordBatch(data), KafkaPythonBatch(data)):
        assert other.validate_crc()
        assert (other.base_offset, other.crc) == (header.base_offset, header.crc)
        assert other.max_timestamp == header.max_timestamp
        assert other.producer_id == 1
        assert other.is_transactional == other.is_control_batch == False  # noqa: E712


def test_all_complete_batches_are_found_and_a_truncated_last_one_is_not():
    first, second = batch(base_offset=0), batch(base_offset=10, codec=Codec.LZ4)
    whole = first + second
    for cut in range(1, len(second)):
        assert [position for position, _ in iterate_batches(memoryview(whole)[:-cut])] == [0]
    assert [(position, header.base_offset) for position, header in iterate_batches(whole)] == [(0, 0), (len(first), 10)]
    assert list(iterate_batches(b"")) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_too_short_for_a_header_is_corrupt(length):
    data = batch()
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(CorruptBatchError):
        list(iterate_batches(data))
    assert not verify_crc(data, 0, read_header(data))


def test_the_message_formats_that_kafka_4_dropped_are_refused_by_name():
    data = batch()
    data[16] = 1
    with pytest.raises(KafkaError) as caught:
        list(iterate_batches(data))
    assert caught.value.code == ErrorCode.unsupported_for_message_format
    data[16] = 9
    with pytest.raises(CorruptBatchError):
        list(iterate_batches(data))


def test_an_unknown_codec_is_corrupt():
    data = batch()
    data[22] |= 7
    with pytest.raises(CorruptBatchError):
        assert read_header(data).codec


@given(cut=st.integers(0, HEADER_SIZE - 1))
def test_a_truncated_header_is_corrupt(cut):
    with pytest.raises(CorruptBatchError):
        read_header(batch()[:cut])


@given(place=st.integers(21, 500), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_by_the_crc(place, bit):
    data = batch()
    data[21 + (place - 21) % (len(data) - 21)] ^= 1 << bit
    assert not verify_crc(data, 0, read_header(data))


def test_offset_and_leader_epoch_are_written_in_place_under_the_same_crc():
    data = bytearray(b"before") + batch()
    assign_offset(memoryview(data), 6, 1 << 40, 12)
    header = read_header(data, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert verify_crc(data, 6, header)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_log_append_time_becomes_every_records_timestamp(codec):
    data = bytearray(b"before") + batch(codec=codec)
    set_log_append_time(data, 6, read_header(data, 6), 1_800_000_000_000)
    header = read_header(data, 6)
    assert header.is_log_append_time
    assert header.codec == codec
    assert verify_crc(data, 6, header)
    for reader in (DefaultRecordBatch, KafkaPythonBatch):
        other = reader(bytes(data[6:]))
        assert other.validate_crc()
        assert {record.timestamp for record in other} == {1_800_000_000_000}
