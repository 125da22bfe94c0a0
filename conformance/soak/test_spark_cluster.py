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

import pyspark
import pytest

from odradek.clients import Admin
from odradek.clients.blocking import Consumer
from odradek.spark.local.java import find_java
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker
from odradek.testing.servers.ports import free_ports

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("java"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif("ODRADEK_SEEDS" not in os.environ, reason="takes minutes: ODRADEK_SEEDS=1 runs it"),
]

FLAGS: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
HOSTS: Final = ("127.0.0.1", "127.0.0.2")
"""Spark starts the second attempt of a task on another host only."""
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
    """A master and two workers, each a process."""
    home = Path(pyspark.__file__).parent
    port, *others = free_ports(4)
    url = f"spark://{HOSTS[0]}:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", str(others[0])]]
    for host, web in zip(HOSTS, others[1:], strict=True):
        worker = [f"{deploy}.worker.Worker", "--host", host, "--webui-port", str(web), "--cores", "2"]
        commands.append([*worker, "--memory", "1g", "--work-dir", str(tmp_path / f"worker-{host}"), url])
    environment = os.environ | {
        "JAVA_HOME": str(find_java().home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{FLAGS} -Dspark.master.rest.enabled=false",
        "SPARK_LOCAL_IP": HOSTS[0],
    }
    with (tmp_path / "spark.log").open("wb") as log:
        processes = [
            subprocess.Popen([home / "bin" / "spark-class", *command], env=environment, stdout=log, stderr=log)
            for command in commands
        ]
        try:
            log_text = tmp_path / "spark.log"
            eventually(
                lambda: log_text.read_bytes().count(b"Successfully registered with master") == 2,
                within_s=300,
                what="both workers to register",
            )
            yield url
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)


def test_rows_are_exact_after_failed_and_slow_tasks_and_a_killed_executor(master: str, tmp_path: Path) -> None:
    options = {"num.partitions": "2", "transaction.two.phase.commit.enable": "true"}
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.replace("ROWS", str(ROWS)).replace("FLAGS", FLAGS))
    with ServedBroker(tmp_path / "data", options=options) as broker:
        command = [sys.executable, script, master, broker.bootstrap_servers, tmp_path]
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
