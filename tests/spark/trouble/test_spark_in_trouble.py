"""Streams and batches through what happens to topics, brokers and workers (M11)."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(240)]

Produce = Callable[..., None]


class Stream:
    """Queries from a topic to JSON files that share a checkpoint."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, out: Path) -> None:
        self._spark = spark
        self._out = out
        self.options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def start(self, trigger: dict[str, Any] | None = None, **options: str) -> Any:
        """Start a query, by default one that ends when it has read all."""
        stream = self._spark.readStream.format("odradek").options(**self.options, **options).load()
        writing = stream.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").writeStream.format("json")
        writing = writing.option("checkpointLocation", str(self._out / "checkpoint"))
        return writing.trigger(**(trigger or {"availableNow": True})).start(str(self._out / "rows"))

    def run(self, **options: str) -> None:
        """Read what there is now."""
        self.start(**options).awaitTermination()

    def rows(self) -> list[tuple[int, int, str]]:
        """Return what all queries wrote."""
        frame = self._spark.read.schema("partition INT, offset BIGINT, value STRING").json(str(self._out / "rows"))
        return sorted((row.partition, row.offset, row.value) for row in frame.collect())


@pytest.fixture
def stream(spark: Any, bootstrap: str, topic: str, tmp_path: Path) -> Stream:
    return Stream(spark, bootstrap, topic, tmp_path)


def created(admin: Any, topic: str, partitions: int, **config: str) -> None:
    from confluent_kafka.admin import NewTopic

    given = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, config=given)])[topic].result(60)


@pytest.mark.parametrize(("unread", "is_group"), [(2, False), (8, False), (8, True)])
def test_a_topic_that_was_deleted_and_created_again_is_a_loss_or_is_read_from_its_beginning(
    stream: Stream, admin: Any, topic: str, produce: Produce, unread: int, is_group: bool
) -> None:
    stream.options |= {"consumeMode": "group", "kafka.group.id": topic} if is_group else {}
    produce(topic, [(0, None, b"old")] * 5)
    stream.run()
    admin.delete_topics([topic])[topic].result(30)
    created(admin, topic, 4)
    produce(topic, [(0, None, b"unread")] * unread)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again") as caught:
        stream.run()
    assert "Traceback" not in str(caught.value)
    stream.run(failOnDataLoss="false")
    produce(topic, [(0, None, b"new")])
    stream.run()
    late = [(0, offset, "unread") for offset in range(unread)]
    assert stream.rows() == sorted([(0, unread, "new"), *late, *((0, offset, "old") for offset in range(5))])


def test_retention_that_passed_the_offset_is_a_loss(stream: Stream, admin: Any, topic: str, produce: Produce) -> None:
    from confluent_kafka import TopicPartition

    produce(topic, [(1, None, b"%d" % number) for number in range(3)])
    stream.run()
    produce(topic, [(1, None, b"%d" % number) for number in range(3, 9)])
    start = TopicPartition(topic, 1, 7)
    admin.delete_records([start])[start].result(30)
    with pytest.raises(Exception, match=f"offsets 3 to 6 of {topic}-1 were deleted before they were read"):
        stream.run()
    stream.run(failOnDataLoss="false")
    assert stream.rows() == [(1, offset, str(offset)) for offset in (0, 1, 2, 7, 8)]


def test_partitions_that_are_added_are_read_from_their_beginning(
    stream: Stream, admin: Any, bootstrap: str, topic: str, produce: Produce
) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewPartitions

    produce(topic, [(3, None, b"0")])
    stream.run()
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(30)
    # A producer that has not seen the topic yet.
    later = Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        later.produce(topic, b"%d" % number, partition=5)
    assert later.flush(30) == 0
    stream.run()
    assert stream.rows() == [(3, 0, "0"), (5, 0, "0"), (5, 1, "1"), (5, 2, "2")]


