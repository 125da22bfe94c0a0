"""Streams of Avro and Protobuf values: their columns, their bad rows, and schema files that are wrong (M11)."""

import datetime
import io
import json
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2

from odradek.model import ConfigurationError
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import QueryPipeline, Stream
from odradek.pipelines.errors import is_final
from odradek.pipelines.values import parse_values
from odradek.spark.writing.dead_letters import LettersDirectory, RefusedLetters

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


def records(spark: Any, values: list[bytes | None]) -> Any:
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = [
        (b"k", None if value is None else bytearray(value), "orders", 3, offset, at)
        for offset, value in enumerate(values)
    ]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    return spark.createDataFrame(rows, schema).coalesce(1)


def avro(**fields: Any) -> bytes:
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(SCHEMA), fields)
    return file.getvalue()


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_avro_values_become_columns_and_other_bytes_dead_letters(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    orders = stream(tmp_path, 'format = "avro"\nschema = "order.avsc"')
    good = avro(city="Ulm", offset=7, at=NOON, tags=["a"])
    letters = LettersDirectory(path=str(tmp_path / "dead"))
    frame = parse_values(records(spark, [good, b"{}", None, good[:-1]]), orders, ["offset"], letters)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == [
        "offset bigint",
        "city string",
        "value_offset bigint",
        "at timestamp",
        "tags array<string>",
    ]
    # A condition on a column must not hide bad rows.
    rows = frame.where("city IS NULL OR city = 'Ulm'").selectExpr("*", "unix_millis(at) AS ms").drop("at").collect()
    assert [tuple(row) for row in rows] == [
        (0, "Ulm", 7, ["a"], int(NOON.timestamp() * 1000)),
        (2, None, None, None, None),
    ]
    dead = ds.dataset(tmp_path / "dead", format="parquet").to_table().to_pylist()
    assert [(each["offset"], each["value"]) for each in dead] == [(1, b"{}"), (3, good[:-1])]
    assert dead[0]["reason"].startswith("the value is not a record of the Avro schema: ")


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_protobuf_values_become_columns_and_bad_ones_stay_or_fail(spark: Any, tmp_path: Path) -> None:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="city", number=1, type=kind.TYPE_STRING, label=1)
    message.field.add(name="price", number=2, type=kind.TYPE_INT32, label=1)
    (tmp_path / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    keys = 'format = "protobuf"\nschema = "shop.desc"\nmessage = "shop.Order"\nframing = "confluent"'
    orders = stream(tmp_path, keys)
    values = [b"\0\0\0\0\x05\0" + b"\x0a\x03Ulm\x10\x07", b"\x0a\x03Ulm"]
    frame = parse_values(records(spark, values), orders, ["offset"], None)
    assert [tuple(row) for row in frame.collect()] == [(0, "Ulm", 7), (1, None, None)]
    with pytest.raises(Exception, match="orders-3 offset 1: the value does not begin with Confluent") as caught:
        parse_values(records(spark, values), orders, ["offset"], RefusedLetters()).collect()
    assert is_final(str(caught.value))


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
        parse_values(None, orders, [], None)
    (tmp_path / "order.avsc").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"order\.avsc is not an Avro schema: it is not UTF-8"):
        parse_values(None, orders, [], None)
