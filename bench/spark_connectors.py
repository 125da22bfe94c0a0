"""The Spark source beside `spark-sql-kafka-0-10`, as it comes and with `kafka.fetch.max.wait.ms=10`, in turns.

    python -m bench.spark_connectors JARS [--records 200000] [--bytes 100] [--partitions 4] [--rounds 3]

JARS is a folder with the connector, kafka-clients, commons-pool2 and the token provider, of the Spark version in use or
the one before (Maven: org.apache.spark:spark-sql-kafka-0-10_2.13). One broker of this project serves all three.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from odradek.spark.session import local_session, stop_session
from odradek.testing.process import ServedBroker

SIDES: Final = ("odradek", "jvm", "jvm, 10 ms")
_SETTINGS: Final = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
_SMALL_TRIGGERS: Final = 25


class Connectors:
    """A Spark, a filled topic, and each workload's seconds by side."""

    def __init__(self, spark: Any, bootstrap_servers: str, folder: Path, partitions: int) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder
        self._partitions = partitions
        self._runs = 0

    def workloads(self) -> dict[str, Callable[[str], float]]:
        """Return a function of the side for every row of the table."""
        return {
            "batch: count": lambda side: self._timed(lambda: self._batch(side).count()),
            "batch: aggregate": lambda side: self._timed(
                lambda: self._batch(side).groupBy("partition").agg({"value": "max", "offset": "sum"}).collect()
            ),
            "batch: to Parquet": lambda side: self._timed(
                lambda: self._batch(side).write.parquet(self._new("parquet"))
            ),
            "stream: availableNow": lambda side: self._timed(lambda: self._available_now(side)),
            "stream: a small trigger": self._small_trigger,
            "sink": lambda side: self._timed(lambda: self._sink(side)),
        }

    def _new(self, what: str) -> str:
        self._runs += 1
        return str(self._folder / f"{what}-{self._runs}")

    def _options(self, side: str) -> dict[str, str]:
        tuned = {"kafka.fetch.max.wait.ms": "10"} if side == SIDES[2] else {}
        return {"kafka.bootstrap.servers": self._bootstrap_servers, "subscribe": "t"} | tuned

    def _batch(self, side: str) -> Any:
        return self._spark.read.format(_format(side)).options(**self._options(side)).load()

    def _stream(self, side: str, **more: str) -> Any:
        options = self._options(side) | {"startingOffsets": "earliest"} | more
        stream = self._spark.readStream.format(_format(side)).options(**options).load()
        return stream.writeStream.format("noop").option("checkpointLocation", self._new("checkpoint"))

    def _available_now(self, side: str) -> None:
        self._stream(side).trigger(availableNow=True).start().awaitTermination()

    def _small_trigger(self, side: str) -> float:
        """Return the median of a trigger with twenty records a partition, in seconds."""
        query = self._stream(side, maxOffsetsPerTrigger=str(20 * self._partitions)).start()
        while query.isActive and len(query.recentProgress) < _SMALL_TRIGGERS:
            query.awaitTermination(1)
        query.stop()
        took = [json.loads(progress.json)["durationMs"]["triggerExecution"] for progress in query.recentProgress[5:]]
        return float(statistics.median(took)) / 1000

    def _sink(self, side: str) -> None:
        servers = {"kafka.bootstrap.servers": self._bootstrap_servers, "topic": "out"}
        rows = self._spark.range(200_000).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 100) AS value")
        rows.write.format(_format(side)).mode("append").options(**servers).save()

    @staticmethod
    def _timed(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started


def _format(side: str) -> str:
    return "odradek" if side == "odradek" else "kafka"


def _fill(bootstrap_servers: str, *, records: int, size: int, partitions: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics([NewTopic("t", partitions), NewTopic("out", 4)]).values():
        created.result(60)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce("t", os.urandom(size // 2).hex().encode(), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def main() -> None:
    """Print a row per workload: the median seconds of each side, and the JVM's over ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jars", type=Path)
    for name, default in (("records", 200_000), ("bytes", 100), ("partitions", 4), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", default="", help="the workloads whose names contain this")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="connectors-") as name:
        folder = Path(name)
        with ServedBroker(folder / "data", options={"log.retention.ms": "-1"}) as broker:
            servers = broker.bootstrap_servers
            _fill(servers, records=given.records, size=given.bytes, partitions=given.partitions)
            jars = ",".join(str(path) for path in sorted(given.jars.glob("*.jar")))
            settings = _SETTINGS | {"spark.jars": jars}
            spark = local_session("connectors", threads=2, keep_classes=False, memory="2g", settings=settings)
            try:
                _measure(Connectors(spark, servers, folder, given.partitions), given.rounds, given.only)
            finally:
                stop_session(spark)


def _measure(connectors: Connectors, rounds: int, only: str) -> None:
    for name, workload in connectors.workloads().items():
        if only not in name:
            continue
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        for number in range(rounds + 1):
            for side in SIDES if number % 2 else reversed(SIDES):
                took = workload(side)
                if number:  # The first round warms up.
                    seconds[side].append(took)
        medians = {side: statistics.median(each) for side, each in seconds.items()}
        ours, jvm, tuned = (medians[side] for side in SIDES)
        load = os.getloadavg()[0]
        print(
            f"| {name} | {ours:.2f} | {jvm:.2f} | {tuned:.2f} | {jvm / ours:.2f} | {tuned / ours:.2f} | {load:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
