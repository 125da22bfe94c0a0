"""Tables of a test, in a new directory with a SQLite catalog."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.tables.data_files import layout_of, write_files
from odradek.tables.location import TableLocation, existing_table
from odradek.tables.machine.changes import TableKey
from odradek.tables.machine.committing import Batch, Ended, Planned
from odradek.tables.machine.marks import Mark, TopicOffsets
from odradek.tables.table import commit_batch, prepared_table, state_of
from odradek.tables.upserts import write_changes

COLUMNS = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("key", pa.string())])
PER_BATCH = 3
KEYS = 5
TOMBSTONES = 7
"""Of a table with a key, offset N has the key N % 5, and each seventh one is a tombstone."""


class Scene:
    """A table that a pipeline writes: batch N has the offsets 3N to 3N + 2 of orders-0."""

    def __init__(self, directory: Path, *, has_key: bool = False) -> None:
        self.location = TableLocation(path=str(directory / "out"))
        self.key = TableKey(("key",), "is_deleted") if has_key else None
        self.columns = pa.schema([field.with_nullable(not has_key or field.name != "key") for field in COLUMNS])

    @property
    def table(self) -> Any:
        return existing_table(self.location)

    def prepare(self, **options: Any) -> Any:
        """Return the table, made if it is missing."""
        return prepared_table(self.location, self.columns, key=() if self.key is None else self.key.columns, **options)

    def planned(self, pipeline: str = "p") -> Planned:
        """Return what a batch is planned with now; the table is made if it is missing."""
        state = state_of(self.prepare().metadata, pipeline)
        return Planned(uuid=state.uuid, tag=state.tag)

    def files(self, number: int) -> Any:
        offsets = range(PER_BATCH * number, PER_BATCH * (number + 1))
        if self.key is None:
            rows = [{"partition": 0, "offset": offset, "key": f"k{offset}"} for offset in offsets]
            return write_files([pa.RecordBatch.from_pylist(rows, COLUMNS)], layout_of(self.table))
        changes = [
            {
                "partition": 0,
                "offset": each,
                "key": f"k{each % KEYS}",
                "is_deleted": each % TOMBSTONES == TOMBSTONES - 1,
            }
            for each in offsets
        ]
        columns = COLUMNS.append(pa.field("is_deleted", pa.bool_()))
        (written,) = write_changes([pa.RecordBatch.from_pylist(changes, columns)], layout_of(self.table), self.key)
        return written

    def batch(self, number: int, *, query: str = "q", pipeline: str = "p") -> Batch:
        start, end = (({"orders": TopicOffsets("a1", {0: PER_BATCH * each})},) for each in (number, number + 1))
        return Batch(mark=Mark(pipeline=pipeline, query=query, batch=number, writer="here", progress=end), start=start)

    def write(self, number: int, *, query: str = "q", pipeline: str = "p") -> Ended:
        """Write a whole batch, as a driver does."""
        planned = self.planned(pipeline)
        files = self.files(number)
        return commit_batch(self.location, self.batch(number, query=query, pipeline=pipeline), planned, [files])

    def offsets(self) -> list[int]:
        return sorted(self.table.scan().to_arrow().column("offset").to_pylist())

    def after(self, batches: int) -> list[int]:
        """Return the offsets that the table has after so many batches."""
        return self.after_batches(*range(batches))

    def after_batches(self, *numbers: int) -> list[int]:
        offsets = [offset for each in numbers for offset in range(PER_BATCH * each, PER_BATCH * (each + 1))]
        if self.key is None:
            return offsets
        last = {offset % KEYS: offset for offset in offsets}
        return sorted(offset for offset in last.values() if offset % TOMBSTONES != TOMBSTONES - 1)

    def append_row(self) -> None:
        """Append a row as others do: with the offset 100 of partition 9, and a key of its own."""
        self.table.append(pa.Table.from_pylist([{"partition": 9, "offset": 100, "key": "x"}], self.columns))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def keyed_scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, has_key=True)


Hook = Callable[[Callable[[], Any]], Any]
"""Called in place of a commit of the catalog, with the commit to call."""


@pytest.fixture
def on_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hook], None]:
    """Give the next commit of the catalog to a hook."""
    from pyiceberg.catalog.sql import SqlCatalog

    original = SqlCatalog.commit_table

    def install(hook: Hook) -> None:
        def commit(self: Any, *arguments: Any) -> Any:
            monkeypatch.setattr(SqlCatalog, "commit_table", original)
            return hook(lambda: original(self, *arguments))

        monkeypatch.setattr(SqlCatalog, "commit_table", commit)

    return install
