"""The contents of a table: its size, its pipelines' progress, its files, and the offsets of its rows."""

from typing import Any, Final

import numpy as np
from msgspec import Struct

from odradek.model import PreconditionError
from odradek.tables.location import TableLocation, existing_table, table_errors
from odradek.tables.machine.marks import PREFIX, Progress, decode_progress
from odradek.tables.table import STARTS, mark_of, state_of

OFFSET_COLUMNS: Final = ("partition", "offset")


class PipelineProgress(Struct, frozen=True, kw_only=True):
    """A pipeline's last batch in a table, and the next offset of each partition."""

    pipeline: str
    query: str
    batch: int
    writer: str
    snapshot: int
    committed_at_ms: int
    is_in_main: bool
    start: Progress
    progress: Progress


class Description(Struct, frozen=True, kw_only=True):
    """A table's metadata in short."""

    table: str
    uuid: str
    metadata: str
    rows: int
    files: int
    bytes: int
    snapshots: int
    key: tuple[str, ...]
    """Of a table that is upserted."""
    partitioned_by: tuple[str, ...]
    columns: tuple[str, ...]
    pipelines: tuple[PipelineProgress, ...]


def describe_table(location: TableLocation) -> Description:
    table = existing_table(location)
    metadata, snapshot = table.metadata, table.current_snapshot()
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    schema = table.schema()
    return Description(
        table=str(location),
        uuid=str(metadata.table_uuid),
        metadata=table.metadata_location,
        rows=int(summary.get("total-records", 0)),
        files=int(summary.get("total-data-files", 0)),
        bytes=int(summary.get("total-files-size", 0)),
        snapshots=len(metadata.snapshots),
        key=tuple(sorted(schema.identifier_field_names())),
        partitioned_by=tuple(
            f"{each.transform}({schema.find_column_name(each.source_id)})" for each in table.spec().fields
        ),
        columns=tuple(f"{each.name} {each.field_type}" for each in schema.fields),
        pipelines=tuple(
            _progress(metadata, name.removeprefix(PREFIX)) for name in sorted(metadata.refs) if name.startswith(PREFIX)
        ),
    )


def _progress(metadata: Any, pipeline: str) -> PipelineProgress:
    state = state_of(metadata, pipeline)
    snapshot = metadata.snapshot_by_id(state.tag)
    mark = mark_of(snapshot)
    return PipelineProgress(
        pipeline=pipeline,
        query=mark.query,
        batch=mark.batch,
        writer=mark.writer,
        snapshot=snapshot.snapshot_id,
        committed_at_ms=snapshot.timestamp_ms,
        is_in_main=state.is_in_main,
        start=decode_progress(metadata.properties.get(STARTS + pipeline)),
        progress=mark.progress,
    )


def check_files(location: TableLocation) -> int:
    """Return the number of the table's data files. Raise `PreconditionError` if one is listed twice, or is gone.

    Its snapshot would have the rows of a file twice that two commits have added.
    """
    table = existing_table(location)
    with table_errors(location):
        paths = [] if table.current_snapshot() is None else table.inspect.data_files().column("file_path").to_pylist()
        twice = len(paths) - len(set(paths))
        if twice:
            again = next(path for path in paths if paths.count(path) > 1)
            raise PreconditionError(f"the table {location} lists {twice} files more than once, such as {again}")
        gone = [path for path in paths if not table.io.new_input(path).exists()]
    if gone:
        raise PreconditionError(
            f"the table {location} has lost {len(gone)} of its {len(paths)} files, such as {gone[0]}"
        )
    return len(paths)


def row_offsets(location: TableLocation, topic: str) -> dict[int, Any]:
    """Return the offsets of the table's rows by partition, as arrays with repetitions.

    A column `topic` tells the rows of a topic; without it, all rows count. Raise `PreconditionError` for a table
    without the columns `partition` and `offset`, and for rows without values in them.
    """
    table = existing_table(location)
    names = [field.name for field in table.schema().fields]
    missing = [name for name in OFFSET_COLUMNS if name not in names]
    if missing:
        raise PreconditionError(
            f"the table {location} has no column {missing[0]}, so its rows cannot be compared with records: SELECT "
            "partition and offset, too"
        )
    parts: dict[int, list[Any]] = {}
    with table_errors(location):
        from pyiceberg.expressions import AlwaysTrue, EqualTo

        wanted = EqualTo("topic", topic) if "topic" in names else AlwaysTrue()
        for batch in table.scan(row_filter=wanted, selected_fields=OFFSET_COLUMNS).to_arrow_batch_reader():
            if nulls := max(batch.column(name).null_count for name in OFFSET_COLUMNS):
                raise PreconditionError(
                    f"the table {location} has at least {nulls:,} rows without a partition or an offset, which cannot "
                    "be compared with records: others wrote them, or the pipeline did before its query had the columns"
                )
            partitions = batch.column("partition").to_numpy(zero_copy_only=False)
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            for number in np.unique(partitions):
                parts.setdefault(int(number), []).append(offsets[partitions == number])
    return {number: np.concatenate(each) for number, each in sorted(parts.items())}
