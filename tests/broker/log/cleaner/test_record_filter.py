"""The records of a batch that compaction keeps: both implementations agree with a literal one of the rules."""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.log.cleaner.checked_batches import Section
from odradek.broker.log.cleaner.compiled_record_filter import CompiledRecordFilter
from odradek.broker.log.cleaner.offset_map import OffsetMap
from odradek.broker.log.cleaner.record_filter import Kept, PlainRecordFilter, RecordFilter
from odradek.kernels import LIBRARY
from odradek.protocol.batches.record_batch import DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, read_header
from odradek.protocol.batches.records import Record, encode_batch, parse_records
from odradek.protocol.errors import CorruptBatchError

NOW_MS, HORIZON_MS = 1_800_000_000_000, 1_800_086_400_000
SECRET = random.Random(1).randbytes(16)
NewRecord = tuple[int, bytes | None, bytes | None]


def plain(max_bytes: int = 1 << 20, load_factor: float = 0.9) -> PlainRecordFilter:
    return PlainRecordFilter(OffsetMap(max_bytes, load_factor, secret=SECRET))


def compiled(max_bytes: int = 1 << 20, load_factor: float = 0.9) -> CompiledRecordFilter:
    assert LIBRARY is not None
    return CompiledRecordFilter(LIBRARY, OffsetMap(max_bytes, load_factor, secret=SECRET))


NewFilter = Callable[..., PlainRecordFilter | CompiledRecordFilter]
BOTH: list[NewFilter] = [plain] if LIBRARY is None else [plain, compiled]
both = pytest.mark.parametrize("new_filter", BOTH)


def section(records: Sequence[NewRecord], base_offset: int, *, attributes: int = 0, horizon_ms: int = 0) -> Section:
    """A batch's; with `horizon_ms`, as if compaction had set it, and the records' times are relative to it."""
    data = encode_batch([(*record, ()) for record in records], base_offset=base_offset)
    header = read_header(data)
    header = header._replace(attributes=header.attributes | attributes)
    if horizon_ms:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon_ms)
    return Section(header, bytes(data[HEADER_SIZE:]))


def keep(record_filter: RecordFilter, sections: list[Section], *, now_ms: int = NOW_MS) -> list[Kept]:
    """Return the records that stay, as a copy."""
    answers = record_filter.keep_records(sections, now_ms=now_ms, horizon_ms=HORIZON_MS, last_offsets=())
    return [
        each._replace(data=None if each.data is None else bytes(each.data))
        for each in answers
        if isinstance(each, Kept)
    ]


def compacted(new_filter: NewFilter, sections: list[Section], *, now_ms: int = NOW_MS) -> list[Kept]:
    record_filter = new_filter()
    assert not record_filter.index_keys(sections, 0)
    assert record_filter.offsets.latest_offset == sections[-1].header.last_offset
    return keep(record_filter, sections, now_ms=now_ms)


def records_of(section: Section, kept: Kept) -> list[Record]:
    """Return the records that a consumer sees."""
    header = section.header._replace(record_count=kept.record_count)
    if kept.has_new_horizon:
        header = header._replace(base_timestamp=HORIZON_MS)
    return parse_records(header, bytes(section.data if kept.data is None else kept.data))


@both
def test_only_the_last_value_of_a_key_stays_where_it_was(new_filter: NewFilter) -> None:
    sections = [
        section([(NOW_MS, b"a", b"1"), (NOW_MS + 1, b"b", b"2"), (NOW_MS + 2, b"a", b"3")], 10),
        section([(NOW_MS, b"b", b"4"), (NOW_MS, b"c", b"5")], 20),
        section([(NOW_MS + 9, b"d", b"6")], 30),
    ]
    kept = compacted(new_filter, sections)
    assert [record[:4] for each in zip(sections, kept, strict=True) for record in records_of(*each)] == [
        (12, NOW_MS + 2, b"a", b"3"),
        (20, NOW_MS, b"b", b"4"),
        (21, NOW_MS, b"c", b"5"),
        (30, NOW_MS + 9, b"d", b"6"),
    ]
    assert [each.record_count for each in kept] == [1, 2, 1]
    assert kept[0].max_timestamp == NOW_MS + 2
    assert [each.data is None for each in kept] == [False, True, True], "what is as it was is not copied"


@both
def test_a_tombstone_stays_until_its_horizon_and_brings_it_to_its_batch(new_filter: NewFilter) -> None:
    records = [(NOW_MS - 7, b"a", b"1"), (NOW_MS - 5, b"a", None), (NOW_MS - 200, b"b", b"2")]
    sections = [section(records, 0)]
    (kept,) = compacted(new_filter, sections)
    assert kept.has_new_horizon
    seen = records_of(sections[0], kept)
    assert [record[:4] for record in seen] == [(1, NOW_MS - 5, b"a", None), (2, NOW_MS - 200, b"b", b"2")]
    header = sections[0].header._replace(
        attributes=DELETE_HORIZON, base_timestamp=HORIZON_MS, record_count=2, max_timestamp=kept.max_timestamp
    )
    assert kept.data is not None
    marked = [Section(header, kept.data)]
    (kept,) = compacted(new_filter, marked, now_ms=HORIZON_MS - 1)
    assert kept == Kept(2, None, NOW_MS - 5, False), "the horizon is set once"
    (kept,) = compacted(new_filter, marked, now_ms=HORIZON_MS)
    assert [record[:4] for record in parse_records(header._replace(record_count=1), bytes(kept.data or b""))] == [
        (2, NOW_MS - 200, b"b", b"2")
    ]
    assert (kept.record_count, kept.max_timestamp, kept.has_new_horizon) == (1, NOW_MS - 200, False)


