"""The example of `odradek pipeline example table`, from a broker to four readers: 100,000 orders, each there once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("java", "duckdb"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # SQLAlchemy's pools keep their connections
    pytest.mark.filterwarnings("ignore:Iceberg scan planning with the polars_iceberg plugin"),
]
COUNT = 100_000
COMMAND = [sys.executable, "-c", "from odradek.cli import main; main(prog_name='odradek')"]


def odradek(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


def produce(servers: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": COUNT})
    for number in range(COUNT):
        order = {"id": number, "item": f"item {number % 97}", "amount": number / 4}
        producer.produce("orders", json.dumps(order), key=f"k{number % 1009}")
    assert producer.flush(120) == 0


def test_the_example_makes_a_table_that_all_readers_read(tmp_path: Path) -> None:
    import duckdb
    import polars
    from duckdb_extensions import import_extension
    from pyiceberg.table import StaticTable

    file = tmp_path / "orders.toml"
    text = odradek(tmp_path, "pipeline", "example", "table")
    with ServedBroker(tmp_path / "data", options={"num.partitions": 2}) as broker:
        produce(broker.bootstrap_servers)
        text = text.replace("localhost:9092", broker.bootstrap_servers)
        file.write_text(text.replace('interval = "10 seconds"', "available_now = true"))
        odradek(tmp_path, "pipeline", "run", str(file))
        checked = odradek(tmp_path, "table", "check", "out/orders", "--topic", "orders", "-b", broker.bootstrap_servers)
    assert "has each of the 100,000 records of orders once" in checked

    path = str(tmp_path / "out/orders")
    connection = duckdb.connect(config={"extension_directory": str(tmp_path / "extensions")})
    for name in ("avro", "httpfs", "iceberg"):
        import_extension(name, con=connection)
    sums: dict[str, Any] = {
        "duckdb": connection.execute(
            f"SELECT count(*), count(DISTINCT id), sum(id), sum(amount) FROM iceberg_scan('{path}')"
        ).fetchone(),
        "polars": polars.scan_iceberg(path)
        .select(polars.len(), polars.col("id").n_unique().alias("ids"), polars.sum("id"), polars.sum("amount"))
        .collect()
        .rows()[0],
    }
    rows = StaticTable.from_metadata(path).scan().to_arrow()
    sums["pyiceberg"] = (
        len(rows),
        len(rows["id"].unique()),
        sum(rows["id"].to_pylist()),
        sum(rows["amount"].to_pylist()),
    )
    total = COUNT * (COUNT - 1) // 2
    assert sums == dict.fromkeys(("duckdb", "polars", "pyiceberg"), (COUNT, COUNT, total, total / 4))
