"""Upserts by copy on write: the rows of a table are those of a dictionary that gets the same changes."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.model import PreconditionError
from odradek.tables import data_files
from odradek.tables.columns import keyed_columns
from odradek.tables.data_files import layout_of
from odradek.tables.location import TableLocation, existing_table
from odradek.tables.machine.changes import TableKey
from odradek.tables.machine.committing import Batch, Planned
from odradek.tables.machine.marks import Mark
from odradek.tables.table import commit_batch, prepared_table, state_of
from odradek.tables.upserts import write_changes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # SQLAlchemy's pools keep their connections
KEY = TableKey(("id", "region"), "is_deleted")
COLUMNS = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("id", pa.int64()), ("region", pa.string()),
        ("tags", pa.list_(pa.string())), ("is_deleted", pa.bool_()),
    ]
)  # fmt: skip


class Upserts:
    """A table that gets batches of changes; each batch is a list of tasks, and each task of batches of Arrow."""

    def __init__(
        self, path: Path, *, key: TableKey = KEY, columns: pa.Schema = COLUMNS, partition_by: tuple[str, ...] = ()
    ) -> None:
        self.location = TableLocation(path=str(path / "out"))
        self.key, self.columns, self.partition_by, self.batches = key, columns, partition_by, 0

    def write(self, tasks: list[list[pa.RecordBatch]]) -> None:
        table = prepared_table(
            self.location,
            keyed_columns(self.columns, self.key),
            key=self.key.columns,
            partition_by=self.partition_by,
        )
        written = [part for task in tasks for part in write_changes(task, layout_of(table), self.key)]
        state = state_of(table.metadata, "p")
        mark = Mark(pipeline="p", query="q", batch=self.batches, writer="here")
        commit_batch(self.location, Batch(mark=mark), Planned(uuid=state.uuid, tag=state.tag), written)
        self.batches += 1

    def write_rows(self, *rows: dict[str, Any]) -> None:
        self.write([[pa.RecordBatch.from_pylist(list(rows), self.columns)]])

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = existing_table(self.location).scan().to_arrow().to_pylist()
        return found

    def paths(self) -> set[str]:
        return set(existing_table(self.location).inspect.data_files().column("file_path").to_pylist())


CHANGES = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(["eu", "us"]), st.booleans(), st.integers(0, 2)), max_size=12
)
"""Of each record of a batch: id and region, whether it is a tombstone, and its task."""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(CHANGES, min_size=1, max_size=4),
    partition_by=st.sampled_from([(), ("region",), ("bucket(3, id)", "region")]),
    one_row_a_part=st.booleans(),
)
def test_a_table_has_the_rows_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, str, bool, int]]],
    partition_by: tuple[str, ...],
    one_row_a_part: bool,
) -> None:
    upserts = Upserts(tmp_path_factory.mktemp("upserts"), partition_by=partition_by)
    expected: dict[tuple[int, str], dict[str, Any]] = {}
    offset = 0
    with pytest.MonkeyPatch.context() as patch:
        if one_row_a_part:
            patch.setattr(data_files, "BUFFER_BYTES", 1)
        for batch in batches:
            tasks: list[list[pa.RecordBatch]] = [[], [], []]
            for number, region, is_deleted, task in batch:
                row = {"partition": 0, "offset": offset, "id": number, "region": region, "tags": [f"t{offset}"]}
                tasks[task].append(pa.RecordBatch.from_pylist([row | {"is_deleted": is_deleted}], COLUMNS))
                expected.pop((number, region), None)
                if not is_deleted:
                    expected[number, region] = row
                offset += 1
            upserts.write(tasks)
    found = {(row["id"], row["region"]): row for row in upserts.rows()}
    assert found == expected
    assert len(upserts.rows()) == len(expected)
    (mark,) = [each.summary["odradek.batch"] for each in [existing_table(upserts.location).current_snapshot()]]
    assert int(mark) == len(batches) - 1


def of_key(kind: pa.DataType, make: Any) -> Any:
    return pytest.param(kind, make, id=str(kind))


@pytest.mark.parametrize("count", [3, 300], ids=["few keys", "many keys"])
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        of_key(pa.string(), lambda n: f"ключ{n}"),
        of_key(pa.binary(), lambda n: b"\xff\x00" + bytes([n // 256, n % 256])),
        of_key(pa.int32(), lambda n: n - 100),
        of_key(pa.int64(), lambda n: (n - 100) << 40),
        of_key(pa.date32(), lambda n: dt.date(1900, 1, 1) + dt.timedelta(days=300 * n)),
        of_key(pa.timestamp("us", "UTC"), lambda n: dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(hours=n)),
        of_key(pa.timestamp("us"), lambda n: dt.datetime(1969, 12, 31) + dt.timedelta(microseconds=n)),
        of_key(pa.decimal128(12, 2), lambda n: Decimal(n - 100) / 4),
        of_key(pa.bool_(), lambda n: n % 2 == 0),
    ],
)
def test_a_key_may_have_each_type_that_compares_exactly(
    tmp_path: Path, kind: pa.DataType, make: Any, count: int
) -> None:
    columns = pa.schema([("k", kind), ("n", pa.int64())])
    upserts = Upserts(tmp_path, key=TableKey(("k",)), columns=columns, partition_by=("k",) if count < 10 else ())
    numbers = range(2) if pa.types.is_boolean(kind) else range(count)
    for more in (0, 1000):
        upserts.write_rows(*({"k": make(number), "n": number + more} for number in numbers))
    upserts.write_rows({"k": make(1), "n": 7})
    assert sorted(row["n"] for row in upserts.rows()) == sorted([7, *(each + 1000 for each in numbers if each != 1)])


def test_files_without_a_key_of_the_batch_are_not_written_again(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    upserts = Upserts(tmp_path, key=TableKey(("id",)), columns=columns, partition_by=("truncate(1000, id)",))
    for start in (0, 1000, 2000):
        upserts.write_rows(*({"id": start + each, "n": 0} for each in range(500)))
    before = upserts.paths()
    assert len(before) == 3
    upserts.write_rows({"id": 1007, "n": 1}, {"id": 1999, "n": 1})
    assert len(upserts.paths() & before) == 2
    # Within the statistics of the file at 2000, and not in it.
    before = upserts.paths()
    upserts.write_rows({"id": 3000, "n": 1}, {"id": 999, "n": 1})
    assert before < upserts.paths()
    assert sorted(row["id"] for row in upserts.rows() if row["n"]) == [999, 1007, 1999, 3000]


def test_small_files_of_a_partition_are_merged_when_they_are_written_again(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    keys = [(number, region) for number in range(20) for region in ("eu", "us")]
    for offset, (number, region) in enumerate(keys):
        upserts.write_rows({"partition": 0, "offset": offset, "id": number, "region": region})
    assert len(upserts.paths()) == 40
    upserts.write_rows(*({"partition": 0, "offset": 100 + n, "id": n, "region": "eu"} for n in range(20)))
    assert len(upserts.paths()) == 21
    upserts.write_rows(*({"partition": 0, "offset": 200 + n, "id": n, "region": "us"} for n in range(20)))
    assert len(upserts.paths()) == 2


def test_two_rows_of_a_key_whose_order_is_unknown_are_refused_across_tasks(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int64())])
    upserts = Upserts(tmp_path, key=TableKey(("id",)), columns=columns)
    task = [pa.RecordBatch.from_pylist([{"id": 1, "n": 1}], columns)]
    upserts.write([task])
    with pytest.raises(PreconditionError, match="2 rows with the key id = 1, and nothing says which is the last"):
        upserts.write([task, task])
    upserts.write([task])
    assert upserts.rows() == [{"id": 1, "n": 1}]


def test_rows_that_others_have_appended_with_a_key_of_the_batch_are_replaced(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    upserts.write_rows({"partition": 0, "offset": 0, "id": 1, "region": "eu"})
    table = existing_table(upserts.location)
    rows = [{"partition": 5, "offset": 50, "id": each, "region": "eu", "tags": []} for each in (1, 2, 2)]
    table.append(pa.Table.from_pylist(rows, keyed_columns(COLUMNS, KEY)))
    upserts.write_rows(*({"partition": 0, "offset": each, "id": each, "region": "eu"} for each in (1, 2)))
    assert sorted((row["id"], row["offset"]) for row in upserts.rows()) == [(1, 1), (2, 2)]


def test_a_key_that_was_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    upserts = Upserts(tmp_path)
    upserts.write_rows({"partition": 0, "offset": 0, "id": 1, "region": "eu"})
    table = existing_table(upserts.location)
    batch = pa.RecordBatch.from_pylist([{"partition": 0, "offset": 1, "id": 1, "region": "eu"}], COLUMNS)
    written = write_changes([batch], layout_of(table), KEY)
    with table.update_schema() as update:
        update.set_identifier_fields("id")
    state = state_of(table.metadata, "p")
    mark = Mark(pipeline="p", query="q", batch=1, writer="here")
    with pytest.raises(PreconditionError, match="the key of the table was changed"):
        commit_batch(upserts.location, Batch(mark=mark), Planned(uuid=state.uuid, tag=state.tag), written)
