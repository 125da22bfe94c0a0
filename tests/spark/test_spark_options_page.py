"""The examples of docs/spark-options.md, as they are printed, and its table against the parser."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.clients.blocking import Admin
from odradek.spark import options
from odradek.testing import Cluster
from tests.docs.fenced_blocks import blocks

PAGE: Final = (Path(__file__).parents[2] / "docs" / "spark-options.md").read_text()

Produce = Callable[..., None]


@pytest.fixture
def examples() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in blocks("spark-options.md", "python"):
        exec(compile(block, "docs/spark-options.md", "exec"), names)
    return names


@pytest.mark.parametrize("name", sorted({*options._READ_OPTIONS, *options._WRITE_OPTIONS}))
def test_every_option_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.needs("java")
@pytest.mark.timeout(240)
def test_written_rows_are_read_and_filtered(spark: Any, bootstrap: str, topic: str, examples: dict[str, Any]) -> None:
    examples["write_a_batch"](
        spark.range(40).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"), bootstrap, topic
    )
    everything = examples["read_a_batch"](spark, bootstrap, topic).collect()
    assert sorted(int(row.value) for row in everything) == list(range(40))
    corner = examples["read_a_corner"](spark, bootstrap, topic).collect()
    assert sorted(corner) == sorted(row for row in everything if row.partition == 1 and row.offset >= 2)


@pytest.mark.needs("java")
@pytest.mark.timeout(240)
def test_values_of_avro_are_columns(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path, examples: dict[str, Any]
) -> None:
    produce(topic, [(0, None, b"\x0e"), (0, None, b"")])
    file = tmp_path / "order.avsc"
    file.write_text('{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}')
    found = examples["read_orders"](spark, bootstrap, topic, file).orderBy("offset").collect()
    assert [row.n for row in found] == [7, None]
    assert found[1].reason.startswith("the value is not a record of the Avro schema")


@pytest.mark.needs("java")
@pytest.mark.timeout(240)
def test_the_lag_is_the_distance_to_the_latest_offsets(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path, examples: dict[str, Any]
) -> None:
    produce(topic, [(0, None, b"v")] * 9)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    stream = spark.readStream.format("odradek").options(**given, maxOffsetsPerTrigger="2").load()
    query = stream.writeStream.format("noop").trigger(availableNow=True).start(checkpointLocation=str(tmp_path))
    query.awaitTermination()
    lags = [examples["lag"](progress) for progress in query.recentProgress]
    assert lags[:5] == [7, 5, 3, 1, 0]


@pytest.mark.needs("java")
@pytest.mark.timeout(240)
def test_a_member_of_a_group_reads_and_commits(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path, examples: dict[str, Any]
) -> None:
    produce(topic, [(number % 4, None, b"v") for number in range(8)])
    rows = examples["read_as_a_member"](spark, bootstrap, topic)
    query = rows.writeStream.format("noop").trigger(availableNow=True).start(checkpointLocation=str(tmp_path))
    query.awaitTermination()
    assert sum(progress.numInputRows for progress in query.recentProgress) == 8
    with Admin(bootstrap) as admin:
        offsets = admin.list_group_offsets(["scorers"])["scorers"]
    assert sorted(offset.offset for offset in offsets.values()) == [2] * 4


# ---- docs/testing.md -------------------------------------------------------------------------------------------------


def test_the_example_counts_words(kafka: Cluster, spark: Any):
    (example,) = (block for block in blocks("testing.md", "python") if "spark" in block)
    names: dict[str, Any] = {}
    exec(compile(example, "docs/testing.md", "exec"), names)
    names["test_words_are_counted"](kafka, spark)
    assert "assert counts" in example
