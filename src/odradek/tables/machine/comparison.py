"""Compares the offsets that a table has of a partition with those of the partition's records."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from odradek.tables.machine.changes import DELETES, OFFSET, PARTITION, TableKey, changes_of, last_changes


class Comparison(Struct, frozen=True, kw_only=True):
    """Counts of a partition's offsets, and the first offset of each kind of difference."""

    records: int
    rows: int
    missing: int
    repeated: int
    unknown: int
    """Rows whose offset is no record's: of an aborted transaction, or beyond what was compared."""
    first_missing: int | None = None
    first_repeated: int | None = None
    first_unknown: int | None = None

    @property
    def is_exact(self) -> bool:
        return not (self.missing or self.repeated or self.unknown)


def compare_offsets(records: Any, rows: Any) -> Comparison:
    """Compare arrays of offsets in any order: `records` are different ones, `rows` may repeat some."""
    distinct, counts = np.unique(rows, return_counts=True)
    missing = np.setdiff1d(records, distinct, assume_unique=True)
    unknown = np.setdiff1d(distinct, records, assume_unique=True)
    repeated = distinct[counts > 1]
    return Comparison(
        records=len(records),
        rows=len(rows),
        missing=len(missing),
        repeated=len(rows) - len(distinct),
        unknown=len(unknown),
        first_missing=_least(missing),
        first_repeated=_least(repeated),
        first_unknown=_least(unknown),
    )


def _least(offsets: Any) -> int | None:
    return int(offsets.min()) if len(offsets) else None


class LastRecords:
    """The last record of each key of a partition."""

    def __init__(self) -> None:
        self._offsets: list[Any] = [np.empty(0, np.int64)]
        self._changes: list[pa.Table] = []

    def add(self, records: pa.Table) -> None:
        """Add records, with their `offset`, `key` and `value`."""
        self._offsets.append(records.column("offset").to_numpy())
        keyed = records.filter(pc.is_valid(records.column("key")))
        columns = {
            "key": keyed.column("key"),
            OFFSET: keyed.column("offset"),
            "gone": pc.is_null(keyed.column("value")),
        }
        one = pa.table(columns | {PARTITION: pa.repeat(pa.scalar(0, pa.int64()), len(keyed))})
        self._changes.append(changes_of(one, TableKey(("key",), "gone")))
        if sum(map(len, self._changes[1:])) > len(self._changes[0]):
            self._changes = [last_changes(pa.concat_tables(self._changes))]

    def present(self) -> Any:
        """Return the offsets of all records."""
        return np.concatenate(self._offsets)

    def offsets(self) -> Any:
        """Return the offset of the last record of each key, but for tombstones and records without a key."""
        if not self._changes:
            return self._offsets[0]
        last = last_changes(pa.concat_tables(self._changes))
        return last.filter(pc.invert(last.column(DELETES))).column(OFFSET).to_numpy()
