"""The same as `PlainRecordFilter` by compiled code, without the interpreter's lock, where numba is installed.

numba is slow to import and takes a hundred megabytes, so that it is asked for only when there is much to do.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from odradek.log.offset_map import OffsetMap
from odradek.log.record_filter import Kept, PlainRecordFilter, RecordFilter, Section
from odradek.protocol.compression import Buffer
from odradek.protocol.errors import CorruptBatchError

WORTHWHILE_BYTES: Final = 64 << 20
"""From here on a compaction is worth the import."""


class CompiledRecordFilter:
    """See `RecordFilter`. An `OffsetMap` that it has used is of no use to another one."""

    def __init__(self) -> None:
        """Raises `ImportError` where numba is not installed."""
        from odradek.columns import filter_kernel, memory

        self._kernel = filter_kernel
        self._address = memory.address

    def index_keys(self, sections: Sequence[Section], offsets: OffsetMap, from_offset: int) -> bool:
        """See `RecordFilter`."""
        table = self._table(sections, now_ms=0)
        offsets.reserve(int(table[:, self._kernel.RECORD_COUNT].sum()))
        state = np.array([offsets.size, offsets.latest_offset], np.int64)
        answer = self._kernel.index_keys(
            table, from_offset, offsets.first, offsets.second, offsets.offsets, offsets.max_keys, _words(offsets), state
        )
        self._check(sections, answer)
        offsets.size, offsets.latest_offset = state.tolist()
        if answer == self._kernel.FULL:
            return True
        offsets.latest_offset = sections[-1].header.last_offset
        return False

    def keep_records(
        self, sections: Sequence[Section], offsets: OffsetMap, *, now_ms: int, horizon_ms: int
    ) -> list[Kept]:
        """See `RecordFilter`."""
        kernel = self._kernel
        table = self._table(sections, now_ms=now_ms)
        counts = table[:, kernel.RECORD_COUNT]
        output = np.empty(int(table[:, kernel.SECTION_SIZE].sum() + kernel.MOST_GROWTH * counts.sum()), np.uint8)
        flags = np.empty(int(counts.max(initial=0)), np.bool_)
        place = int(output.__array_interface__["data"][0])
        columns = offsets.first, offsets.second, offsets.offsets
        answer = kernel.keep_records(table, offsets.latest_offset, horizon_ms, *columns, _words(offsets), flags, place)
        self._check(sections, answer)
        data, position = output.data, 0
        answers = []
        for row, section in zip(table.tolist(), sections, strict=True):
            size = row[kernel.OUTPUT_SIZE]
            kept: Buffer | None = None
            if size >= 0:
                kept = data[position : position + size]
                position += size
            is_changed = size >= 0 and row[kernel.KEPT]
            latest = row[kernel.MAX_TIMESTAMP] if is_changed else section.header.max_timestamp
            answers.append(Kept(row[kernel.KEPT], kept, latest, bool(row[kernel.NEW_HORIZON])))
        return answers

    def _table(self, sections: Sequence[Section], *, now_ms: int) -> Any:
        rows = []
        for header, data in sections:
            is_fixed = header.is_log_append_time
            # A number of records that lies may not ask for memory.
            count = header.record_count if 0 <= header.record_count <= len(data) else -1
            self._check_count(header.base_offset, count)
            rows.append(
                (
                    self._address(data),
                    len(data),
                    count,
                    header.base_offset,
                    header.max_timestamp if is_fixed else header.base_timestamp,
                    is_fixed,
                    header.has_delete_horizon + (header.has_delete_horizon and header.base_timestamp <= now_ms),
                    header.last_offset_delta,
                    0,
                    0,
                    0,
                    0,
                )
            )
        return np.array(rows, np.int64).reshape(-1, self._kernel.TABLE_WIDTH)

    def _check_count(self, base_offset: int, count: int) -> None:
        if count < 0:
            raise CorruptBatchError(f"the records of the batch at offset {base_offset} are malformed")

    def _check(self, sections: Sequence[Section], answer: int) -> None:
        if answer >= 0:
            self._check_count(sections[answer].header.base_offset, -1)


def choose_filter(size: int) -> RecordFilter:
    """The faster one for a log with `size` bytes to go through."""
    if size >= WORTHWHILE_BYTES:
        try:
            return CompiledRecordFilter()
        except ImportError:
            pass
    return PlainRecordFilter()


def _words(offsets: OffsetMap) -> Any:
    return np.frombuffer(offsets.secret, np.uint64)
