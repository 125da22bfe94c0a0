"""When a transaction begins, when it ends, and what is refused meanwhile, case by case: row M1, KIP-98 and KIP-890."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.control_records import (
    ControlType,
    EndTransactionMarker,
    decode_marker,
    encode_marker,
    read_marker,
)
from odradek.protocol.batches.record_batch import BatchHeader, read_header
from odradek.protocol.batches.records import Record, encode_batch

NOW_MS = 1_700_000_000_000


class Partition:
    """The state of one log, and the offset that comes next in it."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.offset = 0

    def check(
        self, sequence: int = 0, *, producer: int = 9, epoch: int = 0, transactional: bool = True
    ) -> BatchHeader | None:
        batch = encode_batch(
            [(NOW_MS, None, b"v", ())],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        header = read_header(batch)
        return header if self.state.check(header) is None else None

    def write(self, sequence: int = 0, **options: int) -> None:
        header = self.check(sequence, **options)
        assert header is not None
        self.state.update(header, self.offset, NOW_MS)
        self.offset += 1

    def end(
        self,
        type_: ControlType = ControlType.COMMIT,
        *,
        producer: int = 9,
        epoch: int = 0,
        coordinator: int = 0,
        version: int = 1,
    ) -> AbortedTransaction | str | None:
        """Return the state to keep, or "repeated"."""
        marker = EndTransactionMarker(type_, coordinator)
        if not self.state.check_marker(marker, producer_id=producer, producer_epoch=epoch, transaction_version=version):
            return "repeated"
        self.offset += 1
        return self.state.end_transaction(
            marker, producer_id=producer, producer_epoch=epoch, offset=self.offset - 1, timestamp=NOW_MS
        )

    def abort(self, **options: int) -> AbortedTransaction | str | None:
        return self.end(ControlType.ABORT, **options)


def refused(code: ErrorCode) -> object:
    return pytest.raises(KafkaError, check=lambda error: error.code == code)


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    log = Partition()
    log.write(0, producer=1, transactional=False)
    assert log.state.first_unstable_offset is None
    log.write(0)
    log.write(1)
    assert log.state.first_unstable_offset == 1
    assert log.end() is None
    log.state.committed(log.offset)
    assert log.state.first_unstable_offset is None
    log.write(2)
    assert log.state.first_unstable_offset == 4, "sequences go on, and the next transaction begins here"


def test_an_end_that_is_not_committed_keeps_its_transaction_unstable() -> None:
    log = Partition()
    log.write(0)
    log.state.committed(1)
    log.end()
    assert log.state.first_unstable_offset == 0
    log.state.committed(1)
    assert log.state.first_unstable_offset == 0
    log.state.committed(2)
    assert log.state.first_unstable_offset is None


def test_the_first_unstable_offset_is_the_earliest_open_transaction() -> None:
    log = Partition()
    for producer in (1, 2, 3):
        log.write(0, producer=producer)
    log.state.committed(3)
    log.end(producer=2)
    assert log.state.first_unstable_offset == 0
    log.end(producer=1)
    assert log.state.first_unstable_offset == 0, "its end is not committed"
    log.state.committed(4)
    assert log.state.first_unstable_offset == 0
    log.state.committed(5)
    assert log.state.first_unstable_offset == 2


def test_an_aborted_transaction_is_indexed_with_the_stable_offset_after_it() -> None:
    log = Partition()
    log.write(0, producer=1)
    log.write(0, producer=2)
    log.write(1, producer=1)
    assert log.abort(producer=1) == AbortedTransaction(1, 0, 3, 1), "producer 2's is open since 1"
    assert log.abort(producer=2) == AbortedTransaction(2, 1, 4, 5), "nothing is open: all up to here is stable"
    assert log.abort(producer=2) is None, "nothing was open"
    assert log.abort(producer=77) is None, "a producer that never wrote"


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = Partition()
    log.write(0)
    with refused(ErrorCode.invalid_txn_state):
        log.check(1, transactional=False)
    with refused(ErrorCode.out_of_order_sequence_number):
        log.check(2, transactional=False)
    assert log.check(0, transactional=False) is None, "a duplicate is a duplicate"
    log.end()
    assert log.check(1, transactional=False) is not None


def test_batches_that_the_broker_writes_for_a_producer_need_no_sequence() -> None:
    log = Partition()
    log.write(0)
    header = read_header(
        encode_batch([(NOW_MS, b"k", b"v", ())], producer_id=9, producer_epoch=0, is_transactional=True)
    )
    assert log.state.check(header, has_sequence=False) is None
    with refused(ErrorCode.out_of_order_sequence_number):
        log.state.check(header)
    old = header._replace(producer_epoch=-1)
    with refused(ErrorCode.invalid_producer_epoch):
        log.state.check(old, has_sequence=False)


@pytest.mark.parametrize("version", [0, 1])
def test_before_version_2_the_marker_has_the_producers_epoch(version: int) -> None:
    log = Partition()
    log.write(0, epoch=3)
    with refused(ErrorCode.invalid_producer_epoch):
        log.end(epoch=2, version=version)
    assert log.end(epoch=3, version=version) is None
    assert log.end(epoch=3, version=version) is None, "written again, as Kafka does"
    assert log.check(1, epoch=3) is not None


def test_since_version_2_the_marker_has_a_newer_epoch() -> None:
    log = Partition()
    log.write(0, epoch=3)
    with refused(ErrorCode.invalid_producer_epoch):
        log.end(epoch=3, version=2)
    assert log.abort(epoch=4, version=2) == AbortedTransaction(9, 0, 1, 2)
    assert log.abort(epoch=4, version=2) == "repeated"
    with refused(ErrorCode.invalid_producer_epoch):
        log.end(epoch=3, version=2)
    with refused(ErrorCode.invalid_producer_epoch):
        log.check(1, epoch=3)
    with refused(ErrorCode.out_of_order_sequence_number):
        log.check(1, epoch=4)
    log.write(0, epoch=4)
    with refused(ErrorCode.invalid_producer_epoch):
        log.end(epoch=4, version=2)
    assert log.end(epoch=5, version=2) is None


def test_a_marker_of_a_replaced_coordinator_is_refused() -> None:
    log = Partition()
    log.write(0)
    log.end(coordinator=7)
    log.write(1)
    with refused(ErrorCode.transaction_coordinator_fenced):
        log.abort(coordinator=6)
    assert log.state.first_unstable_offset == 0
    assert log.abort(coordinator=7) is not None
    assert log.end(coordinator=8, producer=5) is None
    assert log.end(coordinator=2, producer=6) is None, "each producer has its own coordinator"


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    log = Partition()
    log.write(0, producer=1)
    log.write(0, producer=2, transactional=False)
    assert log.state.expire(NOW_MS + 1, 0) == 1
    assert list(log.state.entries) == [1]
    log.end(producer=1)
    assert log.state.expire(NOW_MS + 1, 0) == 1
    assert log.state.oldest_transaction_timestamp is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["write", "commit", "abort"])), max_size=30))
