"""The broker's validation of a batch's records, compiled by numba.

A batch that is not certainly valid, for example with long varints, is validated again in Python by
`broker.log.batch_contents`, which finds the error, if any.
"""

from typing import Any, Final

from odradek.columns.decode_kernel import MIN_RECORD_BYTES, njit, varint
from odradek.columns.memory import address

INVALID: Final = -1
IN_SEQUENCE: Final = 0
"""The offset deltas are 0, 1, 2 and so on."""
OUT_OF_SEQUENCE: Final = 1

_NO_TIMESTAMP: Final = -1
_LONG: Final = 1 << 61
"""The limit of timestamps and deltas here, so that their sum does not overflow; others are validated in Python."""
_LOST: Final = 1 << 62


@njit
def _int(position: int, end: int) -> tuple[int, int]:
    """Return `(value, position after it)` of a varint; `_LOST` as position if invalid or longer than four bytes."""
    value, after = varint(position, end)
    return value, after if after - position <= 4 else _LOST


@njit
def _part(position: int, end: int) -> tuple[int, int]:
    """Return `(length, position after it, or _LOST)` of a length-prefixed field; a negative length is null."""
    length, position = _int(position, end)
    return length, position + max(length, 0) if length <= end - position else _LOST


@njit
def _headers_end(position: int, end: int) -> int:
    """Return the position after a record's headers; `_LOST` if they may be invalid."""
    count, position = _int(position, end)
    if count < 0:
        return _LOST
    for _ in range(count):
        length, position = _part(position, end)
        if length < 0 or position > end:
            return _LOST
        _, position = _part(position, end)
    return position


@njit
def check(table: Any) -> tuple[int, int]:
    """Return `(state, max timestamp)` for the `table` of `check_section`.

    The state is `INVALID`, `IN_SEQUENCE` or `OUT_OF_SEQUENCE`.
    """
    position, size, count, base_timestamp, earliest, latest, needs_keys = table
    end = position + size
    state, largest = IN_SEQUENCE, _NO_TIMESTAMP
    for index in range(count):
        length, position = _int(position, end)
        if length < MIN_RECORD_BYTES - 1 or length > end - position:
            return INVALID, largest
        record_end = position + length
        start = position + 1
        delta, position = varint(start, record_end)
        if position - start > 9 or delta < -_LONG or delta > _LONG:
            return INVALID, largest
        timestamp = base_timestamp + delta
        if timestamp != _NO_TIMESTAMP and (timestamp < earliest or timestamp > latest):
            return INVALID, largest
        largest = max(largest, timestamp)
        offset_delta, position = _int(position, record_end)
        if offset_delta != index:
            state = OUT_OF_SEQUENCE
        key_length, position = _part(position, record_end)
        if needs_keys and key_length < 0:
            return INVALID, largest
        _, position = _part(position, record_end)
        if _headers_end(position, record_end) != record_end:
            return INVALID, largest
        position = record_end
    return (state if position == end else INVALID), largest


def check_section(
    data: bytes, count: int, base_timestamp: int, earliest: int, latest: int, *, needs_keys: bool
) -> tuple[int, bool] | None:
    """Return `(max timestamp in ms, whether the offset deltas are 0, 1, 2, …)`; None if a record may be invalid.

    `data` are the uncompressed records; timestamps must be in `[earliest, latest]` or -1.
    """
    if not -_LONG <= base_timestamp <= _LONG:
        return None
    table = (address(data), len(data), count, base_timestamp, earliest, latest, int(needs_keys))
    state, largest = check(table)
    return None if state == INVALID else (largest, state == IN_SEQUENCE)
