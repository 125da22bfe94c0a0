"""The library's look into records agrees with the one in Python. Row M1."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from odradek.broker.log import batch_contents
from odradek.broker.log.batch_contents import RecordLimits, check_records
from odradek.kernels import LIBRARY, Library
from odradek.model import KafkaError
from odradek.protocol.batches.record_batch import HEADER_SIZE, BatchHeader
from odradek.protocol.batches.records import encode_batch, encode_record

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


def result(data: bytes, header: BatchHeader, limits: RecordLimits, library: Library | None) -> Any:
    try:
        return check_records(header, data, limits, NOW, library)
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
    assert result(bytes(data), header, limits, LIBRARY) == result(bytes(data), header, limits, None)


@given(
    records=_RECORDS,
    varint=st.sampled_from([b"\x80" * each + last for each in range(11) for last in (b"\0", b"\1", b"\2", b"\x7f")]),
    place=st.integers(0, 400),
)
def test_both_say_the_same_of_long_varints(records: Any, varint: bytes, place: int) -> None:
    data = encode_batch(records)[HEADER_SIZE:]
    place %= len(data)
    data[place : place + len(varint)] = varint
    count = len(records)
    header = BatchHeader(0, 0, 0, 2, 0, 0, count - 1, records[0][0], NOW, -1, -1, -1, count)
    assert result(bytes(data), header, KEYED, LIBRARY) == result(bytes(data), header, KEYED, None)


@pytest.mark.skipif(LIBRARY is None, reason="the library is switched off")
@given(records=_RECORDS)
def test_right_records_are_plainly_fine(records: Any) -> None:
    times = [timestamp for timestamp, *_ in records]
    limits = RecordLimits(needs_keys=False, before_max_ms=None, after_max_ms=None, max_bytes=0)
    assert checked(encode_batch(records), limits) == 2 * (max(times) + 1) + 1


def checked(batch: bytearray, limits: RecordLimits) -> int:
    assert LIBRARY is not None
    packed = limits.packed()
    return LIBRARY.check(bytes(batch), None, len(batch) - HEADER_SIZE, NOW, packed.buffer_info()[0])


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63), 2**62])
@pytest.mark.parametrize("delta", [-1, 0, 1])
def test_times_that_exceed_64_bits_are_refused(base: int, delta: int) -> None:
    data = b"".join(encode_record(each, number, None, None, ()) for number, each in enumerate((0, delta)))
    header = BatchHeader(0, 0, 0, 2, 0, 0, 1, base, base, -1, -1, -1, 2)
    limits = replace(KEYED, needs_keys=False)
    assert result(data, header, limits, LIBRARY) == result(data, header, limits, None)


@pytest.mark.skipif(LIBRARY is None, reason="the library is switched off")
def test_headers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = encode_batch([(0, None, None, [("", None)] * 3)] * 2)
    for most in (5, 6):
        monkeypatch.setattr(batch_contents, "MAX_RECORDS", most)
        assert (checked(batch, replace(KEYED, needs_keys=False)) >= 0) == (most == 6)
