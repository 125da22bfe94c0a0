"""Fetched record batches become records: in order, from the position on, without what was aborted (M12)."""

import struct
from collections.abc import Callable, Sequence
from random import Random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients import CorruptRecordsError
from odradek.clients.consumer.subscription_state import ConsumerRecord, SubscriptionState, TopicPartitionState
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import LOG_APPEND_TIME, read_header, write_header
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.protocol.messages.fetch import FetchedPartition

HERE = TopicPartition("t", 3)


def batch(base_offset: int, count: int, **options: int | bool | Codec) -> bytes:
    records = [(1_000 + number, None, b"v%d" % (base_offset + number), ()) for number in range(count)]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=4, **options))  # type: ignore[arg-type]


def fetched(*batches: bytes, aborted: Sequence[tuple[int, int]] | None = None) -> FetchedPartition:
    return FetchedPartition(3, 0, 100, 100, 0, aborted, -1, memoryview(b"".join(batches)))


def state_at(offset: int, *answers: FetchedPartition) -> TopicPartitionState:
    state = TopicPartitionState(HERE)
    state.seek(offset)
    for answer in answers:
        state.fetched(answer, check_crcs=True)
    return state


def offsets(records: Sequence[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_records_have_their_partition_and_offset() -> None:
    state = state_at(0, fetched(batch(0, 1)))
    (record,) = state.take(10)
    assert record == ConsumerRecord("t", 3, 0, 1_000, None, b"v0", (), 4)


def test_a_record_says_who_set_its_timestamp() -> None:
    stamped = bytearray(batch(1, 1))
    header = read_header(stamped)
    write_header(stamped, header._replace(attributes=header.attributes | LOG_APPEND_TIME))
    assert [each.timestamp_type for each in state_at(0, fetched(batch(0, 1), bytes(stamped))).take(10)] == [0, 1]


def test_a_position_inside_a_batch_skips_earlier_records() -> None:
    state = state_at(7, fetched(batch(5, 5), batch(10, 2)))
    assert offsets(state.take(100)) == [7, 8, 9, 10, 11]
    assert state.position == 12


def test_the_position_is_after_the_last_returned_record() -> None:
    state = state_at(0, fetched(batch(0, 5)))
    assert offsets(state.take(2)) == [0, 1]
    assert state.position == 2
    assert offsets(state.take(1)) == [2]
    assert state.position == 3
    assert offsets(state.take(10)) == [3, 4]
    assert state.position == 5
    assert state.leader_epoch == 4


def test_compacted_offsets_are_skipped() -> None:
    holes = bytearray(batch(0, 0))
    # A batch of which nothing is left still says where it ended: offsets 0 to 9.
    holes[23:27] = (9).to_bytes(4, "big")
    state = TopicPartitionState(HERE)
    state.seek(0)
    state.fetched(fetched(bytes(holes), batch(15, 2)), check_crcs=False)
    assert offsets(state.take(10)) == [15, 16]
    assert state.position == 17


def test_markers_and_aborted_transactions_are_not_returned_nor_decoded() -> None:
    """`read_committed`: producer 9's transaction from offset 2 on was aborted, up to its marker at 6."""
    undecodable = bytearray(batch(2, 2, producer_id=9, is_transactional=True))
    header = read_header(undecodable)
    write_header(undecodable, header._replace(attributes=header.attributes | Codec.ZSTD))
    state = state_at(
        0,
        fetched(
            batch(0, 2, producer_id=9, is_transactional=True),
            bytes(undecodable),
            batch(4, 2, producer_id=8, is_transactional=True),
            batch(6, 1, producer_id=9, is_transactional=True, is_control=True),
            batch(7, 1, producer_id=9, is_transactional=True),
            aborted=[(9, 2)],
        ),
    )
    assert offsets(state.take(100)) == [0, 1, 4, 5, 7]


MARKER = batch(2, 1, producer_id=9, is_transactional=True, is_control=True)


@pytest.mark.parametrize("answers", [(batch(0, 2) + MARKER,), (batch(0, 2), MARKER)])
@pytest.mark.parametrize("way", ["take", "take exactly", "take one", "take raw"])
def test_the_position_moves_past_a_marker_after_the_last_record(way: str, answers: Sequence[bytes]) -> None:
    """A consumer that reads to the end of a partition would otherwise wait for ever for a record that does not
    exist."""
    state = state_at(0, *map(fetched, answers))
    if way == "take one":
        assert offsets(state.take(1)) == [0]
        assert offsets(state.take(1)) == [1]
    elif way == "take raw":
        assert state.take_raw(8 << 20) is not None
    else:
        assert offsets(state.take(2 if way == "take exactly" else 10)) == [0, 1]
    assert state.position == state.fetch_position == 3


def test_batches_that_are_given_back_are_read_again_one_by_one() -> None:
    """`poll` decodes one batch at a time. A commit must not claim that the record before has their epoch (KIP-320)."""
    state = state_at(0, fetched(batch(0, 2), batch(2, 2)))
    raw = state.take_raw(8 << 20)
    assert raw is not None
    assert (state.position, state.leader_epoch) == (4, 4)
    state.give_back(raw)
    assert (state.position, state.leader_epoch) == (0, -1)
    assert offsets(state.take(10)) == [0, 1, 2, 3]


def test_a_later_marker_moves_the_position_when_all_records_were_returned() -> None:
    state = state_at(0, fetched(batch(0, 2)))
    assert offsets(state.take(2)) == [0, 1]
    assert state.position == 2
    state.fetched(fetched(MARKER), check_crcs=True)
    assert state.position == 3


def test_a_later_marker_does_not_move_the_position_past_a_decoded_record() -> None:
    state = state_at(0, fetched(batch(0, 2)))
    assert offsets(state.take(1)) == [0]
    state.fetched(fetched(MARKER), check_crcs=True)
    assert state.position == 1
    assert offsets(state.take(10)) == [1]
    assert state.position == 3


def test_a_response_with_markers_only_moves_the_position() -> None:
    state = state_at(5, fetched(batch(5, 1, producer_id=9, is_transactional=True, is_control=True)))
    assert state.take(10) == []
    assert state.position == 6
    assert state.fetch_position == 6


def test_two_fetches_are_buffered_and_a_third_is_not_sent() -> None:
    state = state_at(0, fetched(batch(0, 2)))
    assert state.is_fetchable
    state.fetched(fetched(batch(2, 2)), check_crcs=True)
    assert not state.is_fetchable
    assert offsets(state.take(3)) == [0, 1, 2]
    assert state.is_fetchable


def test_a_seek_discards_buffered_records_and_changes_the_version() -> None:
    state = state_at(0, fetched(batch(0, 5)))
    state.take(2)
    version = state.version
    state.seek(40)
    assert state.take(10) == []
    assert (state.position, state.fetch_position) == (40, 40)
    assert state.version > version


def test_a_batch_with_a_wrong_checksum_is_an_error_and_not_returned() -> None:
    damaged = bytearray(batch(2, 2))
    damaged[-1] ^= 1
    state = state_at(0, fetched(batch(0, 2), bytes(damaged), batch(4, 1)))
    assert offsets(state.take(10)) == [0, 1], "what is before it is"
    assert (state.error, state.fetch_position) == (None, 2)
    state = state_at(2, fetched(bytes(damaged), batch(4, 1)))
    assert isinstance(state.error, KafkaError)
    assert state.error.code == ErrorCode.corrupt_message
    assert isinstance(state.error, CorruptRecordsError)
    assert (state.error.offset, state.error.next_offset) == (2, 4)
    assert state.take(10) == []
    assert state.position == 2


def test_records_that_do_not_decode_are_an_error_with_the_offset_after_them() -> None:
    rubbish = bytearray(batch(2, 2))
    rubbish[61:] = b"\xff" * len(rubbish[61:])
    struct.pack_into(">I", rubbish, 17, crc32c.crc32c(bytes(rubbish[21:])))
    state = state_at(0, fetched(batch(0, 2), bytes(rubbish), batch(4, 1)))
    assert offsets(state.take(10)) == [0, 1]
    assert isinstance(state.error, CorruptRecordsError)
    assert (state.error.partition, state.error.offset, state.error.next_offset) == (state.partition, 2, 4)
    assert state.position == 2


def test_a_response_without_a_complete_batch_is_an_error() -> None:
    state = state_at(0, fetched(batch(0, 2)[:-1]))
    assert state.error is not None


def test_raw_batches_continue_after_returned_records() -> None:
    state = state_at(0, fetched(batch(0, 3), batch(3, 2), batch(5, 1)))
    assert offsets(state.take(1)) == [0]
    raw = state.take_raw(8 << 20)
    assert raw is not None
    assert (raw.from_offset, raw.next_offset) == (1, 3)
    rest = state.take_raw(8 << 20)
    assert rest is not None
    # Batches that lie together come together.
    assert (rest.from_offset, rest.next_offset) == (3, 6)
    assert len(rest.buffer) == len(batch(3, 2)) + len(batch(5, 1))
    assert state.take_raw(8 << 20) is None
    assert state.position == 6


@pytest.mark.parametrize(("codec", "mib"), [(Codec.NONE, 3), (Codec.ZSTD, 24)])
def test_raw_batches_are_split_by_decompressed_size(codec: Codec, mib: int) -> None:
    """Eight MiB of records at once, or a batch if that has more, whatever one fetch brought."""
    contents = Random(1).randbytes(mib << 17) * 8
    batches = [
        bytes(encode_batch([(1_000, None, contents, ())], base_offset=offset, leader_epoch=4, codec=codec))
        for offset in range(5)
    ]
    state = state_at(0, fetched(*batches))
    ends = []
    while (raw := state.take_raw(8 << 20)) is not None:
        assert state.position == raw.next_offset
        ends.append(raw.next_offset)
    assert ends == ([2, 4, 5] if codec is Codec.NONE else [1, 2, 3, 4, 5])


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=8),
    start=st.integers(0, 20),
    limits=st.lists(st.integers(1, 7), min_size=1, max_size=40),
    codec=st.sampled_from(list(Codec)),
)
def test_every_record_from_the_position_on_is_returned_once_in_order(
    counts: list[int], start: int, limits: list[int], codec: Codec
) -> None:
    total = sum(counts)
    batches = [batch(sum(counts[:index]), count, codec=codec) for index, count in enumerate(counts)]
    state = state_at(start, fetched(*batches) if start < total else fetched())
    seen: list[int] = []
    for number, limit in enumerate(limits):
        if number % 3 == 2:
            raw = state.take_raw(8 << 20)
            if raw is not None:
                records = [record for place in _places(raw.buffer) for record in decode_records(raw.buffer, place)]
                seen += [record.offset for record in records if record.offset >= raw.from_offset]
        else:
            seen += offsets(state.take(limit))
        assert state.position == (seen[-1] + 1 if seen else start)
    assert seen == list(range(start, start + len(seen)))


