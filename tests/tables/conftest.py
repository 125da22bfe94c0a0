"""Tables of a test, in a new directory with a SQLite catalog."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.tables.data_files import layout_of, write_files
from odradek.tables.location import TableLocation, existing_table
from odradek.tables.machine.committing import Batch, Ended, Planned
from odradek.tables.machine.marks import Mark, TopicOffsets
from odradek.tables.table import commit_batch, prepared_table, state_of

COLUMNS = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("key", pa.string())])
PER_BATCH = 3


class Scene:
    """A table that a pipeline writes: batch N has the offsets 3N to 3N + 2 of orders-0."""

    def __init__(self, directory: Path) -> None:
        self.location = TableLocation(path=str(directory / "out"))

    @property
    def table(self) -> Any:
        return existing_table(self.location)

    def planned(self, pipeline: str = "p") -> Planned:
        """Return what a batch is planned with now; the table is made if it is missing."""
        state = state_of(prepared_table(self.location, COLUMNS).metadata, pipeline)
        return Planned(uuid=state.uuid, tag=state.tag)

    def files(self, number: int) -> Any:
        offsets = range(PER_BATCH * number, PER_BATCH * (number + 1))
        rows = [{"partition": 0, "offset": offset, "key": f"k{offset}"} for offset in offsets]
        return write_files([pa.RecordBatch.from_pylist(rows, COLUMNS)], layout_of(self.table))

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


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


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
