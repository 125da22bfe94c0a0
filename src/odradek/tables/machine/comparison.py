"""Compares the offsets that a table has of a partition with those of the partition's records."""

from typing import Any

import numpy as np
from msgspec import Struct


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
