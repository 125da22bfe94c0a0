"""Record batches to Arrow columns and back, without an object per record.

`decode_batches` and `iterate_columns` read what brokers send; `encode_columns` writes what they take, and
`key_partitions` says where keyed rows go. The loops over records are compiled by numba when first called, and kept on
disk. This is the only room beside the clients' Arrow face, `spark` and `lab` that knows pyarrow and numba.
"""

from odradek.columns.decode import (
    COLUMNS,
    DEFAULT_COLUMNS,
    HEADERS_TYPE,
    RecordColumns,
    decode_batches,
    iterate_columns,
)
from odradek.columns.encode import DEFAULT_BATCH_BYTES, EncodedBatch, encode_columns, key_partitions

__all__ = [
    "COLUMNS",
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_COLUMNS",
    "HEADERS_TYPE",
    "EncodedBatch",
    "RecordColumns",
    "decode_batches",
    "encode_columns",
    "iterate_columns",
    "key_partitions",
]
