"""Upserts by copy on write: a batch's rows take the place of those with their keys, whose files are written again.

    a task     the last row of each key in its part of the batch → a new file, and its changes → the driver
    the driver the last change of each key in the batch → files of the table, and new ones, with a row that it replaces
               or deletes → new files with their other rows

The driver reads the key columns of each file that may have a key of the batch by its partition or its statistics, and
all columns of those that have one. Files that no snapshot lists are left, as elsewhere, to `housekeeping.clean`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from odradek.model import PreconditionError
from odradek.tables.data_files import BUFFER_BYTES, FileLayout, WrittenFiles, data_files, parts_of
from odradek.tables.machine.changes import DELETES, TableKey, changes_of, have_keys, keys_of, last_changes

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table

_MOST_LISTED: Final = 200
"""With more values than this in a list, pyiceberg ignores a file's statistics: then a range of keys is compared."""


class Replacement(Struct, frozen=True):
    """The files that a snapshot removes from the table and adds to it."""

    removed: tuple[Any, ...] = ()
    added: tuple[Any, ...] = ()


def write_changes(batches: Iterable[pa.RecordBatch], layout: FileLayout, key: TableKey) -> tuple[WrittenFiles, ...]:
    """Write the last row of each key, but no tombstones, to new files; return each part of the rows with its changes.

    Raise `PreconditionError` for rows whose key is null, and for two of one key whose order is unknown.
    """
    from pyiceberg.table.metadata import TableMetadataUtil

    metadata = TableMetadataUtil.parse_raw(layout.metadata)
    found: list[WrittenFiles] = []
    for part in parts_of(batches):
        numbered = changes_of(part, key).append_column("row", pa.array(range(part.num_rows), pa.int64()))
        changes = last_changes(numbered)
        kept = changes.filter(pc.invert(changes.column(DELETES))).column("row")
        rows = part.take(kept).drop_columns([key.tombstone] if key.tombstone else [])
        files = data_files(metadata, rows, layout.io) if rows.num_rows else []
        found.append(WrittenFiles(tuple(files), layout.spec_id, rows.num_rows, changes.drop_columns(["row"])))
    return tuple(found)


class Upsert:
    """A batch's changes to a table, and the files that they replace in its newest snapshot."""

    def __init__(self, written: Sequence[WrittenFiles]) -> None:
        """Find the last change of each key. Raise `PreconditionError` for two of one key whose order is unknown."""
        self._written = written
        self._changes = [each.changes for each in written if each.changes is not None]
        assert len(self._changes) == len(written)
        numbered = [
            part.append_column("part", pa.repeat(number, len(part))) for number, part in enumerate(self._changes)
        ]
        self._last = last_changes(pa.concat_tables(numbered))
        self._keys = keys_of(self._last)
        self._own: list[DataFile] | None = None
        self._searched: dict[tuple[str, ...], bool] = {}
        self._rewritten: tuple[frozenset[tuple[str, ...]], list[DataFile]] = frozenset(), []

    def replacement(self, table: "Table") -> Replacement:
        """Return the files that the changes replace in the table's newest snapshot.

        A second call, after a commit that was refused, searches and writes again only what others have changed.
        """
        names = set(self._keys.column_names)
        if table.schema().identifier_field_names() != names:
            raise PreconditionError(f"the key of the table was changed while rows with the key {names} were written")
        if self._own is None:
            self._own = list(self._own_files(table))
        candidates = table.scan(row_filter=_filter(self._keys)).plan_files()
        touched = [task for task in candidates if self._is_touched(table, task)]
        files = frozenset(map(_identity, touched))
        if files != self._rewritten[0]:
            self._rewritten = files, list(_without(table, touched, self._keys))
        return Replacement(tuple(task.file for task in touched), (*self._own, *self._rewritten[1]))

    def _own_files(self, table: "Table") -> Iterator["DataFile"]:
        """Yield the new files, without the rows whose key has a later row in another part of the batch."""
        for number, (each, changes) in enumerate(zip(self._written, self._changes, strict=True)):
            winners = self._last.filter(pc.equal(self._last.column("part"), number))
            if len(winners) == len(changes):
                yield from each.files
                continue
            has_won = have_keys(keys_of(changes), keys_of(winners))
            yield from _without(table, _tasks(each.files), keys_of(changes.filter(pa.array(~has_won))))

    def _is_touched(self, table: "Table", task: "FileScanTask") -> bool:
        file = _identity(task)
        if file not in self._searched:
            rows = _read(table, task, self._keys.column_names)
            self._searched[file] = bool(have_keys(rows, self._keys).any())
        return self._searched[file]


def _identity(task: "FileScanTask") -> tuple[str, ...]:
    """Return the names of a file and of the files that delete rows of it, which others may have added."""
    return task.file.file_path, *sorted(each.file_path for each in task.delete_files)


def _filter(keys: pa.Table) -> Any:
    """Return a filter by which a table finds the files and partitions that may have the keys."""
    from pyiceberg.expressions import And, GreaterThanOrEqual, In, LessThanOrEqual

    found: list[Any] = []
    for name in keys.column_names:
        values = keys.column(name).unique()
        if len(values) <= _MOST_LISTED:
            found.append(In(name, values.to_pylist()))
        else:
            least, greatest = pc.min(values).as_py(), pc.max(values).as_py()
            found.append(And(GreaterThanOrEqual(name, least), LessThanOrEqual(name, greatest)))
    return found[0] if len(found) == 1 else And(*found)


def _tasks(files: Iterable["DataFile"]) -> list["FileScanTask"]:
    from pyiceberg.table import FileScanTask

    return [FileScanTask(data_file=file) for file in files]


def _read(table: "Table", task: "FileScanTask", names: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a file with the table's columns, or with `names` only."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = table.schema() if names is None else table.schema().select(*names)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])


def _without(table: "Table", tasks: Sequence["FileScanTask"], keys: pa.Table) -> Iterator["DataFile"]:
    """Write the rows of files that have none of the keys to new ones, small files of a partition to one."""
    pending: list[pa.Table] = []
    for task in sorted(tasks, key=lambda each: (str(each.file.partition), each.file.file_path)):
        rows = _read(table, task)
        kept = rows.filter(pa.array(~have_keys(rows, keys)))
        if kept.num_rows:
            pending.append(kept)
        if sum(each.nbytes for each in pending) >= BUFFER_BYTES:
            yield from _flushed(table, pending)
    yield from _flushed(table, pending)


def _flushed(table: "Table", pending: list[pa.Table]) -> list["DataFile"]:
    rows = pa.concat_tables(pending, promote_options="permissive") if pending else None
    pending.clear()
    return [] if rows is None else data_files(table.metadata, rows, table.io)
