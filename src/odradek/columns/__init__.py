"""Converts record batches to Arrow columns and back, without an object per record.

`decode` reads fetched batches; `encode` writes batches to produce and computes the partitions of keys; `produce_rows`
validates the rows of `send_arrow`. The loops are those of `odradek.kernels`; without its library, Python's.

`import odradek.columns` does not load pyarrow: the first use of a name does, and raises `ConfigurationError` without
the extra `arrow`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.model import packages_of

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
    with packages_of("arrow", "Arrow columns"):
        value = globals()[name] = getattr(import_module(home), name)
    return value
