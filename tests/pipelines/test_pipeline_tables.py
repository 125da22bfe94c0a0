"""Pipelines that write Iceberg tables (X4): rows, restarts, lost checkpoints, and what `odradek table` says of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.config.toml import TomlKeyError
from odradek.pipelines.errors import PipelineError
from odradek.pipelines.queries import check_pipeline
from odradek.tables.location import TableLocation, existing_table
from odradek.tables.table import accept_next
from tests.docs.fenced_blocks import blocks
from tests.pipelines.scene import Scene

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(600)]

TABLE = """
kind = "real_time"
name = "orders"
checkpoint = "state"
sql = "SELECT partition, offset, timestamp, key, number FROM orders"
[source]
bootstrap_servers = "{source}"
max_offsets_per_trigger = 30
[trigger]
available_now = true
[streams.orders]
topics = ["{topic}"]
value = "number BIGINT"
[sink]
format = "odradek_iceberg"
path = "out"
partition_by = ["day(timestamp)", "bucket(4, key)"]
"""

UPSERT = (
    TABLE.replace("key, number FROM", "key, number, number IS NULL AS is_deleted FROM")
    .replace('["day(timestamp)", "bucket(4, key)"]', '["bucket(4, key)"]')
    .replace('path = "out"', 'path = "out"\nmode = "upsert"\nkey = ["key"]\ntombstone = "is_deleted"')
)

Send = Callable[[int, int], None]


@pytest.fixture
def send(producer: Any, topic: str) -> Send:
    """Writes orders: number n goes to partition n % 3."""

    def publish(first: int, count: int) -> None:
        for number in range(first, first + count):
            value = json.dumps({"number": number})
            producer.produce(topic, value, key=f"k{number % 7}", partition=number % 3, timestamp=number * 7_200_000)
        assert producer.flush(30) == 0

    return publish


def numbers(scene: Scene) -> list[int]:
    table = existing_table(TableLocation(path=str(scene.directory / "out")))
    return sorted(table.scan().to_arrow().column("number").to_pylist())


def check(scene: Scene, *, code: int = 0) -> str:
    command = ["table", "check", str(scene.directory / "out"), "--topic", scene.topic, "-b", scene.names["source"]]
    found = CliRunner().invoke(main, command)
    assert found.exit_code == code, found.output
    return found.output


def repeat_last_batch(scene: Scene) -> None:
    """Bring the checkpoint to where a driver was killed after it committed to the table and before Spark's log."""
    commits = scene.directory / "state" / "commits"
    last = max((path for path in commits.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    last.unlink()
    Path(commits, f".{last.name}.crc").unlink(missing_ok=True)


def test_a_topic_is_a_table_with_each_record_once(scene: Scene, send: Send) -> None:
    send(0, 100)
    scene.run(TABLE)
    assert numbers(scene) == list(range(100))
    assert f"has each of the 100 records of {scene.topic} once" in check(scene)

    repeat_last_batch(scene)
    send(100, 50)
    scene.run(TABLE)
    assert numbers(scene) == list(range(150))
    check(scene)

    found = CliRunner().invoke(main, ["table", "describe", str(scene.directory / "out"), "--json"])
    described = json.loads(found.output)
    assert described["rows"] == 150
    assert described["partitioned_by"] == ["day(timestamp)", "bucket[4](key)"]
    (progress,) = described["pipelines"][0]["progress"]
    assert progress[scene.topic]["offsets"] == {"0": 50, "1": 50, "2": 50}

    # With a new checkpoint, the table says where to go on.
    shutil.rmtree(scene.directory / "state")
    send(150, 20)
    scene.run(TABLE)
    assert numbers(scene) == list(range(170))
    check(scene)

    # Another query of the same name begins elsewhere: two streams have no offsets of the table.
    shutil.rmtree(scene.directory / "state")
    twice = TABLE.replace(
        "FROM orders", "FROM orders UNION ALL SELECT partition, offset, timestamp, key, number FROM o"
    )
    with pytest.raises(PipelineError, match="the table has the rows of another query with the pipeline's name orders"):
        scene.run(
            twice.replace(
                "[streams.orders]", '[streams.o]\ntopics = ["{topic}"]\nvalue = "number BIGINT"\n[streams.orders]'
            )
        )
    assert numbers(scene) == list(range(170))

    # What a user accepts, `check` shows.
    shutil.rmtree(scene.directory / "state")
    accept_next(TableLocation(path=str(scene.directory / "out")), "orders")
    scene.run(TABLE)
    assert "does not have each record" in check(scene, code=1)


def test_a_query_that_does_not_fit_the_table_is_refused_before_its_first_batch(scene: Scene, send: Send) -> None:
    send(0, 3)
    scene.run(TABLE)
    text = TABLE.replace("key, number", "key, CAST(number AS STRING) AS number")
    for job in (text, TABLE.replace("bucket(4, key)", "bucket(8, key)"), TABLE.replace("day(", "days_of(")):
        with pytest.raises(TomlKeyError) as refusal:
            check_pipeline(scene.spark, scene.job(job))
        assert refusal.value.key in ("sql", "sink")
    scene.run(TABLE.replace("key, number", "key, number, number * 2 AS twice"))
    send(3, 3)
    scene.run(TABLE.replace("key, number", "key, number, number * 2 AS twice"))
    rows = existing_table(TableLocation(path=str(scene.directory / "out"))).scan().to_arrow().to_pylist()
    assert sorted((row["number"], row["twice"]) for row in rows) == [(n, None if n < 3 else 2 * n) for n in range(6)]


def test_the_jobs_and_queries_of_the_page_write_a_table(scene: Scene) -> None:
    (code,) = blocks("tables.md", "python")
    for name in ("out/", "state/"):
        code = code.replace(f'"{name}', f'"{scene.directory}/{name}')  # Spark's workers have the folder of its start
    for _ in range(2):
        exec(code, {})
    table = existing_table(TableLocation(path=str(scene.directory / "out/any")))
    assert table.scan(row_filter="key LIKE 'k%'").to_arrow().num_rows == 2000
    refs = table.metadata.refs
    assert "odradek.rates" in refs
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[16]"]


def test_a_compacted_topic_is_a_table_with_the_last_value_of_each_key(scene: Scene, producer: Any) -> None:
    last: dict[str, int | None] = {}

    def send(numbers: range) -> None:
        for number in numbers:
            key = f"k{number % 23}"
            last[key] = None if number % 6 == 5 else number
            value = None if last[key] is None else json.dumps({"number": number})
            producer.produce(scene.topic, value, key=key, partition=(number % 23) % 3)
        assert producer.flush(30) == 0

    def expected() -> list[int]:
        return sorted(number for number in last.values() if number is not None)

    send(range(100))
    scene.run(UPSERT)
    assert numbers(scene) == expected()
    assert f"has the last value of each of the {len(expected())} keys of {scene.topic}" in check(scene)

    repeat_last_batch(scene)
    send(range(100, 130))
    scene.run(UPSERT)
    assert numbers(scene) == expected()
    check(scene)

    # A batch with tombstones of unknown keys only moves the offsets.
    producer.produce(scene.topic, None, key="unknown", partition=1)
    assert producer.flush(30) == 0
    scene.run(UPSERT)
    assert numbers(scene) == expected()
    check(scene)

    for job, why in (
        (TABLE, "the table has the key key, whose rows"),
        (
            UPSERT.replace('key = ["key"]', 'key = ["key", "number"]'),
            "the key of the table is key, and that of the sin",
        ),
        (UPSERT.replace("bucket(4, key)", "day(timestamp)"), "timestamp is no column of the key"),
    ):
        with pytest.raises(TomlKeyError, match=why):
            check_pipeline(scene.spark, scene.job(job))

    producer.produce(scene.topic, "{}", partition=0)
    assert producer.flush(30) == 0
    with pytest.raises(
        PipelineError, match=r"the key key is null in a row \(partition 0, offset \d+\): leave such rows"
    ):
        scene.run(UPSERT)
    assert numbers(scene) == expected()
