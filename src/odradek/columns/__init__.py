"""Conversion of record batches to Arrow columns and back, without an object per record.

`decode_batches`, `decode_partitions` and `iterate_columns` (`decode`) read fetched batches; `encode_columns` (`encode`)
writes batches to produce, and `key_partitions` partitions keyed rows; `produce_rows` checks the rows of `send_arrow`.
The `*_kernel` files are the loops over records, which numba compiles at their first call and caches on disk; `memory`
is their access to memory. `check_kernel` validates records for `log.batch_contents`. `compaction_kernel` is for
`log.cleaner`: `compaction_code` has another process compile it, and loads it without importing numba;
`compaction_rows` are the rows that both sides share.

Only this room imports numba, only this room and `spark` import pyarrow; importing this package imports neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.columns.decode import (
        COLUMNS,
        DEFAULT_COLUMNS,
        HEADERS_TYPE,
        PartitionBatches,
        RecordColumns,
        decode_batches,
        decode_partitions,
        iterate_columns,
        iterate_partitions,
    )
    from odradek.columns.encode import (
        DEFAULT_BATCH_BYTES,
        ColumnEncoder,
        EncodedBatch,
        encode_columns,
        key_partitions,
    )
    from odradek.columns.produce_rows import PRODUCE_COLUMNS, ProduceRows, record_batches

_HOMES = {
    "odradek.columns.encode": (
        "DEFAULT_BATCH_BYTES",
        "ColumnEncoder",
        "EncodedBatch",
        "encode_columns",
        "key_partitions",
    ),
    "odradek.columns.produce_rows": ("PRODUCE_COLUMNS", "ProduceRows", "record_batches"),
}

__all__ = [
    "COLUMNS",
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_COLUMNS",
    "HEADERS_TYPE",
    "PRODUCE_COLUMNS",
    "ColumnEncoder",
    "EncodedBatch",
    "PartitionBatches",
    "ProduceRows",
    "RecordColumns",
    "decode_batches",
    "decode_partitions",
    "encode_columns",
    "iterate_columns",
    "iterate_partitions",
    "key_partitions",
    "record_batches",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "odradek.columns.decode")
    value = globals()[name] = getattr(import_module(home), name)
    return value
