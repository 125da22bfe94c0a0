"""kill -9 of a broker, of Spark's Python workers and of `odradek pipeline run`, while the demo's files run (M11).

The archive, the real-time result and the mirror have each record once after that. The records that end the real-time
windows come last: Spark keeps only the common watermark of two streams over a restart, so windows stay open until both
streams have another record.
`ODRADEK_SEEDS=1` kills the process until each kind of pipeline was in the middle.
"""

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
import uvloop

from demo.checks import check_archive, check_delays, failures
from demo.jobs import write_jobs
from demo.publish import create_topics, publish
from demo.source import FLIGHTS, WEATHER, data_directory, read_input
from odradek.clients.cluster import Cluster, open_cluster
from odradek.clients.offsets import LATEST, list_offsets, partitions_of
from odradek.clients.reader import PartitionReader
from odradek.columns import RecordColumns, decode_batches
from odradek.model import TopicPartition
from odradek.pipelines.config import AnyPipeline, load_pipeline
from odradek.pipelines.status import State, Status, read_status
from odradek.runtime import system_runtime
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker, SupervisedBrokers

WAIT_S: Final = 400
"""The longest wait for a step: Spark starts in seconds, but not beside other programs."""
pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(4 * WAIT_S), pytest.mark.usefixtures("short_lived_java")]

PARTITIONS: Final = 4
BATCHES: Final = 4
"""Batches of each pipeline: enough that it is in the middle when its process is killed after the first one."""
COLUMNS: Final = RecordColumns(names=("key", "value", "timestamp", "headers"))


class Runs:
    """Processes of `odradek pipeline run` over a directory, one after the other, with their output in one file."""

    def __init__(self, directory: Path) -> None:
        self.errors = directory / "run.err"
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [Path(sys.executable).with_name("odradek"), "pipeline", "run", "--every", "0", self._directory]
        with self.errors.open("ab") as file:
            self._process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)

    def kill(self) -> None:
        """Kill the process of Python alone; its JVM ends by itself."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(60)

    def kill_workers(self) -> int:
        """Kill the processes in which Spark runs Python; return how many there were."""
        assert self._process is not None
        found = 0
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                session = directory.joinpath("stat").read_text().rpartition(")")[2].split()[3]
                is_worker = b"pyspark.worker" in directory.joinpath("cmdline").read_bytes()
                if session == str(self._process.pid) and is_worker:
                    os.kill(int(directory.name), signal.SIGKILL)
                    found += 1
            except OSError:
                # It has ended meanwhile.
                continue
        return found

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    processes = Runs(tmp_path / "jobs")
    yield processes
    processes.stop()


def write_files(directory: Path, *, source: str, target: str, batch: int) -> list[AnyPipeline]:
    """The demo's files, where each pipeline has batches of this size and another attempt begins soon."""
    directory.mkdir()
    write_jobs(directory, source=source, target=target, batch=batch)
    files = sorted(directory.glob("*.toml"))
    for file in files:
        text = file.read_text()
        if "max_offsets_per_trigger" not in text:
            text = text.replace("[source]\n", f"[source]\nmax_offsets_per_trigger = {batch}\n")
        file.write_text(f'{text}[restart]\nlimit = 100\nbackoff = "100 milliseconds"\n')
        assert tomllib.loads(text)["source"]["max_offsets_per_trigger"] == batch
    return [load_pipeline(file) for file in files]


async def copies_that_differ(source: str, target: str) -> list[str]:
    """Partitions whose copy is not the original, record by record."""
    async with open_cluster(source) as one, open_cluster(target) as other:
        numbers = await partitions_of(one, [FLIGHTS, WEATHER])
        there = await partitions_of(other, [FLIGHTS, WEATHER])
        assert there == numbers
        places = [TopicPartition(topic, number) for topic, found in numbers.items() for number in found]
        return [str(place) for place in places if await records(one, place) != await records(other, place)]


async def records(cluster: Cluster, partition: TopicPartition) -> list[dict[str, Any]]:
    ends = await list_offsets(cluster, {partition: LATEST})
    reader = PartitionReader(cluster, partition, 0, ends[partition].offset, isolation_level="read_committed")
    batches = [decode_batches(buffer, COLUMNS) async for buffer in reader]
    return pa.Table.from_batches(batches, COLUMNS.schema).to_pylist()


def test_the_demo_s_results_are_exact_after_kills_of_everything(runs: Runs, tmp_path: Path) -> None:
    given = read_input(data_directory(), partitions=PARTITIONS, most_flights=1_000)
    disk = system_runtime().disk
    with SupervisedBrokers(tmp_path / "source", brokers=3) as cluster, ServedBroker(tmp_path / "target") as mirror:
        source, target = cluster.bootstrap_servers, mirror.bootstrap_servers
        uvloop.run(create_topics(source, {FLIGHTS: PARTITIONS, WEATHER: PARTITIONS}, 3))
        ends = len(given.events) - given.end_records
        uvloop.run(publish(source, given.events[:ends], lambda count: None))
        batch = len(given.events) // BATCHES
        jobs = write_files(tmp_path / "jobs", source=source, target=target, batch=batch)

        def statuses() -> list[Status]:
            return [read_status(disk, job) for job in jobs]

        killed: set[str] = set()

        def under_way() -> set[str]:
            """The pipelines that were not killed yet, have written a batch in this process, and have not ended."""
            return {each.name for each in statuses() if each.active and each.figures.batches} - killed

        while len(killed) < (len(jobs) if "ODRADEK_SEEDS" in os.environ else 1):
            runs.start()
            eventually(under_way, within_s=WAIT_S, what="a batch")
            if not killed:
                cluster.kill_broker(1)
            runs.kill()
            found = [each for each in statuses() if each.state is State.KILLED and each.figures.batches]
            killed.update(each.name for each in found)
            for job in jobs:
                # Otherwise the figures of this process are there until the next one writes its own.
                Path(job.checkpoint, "odradek_status").unlink(missing_ok=True)
        killed.clear()
        uvloop.run(publish(source, given.events[ends:], lambda count: None))
        runs.start()
        eventually(under_way, within_s=WAIT_S, what="a batch after all kills")
        assert runs.kill_workers() > 0
        assert runs.wait(WAIT_S) == 0, runs.errors.read_text()[-4_000:]
        assert [each.state for each in statuses()] == [State.DONE] * 3
        out = tmp_path / "jobs" / "out"
        assert list(failures(check_delays(out / "delays", given)[0])) == []
        assert list(failures(check_archive(out / "archive", given))) == []
        assert uvloop.run(copies_that_differ(source, target)) == []
