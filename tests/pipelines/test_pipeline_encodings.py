"""Streams of Avro and Protobuf values: their columns, their bad rows, and schema files that are wrong (M11)."""

import datetime
import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2
from pyspark.sql.types import StructType

from odradek.model import ConfigurationError
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import QueryPipeline, Stream
from odradek.pipelines.errors import PipelineError
from odradek.pipelines.values import parse_values, value_options
from odradek.spark.options import parse_read_options
from odradek.spark.value_columns import value_fields, with_decoded_values
from odradek.spark.writing.dead_letters import LettersDirectory
from tests.pipelines.scene import Scene, consumed

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "city", "type": ["null", "string"]},
        {"name": "offset", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
NOON = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)


def stream(directory: Path, keys: str) -> Stream:
    text = f"""
kind = "real_time"
checkpoint = "state"
sql = "SELECT * FROM orders"
[source]
bootstrap_servers = "localhost:9092"
[streams.orders]
topics = ["orders"]
{keys}
[sink]
path = "out"
"""
    pipeline = parse_pipeline(tomllib.loads(text), directory=directory, default_name="job")
    assert isinstance(pipeline, QueryPipeline)
    return pipeline.streams[0]


def records(spark: Any, values: list[bytes | None], decoded: Stream) -> Any:
    """Return rows as the source returns them that decodes the values of a stream."""
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"} | value_options(decoded, None)
    options = parse_read_options(given, streaming=False).values
    assert options is not None
    batch = with_decoded_values(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())}), options)
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = [
        (b"k", row["value"] and bytearray(row["value"]), "orders", 3, offset, at, row["fields"], row["reason"])
        for offset, row in enumerate(batch.to_pylist())
    ]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    columns = StructType([*StructType.fromDDL(schema), *value_fields(options)])
    return spark.createDataFrame(rows, columns).coalesce(1)


