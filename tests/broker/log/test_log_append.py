"""Appending and reading back: offsets, refusals, times, duplicates. Row M1."""

import itertools
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from odradek.broker.log.log import Log
from odradek.broker.turns import at_once
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches, read_header, verify_crc, write_header
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, new_log, refusal


def batch(*values: bytes, producer: int = -1, epoch: int = -1, sequence: int = -1, time_ms: int = NOW) -> bytearray:
    records = [(time_ms, None, value, ()) for value in values]
    return encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def values_of(data: bytes) -> list[tuple[int, bytes | None]]:
    view = memoryview(data)
    return [
        (record.offset, record.value)
        for position, header in iterate_batches(data)
        for record in decode_records(view[position : position + header.size])
    ]


def changed(change: Callable[[BatchHeader], BatchHeader]) -> bytearray:
    """A batch of two records with another header, and a right checksum."""
    data = batch(b"a", b"b")
    write_header(data, change(read_header(data)))
    return data


def test_a_leader_that_is_older_than_the_last_record_is_refused() -> None:
    """Recovery would take what it writes for the rest of a truncation, and cut it."""
    log = new_log()
    log.append_as_leader(batch(b"a"), leader_epoch=6, now_ms=NOW)
    assert refusal(log, batch(b"b")) is ErrorCode.kafka_storage_error
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    with pytest.raises(KafkaError, match="leader epoch 6, and the leader's epoch is 5"):
        log.append_marker(marker, producer_id=1, producer_epoch=0, transaction_version=1, leader_epoch=5, now_ms=NOW)
    assert log.append_as_leader(batch(b"c"), leader_epoch=6, now_ms=NOW).first_offset == 1


def test_a_batch_gets_the_next_offsets_and_the_leaders_epoch_in_place() -> None:
    log = new_log()
    first, second = batch(b"a", b"b"), batch(b"c")
    assert log.append_as_leader(memoryview(first), leader_epoch=4, now_ms=NOW)[:2] == (0, 1)
    info = log.append_as_leader(memoryview(second), leader_epoch=4, now_ms=NOW)
    assert info == (2, 2, -1, 0, False)
    header = read_header(second)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    assert verify_crc(second, 0, header)
    assert log.epochs.entries == [(4, 0)]


def test_only_what_is_written_is_read() -> None:
    log = new_log()
    log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=NOW)
    assert (log.log_end_offset, log.written_offset) == (1, 0)
    assert log.writer.pending.size > 0
    assert log.read(0, 1000) == b""
    assert log.read(1, 1000) == b"", "appended, not written"
    log.write()
    assert (log.written_offset, log.writer.pending.size) == (1, 0)
    assert values_of(log.read(0, 1000)) == [(0, b"a")]
    assert log.read(1, 1000) == b"", "the end of the log"


@pytest.mark.parametrize("codec", list(Codec))
def test_reads_return_the_appended_batches_byte_for_byte(codec: Codec) -> None:
    log = new_log()
    sent = []
    for number in range(30):
        sent.append(encode_batch([(NOW, b"k%d" % number, b"v" * number, [("h", b"x")])] * 3, codec=codec))
        log.append_as_leader(memoryview(sent[-1]), leader_epoch=0, now_ms=NOW)
        if number % 4 == 0:
            log.write()
    log.write()
    assert log.read(0, 1 << 20) == b"".join(sent)


def test_a_read_begins_with_the_batch_that_has_the_offset() -> None:
    log = new_log()
    for _ in range(300):
        log.append_as_leader(batch(b"a", b"b", b"c"), leader_epoch=0, now_ms=NOW)
        log.write()
    for offset in (0, 1, 5, 400, 401, 402, 897, 898, 899):
        assert values_of(log.read(offset, 1))[0][0] == offset // 3 * 3


def test_a_read_is_bounded_by_bytes_but_for_the_first_batch() -> None:
    log = new_log()
    sizes = [len(data) for data in (batch(b"x" * 100), batch(b"y" * 50))]
    log.append_as_leader(batch(b"x" * 100), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(batch(b"y" * 50), leader_epoch=0, now_ms=NOW)
    log.write()
    assert len(log.read(0, 1)) == sizes[0]
    assert log.read(0, 1, at_least_one=False) == b""
    assert log.read(0, sizes[0] - 1, at_least_one=False) == b""
    assert len(log.read(0, sizes[0], at_least_one=False)) == sizes[0]
    assert len(log.read(0, sizes[0] + 10)) == sizes[0] + 10, "the last one may be cut"
    assert len(log.read(0, 10_000)) == sum(sizes)


def test_a_read_stops_at_the_high_watermark() -> None:
    log = new_log()
    for value in (b"a", b"b", b"c", b"d"):
        log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW)
    log.write()
    assert values_of(log.read(0, 10_000, up_to_offset=2)) == [(0, b"a"), (1, b"b")]
    assert log.read(2, 10_000, up_to_offset=2) == b""
    assert log.read(3, 10_000, up_to_offset=2) == b""
    assert len(values_of(log.read(0, 10_000, up_to_offset=99))) == 4


