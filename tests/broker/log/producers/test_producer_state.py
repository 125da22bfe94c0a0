"""The rules for idempotent producers, case by case: row M1, KIP-98."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.log.producers import producer_state
from odradek.broker.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from odradek.broker.log.producers.producer_state import ProducerEntry, ProducerState
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import BatchHeader, read_header
from odradek.protocol.batches.records import encode_batch

TOP = 2**31 - 1


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 9) -> BatchHeader:
    records = [(1000, None, b"", ())] * count
    return read_header(encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))


def state_after(*headers: BatchHeader) -> ProducerState:
    state, offset = ProducerState(), 100
    for item in headers:
        assert state.check(item) is None
        state.update(item, offset, 1000)
        offset += item.record_count
    return state


def refusal(state: ProducerState, item: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(item)
    return caught.value.code


def test_each_batch_continues_the_last_one() -> None:
    state = state_after(header(0, 3), header(3, 2))
    assert state.check(header(5)) is None
    assert refusal(state, header(6)) == ErrorCode.out_of_order_sequence_number
    assert refusal(state, header(4)) == ErrorCode.out_of_order_sequence_number


def test_one_of_the_last_five_batches_is_a_duplicate_with_its_first_offsets() -> None:
    state = state_after(*(header(2 * number, 2) for number in range(7)))
    for number in range(2, 7):
        found = state.check(header(2 * number, 2))
        assert (found.first_offset, found.last_offset) == (100 + 2 * number, 101 + 2 * number)
    assert refusal(state, header(2, 2)) == ErrorCode.out_of_order_sequence_number, "the sixth is forgotten"
    assert refusal(state, header(12, 1)) == ErrorCode.out_of_order_sequence_number, "same first, other last"


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState().check(header(1234)) is None


def test_a_new_epoch_begins_with_zero_and_fences_the_old_one() -> None:
    state = state_after(header(0), header(1))
    assert refusal(state, header(2, epoch=1)) == ErrorCode.out_of_order_sequence_number
    assert state.check(header(0, epoch=1)) is None
    state.update(header(0, epoch=1), 200, 1000)
    assert refusal(state, header(2, epoch=0)) == ErrorCode.invalid_producer_epoch
    assert refusal(state, header(1, epoch=0)) == ErrorCode.invalid_producer_epoch, "not even a duplicate"
    assert state.check(header(1, epoch=1)) is None


def test_zero_follows_the_largest_sequence() -> None:
    state = state_after(header(TOP - 1, 2))
    assert state.check(header(0)) is None
    state = state_after(header(TOP - 1, 4))
    assert state.check(header(2)) is None
    duplicate = state.check(header(TOP - 1, 4))
    assert duplicate.last_sequence == 1


def test_producers_do_not_disturb_each_other() -> None:
    state = state_after(header(0, producer=1), header(0, producer=2), header(1, producer=1))
    assert state.check(header(1, producer=2)) is None
    assert refusal(state, header(2, producer=2)) == ErrorCode.out_of_order_sequence_number


def test_a_silent_producer_is_forgotten() -> None:
    state = state_after(header(0), header(1))
    assert state.expire(2000, 1000) == 0
    assert state.expire(2001, 1000) == 1
    assert state.check(header(77)) is None


def test_the_garbage_collector_does_not_go_over_producers() -> None:
    state = state_after(header(0), header(1))
    gc.collect()
    entry = state.entries[9]
    assert not any(map(gc.is_tracked, (entry, entry.batches, *entry.batches)))


def test_of_too_many_producers_those_idle_for_longest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MOST_PRODUCERS", 8)
    state = state_after(*(header(0, producer=number) for number in range(8)), header(1, producer=0))
    state.entries[1].transaction_start = 101
    state.update(header(0, producer=8), 200, 1000)
    assert sorted(state.entries) == [0, 1, 5, 6, 7, 8]


def test_producers_with_open_transactions_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MOST_PRODUCERS", 8)
    state = ProducerState({number: ProducerEntry(0, transaction_start=number) for number in range(8)})
    for number in range(8, 13):
        state.update(header(0, producer=number), number, 1000)
    assert sorted(state.entries) == [*range(8), 9, 10, 11, 12]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=25))
def test_a_snapshot_keeps_the_expected_sequence(batches: list[tuple[int, int]]) -> None:
    state, due = ProducerState(), {0: 0, 1: 0, 2: 0}
    for offset, (producer, count) in enumerate(batches):
        item = header(due[producer], count, producer=producer)
        state.update(item, offset * 10, 1000)
        due[producer] += count
    restored = decode_snapshot(encode_snapshot(state), "x")
    for producer in {producer for producer, _ in batches}:
        assert restored.check(header(due[producer], producer=producer)) is None
        assert refusal(restored, header(due[producer] + 1, producer=producer)) == ErrorCode.out_of_order_sequence_number
        last = state.entries[producer].batches[-1]
        again = header(last.first_sequence, last.last_offset - last.first_offset + 1, producer=producer)
        assert restored.check(again) == last