def test_a_thousand_partitions_are_read_by_a_few_tasks(
    spark: Any, bootstrap: str, admin: Any, topic: str, produce: Produce
) -> None:
    wide = f"wide-{topic}"
    created(admin, wide, 1_000)
    produce(wide, [(number, None, b"%d" % number) for number in range(1_000) for _ in range(2)])
    frame = spark.read.format("odradek").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": wide}).load()
    assert frame.rdd.getNumPartitions() == 2
    found = frame.selectExpr("partition", "offset", "CAST(CAST(value AS STRING) AS INT) AS value").collect()
    assert sorted(map(tuple, found)) == [(number, offset, number) for number in range(1_000) for offset in range(2)]


def test_records_of_ten_megabytes_are_written_and_read(spark: Any, bootstrap: str, admin: Any, topic: str) -> None:
    large = f"large-{topic}"
    created(admin, large, 2, max_message_bytes="12000000")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": large}
    rows = spark.range(4).selectExpr(
        "CAST(id % 2 AS INT) AS partition", "REPEAT(CAST(id AS STRING), 10000000) AS value"
    )
    rows.write.format("odradek").mode("append").options(**options).save()
    read = spark.read.format("odradek").options(**options, subscribe=large).load()
    found = read.selectExpr("partition", "LENGTH(value) AS size", "CAST(SUBSTRING(value, 1, 1) AS STRING) AS first")
    assert sorted(map(tuple, found.collect())) == [(n % 2, 10_000_000, str(n)) for n in (0, 2, 1, 3)]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[ServedBroker]:
    """A broker that a test may kill."""
    with ServedBroker(tmp_path / "broker", options={"num.partitions": "2"}) as broker:
        yield broker


def test_a_query_goes_on_when_its_broker_was_away_for_five_seconds(
    spark: Any, own_broker: ServedBroker, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": own_broker.bootstrap_servers})

    def send(first: int) -> None:
        for number in range(first, first + 10):
            producer.produce("away", b"%d" % number, partition=number % 2)
        assert producer.flush(60) == 0

    send(0)
    stream = Stream(spark, own_broker.bootstrap_servers, "away", tmp_path)
    # On a busy machine the broker may start for longer than the default of a minute.
    waits = {"kafka.default.api.timeout.ms": "200000"}
    query = stream.start({"processingTime": "100 milliseconds"}, **waits)

    def has_read(count: int) -> bool:
        assert query.exception() is None, query.exception()
        return sum(progress.numInputRows for progress in query.recentProgress) >= count

    eventually(lambda: has_read(10), within_s=600, what="the first batch")
    own_broker.kill()
    # The next trigger begins before the broker is back, and waits for it.
    assert not query.awaitTermination(5)
    own_broker.start()
    send(10)
    eventually(lambda: has_read(20), within_s=600, what="all rows")
    query.stop()
    assert stream.rows() == sorted((number % 2, number // 2, str(number)) for number in range(20))


def python_workers(spark: Any) -> list[int]:
    """The processes of the tasks: children of the daemon that Spark starts, as a fork of the JVM's warm process."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    warm: set[int] = set()
    jvm = spark.sparkContext._gateway.proc.pid
    for directory in Path("/proc").glob("[0-9]*"):
        pid = int(directory.name)
        with suppress(OSError):
            parents[pid] = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            if (directory / "comm").read_text() == "worker_daemon\n":
                daemons.add(pid)
            elif "warm_python" in (command := (directory / "cmdline").read_text()) and command.endswith(f"\0{jvm}\0"):
                warm.add(pid)
    return [pid for pid in daemons if parents[pid] in daemons and parents.get(parents[pid]) in warm]


def test_a_query_whose_workers_are_killed_reads_every_record_once(
    spark: Any, stream: Stream, topic: str, produce: Produce
) -> None:
    """With one attempt per task, as on `local[2]`, a killed worker may end the query; its checkpoint is right."""
    produce(topic, [(number % 4, None, b"%d" % number) for number in range(40)])
    query = stream.start({"processingTime": "100 milliseconds"}, maxOffsetsPerTrigger="4")
    eventually(lambda: len(query.recentProgress) >= 2, within_s=600, what="the first batches")
    workers = python_workers(spark)
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: not query.isActive or sum(progress.numInputRows for progress in query.recentProgress) >= 40,
        within_s=600,
        what="the end",
    )
    query.stop()
    stream.run()
    assert stream.rows() == sorted((number % 4, number // 4, str(number)) for number in range(40))