@both
def test_records_below_the_start_offset_are_not_indexed_again(new_filter: NewFilter) -> None:
    record_filter = new_filter()
    record_filter.index_keys([section([(1, b"a", b"1"), (2, b"b", b"1"), (3, b"c", b"1")], 0)], 2)
    assert (record_filter.offsets.size, record_filter.offsets.latest_offset) == (1, 2)


@both
def test_a_full_map_may_end_inside_a_batch(new_filter: NewFilter) -> None:
    record_filter = new_filter(1)
    offsets = record_filter.offsets
    sections = [
        section([(1, b"%d" % number, b"") for number in [*range(100 * n, 100 * n + 100), 0]], n * 101)
        for n in range(10)
    ]
    assert record_filter.index_keys(sections, 0)
    assert offsets.size == offsets.max_keys == 921
    assert offsets.latest_offset == 9 * 101 + 20
    kept = keep(record_filter, sections)
    assert [each.record_count for each in kept] == [99, *[100] * 7, 101, 101]


@both
def test_a_map_that_may_be_filled_to_the_last_slot_is_full_before_that(new_filter: NewFilter) -> None:
    """A new key is looked for until a free slot is found."""
    record_filter = new_filter(1, 1.0)
    assert record_filter.index_keys([section([(1, b"%d" % number, b"") for number in range(1500)], 0)], 0)
    assert (record_filter.offsets.size, record_filter.offsets.latest_offset) in {(960, 959), (0, -1)}
    assert record_filter.offsets.max_keys == 960


@both
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0c\0\0\0\1",
        b"\x0c\0\0\0\1\1\0\0",
        b"\x0e\0\0\0\1\1\0",
        b"\x0c\0\0\0\1\2\0",
        b"\x0c\0\0\0\2a\0",
        b"\x80" * 20,
        b"\x26" + b"\x80" * 20,
    ],
    ids=["nothing", "cut", "more", "too long", "no headers", "key to the end", "endless length", "endless number"],
)
def test_a_malformed_record_is_an_error(new_filter: NewFilter, data: bytes) -> None:
    given = Section(section([(1, b"", b"")], 7).header, data)
    for ask in (
        lambda: new_filter().index_keys([given], 0),
        lambda: keep(new_filter(), [given]),
    ):
        with pytest.raises(CorruptBatchError, match="offset 7"):
            ask()


@both
@pytest.mark.parametrize("count", [2**31 - 1, -1])
def test_a_wrong_record_count_allocates_no_memory(new_filter: NewFilter, count: int) -> None:
    given = section([(1, b"a", b"")], 0)
    given = given._replace(header=given.header._replace(record_count=count))
    with pytest.raises(CorruptBatchError):
        new_filter().index_keys([given], 0)


class Batch(NamedTuple):
    records: list[NewRecord]
    gap: int
    attributes: int
    horizon_ms: int


sizes = st.sampled_from([0, 1, 2, 7, 8, 9, 100])
keys = st.one_of(st.none(), sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size)))
times = st.one_of(st.integers(0, 200), st.integers(NOW_MS - 100, NOW_MS + 100), st.integers(-5, 2**60))
new_records = st.tuples(times, keys, st.one_of(st.none(), st.binary(max_size=3)))
batches = st.builds(
    Batch,
    st.lists(new_records, min_size=1, max_size=6),
    st.integers(0, 3),
    st.sampled_from([0, 0, LOG_APPEND_TIME]),
    st.sampled_from([0, 0, NOW_MS - 1, NOW_MS, NOW_MS + 1]),
)


@given(st.lists(batches, min_size=1, max_size=6), st.integers(0, 20), st.integers(0, 3))
@settings(max_examples=50)
def test_plain_and_compiled_filters_follow_the_rules(given: list[Batch], from_offset: int, not_indexed: int) -> None:
    sections: list[Section] = []
    offset = 0
    for batch in given:
        offset += batch.gap
        sections.append(section(batch.records, offset, attributes=batch.attributes, horizon_ms=batch.horizon_ms))
        offset = sections[-1].header.next_offset
    indexed = sections[: max(len(sections) - not_indexed, 1)]
    answers = []
    for new_filter in BOTH:
        record_filter = new_filter()
        record_filter.index_keys(indexed, from_offset)
        answers.append(keep(record_filter, sections))
    assert answers[0] == answers[-1]
    last: dict[bytes | None, int] = {}
    for each in indexed:
        for record in parse_records(each.header, bytes(each.data)):
            if record.offset >= from_offset:
                last[record.key] = record.offset
    behind = indexed[-1].header.last_offset
    for each, kept_of in zip(sections, answers[0], strict=True):
        header = each.header
        is_past = header.has_delete_horizon and header.base_timestamp <= NOW_MS
        expected = [
            record
            for record in parse_records(header, bytes(each.data))
            if record.offset > behind
            or (
                (record.key is not None and record.offset >= last.get(record.key, -1))
                and not (record.value is None and is_past)
            )
        ]
        assert records_of(each, kept_of) == expected
        if kept_of.data is not None and expected:
            assert kept_of.max_timestamp == max(-1, *(record.timestamp for record in expected))
        tombstones = any(record.value is None for record in expected)
        assert kept_of.has_new_horizon == (tombstones and not header.has_delete_horizon)