def _places(buffer: memoryview) -> list[int]:
    from odradek.protocol.batches.record_batch import iterate_batches

    return [place for place, _ in iterate_batches(buffer)]


def test_partitions_that_stay_assigned_keep_their_positions() -> None:
    positions = SubscriptionState()
    positions.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
    positions[TopicPartition("t", 1)].seek(9)
    positions.assign([TopicPartition("t", 1), TopicPartition("t", 2)])
    assert positions[TopicPartition("t", 1)].position == 9
    assert positions[TopicPartition("t", 2)].position is None
    with pytest.raises(KafkaError, match="t-0 is not assigned"):
        positions[TopicPartition("t", 0)]


def test_partitions_that_returned_records_come_last_in_the_next_poll() -> None:
    positions = SubscriptionState()
    positions.assign([TopicPartition("t", number) for number in range(3)])
    positions.move_to_end(positions[TopicPartition("t", 0)])
    assert [state.partition.partition for state in positions] == [1, 2, 0]


def test_a_paused_partition_keeps_its_records_in_memory_of_their_own() -> None:
    """The rest of a response of 50 MiB must not stay because of one paused partition."""
    response = b"x" * 1_000 + batch(0, 3) + batch(3, 3)
    state = state_at(0, fetched(batch(0, 3), batch(3, 3))._replace(records=memoryview(response)[1_000:]))
    state.pause()
    assert len(state.buffers[0][0].fetched) == len(response) - 1_000
    assert state.buffers[0][0].fetched.obj is state.buffers[0][1].fetched.obj
    state.is_paused = False
    raw = state.take_raw(8 << 20)
    assert raw is not None
    assert bytes(raw.buffer) == response[1_000:]


