"""Target: the library's walk over record batches beside the plain one, between pages that nobody may touch.

The library reads and writes at addresses. So its input, and each of its outputs, ends where a page without access
begins, and begins behind one: a byte too far ends the process, and that is a finding.
"""

import ctypes
import mmap
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa

from conformance.fuzz.fuzz_batches import batch_seeds, mutate_batch, read_all, read_records, repaired
from conformance.fuzz.fuzz_engine import Target
from odradek.columns import COLUMNS, RecordColumns, decode_batches
from odradek.columns import decode as columns_decode
from odradek.columns.decode import MAX_OFFSET
from odradek.kernels import address
from odradek.model import Buffer, KafkaError
from odradek.protocol.batches import records
from odradek.protocol.batches.compression import Codec, decompress

_ALL = RecordColumns(names=COLUMNS, timestamp_unit="ms")
_MOST_BYTES = 1 << 16
_NO_ACCESS = 0
_FIRST = -(1 << 63)


class Cell:
    """Memory between two pages without access; `take` gives its last bytes, or its first."""

    def __init__(self, size: int) -> None:
        page = mmap.PAGESIZE
        self._room = -(-size // page) * page
        self._map = mmap.mmap(-1, self._room + 2 * page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for place in (address, address + page + self._room):
            if libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(page), ctypes.c_int(_NO_ACCESS)):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._inside = memoryview(self._map)[page : page + self._room]

    def take(self, size: int, *, at_end: bool) -> memoryview:
        """`size` bytes beside one of the two pages."""
        return self._inside[self._room - size :] if at_end else self._inside[:size]


_INPUTS: Final = [Cell(_MOST_BYTES) for _ in range(8)]
_OUTPUTS: Final = [Cell(4 * _MOST_BYTES) for _ in range(12)]


class _Memory:
    """Hands the cells out, one after the other, for one call of the decoder."""

    def __init__(self, *, at_end: bool) -> None:
        self._at_end = at_end
        self._inputs, self._outputs = iter(_INPUTS), iter(_OUTPUTS)

    def hold(self, data: Buffer) -> memoryview:
        cell = next(self._inputs, None)
        if cell is None or len(data) > _MOST_BYTES:
            return memoryview(data)
        place = cell.take(len(data), at_end=self._at_end)
        place[:] = data
        return place

    def output(self, size: int) -> Any:
        """Zeros, as an array of bytes."""
        array = np.frombuffer(next(self._outputs).take(size, at_end=True), np.uint8)
        array[:] = 0
        return array

    def decompress(self, codec: Codec, data: Buffer, *, max_bytes: int) -> memoryview:
        return self.hold(decompress(codec, data, max_bytes=max_bytes))


class _GuardedColumn:
    """`_Bytes` of the decoder, in cells."""

    memory: _Memory

    def __init__(self, rows: int, room: int) -> None:
        self._ends = self.memory.output(4 * (rows + 1))
        self._data = self.memory.output(max(room, 1))
        self._nulls = self.memory.output(rows // 8 + 1)
        places = [address(each) for each in (self._ends, self._data, self._nulls)]
        self.places = np.array(places, np.int64)

    def finish(self, kind: pa.DataType, rows: int, size: int, null_count: int) -> pa.Array:
        valid = pa.py_buffer(bytes(~self._nulls)) if null_count else None
        ends, data = bytes(self._ends[: 4 * (rows + 1)]), bytes(self._data[:size])
        return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(ends), pa.py_buffer(data)], null_count)


def check_columns(data: bytes) -> None:
    """The columns hold what the records hold, where both take the bytes; and both refuse the same."""
    for candidate in dict.fromkeys((data, repaired(data))):
        if candidate is None or len(candidate) > _MOST_BYTES or len(read_all(candidate) or ()) > 2:
            continue
        memory = _Memory(at_end=bool(len(data) & 1))
        column = type("_", (_GuardedColumn,), {"memory": memory})
        with mock.patch.multiple(columns_decode, _Bytes=column, decompress=memory.decompress):
            rows = _columns(memory.hold(candidate))
        with mock.patch.object(columns_decode, "LIBRARY", None), mock.patch.object(records, "LIBRARY", None):
            plain = _columns(memoryview(candidate))
        assert rows == plain == _records(candidate)


def _columns(buffer: memoryview) -> list[tuple[Any, ...]] | None:
    try:
        batch = decode_batches(buffer, _ALL, from_offset=_FIRST, check_crcs=False, max_bytes=_MOST_BYTES)
    except KafkaError:
        return None
    batch.validate(full=True)
    timestamps = batch["timestamp"].cast(pa.int64()).to_pylist()
    headers = [tuple((each["key"], each["value"]) for each in row) for row in batch["headers"].to_pylist()]
    keys, values = batch["key"].to_pylist(), batch["value"].to_pylist()
    return list(zip(batch["offset"].to_pylist(), timestamps, keys, values, headers, strict=True))


def _records(buffer: bytes) -> list[tuple[Any, ...]] | None:
    found: list[tuple[Any, ...]] = []
    batches = read_all(buffer)
    for position, header in batches or ():
        if header.is_control or header.next_offset <= _FIRST or header.base_offset >= MAX_OFFSET:
            continue
        records = read_records(buffer, position)
        if records is None:
            return None
        found += [tuple(record) for record in records if record.offset < MAX_OFFSET]
    return None if batches is None else found


TARGETS = {
    "columns": Target(
        check=check_columns,
        seeds=batch_seeds,
        mutate=mutate_batch,
        reaches={"odradek.columns.decode": 0.7},
        runs=1500,
        longest=2048,
    )
}
