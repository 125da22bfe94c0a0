"""The directory of a sweep: what is finished, what is missing, whose results they are."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import sweep_of

from odradek.lab.case import LabError
from odradek.lab.sweep.results import Batch, Results, gaps
from odradek.model import StorageError
from odradek.runtime import SystemDisk

TEXT = "strategy = ['range', 'sticky']\nfailure = ['none']\nseed = { from = 1, to = 25 }\nbatch = 10"


def results_of(directory: Path, text: str = TEXT) -> Results:
    return Results(SystemDisk(), sweep_of(directory, text))


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=8), st.integers(0, 50))
def test_gaps_and_what_is_found_are_everything_once(ranges: list[tuple[int, bool]], count: int) -> None:
    found, start = [], 0
    for length, is_finished in ranges:
        if is_finished:
            found.append((start, start + length))
        start += length
    have = {place for first, last in found for place in range(first, last)}
    missing = [place for first, last in gaps(found, count) for place in range(first, last)]
    assert missing == sorted(set(range(count)) - have)


def test_missing_batches_are_those_without_a_file_whatever_the_size_of_a_batch_was(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    results.begin()
    assert results.missing(25) == [
        Batch("range", 0, 10), Batch("sticky", 0, 10), Batch("range", 10, 20), Batch("sticky", 10, 20),
        Batch("range", 20, 25), Batch("sticky", 20, 25),
    ]  # fmt: skip
    for batch in (Batch("range", 10, 20), Batch("sticky", 0, 7)):
        results.save(batch, b"x")
    results.release()
    later = results_of(tmp_path, TEXT.replace("batch = 10", "batch = 8"))
    assert later.missing(25) == [
        Batch("range", 0, 8), Batch("sticky", 7, 15), Batch("range", 8, 10), Batch("sticky", 15, 23),
        Batch("range", 20, 25), Batch("sticky", 23, 25),
    ]  # fmt: skip
    assert later.missing(5) == [Batch("range", 0, 5)]
    assert later.finished_count() == 17


def test_a_file_that_a_killed_process_was_writing_does_not_count_and_is_removed(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    results.begin()
    results.release()
    half = tmp_path / "sweep" / "results" / "strategy=range" / ".0-10.parquet"
    half.write_bytes(b"PAR1")
    assert Batch("range", 0, 10) in results_of(tmp_path).missing(25)
    again = results_of(tmp_path)
    again.begin()
    again.release()
    assert not half.exists()


def test_results_of_another_sweep_are_refused_and_the_axis_is_named(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    results.begin()
    results.release()
    with pytest.raises(LabError, match=r"has the results of another sweep, with another seed: choose another out"):
        results_of(tmp_path, TEXT.replace("25", "26")).begin()


def test_another_strategy_may_join_a_sweep(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    results.begin()
    results.save(Batch("range", 0, 25), b"x")
    results.release()
    more = results_of(tmp_path, TEXT.replace("'sticky'", "'uniform'"))
    more.begin()
    more.release()
    assert {batch.strategy for batch in more.missing(25)} == {"uniform"}


def test_two_processes_do_not_write_the_same_directory(tmp_path: Path) -> None:
    first, second = results_of(tmp_path), results_of(tmp_path)
    first.begin()
    with pytest.raises(StorageError, match="is in use by process"):
        second.begin()
    first.release()
    second.begin()
    second.release()
    assert second.finished_count() == 0


def test_a_setting_in_two_files_is_an_error(tmp_path: Path) -> None:
    results = results_of(tmp_path)
    results.begin()
    for batch in (Batch("range", 0, 10), Batch("range", 5, 15)):
        results.save(batch, b"x")
    results.release()
    with pytest.raises(StorageError, match="setting 5 in two files"):
        results.missing(25)


def test_a_directory_with_an_unreadable_definition_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text("[1")
    with pytest.raises(StorageError, match=r"sweep\.json is not of a sweep"):
        results_of(tmp_path).begin()