def test_dropped_records_are_fetched_again_from_the_position() -> None:
    state = state_at(0, fetched(batch(0, 5), batch(5, 5)))
    assert offsets(state.take(2)) == [0, 1]
    assert state.buffered_bytes == len(batch(5, 5))
    state.drop_buffered()
    assert (state.position, state.fetch_position, state.buffered_bytes) == (2, 2, 0)
    state.fetched(fetched(batch(0, 5), batch(5, 5)), check_crcs=True)
    assert offsets(state.take(100)) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_an_iteration_moves_the_position_past_each_record_that_it_pops() -> None:
    state = state_at(0, fetched(batch(0, 5), batch(5, 2)))
    counts: list[int] = []
    run = state.begin_run(3, counts.append)
    assert offsets(run) == [2, 1, 0]
    for position in (1, 2):
        run.pop()
        assert state.position == position
    assert offsets(state.take(10)) == [2, 3, 4, 5, 6]
    assert (run, sum(counts)) == ([], 2)


def test_the_last_record_of_an_iteration_ends_its_batch() -> None:
    state = state_at(0, fetched(batch(0, 2) + MARKER))
    run = state.begin_run(10, lambda _: None)
    run.clear()
    assert not state.has_buffered
    assert state.position == state.fetch_position == 3


@pytest.mark.parametrize("change", [lambda state: state.seek(7), TopicPartitionState.pause])
def test_an_iteration_gets_no_record_of_a_partition_that_was_moved_or_paused(
    change: Callable[[TopicPartitionState], None],
) -> None:
    state = state_at(0, fetched(batch(0, 5)))
    run = state.begin_run(10, lambda _: None)
    run.pop()
    change(state)
    assert run == []
    assert state.position in {1, 7}


def test_an_iteration_gets_no_record_of_a_partition_that_was_revoked() -> None:
    subscriptions = SubscriptionState()
    subscriptions.assign([HERE])
    subscriptions[HERE].seek(0)
    subscriptions[HERE].fetched(fetched(batch(0, 5)), check_crcs=False)
    run = subscriptions[HERE].begin_run(10, lambda _: None)
    subscriptions.assign([])
    assert run == []
