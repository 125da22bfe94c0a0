"""Spark reads what is committed and nothing else, in batches and in streams (M1, M11)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.interop.transactions import Partition

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(240)]


@pytest.fixture
def partition(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Partition]:
    """Committed, aborted, interleaved and open transactions, in every codec and several segments."""
    partition = Partition(bootstrap, "".join(filter(str.isalnum, request.node.name)), segment_bytes="600")
    partition.fill()
    yield partition
    partition.close()


def test_batches_and_streams_read_only_committed_records(
    spark: Any, bootstrap: str, partition: Partition, tmp_path: Path
):
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": partition.topic,
        "startingOffsets": "earliest",
    }
    batch = spark.read.format("odradek").options(**options).load()
    assert [bytes(row.value) for row in batch.sort("offset").collect()] == partition.expected
    stream = spark.readStream.format("odradek").options(**options).load().select("offset", "value")
    writing = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    for wanted in (partition.expected, [*partition.expected, b"open", b"behind what is open"]):
        writing.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination(60)
        rows = spark.read.parquet(str(tmp_path / "rows")).sort("offset").collect()
        assert [bytes(row.value) for row in rows] == wanted
        partition.end(5, committed=True)
