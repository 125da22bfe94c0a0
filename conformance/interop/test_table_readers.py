"""Readers that others wrote read a table by its directory alone: DuckDB, Polars and pyiceberg, with the same rows."""

from pathlib import Path

import pytest

from tests.tables.conftest import Scene

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("duckdb"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # SQLAlchemy's pools keep their connections
    pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin"),
]


def test_duckdb_polars_and_pyiceberg_read_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb
    import polars
    from duckdb_extensions import import_extension
    from pyiceberg.table import StaticTable

    scene = Scene(tmp_path)
    for number in range(3):
        scene.write(number)
    path = str(scene.location)
    expected = [(0, offset, f"k{offset}") for offset in range(9)]

    connection = duckdb.connect(config={"extension_directory": str(tmp_path / "extensions")})
    for name in ("avro", "httpfs", "iceberg"):
        import_extension(name, con=connection)
    found = connection.execute(f"SELECT partition, \"offset\", key FROM iceberg_scan('{path}')").fetchall()
    assert sorted(found) == expected
    assert sorted(polars.scan_iceberg(path).select("partition", "offset", "key").collect().rows()) == expected
    rows = StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == expected
