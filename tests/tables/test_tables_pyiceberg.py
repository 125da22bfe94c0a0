"""The private names of pyiceberg that tables use: what they take and return. A new version must pass this first."""

import inspect
import pickle
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.tables.columns import head_of
from odradek.tables.data_files import data_files, layout_of, write_files
from odradek.tables.table import prepared_table, staged_updates
from tests.tables.conftest import COLUMNS, Scene

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # SQLAlchemy's pools keep their connections
ROWS = pa.Table.from_pylist([{"partition": 0, "offset": each, "key": f"k{each % 3}"} for each in range(9)], COLUMNS)


@pytest.fixture
def table(scene: Scene) -> Any:
    return prepared_table(scene.location, COLUMNS, partition_by=("bucket(4, key)", "truncate(2, offset)", "partition"))


def test_data_files_have_the_rows_of_one_partition_each_and_no_snapshot(table: Any) -> None:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    assert [*inspect.signature(_dataframe_to_data_files).parameters][:3] == ["table_metadata", "df", "io"]
    found = data_files(table.metadata, ROWS, table.io)
    assert sum(file.record_count for file in found) == 9
    assert len({tuple(file.partition) for file in found}) == len(found) > 3
    for file in found:
        with table.io.new_input(file.file_path).open() as opened:
            assert pa.parquet.read_table(opened).num_rows == file.record_count
        assert file.file_size_in_bytes == len(table.io.new_input(file.file_path))
    assert table.catalog.load_table("odradek.table").current_snapshot() is None


def test_files_have_the_partitions_and_rows_that_pyiceberg_s_own_filters_give(tmp_path: Path) -> None:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    columns = pa.schema(
        [
            ("n", pa.int64()),
            ("key", pa.string()),
            ("at", pa.timestamp("us", "UTC")),
            ("s", pa.struct([("d", pa.date32())])),
        ]
    )
    chance = random.Random(7)
    drawn = [
        {
            "n": number,
            "key": chance.choice(["a", "b", "", None]),
            "at": chance.choice([None, number * 20_000_000_000]),
            "s": chance.choice([None, {"d": None}, {"d": chance.randrange(3)}]),
        }
        for number in range(60)
    ]
    rows = pa.concat_tables([pa.Table.from_pylist(drawn[start : start + 25], columns) for start in range(0, 60, 25)])
    by = ("bucket(2, n)", "key", "day(at)", "s.d")
    table = prepared_table(Scene(tmp_path).location, columns, partition_by=by)

    def contents(files: Any) -> Any:
        found = []
        for file in files:
            with table.io.new_input(file.file_path).open() as opened:
                found.append((tuple(file.partition), pa.parquet.read_table(opened).to_pylist()))
        return sorted(found, key=lambda each: each[1][0]["n"])

    expected = contents(_dataframe_to_data_files(table_metadata=table.metadata, df=rows, io=table.io))
    assert contents(data_files(table.metadata, rows, table.io)) == expected
    assert len(expected) > 20


def test_data_files_and_a_layout_are_the_same_after_a_pickle(table: Any) -> None:
    layout = pickle.loads(pickle.dumps(layout_of(table)))
    written = write_files(ROWS.to_batches(), layout)
    again = pickle.loads(pickle.dumps(written))
    assert again == written
    assert [file.file_path for file in again.files] == [file.file_path for file in written.files]
    assert [tuple(file.partition) for file in again.files] == [tuple(file.partition) for file in written.files]


def test_a_transaction_stages_a_snapshot_and_the_move_of_main(table: Any) -> None:
    transaction = head_of(table).transaction()
    with transaction.update_snapshot().merge_append() as append:
        for file in data_files(table.metadata, ROWS, table.io):
            append.append_data_file(file)
    added, moved = staged_updates(transaction)
    assert (added.action, added.snapshot.snapshot_id) == ("add-snapshot", append.snapshot_id)
    assert (moved.action, moved.ref_name, moved.snapshot_id) == ("set-snapshot-ref", "main", append.snapshot_id)
    assert table.catalog.load_table("odradek.table").current_snapshot() is None


def test_a_snapshot_that_removes_files_keeps_no_manifests_without_files_and_merges_others(keyed_scene: Scene) -> None:
    scene = keyed_scene
    scene.prepare(properties={"commit.manifest.min-count-to-merge": "4"})
    for number in range(12):
        scene.write(number)
        manifests = scene.table.current_snapshot().manifests(scene.table.io)
        assert len(manifests) <= 4
    assert scene.offsets() == scene.after(12)
