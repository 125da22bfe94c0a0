"""The columns of a table: from a query's, and fitted to a changed one."""

from typing import Any

import pyarrow as pa
import pytest

from odradek.model import ConfigurationError, OdradekError, PreconditionError
from odradek.tables.columns import keyed_columns, parse_transform, split_transforms
from odradek.tables.data_files import as_iceberg, layout_of, write_files
from odradek.tables.machine.changes import TableKey
from odradek.tables.machine.committing import Batch, Planned
from odradek.tables.machine.marks import Mark
from odradek.tables.table import check_table, commit_batch, prepared_table
from tests.tables.conftest import Scene

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # SQLAlchemy's pools keep their connections
OLD = pa.schema([("id", pa.int32()), ("price", pa.float32()), ("name", pa.string())])


def kinds(table: Any) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in table.schema().fields}


def write(scene: Scene, rows: list[dict[str, Any]], columns: pa.Schema, number: int) -> None:
    table = prepared_table(scene.location, columns)
    files = write_files([pa.RecordBatch.from_pylist(rows, columns)], layout_of(table))
    mark = Mark(pipeline="p", query="q", batch=number, writer="here")
    tag = table.metadata.refs.get("odradek.p")
    planned = Planned(uuid=str(table.metadata.table_uuid), tag=None if tag is None else tag.snapshot_id)
    commit_batch(scene.location, Batch(mark=mark), planned, [files])


def test_columns_are_added_and_widened_and_old_rows_are_read_with_new_ones(scene: Scene) -> None:
    write(scene, [{"id": 1, "price": 1.5, "name": "a"}], OLD, 0)
    new = pa.schema(
        [("id", pa.int64()), ("price", pa.float64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))]
    )
    write(scene, [{"id": 1 << 40, "price": 2.5, "name": "b", "at": None}], new, 1)
    assert kinds(scene.table) == {"id": "long", "price": "double", "name": "string", "at": "timestamptz"}
    # A query may be narrower than its table, and lack columns.
    write(scene, [{"id": 3}], pa.schema([("id", pa.int32())]), 2)
    rows = sorted((row["id"], row["price"], row["name"]) for row in scene.table.scan().to_arrow().to_pylist())
    assert rows == [(1, 1.5, "a"), (3, None, None), (1 << 40, 2.5, "b")]


def test_a_new_table_has_optional_columns_only(scene: Scene) -> None:
    table = prepared_table(scene.location, pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert not table.schema().fields[0].required


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (pa.schema([("id", pa.string())]), r"Cannot change column type: id: int -> string"),
        (pa.schema([("id", pa.list_(pa.int32()))]), r"do not fit the table"),
        (pa.schema([("ID", pa.int32())]), "the query's column ID is id in the table"),
        (pa.schema([("id", pa.int32()), ("x", pa.month_day_nano_interval())]), r"do not fit the table"),
    ],
    ids=["other type", "list", "other case", "no type of Iceberg"],
)
def test_columns_that_do_not_fit_are_refused_and_change_nothing(scene: Scene, columns: pa.Schema, why: str) -> None:
    prepared_table(scene.location, OLD)
    for refuse in (check_table, prepared_table):
        with pytest.raises(PreconditionError, match=why):
            refuse(scene.location, columns)
    assert kinds(scene.table) == {"id": "int", "price": "float", "name": "string"}


def test_a_column_that_the_table_requires_must_be_there(scene: Scene) -> None:
    table = prepared_table(scene.location, OLD)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("name", required=True)
    with pytest.raises(PreconditionError, match="the query has no column name, which is required in the table"):
        check_table(scene.location, pa.schema([("id", pa.int32())]))
    # One that may be null makes it optional.
    prepared_table(scene.location, OLD)
    assert not scene.table.schema().find_field("name").required


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("region", ("region", "identity")),
        (" day( at ) ", ("at", "day")),
        ("hours(at)", ("at", "hour")),
        ("bucket(16, key)", ("key", "bucket[16]")),
        ("truncate( 4 ,item)", ("item", "truncate[4]")),
    ],
)
def test_transforms_are_parsed(text: str, parsed: tuple[str, str]) -> None:
    assert parse_transform(text) == parsed


@pytest.mark.parametrize("text", ["week(at)", "bucket(key)", "bucket(0, key)", "day(3, at)", "day(at", "", "a b(c)"])
def test_other_transforms_are_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"there are COLUMN, year\(COLUMN\), .*truncate\(N, COLUMN\)"):
        parse_transform(text)


