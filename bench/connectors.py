"""`odradek bench connectors`: Odradek's Spark source and sink beside `spark-sql-kafka-0-10`, in turns, in one Spark.

Then small jobs of both as fresh processes (`fresh_jobs`).

The JVM connector runs with its defaults and with `kafka.fetch.max.wait.ms=10`, the fair peer: with the defaults, a task
that has read its range may wait for half a second. The CPU of Spark's processes is measured too, since other programs
on the machine change it less than the seconds.
"""

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from bench.fresh_jobs import JOBS, fill, fresh_job
from bench.measure import cpu_seconds_of_tree, print_rows
from bench.peers.sides import kafka_side, odradek_side
from bench.peers.spark_cluster import FLAGS, two_workers
from bench.peers.spark_connector import connector_jars
from odradek.spark.session import local_session, stop_session

SIDES: Final = ("odradek", "JVM", "JVM, 10 ms")
_SETTINGS: Final = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
_OF_EXECUTORS: Final = {
    "spark.executor.memory": "768m",
    "spark.executor.cores": "1",
    # As in a session with `local_session`, but for the second compiler.
    "spark.executor.extraJavaOptions": FLAGS.split()[0],
}
_SMALL_TRIGGERS: Final = 25
_WARM_TRIGGERS: Final = 5
_SECONDS: Final = 8
_LIVE_RATE: Final = 1_000
"""Records per second written to the topic `live` while streams read it."""
_TIMEOUT_S: Final = 120.0


class Took(Struct, frozen=True, kw_only=True):
    """The seconds that a run measured, and the CPU seconds of Spark's JVM and its Python processes."""

    seconds: float
    cpu: float