def test_an_offset_outside_the_log_is_out_of_range() -> None:
    log = new_log()
    log.append_as_leader(batch(b"a", b"b"), leader_epoch=0, now_ms=NOW)
    log.write()
    log.advance_log_start_offset(1)
    for offset in (-1, 0, 3):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.offset_out_of_range
    assert log.read(1, 1000)


def test_a_damaged_batch_is_refused_whichever_byte_it_is() -> None:
    log = new_log()
    for position in itertools.chain(range(8, 12), range(16, len(batch(b"abc")))):
        data = batch(b"abc")
        data[position] ^= 0x10
        assert refusal(log, data) in EXPLAINED


EXPLAINED = {
    ErrorCode.corrupt_message,
    ErrorCode.invalid_record,
    ErrorCode.invalid_txn_state,
    ErrorCode.message_too_large,
}


def test_a_truncated_batch_is_refused() -> None:
    log = new_log()
    data = batch(b"abc")
    for end in range(len(data)):
        assert refusal(log, data[:end]) == ErrorCode.invalid_record, "Kafka's code: CORRUPT_MESSAGE would be sent again"


def test_old_formats_two_batches_and_control_batches_are_refused() -> None:
    log = new_log()
    assert refusal(log, batch(b"a") + batch(b"b")) == ErrorCode.invalid_record
    old = batch(b"a")
    old[16] = 1
    assert refusal(log, old) == ErrorCode.invalid_record
    old[16] = 0
    assert refusal(log, old) == ErrorCode.invalid_record
    old[16] = 9
    assert refusal(log, old) == ErrorCode.corrupt_message
    assert refusal(log, encode_batch([(NOW, b"k", b"v", ())], is_control=True)) == ErrorCode.invalid_record
    transactional = encode_batch(
        [(NOW, b"k", b"v", ())], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    assert refusal(log, transactional) == ErrorCode.invalid_txn_state


def test_counts_and_offsets_must_agree() -> None:
    log = new_log()
    assert refusal(log, changed(lambda header: header._replace(record_count=1))) == ErrorCode.invalid_record
    assert refusal(log, changed(lambda header: header._replace(last_offset_delta=5))) == ErrorCode.invalid_record
    assert refusal(log, changed(lambda header: header._replace(record_count=0))) == ErrorCode.invalid_record
    assert refusal(log, changed(lambda header: header._replace(last_offset_delta=-1))) == ErrorCode.invalid_record
    unnumbered = changed(lambda header: header._replace(producer_id=7, producer_epoch=0))
    assert refusal(log, unnumbered) == ErrorCode.invalid_record
    assert not refusal_of_good_batch(log)


def refusal_of_good_batch(log: Log) -> bool:
    log.append_as_leader(changed(lambda header: header), leader_epoch=0, now_ms=NOW)
    return False


def test_sizes_are_limited_by_topic_and_segment() -> None:
    data = batch(b"x" * 1000)
    assert refusal(new_log(max_message_bytes=len(data) - 1), data) == ErrorCode.message_too_large
    assert refusal(new_log(segment_bytes=len(data) - 1), data) == ErrorCode.record_list_too_large
    new_log(max_message_bytes=len(data), segment_bytes=len(data)).append_as_leader(data, leader_epoch=0, now_ms=NOW)


def test_the_broker_itself_may_write_what_clients_may_not() -> None:
    log = new_log(max_message_bytes=10)
    log.append_as_leader(
        encode_batch([(NOW, b"k", b"v", ())], is_control=True), leader_epoch=0, now_ms=NOW, from_client=False
    )
    log.write()
    assert log.written_offset == 1


def test_a_timestamp_too_far_ahead_or_behind_is_refused() -> None:
    log = new_log(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=5000)
    assert refusal(log, batch(b"a", time_ms=NOW + 1001)) == ErrorCode.invalid_timestamp
    assert refusal(log, batch(b"a", time_ms=NOW - 5001)) == ErrorCode.invalid_timestamp
    log.append_as_leader(batch(b"a", time_ms=NOW + 1000), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(batch(b"a", time_ms=NOW - 5000), leader_epoch=0, now_ms=NOW)
    lying = changed(lambda header: header._replace(attributes=8))
    assert refusal(log, lying) == ErrorCode.invalid_timestamp


def test_log_append_time_replaces_the_records_time() -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    data = batch(b"a", time_ms=5)
    assert log.append_as_leader(memoryview(data), leader_epoch=0, now_ms=NOW).log_append_time == NOW
    log.write()
    (record,) = decode_records(log.read(0, 1000))
    assert record.timestamp == NOW
    assert verify_crc(data, 0, read_header(data))
    assert at_once(log.find_offset(NOW)) == (NOW, 0, 0)


def test_a_repeated_batch_gets_its_first_offsets_and_is_not_appended_again() -> None:
    log = new_log()
    log.append_as_leader(batch(b"a", b"b", producer=5, epoch=0, sequence=0), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(batch(b"c", producer=5, epoch=0, sequence=2), leader_epoch=0, now_ms=NOW)
    log.write()
    again = log.append_as_leader(batch(b"a", b"b", producer=5, epoch=0, sequence=0), leader_epoch=0, now_ms=NOW)
    assert again == (0, 1, -1, 0, True)
    assert log.log_end_offset == 3
    assert refusal(log, batch(b"d", producer=5, epoch=0, sequence=4)) == ErrorCode.out_of_order_sequence_number


def test_a_read_only_buffer_is_copied_instead_of_changed() -> None:
    log = new_log()
    data = bytes(batch(b"a"))
    log.append_as_leader(batch(b"0"), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    log.write()
    assert data == bytes(batch(b"a"))
    assert values_of(log.read(0, 1000)) == [(0, b"0"), (1, b"a")]


def test_discarding_writes_keeps_offsets_and_no_records() -> None:
    disk = MemoryDisk()
    log = new_log(disk, discard_writes=True, segment_bytes=200)
    for number in range(10):
        info = log.append_as_leader(batch(b"x" * 100), leader_epoch=0, now_ms=NOW)
        assert info.first_offset == number
        log.write()
    assert log.written_offset == 10
    assert log.read(3, 1000) == b""
    assert log.delete_old_segments(NOW * 2) == 0
    log.close()
    assert disk.used_bytes() == 0


def test_a_configuration_takes_effect_on_the_next_append() -> None:
    log = new_log()
    log.append_as_leader(batch(b"x" * 1000), leader_epoch=0, now_ms=NOW)
    log.update_config(replace(log.config, max_message_bytes=500, segment_bytes=600))
    assert refusal(log, batch(b"x" * 1000)) == ErrorCode.message_too_large
    log.append_as_leader(batch(b"x"), leader_epoch=0, now_ms=NOW)
    assert log.segments.bases == [0, 1]


def test_a_configuration_changes_the_roll_time_of_the_active_segment() -> None:
    """A changed `segment.ms` also applies to the existing active segment."""
    log = new_log()
    log.append_as_leader(batch(b"a"), leader_epoch=0, now_ms=NOW)
    log.update_config(replace(log.config, segment_ms=10))
    log.append_as_leader(batch(b"b", time_ms=NOW + 11), leader_epoch=0, now_ms=NOW + 11)
    assert log.segments.bases == [0, 1]


def test_a_repeated_batch_is_a_duplicate_although_a_new_rule_refuses_it() -> None:
    """Its producer got no answer; were it refused, the producer would take it for lost."""
    log = new_log(message_timestamp_before_max_ms=1000)
    sent = lambda value, sequence, time_ms: batch(value, producer=7, epoch=0, sequence=sequence, time_ms=time_ms)  # noqa: E731
    log.append_as_leader(sent(b"x" * 1000, 0, NOW), leader_epoch=0, now_ms=NOW)
    log.append_as_leader(sent(b"b", 1, NOW + 2000), leader_epoch=0, now_ms=NOW + 2000)
    assert log.append_as_leader(sent(b"x" * 1000, 0, NOW), leader_epoch=0, now_ms=NOW + 2000)[:2] == (0, 0), (
        "it is too old now"
    )
    log.update_config(replace(log.config, max_message_bytes=500))
    again = log.append_as_leader(sent(b"x" * 1000, 0, NOW), leader_epoch=0, now_ms=NOW)
    assert (again.first_offset, again.duplicate) == (0, True), "and it is too large"
    damaged = sent(b"x" * 1000, 0, NOW)
    damaged[-2] ^= 1
    assert refusal(log, damaged) is ErrorCode.message_too_large
    assert refusal(log, sent(b"x" * 1000, 2, NOW)) is ErrorCode.message_too_large
    assert log.log_end_offset == 2
