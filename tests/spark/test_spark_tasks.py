"""A task's work without Spark around it: ranges in, Arrow out, and the other way, over a served broker."""

import datetime
import json
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import NewTopic
from msgspec.structs import replace

from odradek.clients import Admin
from odradek.clients.cluster import NoBrokerError
from odradek.model import ConfigurationError, KafkaError, OdradekError, TopicPartition
from odradek.spark.options import Subscribe, parse_read_options, parse_write_options
from odradek.spark.reading.lookup import ClusterLookup
from odradek.spark.reading.planning import DataLossError, OffsetRange
from odradek.spark.reading.scan import ScanTask, scan
from odradek.spark.reading.worker_clients import close_idle_clients
from odradek.spark.settings import ScanSettings, client_settings
from odradek.spark.writing.dead_letters import BadRowError
from odradek.spark.writing.sink import WriteResult, write
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

Produce = Callable[..., None]


def task(bootstrap: str, topic: str, start: int, end: int, *, columns: str = "offset value", **more: str) -> ScanTask:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "kafka.default.api.timeout.ms": "3000"} | more
    return ScanTask(
        ranges=(OffsetRange(partition=TopicPartition(topic, 0), start=start, end=end),),
        options=parse_read_options({key.replace("__", "."): value for key, value in given.items()}, streaming=False),
        columns=tuple(columns.split()),
    )


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def fill(produce: Produce, topic: str, count: int) -> None:
    produce(topic, [(0, None, b"%d" % number) for number in range(count)])


def delete_before(admin: Any, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition as Partition

    partition = Partition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(30)


def test_a_task_reads_exactly_its_range(bootstrap: str, topic: str, produce: Produce) -> None:
    fill(produce, topic, 100)
    assert offsets(scan(task(bootstrap, topic, 37, 61))) == list(range(37, 61))


def test_a_task_writes_its_dead_letters_whatever_columns_it_returns(
    bootstrap: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(topic, [(0, b"k", value) for value in (b"\x0e", b"", b"\x10", b"\xff")])
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    letters = {"stream": "s", "directory": str(tmp_path)}
    values = {"valueFormat": "avro", "valueSchema": schema, "valueDeadLetters": json.dumps(letters)}
    for _ in range(2):
        (batch,) = scan(task(bootstrap, topic, 0, 4, columns="fields OFFSET", **values))
        assert batch.to_pydict() == {"fields": [{"n": 7}, None, {"n": 8}, None], "OFFSET": [0, 1, 2, 3]}
        (file,) = tmp_path.iterdir()
        found = pq.read_table(file).to_pylist()
        assert [(row["offset"], row["key"], row["value"]) for row in found] == [(1, b"k", b""), (3, b"k", b"\xff")]
        assert "headers" not in found[0]
    values["valueDeadLetters"] = '{"stream": "s"}'
    with pytest.raises(BadRowError, match=r"-0 offset 1: the value is not .*, and on_bad_row is fail"):
        list(scan(task(bootstrap, topic, 0, 4, **values)))


def test_a_task_reads_ranges_of_several_partitions(bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, [(number, None, b"%d" % number) for number in range(4) for _ in range(9)])
    pieces = [(2, 0, 4), (0, 5, 6), (3, 7, 7), (1, 3, 9)]
    ranges = tuple(OffsetRange(partition=TopicPartition(topic, n), start=start, end=end) for n, start, end in pieces)
    read = replace(task(bootstrap, topic, 0, 0, columns="partition offset"), ranges=ranges)
    found = [(row["partition"], row["offset"]) for batch in scan(read) for row in batch.to_pylist()]
    assert found == [(n, offset) for n, start, end in pieces for offset in range(start, end)]
    by_record = replace(read, options=task(bootstrap, topic, 0, 0, kafka__max__partition__fetch__bytes="1").options)
    parts = [(row["partition"], row["offset"]) for batch in scan(by_record) for row in batch.to_pylist()]
    assert parts == found, "many fetches, each of the partitions that are left"


def test_a_loss_in_one_of_several_partitions_leaves_the_others(
    bootstrap: str, topic: str, produce: Produce, admin: Any
) -> None:
    produce(topic, [(number, None, b"v") for number in range(3) for _ in range(9)])
    delete_before(admin, topic, 4)
    ranges = tuple(OffsetRange(partition=TopicPartition(topic, n), start=1, end=8) for n in (1, 0, 2))
    strict = replace(task(bootstrap, topic, 0, 0, columns="partition offset"), ranges=ranges)
    with pytest.raises(DataLossError, match="does not hold offset 1"):
        list(scan(strict))
    lenient = replace(strict, options=task(bootstrap, topic, 0, 0, failOnDataLoss="false").options)
    found = [(row["partition"], row["offset"]) for batch in scan(lenient) for row in batch.to_pylist()]
    expected = {1: range(1, 8), 0: range(4, 8), 2: range(1, 8)}
    assert found == [(n, offset) for n, offsets in expected.items() for offset in offsets]


def test_columns_have_the_requested_order_and_spark_s_types(bootstrap: str, topic: str, produce: Produce) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from odradek.spark.schema import source_schema

    fill(produce, topic, 3)
    schema = source_schema(include_headers=True)
    (batch,) = scan(task(bootstrap, topic, 0, 3, columns=" ".join(schema.fieldNames()), includeHeaders="true"))
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))
    (swapped,) = scan(task(bootstrap, topic, 0, 3, columns="timestampType topic"))
    assert swapped.to_pylist() == [{"timestampType": 0, "topic": topic}] * 3


