"""The exactly-once sink on a Spark cluster of processes: failed tasks, speculation, and kill -9 of an executor.

It takes minutes: `ODRADEK_SEEDS=1 pytest conformance/soak/test_spark_cluster.py`.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.peers.spark_cluster import FLAGS, two_workers
from odradek.clients import Admin
from odradek.clients.blocking import Consumer
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("java"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif("ODRADEK_SEEDS" not in os.environ, reason="takes minutes: ODRADEK_SEEDS=1 runs it"),
]

ROWS: Final = 4000
DRIVER: Final = '''
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from odradek.spark.session import local_session, stop_session

master, servers, folder = sys.argv[1:]


def is_first(name):
    try:
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def executor():
    """Return the process that started this one's parents."""
    pid = os.getpid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def texts(batches):
    for batch in batches:
        numbers = batch.column(0).to_pylist()
        yield pa.record_batch([pa.array(map(str, numbers))], ["value"])
        if 999 in numbers and is_first("failed"):
            raise ValueError("this attempt fails")
        if 1999 in numbers and is_first("slow"):
            signal.pause()
        if 5999 in numbers and is_first("killed"):
            os.kill(executor(), signal.SIGKILL)


settings = {
    "spark.executor.memory": "512m", "spark.executor.cores": "2", "spark.executor.extraJavaOptions": "FLAGS",
    "spark.speculation": "true", "spark.speculation.quantile": "0.5", "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s", "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}
spark = local_session("cluster", master=master, short_lived=True, keep_classes=False, settings=settings)
for start in (0, ROWS):
    frame = spark.range(start, start + ROWS, numPartitions=4).toDF("number")
    frame.write.mode("append").json(f"{folder}/source")
    frame = spark.readStream.schema("number LONG").json(f"{folder}/source").mapInArrow(texts, "value STRING")
    sink = frame.writeStream.format("odradek").option("kafka.bootstrap.servers", servers).option("topic", "numbers")
    sink = sink.options(guarantee="exactly_once", transactionalIdPrefix="numbers", checkpointLocation=f"{folder}/state")
    sink.trigger(availableNow=True).start().awaitTermination()
stop_session(spark)
'''


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with two_workers(tmp_path, cores=2) as cluster:
        yield cluster.url


def test_rows_are_exact_after_failed_and_slow_tasks_and_a_killed_executor(master: str, tmp_path: Path) -> None:
    options = {"num.partitions": "2", "transaction.two.phase.commit.enable": "true"}
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.replace("ROWS", str(ROWS)).replace("FLAGS", FLAGS))
    with ServedBroker(tmp_path / "data", options=options) as broker:
        command = [sys.executable, str(script), master, broker.bootstrap_servers, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1000, check=False)
        assert done.returncode == 0, done.stderr[-4_000:]
        assert all((tmp_path / name).exists() for name in ("failed", "slow", "killed"))
        settings = {"bootstrap_servers": broker.bootstrap_servers, "isolation_level": "read_committed"}
        with Consumer("numbers", **settings, auto_offset_reset="earliest") as consumer:  # type: ignore[arg-type]
            found = [int(next(consumer).value or b"") for _ in range(2 * ROWS)]
            assert sorted(found) == list(range(2 * ROWS))
            assert consumer.poll(1_000) == []

        async def still_open() -> list[str]:
            async with Admin(broker.bootstrap_servers) as admin:
                return [each.transactional_id for each in await admin.list_transactions(states=["Ongoing"])]

        assert asyncio.run(still_open()) == []
