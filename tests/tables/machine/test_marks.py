"""The summary of a pipeline's snapshot."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.tables.machine.marks import Mark, TopicOffsets, decode_mark, decode_progress, encode_mark, encode_progress

OFFSETS = st.dictionaries(st.integers(0, 40), st.integers(0, 2**62))
SOURCES: st.SearchStrategy[Any] = st.none() | st.dictionaries(
    st.text(max_size=5), st.builds(TopicOffsets, st.text("0123456789abcdef"), OFFSETS)
)


MARKS = st.builds(
    Mark,
    pipeline=st.text(),
    query=st.text(),
    batch=st.integers(0),
    writer=st.text(),
    progress=st.lists(SOURCES, max_size=3).map(tuple),
)


@given(MARKS)
def test_a_mark_is_read_as_it_was_written(mark: Mark) -> None:
    assert decode_mark(encode_mark(mark) | {"added-records": "1"}) == mark


@pytest.mark.parametrize(
    "damage", [{}, {"odradek.batch": "x"}, {"odradek.offsets": "{"}, {"odradek.offsets": '[{"t":["1","gICA"]}]'}]
)
def test_a_summary_without_a_whole_mark_has_none(damage: dict[str, str]) -> None:
    whole = encode_mark(Mark(pipeline="p", query="q", batch=1, writer="w"))
    assert decode_mark(damage and whole | damage) is None


def test_the_offsets_of_200_partitions_take_less_than_a_kilobyte() -> None:
    offsets = {number: 1_000_000 + 37 * number % 1000 for number in range(200)}
    text = encode_progress(({"orders": TopicOffsets("4a5b6c7d8e9f0a1b", offsets)},))
    assert len(text) < 1000
    assert decode_progress(text) == ({"orders": TopicOffsets("4a5b6c7d8e9f0a1b", offsets)},)


def test_damaged_progress_counts_as_unknown() -> None:
    assert decode_progress("[[") == decode_progress(None) == ()