def test_a_large_range_is_returned_in_batches_of_limited_rows(bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, [(0, None, b"x")] * 120_000)
    batches = list(scan(task(bootstrap, topic, 0, 120_000, columns="offset")))
    assert max(batch.num_rows for batch in batches) <= 50_000
    assert offsets(iter(batches)) == list(range(120_000))


def test_a_scan_that_is_closed_early_leaves_nothing_running(bootstrap: str, topic: str, produce: Produce) -> None:
    fill(produce, topic, 1000)
    batches = scan(task(bootstrap, topic, 0, 1000, kafka__max__partition__fetch__bytes="1000"))
    assert next(batches).num_rows > 0
    batches.close()
    assert list(batches) == []


def test_deleted_records_fail_the_task_unless_losses_are_allowed(
    bootstrap: str, topic: str, produce: Produce, admin: Any
) -> None:
    fill(produce, topic, 100)
    delete_before(admin, topic, 40)
    with pytest.raises(DataLossError, match=r"does not hold offset 10.*set failOnDataLoss=false to read the rest"):
        list(scan(task(bootstrap, topic, 10, 60)))
    assert offsets(scan(task(bootstrap, topic, 10, 60, failOnDataLoss="false"))) == list(range(40, 60))
    assert offsets(scan(task(bootstrap, topic, 10, 30, failOnDataLoss="false"))) == []


def test_a_task_reads_no_topic_that_was_created_again_since_it_was_planned(
    bootstrap: str, topic: str, produce: Produce, admin: Any
) -> None:
    def planned(**more: str) -> ScanTask:
        lookup = ClusterLookup(client_settings(ScanSettings, bootstrap, {}))
        lookup.partitions(Subscribe(topics=(topic,)))
        ids = lookup.topic_ids()
        lookup.close()
        return replace(task(bootstrap, topic, 0, 5, **more), topic_ids=ids)

    fill(produce, topic, 5)
    old, lossy = planned(), planned(failOnDataLoss="false")
    assert offsets(scan(old)) == list(range(5))
    admin.delete_topics([topic])[topic].result(30)
    admin.create_topics([NewTopic(topic, 4)])[topic].result(30)
    fill(produce, topic, 9)
    # The first has the client whose metadata is of the old topic.
    assert offsets(scan(planned())) == list(range(5))
    for each in (old, lossy):
        with pytest.raises(KafkaError, match="was deleted and created again"):
            list(scan(each))


def test_the_next_task_needs_no_bootstrap_server(bootstrap: str, topic: str, produce: Produce) -> None:
    fill(produce, topic, 9)
    close_idle_clients()
    first = replace(task("127.0.0.1:1", topic, 0, 9), brokers=(bootstrap,))
    assert offsets(scan(first)) == list(range(9)), "the driver's brokers answer"
    assert offsets(scan(task("127.0.0.1:1", topic, 3, 5))) == [3, 4], "the connection is still there"