def test_transforms_are_separated_by_commas_outside_of_brackets() -> None:
    assert split_transforms("day(at), bucket(16, key),region,") == ("day(at)", "bucket(16, key)", "region")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("day(name)", "does not fit the type string of the column name"),
        ("day(at)", "there is no column at: there are id"),
    ],
)
def test_a_transform_that_does_not_fit_makes_no_table(scene: Scene, text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        prepared_table(scene.location, OLD, partition_by=(text,))
    prepared_table(scene.location, OLD, partition_by=("bucket(4, id)",))
    with pytest.raises(PreconditionError, match=r"the table is partitioned by bucket\[4\] of id: leave it out"):
        check_table(scene.location, OLD, partition_by=("bucket(8, id)",))


def test_a_table_with_a_sort_order_is_refused(scene: Scene) -> None:
    from pyiceberg.transforms import IdentityTransform

    table = prepared_table(scene.location, OLD)
    with table.update_sort_order() as update:
        update.asc("id", IdentityTransform())
    with pytest.raises(PreconditionError, match="declares the sort order"):
        check_table(scene.location, OLD)


def test_spark_s_types_become_iceberg_s() -> None:
    inner = pa.struct([("at", pa.timestamp("us", "Europe/Berlin")), ("small", pa.int16())])
    schema = pa.schema(
        [("a", pa.list_(inner)), ("m", pa.map_(pa.string(), pa.int8())), ("t", pa.timestamp("us", "CET"))]
    )
    batch = pa.RecordBatch.from_pylist([{"a": [{"at": 1, "small": 2}], "m": [("x", 3)], "t": 4}], schema)
    found = as_iceberg(batch)
    assert found.schema.field("a").type.value_type == pa.struct(
        [("at", pa.timestamp("us", "UTC")), ("small", pa.int32())]
    )
    assert found.schema.field("m").type.item_type == pa.int32()
    assert found.column("t").cast(pa.int64()).to_pylist() == [4]


def test_a_changed_partition_spec_repeats_the_batch(scene: Scene) -> None:
    from pyiceberg.transforms import IdentityTransform

    table = prepared_table(scene.location, OLD)
    files = write_files([pa.RecordBatch.from_pylist([{"id": 1}], OLD)], layout_of(table))
    with table.update_spec() as update:
        update.add_field("id", IdentityTransform())
    planned = Planned(uuid=str(table.metadata.table_uuid), tag=None)
    batch = Batch(mark=Mark(pipeline="p", query="q", batch=0, writer="here"))
    with pytest.raises(OdradekError, match=r"the partitions of .* were changed while the batch was written") as refusal:
        commit_batch(scene.location, batch, planned, [files])
    assert refusal.value.retriable


def test_columns_that_iceberg_cannot_have_make_no_table(scene: Scene) -> None:
    with pytest.raises(ConfigurationError, match="do not fit an Iceberg table: Column 'x' has an unsupported type"):
        prepared_table(scene.location, pa.schema([("x", pa.month_day_nano_interval())]))


KEYED = pa.schema([
    ("id", pa.int32()), ("part", pa.struct([("a", pa.int32())])), ("price", pa.float64()), ("gone", pa.bool_()),
])  # fmt: skip


def test_the_columns_of_a_key_are_required_and_a_tombstone_is_none(scene: Scene) -> None:
    columns = keyed_columns(KEYED, TableKey(("id",), "gone"))
    schema = prepared_table(scene.location, columns, key=("id",)).schema()
    assert [(field.name, field.required) for field in schema.fields] == [
        ("id", True),
        ("part", False),
        ("price", False),
    ]
    assert schema.identifier_field_names() == {"id"}
    # A key is widened as other columns are.
    wider = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    assert kinds(prepared_table(scene.location, wider, key=("id",)))["id"] == "long"
    assert scene.table.schema().identifier_field_names() == {"id"}


@pytest.mark.parametrize(
    ("columns", "key", "why"),
    [
        (KEYED, TableKey(("ID",)), "key names no column of the query: ID; there are id, part, price, gone"),
        (KEYED, TableKey(("part",)), "the key part is nested"),
        (KEYED, TableKey(("id", "price")), "the key price is of type double, whose values are not exact: cast it"),
        (KEYED, TableKey(("id",), "none"), "tombstone names no column of the query: none; there are"),
        (KEYED, TableKey(("id",), "price"), "the column price, which marks tombstones, is of type double, not BOOLEAN"),
        (
            KEYED.append(pa.field("offset", pa.string())),
            TableKey(("id",)),
            "the column offset is of type string, and mode = .* rename it with AS",
        ),
    ],
)
def test_columns_that_cannot_be_a_key_are_refused(columns: pa.Schema, key: TableKey, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        keyed_columns(columns, key)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ((), ("id",), 'the table has no key, as it was written with mode = "append"'),
        (("id",), (), 'the table has the key id, whose rows mode = "append" would repeat: set mode = "upsert"'),
        (("id",), ("id", "name"), "the key of the table is id, and that of the sink is id, name: give the same one"),
    ],
)
def test_a_table_keeps_its_mode_and_its_key(scene: Scene, old: tuple[str, ...], new: tuple[str, ...], why: str) -> None:
    def columns(key: tuple[str, ...]) -> pa.Schema:
        return pa.schema([pa.field(each.name, each.type, nullable=each.name not in key) for each in OLD])

    prepared_table(scene.location, columns(old), key=old)
    for refuse in (check_table, prepared_table):
        with pytest.raises(PreconditionError, match=why):
            refuse(scene.location, columns(new), key=new)
