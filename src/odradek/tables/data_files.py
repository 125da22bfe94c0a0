"""Parquet files of a table, written by tasks from Arrow batches, and listed by the driver in a snapshot."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

BUFFER_BYTES: Final = 128 << 20
"""The Arrow bytes that a task collects before it writes files: one, or one for each partition that they are in."""

_WRITERS: Final = 4
"""The files that a task writes at a time: those of a table with a `path` are synced, which waits for the disk."""


class FileLayout(Struct, frozen=True):
    """A table as a task needs it: its metadata without snapshots, as JSON, and its storage. It can be pickled."""

    metadata: str
    io: Any
    spec_id: int


class WrittenFiles(Struct, frozen=True):
    """The files that a task wrote. pyiceberg does not pickle the id of their partition spec with them.

    For a table with a key, `changes` has those of the part of the batch that the files are of (`machine.changes`).
    """

    files: tuple[Any, ...]
    spec_id: int
    rows: int
    changes: pa.Table | None = None


def layout_of(table: "Table") -> FileLayout:
    emptied: dict[str, Any] = {"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []}
    metadata = table.metadata.model_copy(update={**emptied, "current_snapshot_id": None})
    return FileLayout(metadata.model_dump_json(), table.io, metadata.default_spec_id)


def write_files(batches: Iterable[pa.RecordBatch], layout: FileLayout) -> WrittenFiles:
    """Write the rows of all batches to new files that no snapshot lists yet."""
    from pyiceberg.table.metadata import TableMetadataUtil

    metadata = TableMetadataUtil.parse_raw(layout.metadata)
    files: list[DataFile] = []
    rows = 0
    for part in parts_of(batches):
        files += data_files(metadata, part, layout.io)
        rows += part.num_rows
    return WrittenFiles(tuple(files), layout.spec_id, rows)


def data_files(metadata: Any, rows: pa.Table, io: Any) -> list["DataFile"]:
    """Write rows to Parquet files and return their entries for a manifest.

    The only call of this private function of pyiceberg: its public `add_files` fails with bucket transforms, and
    `append` commits by itself. `tests/tables/test_tables_pyiceberg.py` says what it must return.
    """
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    def write(part: pa.Table) -> list["DataFile"]:
        return list(_dataframe_to_data_files(table_metadata=metadata, df=part, io=io))

    parts = _partitions(metadata, rows)
    if len(parts) == 1:
        return write(parts[0])
    with ThreadPoolExecutor(_WRITERS) as pool:
        return [file for files in pool.map(write, parts) for file in files]


def _partitions(metadata: Any, rows: pa.Table) -> list[pa.Table]:
    """Return the rows of each partition, in their order.

    pyiceberg filters all rows once for each partition: 17 of 20 seconds for 400,000 rows of 200.
    """
    schema, codes = metadata.schema(), np.zeros(len(rows), np.int64)
    for field in metadata.spec().fields:
        name = schema.find_column_name(field.source_id)
        kind = schema.find_type(field.source_id)
        values = field.transform.pyarrow_transform(kind)(_column(rows, name))
        encoded = pa.chunked_array(values).combine_chunks().dictionary_encode("encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]  # so that the next product stays small
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order])) + 1
    if not len(starts):
        return [rows]
    ordered = rows.take(order)
    ends = (*starts, len(rows))
    return [ordered.slice(start, end - start) for start, end in zip((0, *starts), ends, strict=True)]


def _column(rows: pa.Table, name: str) -> Any:
    """Return a column, or the field `a.b` of a structure."""
    if name in rows.column_names:
        return rows.column(name)
    first, *rest = name.split(".")
    return pc.struct_field(rows.column(first), rest)


def parts_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables of about `BUFFER_BYTES`."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(as_iceberg(batch))
        size += pending[-1].nbytes
        if size >= BUFFER_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def as_iceberg(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with Iceberg's types: timestamps in UTC, and integers of at least 32 bits."""
    fields = [field.with_type(iceberg_type(field.type)) for field in batch.schema]
    schema = pa.schema(fields)
    return batch if schema.equals(batch.schema) else batch.cast(schema)


def iceberg_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Iceberg has values of an Arrow type of Spark."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(iceberg_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(iceberg_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(iceberg_type(kind.key_type), kind.item_field.with_type(iceberg_type(kind.item_type)))
    return kind