def test_a_commit_is_found_by_other_clients(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    lookup = ClusterLookup(client_settings(ScanSettings, bootstrap, {}))
    lookup.commit(f"of-{topic}", {TopicPartition(topic, 2): 42})
    assert lookup.brokers() == (bootstrap,)
    lookup.close()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"of-{topic}"})
    (committed,) = consumer.committed([Partition(topic, 2)], timeout=30)
    consumer.close()
    assert committed.offset == 42


@pytest.fixture
def absent_broker(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """An address and a topic of ten records, whose broker starts when the first client has found it absent."""
    from confluent_kafka import Producer

    with ServedBroker(tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(10):
            producer.produce("absent", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        broker.stop()
        is_absent = threading.Event()
        # The thread of the clients blocks signals, and a process inherits that from the thread that starts it.
        starting = threading.Thread(target=lambda: is_absent.wait() and broker.start())
        starting.start()

        def start(record: logging.LogRecord) -> bool:
            if "trying again" in record.getMessage():
                is_absent.set()
            return True

        logger = logging.getLogger("odradek.clients")
        logger.addFilter(start)
        try:
            yield broker.bootstrap_servers, "absent"
        finally:
            logger.removeFilter(start)
            is_absent.set()
            starting.join()


def test_planning_waits_for_a_broker_that_is_down(absent_broker: tuple[str, str]) -> None:
    bootstrap, topic = absent_broker
    lookup = ClusterLookup(client_settings(ScanSettings, bootstrap, {}))
    try:
        assert lookup.partitions(Subscribe(topics=(topic,))) == [TopicPartition(topic, 0)]
    finally:
        lookup.close()


def test_a_reading_task_waits_for_a_broker_that_is_down(absent_broker: tuple[str, str]) -> None:
    bootstrap, topic = absent_broker
    assert offsets(scan(task(bootstrap, topic, 0, 10, kafka__default__api__timeout__ms="60000"))) == list(range(10))


def test_a_writing_task_waits_for_a_broker_that_is_down(absent_broker: tuple[str, str]) -> None:
    bootstrap, topic = absent_broker
    batches = [rows(value=[b"v"])]
    assert sink(bootstrap, batches, topic=topic, kafka__delivery__timeout__ms="60000").records == 1


def test_a_wrong_port_ends_a_task_after_its_time_out() -> None:
    with pytest.raises(NoBrokerError, match=r"no broker answers: broker 127\.0\.0\.1:1: connection refused"):
        list(scan(task("127.0.0.1:1", "t", 0, 10, kafka__default__api__timeout__ms="300")))
    with pytest.raises(NoBrokerError, match=r"no broker answers: broker 127\.0\.0\.1:1: connection refused"):
        sink("127.0.0.1:1", [rows(value=[b"v"])], topic="t", kafka__delivery__timeout__ms="300")


def test_a_task_does_not_wait_for_an_offset_beyond_the_log_end(bootstrap: str, topic: str, produce: Produce) -> None:
    fill(produce, topic, 10)
    with pytest.raises(OdradekError, match="offset 10"):
        list(scan(task(bootstrap, topic, 5, 20)))


def rows(**columns: Any) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "key": pa.string(), "value": pa.binary(), "topic": pa.string()}
    return pa.record_batch([pa.array(values, types[name]) for name, values in columns.items()], list(columns))


def sink(bootstrap: str, batches: list[pa.RecordBatch], **more: str) -> WriteResult:
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.delivery.timeout.ms": "3000"} | more
    return write(iter(batches), parse_write_options({key.replace("__", "."): each for key, each in given.items()}))


def test_the_order_of_rows_is_kept_across_small_record_batches(bootstrap: str, topic: str) -> None:
    values = [b"%05d" % number for number in range(5000)]
    pieces = [values[start : start + 700] for start in range(0, 5000, 700)]
    batches = [rows(value=piece, partition=[0] * len(piece)) for piece in pieces]
    written = sink(bootstrap, batches, topic=topic, kafka__batch__size="500", kafka__compression__type="gzip")
    assert written.records == 5000
    back = [value for batch in scan(task(bootstrap, topic, 0, 5000)) for value in batch.column("value").to_pylist()]
    assert back == values


def test_rows_without_key_and_partition_of_one_batch_share_a_partition(bootstrap: str, topic: str) -> None:
    """As a sticky partitioner would have it: one batch, not one per row."""
    sink(bootstrap, [rows(value=[b"x"] * 50)], topic=topic)
    lookup = ClusterLookup(client_settings(ScanSettings, bootstrap, {}))
    ends = lookup.offsets({TopicPartition(topic, number): -1 for number in range(4)})
    lookup.close()
    assert sorted(ends.values()) == [0, 0, 0, 50]


OLD = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


def times(*at: datetime.datetime | None) -> pa.RecordBatch:
    given = [pa.array([b"v"] * len(at)), pa.array([0] * len(at), pa.int32()), pa.array(at, pa.timestamp("us", "UTC"))]
    return pa.record_batch(given, ["value", "partition", "timestamp"])


def test_a_column_timestamp_is_ignored_unless_an_option_includes_it(bootstrap: str, topic: str) -> None:
    sink(bootstrap, [times(OLD)], topic=topic)
    sink(bootstrap, [times(OLD)], topic=topic, includeTimestamp="true")
    (batch,) = scan(task(bootstrap, topic, 0, 2, columns="timestamp"))
    assert [row["timestamp"] == OLD for row in batch.to_pylist()] == [False, True]


def test_records_beyond_the_retention_are_warned_of_once(
    bootstrap: str, topic: str, admin: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(**settings: Any) -> Admin:
        asked.append(settings)
        return Admin(**settings)

    monkeypatch.setattr("odradek.spark.writing.sink.Admin", counted)
    for _ in range(3):
        sink(bootstrap, [times(OLD)], topic=topic, includeTimestamp="true")
    assert len(asked) == 1, "of each process, not of each task"
    assert not caplog.records, "this cluster keeps records forever"
    short = f"{topic}.short"
    config = {"retention.ms": "86400000", "segment.bytes": "1000000"}
    admin.create_topics([NewTopic(short, 1, config=config)])[short].result(30)
    sink(bootstrap, [times(None)], topic=short, includeTimestamp="true")
    assert not caplog.records
    sink(bootstrap, [times(None), times(None, OLD), times(OLD)], topic=short, includeTimestamp="true")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"Topic {short} gets records with timestamps older than its retention.ms=86400000, which")


def test_null_values_are_written_as_they_are(bootstrap: str, topic: str) -> None:
    sink(bootstrap, [rows(key=["a", None], value=[None, b""], partition=[0, 0])], topic=topic)
    (batch,) = scan(task(bootstrap, topic, 0, 2, columns="key value"))
    assert batch.to_pylist() == [{"key": b"a", "value": None}, {"key": None, "value": b""}]


def test_nothing_to_write_opens_no_connection() -> None:
    assert sink("127.0.0.1:1", [], topic="t") == WriteResult(0, 0)


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (rows(value=[b"x"], partition=[9]), "a row names partition 9 of .*, which has 4"),
        (rows(value=[b"x"], partition=[-5]), "a row names partition -5"),
    ],
)
def test_a_partition_that_does_not_exist_is_refused(
    bootstrap: str, topic: str, batch: pa.RecordBatch, sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        sink(bootstrap, [batch], topic=topic)


def test_a_row_without_a_topic_is_refused(bootstrap: str, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="a row has no topic"):
        sink(bootstrap, [rows(value=[b"x", b"y"], topic=[topic, None])])


def test_a_topic_that_may_not_be_created_is_an_error_after_the_time_out(bootstrap: str) -> None:
    with pytest.raises(KafkaError, match=r"there is no topic 'never\.made'"):
        sink(bootstrap, [rows(value=[b"x"])], topic="never.made", kafka__allow__auto__create__topics="false")


def test_a_record_that_is_too_large_fails_the_task(bootstrap: str, topic: str) -> None:
    with pytest.raises(KafkaError, match=f"partition {topic}-0: MESSAGE_TOO_LARGE"):
        sink(bootstrap, [rows(value=[b"x" * 2_000_000], partition=[0])], topic=topic)
