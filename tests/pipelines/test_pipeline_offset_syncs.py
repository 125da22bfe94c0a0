"""Source offsets as target offsets: exact where the ranges are equally long, never too late elsewhere (M11)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import StorageError, TopicPartition
from odradek.pipelines.mirror.copying import batch_ranges
from odradek.pipelines.mirror.offset_syncs import FILE, MOST_RANGES, OffsetSyncs
from odradek.runtime import system_runtime

HERE = TopicPartition("a", 0)


def syncs(*ranges: tuple[int, int, int, int]) -> OffsetSyncs:
    made = OffsetSyncs()
    for start, end, to_start, to_end in ranges:
        made.add(HERE, (start, end), (to_start, to_end))
    return made


def test_offsets_of_a_log_without_gaps_translate_one_to_one():
    made = syncs((5, 10, 0, 5), (10, 30, 5, 25))
    assert [made.translate(HERE, offset) for offset in (4, 5, 9, 10, 29, 30, 99)] == [None, 0, 4, 5, 24, 25, 25]
    assert made.translate(TopicPartition("b", 0), 5) is None


def test_inside_of_a_range_with_gaps_a_group_reads_some_records_again():
    made = syncs((0, 10, 0, 10), (10, 20, 10, 14), (20, 30, 14, 24))
    assert [made.translate(HERE, offset) for offset in (9, 10, 15, 19, 20, 21)] == [9, 10, 10, 10, 14, 15]


def test_a_batch_that_is_written_again_counts_from_its_last_copy():
    made = syncs((0, 10, 0, 10), (10, 20, 10, 20), (10, 20, 25, 35))
    assert [made.translate(HERE, offset) for offset in (5, 10, 15, 20)] == [5, 25, 30, 35]


def test_a_topic_that_was_made_again_begins_anew():
    assert syncs((0, 100, 0, 100), (0, 10, 100, 110)).translate(HERE, 5) == 105


def test_an_empty_batch_adds_nothing():
    assert syncs((0, 0, 0, 0)).translate(HERE, 0) is None


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20)), min_size=1, max_size=30))
def test_no_translation_skips_a_record(batches: list[tuple[int, int]]):
    made, source, target, first_copy = OffsetSyncs(), 0, 0, {}
    for size, kept in batches:
        kept = min(size, kept)
        made.add(HERE, (source, source + size), (target, target + kept))
        # The last `kept` records of the batch are those that the log has.
        first_copy |= {source + size - kept + index: target + index for index in range(kept)}
        source, target = source + size, target + kept
    for committed in range(source + 1):
        translated = made.translate(HERE, committed)
        assert translated is not None
        assert all(copy >= translated for offset, copy in first_copy.items() if offset >= committed)


def test_a_checkpoint_keeps_them_and_forgets_the_oldest(tmp_path: Path):
    disk = system_runtime().disk
    made = syncs(*((2 * n, 2 * n + 2, n, n + 1) for n in range(MOST_RANGES + 3)))
    made.save(disk, str(tmp_path))
    loaded = OffsetSyncs.load(disk, str(tmp_path))
    assert (loaded.translate(HERE, 5), loaded.translate(HERE, 6)) == (None, 3)
    (tmp_path / FILE).write_text("[")
    with pytest.raises(StorageError, match="is damaged: remove it"):
        OffsetSyncs.load(disk, str(tmp_path))


def test_the_ranges_of_a_batch_are_in_spark_s_checkpoint(tmp_path: Path):
    (tmp_path / "offsets").mkdir()
    first = '{"@": {"start": {"a": {"0": 3}}}, "a": {"0": 5}}'
    for number, offset in enumerate((first, '{"a": {"0": 9, "1": 4}}')):
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}")
    disk = system_runtime().disk
    assert batch_ranges(disk, str(tmp_path), 0) == {HERE: (3, 5)}
    assert batch_ranges(disk, str(tmp_path), 1) == {HERE: (5, 9), TopicPartition("a", 1): (0, 4)}
    with pytest.raises(StorageError, match="offsets/2 cannot be read"):
        batch_ranges(disk, str(tmp_path), 2)
