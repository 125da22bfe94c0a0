"""Where a table is, and what is wrong with other places."""

import traceback
from pathlib import Path

import pytest

from odradek.model import ConfigurationError, OdradekError, PreconditionError, StorageError, UnavailableError
from odradek.spark.tables.options import parse_table_options
from odradek.tables.location import TableLocation, existing_table, load_table, parse_location, table_errors
from tests.tables.conftest import Scene

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # SQLAlchemy's pools keep their connections


def test_a_path_alone_is_enough(scene: Scene) -> None:
    assert load_table(scene.location) is None
    scene.planned()
    assert sorted(each.name for each in Path(str(scene.location)).iterdir()) == ["catalog.db", "metadata"]


def test_a_table_in_another_catalog_is_found(scene: Scene, tmp_path: Path) -> None:
    scene.write(0)
    given = {"table": "odradek.table", "catalog": "odradek", "catalog.type": "sql"}
    place = parse_location(given | {"catalog.uri": f"sqlite:///{scene.location}/catalog.db"})
    assert existing_table(place).metadata == scene.table.metadata
    assert "sqlite" not in repr(place)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "a table needs path, a directory, or table"),
        ({"path": "a", "table": "b.c"}, "give one of them"),
        ({"path": "a", "catalog.uri": "x"}, "path has a catalog of its own"),
        ({"path": "s3://me:geheim@bucket/t"}, r"path is a local directory, not s3://…@bucket/t"),
        ({"table": "orders"}, "table is NAMESPACE.NAME, not 'orders'"),
        ({"path": "a", "pipline": "x"}, "there is no option 'pipline': did you mean pipeline"),
        ({"path": "a", "rows": "upsert"}, "there is no option 'rows': there are path"),
        ({"path": "a", "mode": "merge"}, "mode is append or upsert, not 'merge'"),
        ({"path": "a", "mode": "upsert"}, 'mode = "upsert" needs key: the columns whose values name a row'),
        ({"path": "a", "mode": "upsert", "key": "a, b,a"}, "key names a twice"),
        ({"path": "a", "key": "a"}, 'key is for mode = "upsert"'),
        ({"path": "a", "tombstone": "a"}, 'tombstone is for mode = "upsert"'),
        ({"path": "a", "mode": "upsert", "key": "a", "tombstone": "a"}, "tombstone is a, a column of the key"),
        (
            {"path": "a", "mode": "upsert", "key": "a", "partitionby": "bucket(4, a), day(at)"},
            r"partitionBy has day\(at\), and at is no column of the key.*: partition by the key, as bucket\(16, a\)",
        ),
        ({"path": "a", "partitionby": "week(at)"}, r"there is no partition transform 'week\(at\)'"),
        ({"path": "a", "keepsnapshots": "-1"}, "keepSnapshots is a number of snapshots"),
    ],
)
def test_options_that_are_wrong_say_why(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as refusal:
        parse_table_options(given)
    assert "geheim" not in str(refusal.value)


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
def test_a_path_may_be_a_local_url(prefix: str) -> None:
    assert parse_location({"path": f"{prefix}/data/orders"}).path == "/data/orders"


def test_a_place_that_has_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(PreconditionError, match=r"holds something else than a table: it has no catalog\.db"):
            load_table(TableLocation(path=str(place)))
    (tmp_path / "catalog.db").write_text("this is no database, but it is longer than the header of one: 0123456789")
    with pytest.raises(StorageError, match=r"catalog\.db is not a catalog of Iceberg: file is not a database"):
        load_table(TableLocation(path=str(tmp_path)))


def test_a_path_with_odd_characters_is_one_directory(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "a b%20?c")
    scene.write(0)
    assert [each.name for each in tmp_path.iterdir()] == ["a b%20?c"]
    assert scene.offsets() == [0, 1, 2]


def test_a_directory_that_was_moved_says_so(scene: Scene, tmp_path: Path) -> None:
    scene.write(0)
    Path(str(scene.location)).rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="has lost a file, or was moved"):
        load_table(TableLocation(path=str(tmp_path / "elsewhere")))


def test_a_catalog_that_is_away_is_a_temporary_fault_without_its_password() -> None:
    place = parse_location({"table": "a.b", "catalog.uri": "http://me:geheim@127.0.0.1:1/"})
    with pytest.raises(UnavailableError) as refusal:
        load_table(place)
    assert "geheim" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no answer of postgresql://me:geheim@db:5432/lake", "no answer of postgresql://…@db:5432/lake"),
        ("no answer of postgresql://me:ge/h@eim@db/lake", "no answer of postgresql://…@db/lake"),
        ("GET https://h/v1/config?token=geheim&a=b: 500", "GET https://h/v1/config?…&… 500"),
        ("the key geheim-1 is unknown, as is geheim-2", "the key … is unknown, as is …"),
    ],
)
def test_errors_show_no_secrets_of_urls_and_properties(text: str, shown: str) -> None:
    keys = {"catalog.s3.secret-access-key": "geheim-1", "catalog.credential": "me:geheim-2"}
    with pytest.raises(UnavailableError) as refusal, table_errors(parse_location({"table": "a.b"} | keys)):
        raise RuntimeError(text)
    assert str(refusal.value) == f"the table a.b cannot be used: RuntimeError: {shown}"
    assert "geheim" not in "".join(traceback.format_exception(refusal.value))


def test_a_catalog_without_properties_says_what_to_give() -> None:
    with pytest.raises(OdradekError, match=r"the catalog nowhere cannot be opened: .*give catalog\.uri"):
        load_table(TableLocation(table="a.b", catalog="nowhere"))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyiceberg.catalog", None)
    with pytest.raises(PreconditionError, match=r"tables need pyiceberg.*pip install 'odradek\[tables\]'"):
        load_table(TableLocation(path=str(tmp_path)))
