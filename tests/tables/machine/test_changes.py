"""The last change of each key."""

from typing import Any

import pyarrow as pa
import pytest

from odradek.model import PreconditionError
from odradek.tables.machine.changes import TableKey, changes_of, have_keys, key_columns, keys_of, last_changes
from odradek.tables.machine.comparison import LastRecords

KEY = TableKey(("a", "b"), "gone")


def rows(*values: tuple[Any, Any, int, int, bool | None]) -> pa.Table:
    columns = ("a", "b", "partition", "offset", "gone")
    schema = pa.schema(
        [("a", pa.int64()), ("b", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("gone", pa.bool_())]
    )
    return pa.Table.from_pylist([dict(zip(columns, each, strict=True)) for each in values], schema)


def test_the_highest_offset_of_a_key_is_the_last_one() -> None:
    changes = changes_of(
        rows((1, "x", 0, 7, False), (2, "x", 0, 3, None), (1, "x", 0, 5, True), (1, "y", 1, 0, True)), KEY
    )
    assert key_columns(changes) == ["a", "b"]
    found = last_changes(changes)
    assert found.column("offset").to_pylist() == [3, 7, 0]
    assert found.column("deletes").to_pylist() == [False, False, True]
    assert keys_of(found).to_pylist() == [{"a": 2, "b": "x"}, {"a": 1, "b": "x"}, {"a": 1, "b": "y"}]


def test_a_key_in_two_partitions_has_the_row_of_the_higher_one() -> None:
    found = last_changes(changes_of(rows((1, "x", 1, 2, False), (1, "x", 0, 9, False)), KEY))
    assert found.column("offset").to_pylist() == [2]


def test_other_columns_stay_with_their_rows() -> None:
    changes = changes_of(rows((1, "x", 0, 7, False), (1, "x", 0, 8, False)), KEY)
    assert last_changes(changes.append_column("part", pa.array([4, 5]))).column("part").to_pylist() == [5]


@pytest.mark.parametrize(("a", "b", "name"), [(None, "x", "a"), (1, None, "b")])
def test_a_key_that_is_null_is_refused_with_its_place(a: Any, b: Any, name: str) -> None:
    with pytest.raises(PreconditionError, match=rf"the key {name} is null in a row \(partition 3, offset 8\): leave"):
        changes_of(rows((1, "y", 3, 7, False), (a, b, 3, 8, False)), KEY)


def test_two_rows_of_one_record_with_one_key_are_refused() -> None:
    with pytest.raises(PreconditionError, match=r"2 rows with the key a = 1, b = 'x' are of one record \(partition 3"):
        last_changes(changes_of(rows((1, "x", 3, 7, False), (1, "x", 3, 7, False)), KEY))


def test_rows_without_partition_and_offset_have_one_for_each_key() -> None:
    plain = rows((1, "x", 0, 0, False), (2, "x", 0, 1, False)).drop_columns(["partition", "offset"])
    assert last_changes(changes_of(plain, KEY)).num_rows == 2
    with pytest.raises(PreconditionError, match="2 rows with the key a = 1, b = 'x', and nothing says which is the la"):
        last_changes(changes_of(pa.concat_tables([plain, plain.slice(0, 1)]), KEY))


def test_rows_are_found_by_all_columns_of_the_key_in_the_types_of_the_table() -> None:
    table = rows((1, "x", 0, 0, False), (1, "y", 0, 1, False), (2, "x", 0, 2, False))
    table = table.set_column(1, "b", table.column("b").cast(pa.large_string()))
    keys = pa.table({"a": pa.array([2, 1], pa.int32()), "b": ["x", "x"]})
    assert have_keys(table, keys).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["at", "0", "offset"])
def test_a_column_of_the_key_may_have_any_name(name: str) -> None:
    table = pa.table({name: ["x", "y"], "value": [1, 2]})
    assert have_keys(table, pa.table({name: ["y"]})).tolist() == [False, True]


def test_the_last_records_of_a_partition_are_found_in_any_parts() -> None:
    keys = [b"a", b"b", None, b"a", b"c", b"b", b"c", b"a"]
    values = [b"1", b"2", b"3", b"4", b"5", None, b"7", b"8"]
    records = pa.table({"offset": pa.array(range(10, 18), pa.int64()), "key": keys, "value": values})
    for size in (1, 2, 3, 8):
        found = LastRecords()
        for start in range(0, 8, size):
            found.add(records.slice(start, size))
        assert sorted(found.offsets()) == [16, 17]
        assert found.present().tolist() == list(range(10, 18))
    assert len(LastRecords().offsets()) == len(LastRecords().present()) == 0