def test_a_snapshot_keeps_open_transactions(events: list[tuple[int, str]]) -> None:
    log = Partition()
    due = dict.fromkeys(range(4), 0)
    for producer, event in events:
        if event == "write":
            log.write(due[producer], producer=producer)
            due[producer] += 1
        else:
            log.end(ControlType[event.upper()], producer=producer, coordinator=producer)
    log.state.committed(log.offset)
    restored = decode_snapshot(encode_snapshot(log.state), "x")
    restored.committed(log.offset)
    assert restored.first_unstable_offset == log.state.first_unstable_offset
    for producer, entry in log.state.entries.items():
        found = restored.entries[producer]
        assert (found.epoch, found.transaction_start, found.coordinator_epoch, found.last_timestamp) == (
            entry.epoch,
            entry.transaction_start,
            entry.coordinator_epoch,
            entry.last_timestamp,
        )
        assert found.last_sequence == entry.last_sequence
    log.state, before = restored, log.state
    for producer in range(4):
        marker = EndTransactionMarker(ControlType.ABORT, 9)
        ends = [
            state.end_transaction(marker, producer_id=producer, producer_epoch=0, offset=99 + producer, timestamp=0)
            for state in (before, restored)
        ]
        assert ends[0] == ends[1]


def test_a_marker_is_kafkas_byte_for_byte() -> None:
    batch = encode_marker(
        EndTransactionMarker(ControlType.COMMIT, 0x01020304), producer_id=5, producer_epoch=2, now_ms=NOW_MS
    )
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
    # length, attributes, deltas, key: version 0 and type 1, value: version 0 and the epoch, no headers
    assert bytes(batch[61:]) == bytes.fromhex("20 00 00 00 08 00000001 0c 000001020304 00")
    assert decode_marker(batch) == EndTransactionMarker(ControlType.COMMIT, 0x01020304)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0" * 6),
        (b"\0\0\0\0", None),
        (b"\0\0\0", b"\0" * 6),
        (b"\0\0\0\2", b"\0" * 6),
        (b"\0\0\0\0", b"\0" * 5),
    ],
)
def test_another_control_record_is_no_marker(key: bytes | None, value: bytes | None) -> None:
    assert read_marker(Record(0, 0, key, value)) is None


def test_fields_of_a_later_marker_version_are_ignored() -> None:
    record = Record(0, 0, b"\0\1\0\0more", b"\0\1\0\0\0\5more")
    assert read_marker(record) == EndTransactionMarker(ControlType.ABORT, 5)


def test_a_control_batch_that_compaction_emptied_ends_nothing() -> None:
    assert decode_marker(encode_batch([], producer_id=1, producer_epoch=0, is_control=True)) is None
    assert decode_marker(b"\0" * 80) is None