class Workloads:
    """The workloads: functions from a side to seconds, on one Spark session and filled topics."""

    def __init__(self, spark: Any, bootstrap_servers: str, folder: Path, *, partitions: int, sunk: int) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder
        self._partitions = partitions
        self._sunk = sunk
        self._runs = 0
        self.parts: dict[str, dict[str, float]] = {}
        """The median ms of each part of a small trigger in its last round, by side; Spark's names."""

    def all(self) -> dict[str, Callable[[str], float]]:
        """Return the workloads by name; each takes a side and returns seconds."""
        return {
            "batch: count": _timed(lambda side: self._batch(side).count()),
            "batch: aggregate": _timed(
                lambda side: self._batch(side).groupBy("partition").agg({"value": "max", "offset": "sum"}).collect()
            ),
            "batch: to Parquet": _timed(lambda side: self._batch(side).write.parquet(self._new("parquet"))),
            "pruned: one partition": _timed(lambda side: self._batch(side).where("partition = 1").agg(_SUM).collect()),
            "pruned: two columns": _timed(
                lambda side: self._batch(side, columns="offset BIGINT, timestamp TIMESTAMP").agg(_SUM).collect()
            ),
            "stream: availableNow": _timed(self._available_now),
            "stream: availableNow, its triggers": self._triggers_of_available_now,
            "stream: a small trigger": self._small_trigger,
            "stream: a trigger of 1 s": self._trigger_of_a_second,
            "stream: start to first rows": self._first_rows,
            "sink": _timed(self._sink),
        }

    def _new(self, what: str) -> str:
        self._runs += 1
        return str(self._folder / f"{what}-{self._runs}")

    def _options(self, side: str, topic: str) -> dict[str, str]:
        tuned = {"kafka.fetch.max.wait.ms": "10"} if side == SIDES[2] else {}
        return {"kafka.bootstrap.servers": self._bootstrap_servers, "subscribe": topic} | tuned

    def _batch(self, side: str, columns: str | None = None) -> Any:
        reader = self._spark.read.format(_format(side)).options(**self._options(side, "t"))
        # The JVM connector takes no schema: there Spark drops the other columns.
        return (reader.schema(columns) if columns and side == SIDES[0] else reader).load()

    def _stream(self, side: str, topic: str = "t", **more: str) -> Any:
        options = self._options(side, topic) | {"startingOffsets": "earliest"} | more
        stream = self._spark.readStream.format(_format(side)).options(**options).load()
        return stream.writeStream.format("noop").option("checkpointLocation", self._new("checkpoint"))

    def _available_now(self, side: str) -> Any:
        query = self._stream(side).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def _triggers_of_available_now(self, side: str) -> float:
        """Return the seconds of all triggers, without the start of the query and of its Python process."""
        progress = self._available_now(side).recentProgress
        return float(sum(json.loads(each.json)["durationMs"]["triggerExecution"] for each in progress)) / 1000

    def _small_trigger(self, side: str) -> float:
        """Return the median seconds of triggers with twenty records per partition."""
        query = self._stream(side, maxOffsetsPerTrigger=str(20 * self._partitions)).start()
        took = _triggers(query, _SMALL_TRIGGERS)
        self.parts[side] = {name: statistics.median(each.get(name, 0) for each in took) for name in _PARTS}
        return self.parts[side]["triggerExecution"] / 1000

    def _trigger_of_a_second(self, side: str) -> float:
        """Return the median seconds of triggers, one per second, on a topic that is being written."""
        with self._being_written():
            query = self._stream(side, "live", startingOffsets="latest").trigger(processingTime="1 second").start()
            return statistics.median(each["triggerExecution"] for each in _triggers(query, _SECONDS)) / 1000

    def _first_rows(self, side: str) -> float:
        """Return the seconds from the query's start to its first batch with rows, on a topic that is being written."""
        with self._being_written():
            started = time.perf_counter()
            query = self._stream(side, "live", startingOffsets="latest").start()
            _wait(query, lambda: any(progress.numInputRows for progress in query.recentProgress), pause_s=0.01)
            took = time.perf_counter() - started
            query.stop()
            return took

    def _sink(self, side: str) -> None:
        servers = {"kafka.bootstrap.servers": self._bootstrap_servers, "topic": "out"}
        rows = self._spark.range(self._sunk).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 100) AS value")
        rows.write.format(_format(side)).mode("append").options(**servers).save()

    @contextmanager
    def _being_written(self) -> Iterator[None]:
        """Write to the topic `live` from another thread during the block."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap_servers, "linger.ms": 5})
        ended = threading.Event()

        def write() -> None:
            number = 0
            while not ended.wait(0.01):
                for _ in range(_LIVE_RATE // 100):
                    producer.produce("live", b"x" * 100, partition=number % self._partitions)
                    number += 1
                producer.poll(0)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            ended.set()
            writer.join()
            producer.flush(30)


_SUM: Final = {"offset": "sum"}
_PARTS: Final = (
    "triggerExecution",
    "latestOffset",
    "queryPlanning",
    "getBatch",
    "walCommit",
    "commitOffsets",
    "addBatch",
)


def _format(side: str) -> str:
    return "odradek" if side == SIDES[0] else "kafka"


def _timed(work: Callable[[str], Any]) -> Callable[[str], float]:
    def run(side: str) -> float:
        started = time.perf_counter()
        work(side)
        return time.perf_counter() - started

    return run


def _wait(query: Any, is_done: Callable[[], bool], *, pause_s: float) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_done():
        if not query.isActive or time.monotonic() > deadline:
            query.stop()
            raise RuntimeError(f"the query ended or made no progress within {_TIMEOUT_S:.0f} s: {query.exception()}")
        time.sleep(pause_s)


def _triggers(query: Any, count: int) -> list[dict[str, float]]:
    """Return the ms of each part of `count` triggers after the first ones, and stop the query."""
    _wait(query, lambda: len(query.recentProgress) >= _WARM_TRIGGERS + count, pause_s=0.2)
    query.stop()
    return [json.loads(each.json)["durationMs"] for each in query.recentProgress[_WARM_TRIGGERS:]]


def _fill(bootstrap_servers: str, *, records: int, size: int, partitions: int, codec: str) -> None:
    """Create the topics `t`, `live` and `out`; fill `t` with values that compress to half."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic("t", partitions, 1), NewTopic("live", partitions, 1), NewTopic("out", 4, 1)]
    for created in admin.create_topics(topics).values():
        created.result(60)
    settings = {"bootstrap.servers": bootstrap_servers, "linger.ms": 50, "compression.type": codec}
    producer = Producer(settings)
    for number in range(records):
        while True:
            try:
                producer.produce("t", os.urandom(size // 2).hex().encode(), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("the broker did not take all records within two minutes")


@click.command()
@click.option("--records", default=400_000, show_default=True, help="Records in the topic.")
@click.option("--record-bytes", default=100, show_default=True, help="Bytes of a record's value.")
@click.option("--partitions", default=4, show_default=True)
@click.option("--codec", default="none", show_default=True, help="Kafka's compression.type of the topic's records.")
@click.option("--sunk", default=400_000, show_default=True, help="Rows that the sink writes.")
@click.option("--broker", type=click.Choice(["odradek", "kafka"]), default="odradek", show_default=True)
@click.option(
    "--cluster",
    "on_cluster",
    is_flag=True,
    help="On a standalone cluster of two executors of one core, on this machine.",
)
@click.option("--rounds", "count", default=3, show_default=True, help="Rounds after the one that warms up.")
@click.option("--only", default="", help="The workloads whose names contain one of these, separated by commas.")
def connectors(
    records: int,
    record_bytes: int,
    partitions: int,
    codec: str,
    sunk: int,
    broker: str,
    on_cluster: bool,  # noqa: FBT001
    count: int,
    only: str,
) -> None:
    """Read and write by both Spark connectors: seconds, and the median of the rounds' ratios, JVM over Odradek."""
    jars = ",".join(str(path) for path in connector_jars())
    side = kafka_side() if broker == "kafka" else odradek_side()
    with (
        tempfile.TemporaryDirectory(prefix="connectors-") as folder,
        side.server() as server,
        two_workers(Path(folder), cores=1) if on_cluster else nullcontext() as cluster,
    ):
        _fill(server.bootstrap_servers, records=records, size=record_bytes, partitions=partitions, codec=codec)
        settings = _SETTINGS | {"spark.jars": jars} | (_OF_EXECUTORS if cluster else {})
        master = cluster.url if cluster else None
        spark = local_session(
            "connectors", master=master, threads=2, keep_classes=False, memory="2g", settings=settings
        )
        pids = [spark.sparkContext._gateway.proc.pid, *(cluster.pids if cluster else ())]
        try:
            workloads = Workloads(spark, server.bootstrap_servers, Path(folder), partitions=partitions, sunk=sunk)
            click.echo(_HEAD)
            for name, workload in workloads.all().items():
                if any(part in name for part in only.split(",")):
                    click.echo(_row(name, _measured(workload, count, pids)))
            for connector, parts in workloads.parts.items():
                figures = ", ".join(f"{name} {ms:.0f}" for name, ms in parts.items())
                click.echo(f"A small trigger of {connector}, ms: {figures}")
        finally:
            stop_session(spark)
        fresh = [job for job in JOBS if any(part in f"fresh: {job}" for part in only.split(","))]
        if fresh:
            fill(server.bootstrap_servers)
        for job in fresh:
            rows = fresh_job(job, server.bootstrap_servers, jars, count, partial(click.echo, err=True))
            print_rows(f"A fresh process, 10,000 records, {job}", rows, as_json=False)


_HEAD: Final = (
    "| workload | odradek, s | JVM | JVM, 10 ms | JVM : odradek | JVM, 10 ms : odradek | the same of CPU | load |\n"
    "|---|---|---|---|---|---|---|---|"
)


def _measured(workload: Callable[[str], float], count: int, pids: Sequence[int]) -> dict[str, list[Took]]:
    """Return the runs of each side; rounds alternate the order of sides, and the first one only warms up."""
    took: dict[str, list[Took]] = {side: [] for side in SIDES}
    for number in range(count + 1):
        for side in SIDES if number % 2 else reversed(SIDES):
            before = sum(map(cpu_seconds_of_tree, pids))
            seconds = workload(side)
            if number:
                took[side].append(Took(seconds=seconds, cpu=sum(map(cpu_seconds_of_tree, pids)) - before))
    return took


def _row(name: str, took: Mapping[str, list[Took]]) -> str:
    ours, *peers = (took[side] for side in SIDES)
    medians = [statistics.median(each.seconds for each in runs) for runs in (ours, *peers)]
    ratios = [
        statistics.median(theirs.seconds / mine.seconds for mine, theirs in zip(ours, runs, strict=True))
        for runs in peers
    ]
    cpu = statistics.median(theirs.cpu / mine.cpu for mine, theirs in zip(ours, peers[-1], strict=True))
    figures = " | ".join(f"{figure:.2f}" for figure in (*medians, *ratios, cpu))
    return f"| {name} | {figures} | {os.getloadavg()[0]:.0f} |"