def avro(**fields: Any) -> bytes:
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(SCHEMA), fields)
    return file.getvalue()


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_avro_values_become_columns_and_other_bytes_no_rows(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    orders = stream(tmp_path, 'format = "avro"\nschema = "order.avsc"')
    good = avro(city="Ulm", offset=7, at=NOON, tags=["a"])
    given = records(spark, [good, b"{}", None, good[:-1]], orders)
    frame = parse_values(given, orders, ["offset"], LettersDirectory(path="unused"))
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == [
        "offset bigint",
        "city string",
        "value_offset bigint",
        "at timestamp",
        "tags array<string>",
    ]
    rows = frame.selectExpr("*", "unix_millis(at) AS ms").drop("at").collect()
    assert [tuple(row) for row in rows] == [
        (0, "Ulm", 7, ["a"], int(NOON.timestamp() * 1000)),
        (2, None, None, None, None),
    ]
    assert given.where("reason IS NOT NULL").count() == 2


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_a_pipeline_decodes_where_it_reads(scene: Scene, producer: Any) -> None:
    """More values than are decoded one by one; bad ones become letters with their bytes, headers and time."""
    (scene.directory / "order.avsc").write_text(json.dumps(SCHEMA))
    good = [avro(city=None if number % 2 else "Ulm", offset=number, at=NOON, tags=[]) for number in range(600)]
    for number, value in enumerate([*good[:300], b"oops", None, *good[300:]]):
        producer.produce(scene.topic, value, key=b"k%d" % number, partition=0, headers=[("h", b"1")])
    assert producer.flush(30) == 0
    (status,) = scene.run(
        """
kind = "offline"
name = "{topic}.job"
checkpoint = "state"
sql = "SELECT key, offset, value_offset, city FROM orders"
dead_letter_topic = "{topic}.dead"
[source]
bootstrap_servers = "{source}"
[streams.orders]
topics = ["{topic}"]
format = "avro"
schema = "order.avsc"
[sink]
path = "out"
"""
    )
    assert (status.figures.records_out, status.figures.bad_rows, status.figures.tombstones) == (601, 1, 1)
    rows = sorted(scene.rows("out"), key=lambda row: row["offset"])
    assert [row["value_offset"] for row in rows] == [*range(300), None, *range(300, 600)]
    assert rows[300] == {"key": "k301", "offset": 301, "value_offset": None, "city": None}
    assert [row["city"] for row in rows[:2]] == ["Ulm", None]
    (letter,) = consumed(scene.source, f"{scene.topic}.dead", 1)
    assert (letter.key(), letter.value(), letter.headers()[0]) == (b"k300", b"oops", ("h", b"1"))


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_bad_rows_of_the_time_range_are_in_files_or_end_the_pipeline(scene: Scene, producer: Any) -> None:
    (scene.directory / "order.avsc").write_text(json.dumps(SCHEMA))
    good = avro(city="Ulm", offset=7, at=NOON, tags=[])
    hour_ms = 3_600_000
    noon_ms = int(NOON.timestamp() * 1000)
    for hours, value in ((0, good), (-3, b"early"), (0, b"oops"), (1, None), (3, b"late"), (1, good[:-1])):
        producer.produce(scene.topic, value, key=b"k", partition=1, timestamp=noon_ms + hours * hour_ms)
    assert producer.flush(30) == 0
    text = """
kind = "offline"
name = "{topic}.job"
checkpoint = "{state}"
sql = "SELECT offset, city FROM orders WHERE offset < 2"
{bad_rows}
[source]
bootstrap_servers = "{source}"
since = 2024-03-01T11:00:00Z
until = 2024-03-01T14:00:00Z
[streams.orders]
topics = ["{topic}"]
format = "avro"
schema = "order.avsc"
[sink]
path = "{state}.out"
"""
    for state in ("first", "again"):
        (status,) = scene.run(text, state=state, bad_rows='dead_letters = "dead"')
        assert (status.figures.records_out, status.figures.bad_rows, status.figures.tombstones) == (1, 2, 1)
        assert scene.rows(f"{state}.out") == [{"offset": 0, "city": "Ulm"}]
        (file,) = (scene.directory / "dead").iterdir()
        assert file.name == f"dead-orders-{scene.topic}-1-{2:020d}.parquet"
        letters = ds.dataset(file).to_table().to_pylist()
        assert [(each["offset"], each["value"]) for each in letters] == [(2, b"oops"), (5, good[:-1])]
        first = letters[0]
        assert first.pop("reason").startswith("the value is not a record of the Avro schema: ")
        assert first == {
            "stream": "orders",
            "topic": scene.topic,
            "partition": 1,
            "offset": 2,
            "timestamp": NOON,
            "key": b"k",
            "value": b"oops",
        }
    with pytest.raises(PipelineError, match=r"job: .*-1 offset 2: the value is .*, and on_bad_row is fail"):
        scene.run(text, state="strict", bad_rows='on_bad_row = "fail"')


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_protobuf_values_become_columns_and_bad_ones_stay(spark: Any, tmp_path: Path) -> None:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="city", number=1, type=kind.TYPE_STRING, label=1)
    message.field.add(name="price", number=2, type=kind.TYPE_INT32, label=1)
    (tmp_path / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    keys = 'format = "protobuf"\nschema = "shop.desc"\nmessage = "shop.Order"\nframing = "confluent"'
    orders = stream(tmp_path, keys)
    values: list[bytes | None] = [b"\0\0\0\0\x05\0" + b"\x0a\x03Ulm\x10\x07", b"\x0a\x03Ulm"]
    frame = parse_values(records(spark, values, orders), orders, ["offset"], None)
    assert [tuple(row) for row in frame.collect()] == [(0, "Ulm", 7), (1, None, None)]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ('format = "avro"', "streams.orders.schema is missing"),
        (
            'format = "avro"\nschema = "a.avsc"\nvalue = "a INT"',
            'streams.orders.value is for streams.orders.format = "json"',
        ),
        (
            'format = "avro"\nschema = "a.avsc"\nmessage = "M"',
            'streams.orders.message is for streams.orders.format = "protobuf"',
        ),
        ('schema = "a.avsc"', 'streams.orders.schema is for streams.orders.format = "avro" or "protobuf"'),
        ('format = "protobuf"\nschema = "a.desc"', "streams.orders.message is missing"),
        ('format = "avro"\nschema = "a.avsc"\nframing = "registry"', "framing is one of confluent, not 'registry'"),
        ('format = "orc"', "streams.orders.format is one of avro, json, protobuf, not 'orc'"),
    ],
)
def test_keys_that_do_not_belong_to_the_format_are_refused(tmp_path: Path, keys: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        stream(tmp_path, keys)
    assert sentence in str(caught.value)


def test_a_schema_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    orders = stream(tmp_path, 'format = "avro"\nschema = "order.avsc"')
    with pytest.raises(ConfigurationError, match=r"order\.avsc: No such file or directory"):
        value_options(orders, None)
    (tmp_path / "order.avsc").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"order\.avsc is not an Avro schema: it is not UTF-8"):
        value_options(orders, None)
