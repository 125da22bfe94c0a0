"""Offset planning: ranges, splitting, limits, data loss, partitions that come and go. Pure, so thoroughly (M11)."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import OdradekError, TopicPartition
from odradek.spark.reading.planning import (
    OffsetRange,
    StreamOffset,
    advance,
    cap_offsets,
    decode_offset,
    encode_offset,
    group_ranges,
    limit_offsets,
    missing_partitions,
    plan_batch,
    plan_micro_batch,
    raise_target,
    split_ranges,
)

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
B0 = TopicPartition("b", 0)


def piece(partition: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(partition=partition, start=start, end=end)


# Offsets as JSON


def test_offsets_are_written_as_the_jvm_connector_writes_them() -> None:
    assert (
        json.dumps(encode_offset(StreamOffset(offsets={B0: 7, A1: 5, A0: 3})))
        == '{"a": {"0": 3, "1": 5}, "b": {"0": 7}}'
    )


@pytest.mark.parametrize("more", [{}, {"is_initial": True}, {"start": {A1: 2}}, {"start": {}}, {"topic_ids": {"b": 5}}])
def test_an_offset_survives_the_checkpoint(more: dict[str, Any]) -> None:
    offset = StreamOffset(offsets={A0: 3, B0: 2**62}, **more)
    assert decode_offset(json.loads(json.dumps(encode_offset(offset)))) == offset


def test_the_empty_first_batch_of_an_early_checkpoint_is_read() -> None:
    anchor = decode_offset({"@": "anchor", "a": {"0": 3}})
    assert anchor == StreamOffset(offsets={A0: 3}, start={A0: 3})


@pytest.mark.parametrize(
    "encoded",
    [{"a": 5}, {"@": "other"}, {"@": {"begin": {}}}, {"@": {"start": 3}}, {"a": {"x": 5}}, {"a": {"0": None}}],
)
def test_an_offset_of_another_source_is_refused(encoded: dict[str, object]) -> None:
    with pytest.raises(OdradekError, match="this source did not write"):
        decode_offset(encoded)


# The first batch


def test_the_end_of_the_first_batch_keeps_its_start() -> None:
    initial = StreamOffset(offsets={A0: 3}, is_initial=True)
    assert advance(initial, {A0: 100}) == StreamOffset(offsets={A0: 100}, start={A0: 3})


def test_batch_0_exists_even_without_records() -> None:
    initial = StreamOffset(offsets={A0: 3}, is_initial=True)
    assert advance(initial, {A0: 3}) == StreamOffset(offsets={A0: 3}, start={A0: 3})


def test_later_batches_begin_at_the_end_of_the_previous_one() -> None:
    first = StreamOffset(offsets={A0: 3}, start={A0: 0})
    assert advance(first, {A0: 100}) == StreamOffset(offsets={A0: 100})


def test_without_new_records_the_offset_is_the_same_object() -> None:
    first = StreamOffset(offsets={A0: 3}, start={A0: 0})
    assert advance(first, {A0: 3}) is first


# Ranges


def test_a_batch_reads_from_start_to_end_and_leaves_out_empty_partitions() -> None:
    plan = plan_batch({A0: 2, A1: 5}, {A0: 9, A1: 5}, {A0: 0, A1: 0}, {A0: 9, A1: 5})
    assert plan.ranges == (piece(A0, 2, 9),)
    assert plan.losses == ()


def test_records_deleted_by_retention_are_a_loss() -> None:
    plan = plan_batch({A0: 2}, {A0: 9}, {A0: 4}, {A0: 9})
    assert plan.ranges == (piece(A0, 4, 9),)
    assert plan.losses == ("offsets 2 to 3 of a-0 were deleted before they were read",)


def test_given_offsets_beyond_the_log_end_are_a_loss() -> None:
    plan = plan_batch({A0: 2, A1: 70}, {A0: 90, A1: 80}, {A0: 0, A1: 0}, {A0: 9, A1: 50})
    assert plan.ranges == (piece(A0, 2, 9),)
    assert plan.losses == (
        "a-0 ends at offset 9, before 90 where reading is to end",
        "a-1 ends at offset 50, before 70 where reading is to begin",
        "a-1 ends at offset 50, before 80 where reading is to end",
    )


def test_a_range_that_was_deleted_completely_is_empty() -> None:
    plan = plan_micro_batch({A0: 2}, {A0: 9}, {A0: 50})
    assert plan.ranges == ()
    assert plan.losses == ("offsets 2 to 8 of a-0 were deleted before they were read",)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    plan = plan_micro_batch({A0: 2}, {A0: 2, A1: 4}, {A0: 0, A1: 0})
    assert plan.ranges == (piece(A1, 0, 4),)
    assert plan.losses == ()


def test_a_new_partition_whose_first_records_were_deleted_is_a_loss() -> None:
    plan = plan_micro_batch({}, {A1: 4}, {A1: 3})
    assert plan.ranges == (piece(A1, 3, 4),)
    assert plan.losses == ("a-1 was added and begins at offset 3, not at 0",)


def test_a_deleted_topic_is_a_loss() -> None:
    plan = plan_micro_batch({A0: 2, B0: 1, A1: 1}, {B0: 3}, {B0: 0})
    assert plan.ranges == (piece(B0, 1, 3),)
    assert plan.losses == ("a-0, a-1 are gone, with all that was not yet read",)


def test_a_topic_deleted_between_planning_and_a_restart_is_a_loss() -> None:
    plan = plan_micro_batch({A0: 2}, {A0: 5}, {})
    assert plan.ranges == ()
    assert plan.losses == ("a-0 was deleted before offsets up to 5 were read",)


def test_a_topic_created_again_is_a_loss() -> None:
    plan = plan_micro_batch({A0: 20}, {A0: 5}, {A0: 0})
    assert plan.ranges == ()
    assert "a-0 ends at offset 5, before 20" in plan.losses[0]


def test_error_texts_name_only_the_first_partitions() -> None:
    start = {TopicPartition("a", number): 1 for number in range(9)}
    assert plan_micro_batch(start, {}, {}).losses[0].startswith("a-0, a-1, a-2, a-3, a-4 and 4 more are gone")


# Splitting


def test_by_default_there_is_a_task_per_partition() -> None:
    ranges = [piece(A0, 0, 1000), piece(A1, 0, 1)]
    assert split_ranges(ranges, min_partitions=None, max_records_per_partition=None) == ranges
    assert split_ranges(ranges, min_partitions=2, max_records_per_partition=None) == ranges


def test_one_partition_is_split_evenly() -> None:
    assert split_ranges([piece(A0, 0, 10)], min_partitions=3, max_records_per_partition=None) == [
        piece(A0, 0, 3),
        piece(A0, 3, 6),
        piece(A0, 6, 10),
    ]


def test_large_partitions_are_split_and_small_ones_are_not() -> None:
    ranges = [piece(A0, 0, 1), piece(A1, 0, 900), piece(A2, 0, 1100)]
    sizes = [part.size for part in split_ranges(ranges, min_partitions=5, max_records_per_partition=None)]
    assert sizes == [1, 450, 450, 550, 550]


def test_a_partition_has_no_more_pieces_than_offsets() -> None:
    assert split_ranges([piece(A0, 5, 7)], min_partitions=8, max_records_per_partition=None) == [
        piece(A0, 5, 6),
        piece(A0, 6, 7),
    ]


def test_no_piece_is_longer_than_requested() -> None:
    parts = split_ranges([piece(A0, 0, 10), piece(A1, 0, 3)], min_partitions=None, max_records_per_partition=4)
    assert [part.size for part in parts] == [3, 3, 4, 3]


RANGES = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=8).map(
    lambda pairs: [piece(TopicPartition("t", n), start, start + size) for n, (start, size) in enumerate(pairs)]
)


@given(RANGES, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1000, 10**6)))
def test_pieces_cover_every_offset_once_and_in_order(
    ranges: list[OffsetRange], min_partitions: int | None, longest: int | None
) -> None:
    parts = split_ranges(ranges, min_partitions=min_partitions, max_records_per_partition=longest)
    for range_ in ranges:
        mine = [part for part in parts if part.partition == range_.partition]
        assert [mine[0].start, mine[-1].end] == [range_.start, range_.end]
        assert all(left.end == right.start for left, right in pairwise(mine))
        assert all(part.size > 0 for part in mine)
    assert all(part.size <= longest for part in parts if longest)


def tasks(count: int, size: int) -> list[int]:
    """The number of ranges in each task, of a topic with `count` partitions of `size` new records."""
    groups = group_ranges([piece(TopicPartition("a", number), 0, size) for number in range(count)])
    return [len(group) for group in groups]


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (4, 20, [4]),  # a small trigger is one task
        (4, 600, [1] * 4),  # two of them would be more than 1,000
        (4, 400, [2, 2]),
        (200, 2_000, [5] * 40),  # up to 10,000 records a task
        (200, 500, [6] * 33 + [2]),  # while about 32 tasks are left
        (200, 20_000, [1] * 200),
        (0, 0, []),
    ],
)
def test_small_ranges_share_a_task(count: int, size: int, expected: list[int]) -> None:
    assert tasks(count, size) == expected


@given(ranges=st.lists(st.integers(1, 30_000), max_size=60))
def test_tasks_read_every_range_once_and_in_order(ranges: list[int]) -> None:
    given_ranges = [piece(TopicPartition("a", number), 5, 5 + size) for number, size in enumerate(ranges)]
    groups = group_ranges(given_ranges)
    assert [each for group in groups for each in group] == given_ranges
    assert all(len(group) == 1 or sum(each.size for each in group) <= 10_000 for group in groups)


# Limits


def test_a_limit_is_shared_in_proportion_to_the_backlog() -> None:
    assert limit_offsets({A0: 0, A1: 100}, {A0: 300, A1: 200}, 100) == {A0: 75, A1: 125}


def test_a_small_backlog_does_not_starve() -> None:
    assert limit_offsets({A0: 0, A1: 0}, {A0: 1_000_000, A1: 3}, 10) == {A0: 9, A1: 1}


def test_a_limit_above_the_backlog_takes_all() -> None:
    assert limit_offsets({A0: 0, A1: 5}, {A0: 3, A1: 5}, 100) == {A0: 3, A1: 5}


def test_a_partition_with_a_lower_end_is_not_limited() -> None:
    assert limit_offsets({A0: 50, A1: 0}, {A0: 3, A1: 100}, 10) == {A0: 3, A1: 10}


@given(RANGES, st.integers(1, 10**6))
def test_a_limit_is_kept_and_every_partition_advances(ranges: list[OffsetRange], limit: int) -> None:
    start = {range_.partition: range_.start for range_ in ranges}
    end = {range_.partition: range_.end for range_ in ranges}
    limited = limit_offsets(start, end, limit)
    assert all(start[partition] < limited[partition] <= end[partition] for partition in end)
    assert sum(limited[partition] - start[partition] for partition in end) <= limit + len(ranges)


def test_records_after_the_target_are_left_to_the_next_run() -> None:
    assert cap_offsets({A0: 9, A1: 2, B0: 4}, {A0: 5, A1: 3}) == {A0: 5, A1: 2}


def test_a_target_below_the_start_is_raised_to_it() -> None:
    assert raise_target({A0: 5, A1: 9}, {A0: 7, A1: 2, B0: 1}) == {A0: 7, A1: 9, B0: 1}


# Offsets that a user gave


def test_given_offsets_must_have_exactly_the_partitions_that_are_read() -> None:
    assert missing_partitions({A0: 1, A1: 2}, [A0, A1]) is None
    assert missing_partitions({A0: 1}, [A0, A1, A2]) == "every partition needs an entry, and a-1, a-2 have none"
    assert missing_partitions({A0: 1, B0: 1}, [A0]) == "b-0 is not among the partitions that are read"
