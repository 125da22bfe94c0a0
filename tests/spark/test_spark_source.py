"""The data source in a real Spark, with a served broker and with librdkafka's mock cluster (M11)."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from conformance.interop.transactions import Partition
from odradek.clients.blocking import Consumer, Producer
from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(240)]

Produce = Callable[..., None]


def read(spark: Any, bootstrap: str, topic: str, **options: str) -> Any:
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    for key, value in ({"subscribe": topic} | options).items():
        if value != "-":
            reader = reader.option(key.replace("__", "."), value)
    return reader.load()


def numbers(partition: int, count: int, first: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(partition, b"k", str(first + number).encode()) for number in range(count)]


def rows(frame: Any) -> list[tuple[int, int, str]]:
    return sorted((row.partition, row.offset, bytes(row.value).decode()) for row in frame.collect())


def test_a_batch_has_the_columns_of_the_jvm_connector(spark: Any, bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, [(2, b"k", b"v"), (2, None, None)], timestamp=1_700_000_000_123, headers=[("h", b"x"), ("h", None)])
    frame = read(spark, bootstrap, topic, includeHeaders="true").orderBy("offset")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = frame.selectExpr("*", "unix_millis(timestamp) AS ms").collect()
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"v", topic)
    assert (first.partition, first.offset, first.ms, first.timestampType) == (2, 0, 1_700_000_000_123, 0)
    assert [(header.key, header.value) for header in first.headers] == [("h", bytearray(b"x")), ("h", None)]
    assert (second.key, second.value) == (None, None)
    assert "headers" not in read(spark, bootstrap, topic).columns


def test_values_may_be_columns(spark: Any, bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, [(0, b"k", b"\x0e"), (0, None, b"\x0e\x0e"), (0, None, None)])
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "valueFormat": "avro"}
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}'
    frame = spark.read.format("odradek").options(**given, valueSchema=schema).load()
    assert frame.dtypes[-3:] == [("timestampType", "int"), ("fields", "struct<n:int>"), ("reason", "string")]
    found = frame.orderBy("offset").select("key", "value", "fields.n", "reason").collect()
    assert [tuple(row) for row in found] == [
        (b"k", None, 7, None),
        (None, b"\x0e\x0e", None, "the value has bytes after the Avro record"),
        (None, None, None, None),
    ]
    selected = spark.read.format("odradek").options(**given, valueSchema=schema).schema("FIELDS STRUCT<n: INT>").load()
    assert sorted(str(row.FIELDS) for row in selected.collect()) == ["None", "None", "Row(n=7)"]
    with pytest.raises(Exception, match="the Avro schema is not JSON"):
        spark.read.format("odradek").options(**given, valueSchema="{").load()


def test_a_user_given_schema_selects_columns(spark: Any, bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, numbers(0, 3))
    frame = (
        spark.read.format("odradek")
        .schema("offset BIGINT, VALUE BINARY")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        .load()
    )
    assert frame.columns == ["offset", "VALUE"]
    assert sorted((row.offset, bytes(row.VALUE)) for row in frame.collect()) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_offsets_bound_what_is_read(spark: Any, bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, numbers(0, 9) + numbers(1, 9))
    frame = read(
        spark,
        bootstrap,
        "-",
        subscribe="-",
        assign=f'{{"{topic}":[0,1]}}',
        startingOffsets=f'{{"{topic}":{{"0":3,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":6,"1":2}}}}',
    )
    assert rows(frame) == [(0, 3, "3"), (0, 4, "4"), (0, 5, "5"), (1, 0, "0"), (1, 1, "1")]


def test_min_partitions_splits_a_partition_without_losing_records(
    spark: Any, bootstrap: str, topic: str, produce: Produce
) -> None:
    produce(topic, numbers(0, 1000))
    frame = read(spark, bootstrap, topic, minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    assert rows(frame) == [(0, number, str(number)) for number in range(1000)]


def test_an_empty_topic_is_an_empty_frame(spark: Any, bootstrap: str, topic: str) -> None:
    assert read(spark, bootstrap, topic).count() == 0


def test_conditions_on_partition_and_offset_read_less(spark: Any, bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, numbers(0, 9) + numbers(1, 9), timestamp=1_700_000_000_000)
    produce(topic, numbers(1, 3, first=9), timestamp=1_700_000_005_000)
    frame = read(spark, bootstrap, topic)
    corner = frame.where("partition = 1 AND offset >= 7 AND timestamp < '2030-01-01'")
    assert corner.rdd.getNumPartitions() == 1
    assert rows(corner) == [(1, n, str(n)) for n in range(7, 12)]
    late = frame.where("timestamp >= timestamp_millis(1700000005000)")
    assert late.rdd.getNumPartitions() == 1
    assert rows(late) == [(1, n, str(n)) for n in range(9, 12)]
    assert frame.where("partition = 9").count() == 0
    assert rows(frame.where("partition = 0 AND CAST(value AS STRING) = '4'")) == [(0, 4, "4")]


def test_conditions_are_spark_s_where_push_down_is_off(
    spark: Any, bootstrap: str, topic: str, produce: Produce
) -> None:
    produce(topic, numbers(0, 3) + numbers(1, 3))
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        assert rows(read(spark, bootstrap, topic).where("partition = 1 AND offset > 1")) == [(1, 2, "2")]
    finally:
        spark.conf.set(setting, "true")


def test_a_pattern_finds_topics(spark: Any, bootstrap: str, topic: str, produce: Produce) -> None:
    produce(topic, numbers(0, 3))
    frame = read(spark, bootstrap, "-", subscribe="-", subscribePattern=f"{topic[:-1]}.")
    assert frame.count() == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets can't be latest"),
        ({"minPartitions": "none"}, "minPartitions is a whole number"),
        ({"kafka__isolation__level": "strict"}, "isolation.level"),
        ({"kafka__sasl__mechansim": "PLAIN"}, "sasl.mechansim"),
        ({"subscribe": "nothing.here,"}, "there is no topic 'nothing.here'"),
    ],
)
def test_a_wrong_option_fails_with_its_error_text(
    spark: Any, bootstrap: str, topic: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        read(spark, bootstrap, topic, **options).collect()
    first = str(caught.value).splitlines()[0]
    assert sentence in first
    assert first.startswith("[PYTHON_DATA_SOURCE_ERROR] Failed to ")
    assert "Traceback" not in str(caught.value)


def test_offsets_outside_of_the_log_are_a_loss_unless_allowed(
    spark: Any, bootstrap: str, topic: str, produce: Produce
) -> None:
    produce(topic, numbers(0, 3))
    options = {"subscribe": "-", "assign": f'{{"{topic}":[0]}}', "endingOffsets": f'{{"{topic}":{{"0":50}}}}'}
    with pytest.raises(Exception, match="ends at offset 3, before 50 where reading is to end"):
        read(spark, bootstrap, topic, **options).collect()
    assert read(spark, bootstrap, topic, **options, failOnDataLoss="false").count() == 3


# Streams


AVAILABLE_NOW: Final = {"availableNow": True}


def start(
    spark: Any, bootstrap: str, topic: str, out: Path, trigger: Mapping[str, Any] = AVAILABLE_NOW, **options: str
) -> Any:
    """A query from the topic to JSON files."""
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    for key, value in options.items():
        reader = reader.option(key, value)
    return (
        reader.load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        .writeStream.format("json")
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(**trigger)
        .start(str(out / "rows"))
    )


def written(spark: Any, out: Path) -> list[tuple[int, int, str]]:
    frame = spark.read.schema("partition INT, offset BIGINT, value STRING").json(str(out / "rows"))
    return sorted((row.partition, row.offset, row.value) for row in frame.collect())


def test_a_stream_continues_from_its_checkpoint(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(topic, numbers(0, 5))
    start(spark, bootstrap, topic, tmp_path, startingOffsets="earliest").awaitTermination()
    produce(topic, numbers(0, 5, first=5) + numbers(3, 1))
    start(spark, bootstrap, topic, tmp_path, startingOffsets="earliest").awaitTermination()
    assert written(spark, tmp_path) == [(0, number, str(number)) for number in range(10)] + [(3, 0, "0")]


def test_an_available_now_query_reads_everything(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    once = {"once": True}
    produce(topic, numbers(0, 5))
    start(spark, bootstrap, topic, tmp_path, once, startingOffsets="earliest").awaitTermination()
    assert written(spark, tmp_path) == [(0, number, str(number)) for number in range(5)]
    produce(topic, numbers(0, 5, first=5))
    start(spark, bootstrap, topic, tmp_path, once, startingOffsets="earliest").awaitTermination()
    assert written(spark, tmp_path) == [(0, number, str(number)) for number in range(10)]


def test_max_offsets_per_trigger_splits_a_stream_into_batches(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(topic, numbers(0, 30) + numbers(1, 10))
    query = start(spark, bootstrap, topic, tmp_path, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    query.awaitTermination()
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [20, 20]
    assert len(written(spark, tmp_path)) == 40


def test_an_option_of_a_stream_is_refused_at_load(spark: Any) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffset": "earliest"}
    with pytest.raises(Exception, match="there is no option 'startingoffset': did you mean startingOffsets"):
        spark.readStream.format("odradek").options(**given).load()


def test_the_group_of_an_available_now_query_has_its_last_batch(
    spark: Any, bootstrap: str, topic: str, produce: Produce, admin: Any, tmp_path: Path
) -> None:
    produce(topic, numbers(0, 30) + numbers(1, 10))
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20", "kafka.group.id": topic}
    start(spark, bootstrap, topic, tmp_path, **more).awaitTermination()
    asked = ConsumerGroupTopicPartitions(topic)
    offsets = admin.list_consumer_group_offsets([asked])[topic].result(30).topic_partitions
    assert sorted((each.partition, each.offset) for each in offsets) == [(0, 30), (1, 10), (2, 0), (3, 0)]


def test_an_interrupted_first_batch_keeps_its_start(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    """Spark calls `initialOffset` again after a restart, when `latest` has moved."""
    produce(topic, numbers(0, 5))
    start(spark, bootstrap, topic, tmp_path).awaitTermination()
    assert written(spark, tmp_path) == []
    # As after a crash in the first batch: it is planned, and neither committed nor known to the sink.
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    shutil.rmtree(tmp_path / "rows" / "_spark_metadata")
    produce(topic, numbers(0, 3, first=5))
    start(spark, bootstrap, topic, tmp_path).awaitTermination()
    assert written(spark, tmp_path) == [(0, 5, "5"), (0, 6, "6"), (0, 7, "7")]


# Writing


def test_written_rows_are_read_back(spark: Any, bootstrap: str, topic: str) -> None:
    frame = spark.createDataFrame(
        [("a", "1", 3), (None, None, 0), ("c", "3", 1)], "key STRING, value STRING, partition INT"
    ).selectExpr(
        "*",
        "array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers",
        "timestamp_millis(1700000000123) AS timestamp",
    )
    frame.write.format("odradek").mode("append").options(
        **{"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.compression.type": "zstd"},
        includeTimestamp="true",
    ).save()
    back = read(spark, bootstrap, topic, includeHeaders="true").selectExpr(
        "partition", "CAST(key AS STRING)", "CAST(value AS STRING)", "unix_millis(timestamp) AS ms", "headers"
    )
    found = sorted((row.partition, row.key, row.value, row.ms, bytes(row.headers[0].value)) for row in back.collect())
    assert found == [
        (0, None, None, 1_700_000_000_123, b"x"),
        (1, "c", "3", 1_700_000_000_123, b"x"),
        (3, "a", "1", 1_700_000_000_123, b"x"),
    ]


def test_a_key_is_written_to_the_partition_that_all_kafka_clients_use(spark: Any, bootstrap: str, topic: str) -> None:
    keys = [f"key-{number}" for number in range(50)]
    spark.createDataFrame([(key, "ours") for key in keys], "key STRING, value STRING").write.format("odradek").mode(
        "append"
    ).options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic}).save()
    partitions = {}
    for row in read(spark, bootstrap, topic).collect():
        partitions[bytes(row.key).decode()] = row.partition
    from odradek.partitioners.murmur2 import murmur2

    assert partitions == {key: (murmur2(key.encode()) & 0x7FFFFFFF) % 4 for key in keys}


def test_a_stream_is_written_to_the_topic_that_a_row_names(
    spark: Any, bootstrap: str, topic: str, produce: Produce, tmp_path: Path
) -> None:
    produce(topic, numbers(0, 4) + numbers(1, 4))
    query = (
        spark.readStream.format("odradek")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
        .load()
        .selectExpr("value", "partition", f"concat('{topic}-', partition) AS topic")
        .writeStream.format("odradek")
        .options(**{"kafka.bootstrap.servers": bootstrap, "checkpointLocation": str(tmp_path / "checkpoint")})
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for partition in (0, 1):
        assert rows(read(spark, bootstrap, f"{topic}-{partition}")) == [(partition, n, str(n)) for n in range(4)]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("'v' AS data", "needs a column value"),
        ("'v' AS value", "say where to write"),
        ("'v' AS value, 't' AS topic, 5L AS partition", "the column partition must be of type int, not bigint"),
    ],
)
def test_an_invalid_row_is_refused(spark: Any, bootstrap: str, columns: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        spark.sql(f"SELECT {columns}").write.format("odradek").mode("append").option(
            "kafka.bootstrap.servers", bootstrap
        ).save()


def test_other_columns_are_ignored(spark: Any, bootstrap: str, topic: str) -> None:
    frame = spark.sql("SELECT 'v' AS value, 1 AS partition, 7 AS other, 'noon' AS timestamp")
    frame.write.format("odradek").mode("append").options(
        **{"kafka.bootstrap.servers": bootstrap, "topic": topic}
    ).save()
    assert rows(read(spark, bootstrap, topic)) == [(1, 0, "v")]


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("overwrite", r'a topic can\'t be overwritten: write with .mode\("append"\)'),
        ("errorifexists", r'(?i)use either the "append" or'),
        ("ignore", r'(?i)use either the "append" or'),
    ],
)
def test_only_the_mode_append_writes(spark: Any, bootstrap: str, topic: str, mode: str, sentence: str) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    with pytest.raises(Exception, match=sentence):
        frame.write.format("odradek").mode(mode).options(**options).save()
    assert rows(read(spark, bootstrap, topic)) == []


def test_the_data_source_works_with_another_kafka_cluster(spark: Any) -> None:
    """librdkafka's mock cluster with two brokers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
    brokers = producer.list_topics("other", timeout=30).brokers.values()
    mock = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    options = {"kafka.bootstrap.servers": mock, "topic": "other", "kafka.compression.type": "lz4"}
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame.write.format("odradek").mode("append").options(**options).save()
    back = (
        read(spark, mock, "other")
        .selectExpr("sum(CAST(CAST(value AS STRING) AS INT)) AS total", "count(*) AS n")
        .first()
    )
    assert (back.n, back.total) == (1000, 499_500)


