"""Readers that others wrote give the same rows of a table: DuckDB, Polars and pyiceberg by its directory, Spark."""

import json
from pathlib import Path

import pytest

from tests.tables.conftest import Scene

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # SQLAlchemy's pools keep their connections
    pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin"),
]


SPARK_READS = """
import json, sys
from pyspark.sql import SparkSession
jars, path = sys.argv[1:]
catalog = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "jdbc", ".warehouse": path}
catalog |= {".uri": f"jdbc:sqlite:{path}/catalog.db"}
builder = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
for key, value in catalog.items():
    builder = builder.config(f"spark.sql.catalog.odradek{key}", value)
rows = builder.getOrCreate().sql("SELECT partition, offset, key FROM odradek.odradek.table").collect()
print(json.dumps([list(row) for row in rows]))
"""


@pytest.mark.needs("duckdb")
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


@pytest.mark.needs("iceberg-jar")
@pytest.mark.timeout(900)
def test_spark_with_iceberg_s_jar_reads_the_same_rows_by_the_catalog(tmp_path: Path) -> None:
    from bench.peers.iceberg_jar import run_with_iceberg_jar

    scene = Scene(tmp_path)
    for number in range(3):
        scene.write(number)
    found = json.loads(run_with_iceberg_jar(SPARK_READS, str(scene.location)))
    assert sorted(found) == [[0, offset, f"k{offset}"] for offset in range(9)]
