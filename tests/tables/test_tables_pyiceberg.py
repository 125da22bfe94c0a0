"""The private names of pyiceberg that tables use: what they take and return. A new version must pass this first."""

import inspect
import pickle
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