# ---- Transactions ----------------------------------------------------------------------------------------------------


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


# ---- A secured cluster -----------------------------------------------------------------------------------------------

PASSWORD: Final = "geheim-und-streng"


def test_streams_reach_a_secured_cluster_and_no_password_is_written(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster(security="sasl_ssl", users={"alice": PASSWORD}) as cluster:
        login = cluster.settings("alice")
        keys = {f"kafka.{key.replace('_', '.')}": str(value) for key, value in login.items()}
        assert PASSWORD in "".join(keys.values())
        with Producer(**login) as producer:
            for number in range(3):
                producer.send("source", b"%d" % number).result()
        grouped = {"consumeMode": "group", "kafka.group.id": "g"}
        for topic, more in (("direct", {}), ("grouped", grouped)):
            checkpoint = tmp_path / topic
            options = {**keys, **more, "subscribe": "source", "startingOffsets": "earliest"}
            frame = spark.readStream.format("odradek").options(**options).load().select("value")
            sink = frame.writeStream.format("odradek").options(**keys, topic=topic, checkpointLocation=str(checkpoint))
            query = sink.trigger(availableNow=True).start()
            assert query.awaitTermination(120)
            shown = [query.lastProgress.json, str(query.status), repr(frame)]
            frame.explain(extended=True)
            query.explain(extended=True)
            shown += [*capfd.readouterr(), caplog.text]
            written = [path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()]
            assert written
            assert not any(PASSWORD in text for text in shown)
            assert not any(PASSWORD.encode() in content for content in written)
            with Consumer(topic, **login, auto_offset_reset="earliest") as consumer:
                assert sorted(next(consumer).value or b"" for _ in range(3)) == [b"0", b"1", b"2"]
        batch = spark.read.format("odradek").options(**keys, subscribe="source").load()
        assert batch.count() == 3
        wrong = keys | {key: value.replace(PASSWORD, "wrong") for key, value in keys.items()}
        with pytest.raises(Exception, match=r"AuthenticationError: broker .*invalid credentials") as raised:
            spark.read.format("odradek").options(**wrong, subscribe="source").load().count()
        assert PASSWORD not in str(raised.value)
