"""The writers of the sink `odradek_iceberg`: tasks write Parquet files, the driver commits them in one snapshot.

    Spark's socket → Arrow → Parquet files → their entries → the driver → one snapshot of the table
                                             and, in the mode upsert, the keys of their rows

A batch that Spark repeats, after a crash or in another driver, is in the table once (`tables.machine.committing`).
Files that no snapshot lists, of failed tasks and lost drivers, stay in the table's folder.
"""

import logging
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from odradek.model import ConfigurationError, OdradekError
from odradek.runtime import system_runtime
from odradek.spark.brief_errors import brief_errors
from odradek.spark.tables.batch_offsets import batch_offsets, query_id
from odradek.spark.tables.options import TableOptions
from odradek.tables.columns import keyed_columns
from odradek.tables.data_files import FileLayout, WrittenFiles, iceberg_type, layout_of, write_files
from odradek.tables.housekeeping import expire
from odradek.tables.location import existing_table, table_errors
from odradek.tables.machine.committing import Batch, Planned, TableState, is_written
from odradek.tables.machine.marks import PREFIX, Mark
from odradek.tables.table import check_table, commit_batch, prepared_table, state_of
from odradek.tables.upserts import write_changes


class TableCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """A task's files in parts, the batch that they are of, and the table as it was when the task was planned."""

    def __init__(self, written: tuple[WrittenFiles, ...], query: str, batch: int, planned: Planned) -> None:
        self.written = written
        self.query = query
        self.batch = batch
        self.planned = planned


_log = logging.getLogger("odradek.spark")
Messages = Sequence[TableCommitMessage | None]


def arrow_columns(schema: Any) -> Any:
    """Return a query's columns as Arrow and Iceberg have them. Raise `ConfigurationError` for a type that they lack."""
    import pyarrow as pa
    from pyspark.errors import PySparkException

    names = [field.name for field in schema]
    twice = next((name for name in names if [each.lower() for each in names].count(name.lower()) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"two columns are named {twice}: rename one with AS")
    try:
        columns = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise ConfigurationError(f"a column has a type that Arrow lacks: {error}") from None
    return pa.schema([field.with_type(iceberg_type(field.type)) for field in columns])


def prepare(options: TableOptions, schema: Any) -> Any:
    """Return the table, made or changed to have the columns of a query. Raise `OdradekError` if that cannot be."""
    return prepared_table(
        options.location,
        _table_columns(options, schema),
        key=() if options.key is None else options.key.columns,
        partition_by=options.partition_by,
        properties=options.properties,
    )


def check_columns(options: TableOptions, schema: Any) -> None:
    """Raise `OdradekError` if `prepare` would; a table that does not exist yet is not made."""
    columns, key = _table_columns(options, schema), () if options.key is None else options.key.columns
    check_table(options.location, columns, key=key, partition_by=options.partition_by)


def _table_columns(options: TableOptions, schema: Any) -> Any:
    columns = arrow_columns(schema)
    return columns if options.key is None else keyed_columns(columns, options.key)


def _write(options: TableOptions, layout: FileLayout, batches: Iterator[Any]) -> tuple[WrittenFiles, ...]:
    with table_errors(options.location):
        if options.key is not None:
            return write_changes(batches, layout, options.key)
        return (write_files(batches, layout),)


class _Plan:
    """The plan that the tasks of a batch are started with: the layout of files, and the progress of each pipeline."""

    def __init__(self, options: TableOptions, schema: Any) -> None:
        table = prepare(options, schema)
        self.layout: FileLayout = layout_of(table)
        names = [ref.removeprefix(PREFIX) for ref in table.metadata.refs if ref.startswith(PREFIX)]
        self._states: Mapping[str, TableState] = {name: state_of(table.metadata, name) for name in ("", *names)}

    def state(self, pipeline: str) -> TableState:
        return self._states.get(pipeline, self._states[""])

    def planned(self, pipeline: str) -> Planned:
        state = self.state(pipeline)
        return Planned(uuid=state.uuid, tag=state.tag)


class TableStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("odradek_iceberg")`. Without a plan, it only commits."""

    def __init__(self, options: TableOptions, schema: Any, *, with_plan: bool) -> None:
        self._options = options
        self._plan = _Plan(options, schema) if with_plan else None

    @brief_errors()
    def write(self, iterator: Iterator[Any]) -> TableCommitMessage:
        assert self._plan is not None
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = int(context.getLocalProperty("streaming.sql.batchId"))
        pipeline = self._options.pipeline or query
        planned = self._plan.planned(pipeline)
        if is_written(self._plan.state(pipeline), query, batch):
            for _ in iterator:
                pass  # Spark's writer of the rows waits for its reader
            return TableCommitMessage((), query, batch, planned)
        return TableCommitMessage(_write(self._options, self._plan.layout, iterator), query, batch, planned)

    @brief_errors()
    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        told = [message for message in messages if message is not None]
        query = told[0].query if told else query_id(self._options.checkpoint)
        if query is None:
            raise OdradekError("a batch without a task is not committed: the checkpoint has no readable file metadata")
        assert all((each.query, each.batch) == (query, batchId) for each in told)
        pipeline = self._options.pipeline or query
        offsets = batch_offsets(self._options.checkpoint, batchId)
        mark = Mark(pipeline=pipeline, query=query, batch=batchId, writer=_writer(), progress=offsets.end)
        planned = told[0].planned if told else _planned_now(self._options, pipeline)
        if any(each.planned != planned for each in told):
            raise OdradekError(f"the tasks of batch {batchId} were planned with different states of the table")
        commit_batch(
            self._options.location,
            Batch(mark=mark, start=offsets.start),
            planned,
            [part for each in told for part in each.written],
        )
        keep = self._options.keep_snapshots
        if keep and (batchId + 1) % keep == 0:
            _expire(self._options, keep)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Leave the files: Spark calls this after a failed commit, too, which the table may have."""
        del messages, batchId


class TableBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("odradek_iceberg")`: rows are appended, or upserted, in one snapshot."""

    def __init__(self, options: TableOptions, schema: Any) -> None:
        self._options = options
        self._plan = _Plan(options, schema)
        self._job = f"job-{uuid.uuid4()}"

    @brief_errors()
    def write(self, iterator: Iterator[Any]) -> TableCommitMessage:
        written = _write(self._options, self._plan.layout, iterator)
        return TableCommitMessage(written, self._job, 0, self._plan.planned(""))

    @brief_errors()
    def commit(self, messages: Messages) -> None:
        mark = Mark(pipeline="", query=self._job, batch=0, writer=_writer())
        written = [part for message in messages if message is not None for part in message.written]
        commit_batch(self._options.location, Batch(mark=mark), self._plan.planned(""), written)

    def abort(self, messages: Messages) -> None:
        """Leave the files, as `TableStreamWriter.abort` does."""
        del messages


def _writer() -> str:
    """Return a name for this driver, which errors of other drivers show."""
    return socket.gethostname()


def _expire(options: TableOptions, keep: int) -> None:
    """Expire all but the newest snapshots. An error is only logged: the batch is in the table."""
    try:
        found = expire(options.location, keep=keep, before_ms=system_runtime().clock.now_ms())
    except OdradekError as error:
        _log.warning("Old snapshots of %s are not expired: %s", options.location, error)
    else:
        _log.info("%s: %d snapshots are expired, %d files removed", options.location, found.snapshots, found.files)


def _planned_now(options: TableOptions, pipeline: str) -> Planned:
    state = state_of(existing_table(options.location).metadata, pipeline)
    return Planned(uuid=state.uuid, tag=state.tag)
