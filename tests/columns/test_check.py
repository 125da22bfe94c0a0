"""The compiled look into records agrees with the one in Python. Row M1."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.log.batch_contents import RecordLimits, check_records, compiled_check
from odradek.columns.check_kernel import check_section
from odradek.model import KafkaError
from odradek.protocol.batches.record_batch import HEADER_SIZE, BatchHeader
from odradek.protocol.batches.records import encode_batch

NOW = 1_800_000_000_000
LIMITS = RecordLimits(needs_keys=False, before_max_ms=1000, after_max_ms=1000, max_bytes=1 << 20)
KEYED = RecordLimits(needs_keys=True, before_max_ms=None, after_max_ms=None, max_bytes=1 << 20)

_TEXT = st.one_of(st.none(), st.binary(max_size=200))
_RECORDS = st.lists(
    st.tuples(
        st.one_of(st.integers(NOW - 1001, NOW + 1001), st.just(-1)),
        _TEXT,
        _TEXT,
        st.lists(st.tuples(st.text(max_size=3), _TEXT), max_size=3),
    ),
    min_size=1,
    max_size=8,
)
_SPOILS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2)


def result(data: bytes, header: BatchHeader, limits: RecordLimits, compiled: Any) -> Any:
    try:
        return check_records(header, data, limits, NOW, compiled)
    except KafkaError as error:
        return error.code, str(error)


@given(records=_RECORDS, spoils=_SPOILS, limits=st.sampled_from([LIMITS, KEYED]), more=st.sampled_from([0, 0, 1, -1]))
def test_both_say_the_same_of_right_and_of_spoiled_records(
    records: Any, spoils: list[tuple[int, int]], limits: RecordLimits, more: int
) -> None:
    data = encode_batch(records)[HEADER_SIZE:]
    for place, byte in spoils:
        data[place % len(data)] = byte
    count = max(len(records) + more, 1)
    header = BatchHeader(0, 0, 0, 2, 0, 0, count - 1, records[0][0], NOW, -1, -1, -1, count)
    assert result(bytes(data), header, limits, check_section) == result(bytes(data), header, limits, None)


@given(records=_RECORDS)
def test_right_records_are_plainly_fine(records: Any) -> None:
    data = bytes(encode_batch(records)[HEADER_SIZE:])
    times = [timestamp for timestamp, *_ in records]
    found = check_section(data, len(records), times[0], -(2**63), 2**63 - 1, needs_keys=False)
    assert found == (max(times), True)


@pytest.mark.parametrize("base", [2**62, -(2**62)])
def test_times_that_might_overflow_are_left_to_python(base: int) -> None:
    data = bytes(encode_batch([(0, None, None, ())])[HEADER_SIZE:])
    assert check_section(data, 1, base, -(2**63), 2**63 - 1, needs_keys=False) is None


def test_the_compiled_check_exists_where_numba_does() -> None:
    assert compiled_check() is check_section
