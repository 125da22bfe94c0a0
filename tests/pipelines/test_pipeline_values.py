"""Values of a stream: which are JSON objects of its fields, which are tombstones, and which become dead letters."""

import datetime
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from odradek.model import ConfigurationError
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import QueryPipeline, Stream
from odradek.pipelines.errors import is_final
from odradek.pipelines.values import parse_values
from odradek.spark.writing.dead_letters import LettersDirectory, RefusedLetters

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(600)]

GOOD: list[tuple[bytes | None, tuple[int | None, str | None]]] = [
    (None, (None, None)),
    (b"{}", (None, None)),
    (b'{"n":1,"c":"x"}', (1, "x")),
    (b' {"n":1}\n', (1, None)),
    (b'{"other":[1,{}],"n":2}', (2, None)),
    (b'{"n":1,"n":2}', (2, None)),
    ('{"c":"ü"}'.encode(), (None, "ü")),
    (b'{"n":null,"c":"}]"}', (None, "}]")),
    # Halves of surrogate pairs.
    (rb'{"c":"?\ud800"}', (None, "?\ufffd")),
    (rb'{"c":"\uDC00a\uDbFF\uD800"}', (None, "\ufffda\ufffd\ufffd")),
    (rb'{"c":"\ud83d\ude00\ude00\ud83d\ud83d\uDE00"}', (None, "\U0001f600\ufffd\ufffd\U0001f600")),
    (rb'{"c":"\\ud800\\\ud800\\\\udc00"}', (None, "\\ud800\\\ufffd\\\\udc00")),
    (rb'{"c":"\\ud83d\ude00\\\ud83d\ude00"}', (None, "\\ud83d\ufffd\\\U0001f600")),
]

BAD: list[tuple[bytes, str]] = [
    (b"", "the value is empty"),
    (b" \n ", "the value is empty"),
    (b'{"n":1', "the value is not JSON"),
    (b"not json", "the value is not JSON"),
    (b'{"n":1} xyz', "the value is not JSON"),
    (b'{"n":1}{"n":2}', "the value is not JSON"),
    (b'{"n":1},', "the value is not JSON"),
    (b'{"n":1,}', "the value is not JSON"),
    (b'{"n":NaN}', "the value is not JSON"),
    (b'{"n":1}]', "the value is not JSON"),
    (b'{"n":1}]} xyz', "the value is not one JSON object"),
    (b'{"n":1},{"n":2}', "the value is not one JSON object"),
    (b"null", "the value is not one JSON object"),
    (b'[{"n":1}]', "the value is not one JSON object"),
    (b"5", "the value is not one JSON object"),
    (b'"text"', "the value is not one JSON object"),
    (b'{"n":"abc"}', "field n is not INT: abc"),
    (b'{"c":5,"n":99999999999}', "field n is not INT: 99999999999"),
    (b'{"n":{"a":[1]}}', 'field n is not INT: {"a":[1]}'),
    (b'{"c":"\xff\xfe"}', "the value is not UTF-8"),
]


FIELDS = "n INT, c STRING"


def stream(value: str) -> Stream:
    text = f"""
kind = "offline"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
[streams.orders]
topics = ["orders"]
value = '{value}'
[sink]
path = "out"
"""
    pipeline = parse_pipeline(tomllib.loads(text), directory=Path("/jobs"), default_name="job")
    assert isinstance(pipeline, QueryPipeline)
    return pipeline.streams[0]


def records(spark: Any, values: list[bytes | None]) -> Any:
    """One partition of a topic, in one task."""
    at = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    rows = [
        (b"k%d" % offset, None if value is None else bytearray(value), "orders", 3, offset, at)
        for offset, value in enumerate(values)
    ]
    schema = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
    return spark.createDataFrame(rows, schema).coalesce(1)


def test_every_value_is_a_row_or_a_dead_letter(spark: Any, tmp_path: Path) -> None:
    orders = stream("n INT, c STRING")
    values = [value for value, _ in GOOD] + [value for value, _ in BAD]
    frame = parse_values(
        records(spark, values), orders, ["topic", "offset"], LettersDirectory(path=str(tmp_path / "dead"))
    )
    assert frame.columns == ["topic", "offset", "n", "c"]
    kept = {row.offset: (row.n, row.c) for row in frame.collect()}
    assert kept == {offset: fields for offset, (_, fields) in enumerate(GOOD)}

    (file,) = (tmp_path / "dead").iterdir()
    assert file.name == f"dead-orders-orders-3-{len(GOOD):020d}.parquet"
    letters = ds.dataset(tmp_path / "dead", format="parquet").to_table().to_pylist()
    assert [(each["value"], each["reason"]) for each in letters] == BAD
    first = letters[0]
    assert first == {
        "stream": "orders",
        "topic": "orders",
        "partition": 3,
        "offset": len(GOOD),
        "timestamp": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "key": b"k%d" % len(GOOD),
        "value": b"",
        "reason": "the value is empty",
    }


def test_a_where_clause_of_the_query_hides_no_dead_letter(spark: Any, tmp_path: Path) -> None:
    orders = stream("n INT")
    frame = parse_values(
        records(spark, [b"{}", b"x", b'{"n":1}']), orders, ["offset"], LettersDirectory(path=str(tmp_path / "dead"))
    )
    assert [row.offset for row in frame.where("offset = 2 AND n = 1").select("offset").collect()] == [2]
    letters = ds.dataset(tmp_path / "dead", format="parquet").to_table().to_pylist()
    assert [each["offset"] for each in letters] == [1]


@pytest.mark.parametrize(
    ("value", "columns", "row"),
    [
        (
            "offset INT, Key STRING, n INT",
            ["offset", "key", "value_offset", "value_Key", "n"],
            (0, b"k0", 7, None, None),
        ),
        ("topic INT, _corrupt_record STRING", ["offset", "key", "topic", "_corrupt_record"], (0, b"k0", 8, None)),
    ],
)
def test_a_field_named_like_a_column_of_the_record_has_another_name(
    spark: Any, value: str, columns: list[str], row: tuple[Any, ...]
) -> None:
    frame = parse_values(records(spark, [b'{"offset":7,"topic":8}']), stream(value), ["offset", "key"], None)
    assert frame.columns == columns
    assert tuple(frame.collect()[0]) == row


def test_bad_rows_can_stay_with_nulls_and_are_counted(spark: Any) -> None:
    frame = parse_values(records(spark, [b'{"n":1,"c":"x"}', b'{"n":"x","c":"y"}']), stream(FIELDS), ["offset"], None)
    assert [tuple(row) for row in frame.collect()] == [(0, 1, "x"), (1, None, None)]


def test_a_bad_row_can_end_the_query(spark: Any) -> None:
    frame = parse_values(records(spark, [b"{}", b"x"]), stream(FIELDS), ["offset"], RefusedLetters())
    with pytest.raises(Exception, match="orders-3 offset 1: the value is not JSON, and on_bad_row is fail") as caught:
        frame.collect()
    assert is_final(str(caught.value))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("ARRAY<INT>", "name fields, such as 'id INT', not array<int>"),
        ("key INT, value_key INT", "two columns would be named value_key"),
    ],
)
def test_fields_that_a_view_cannot_have_are_refused(spark: Any, value: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_values(records(spark, []), stream(value), ["key"], None)
    assert sentence in str(caught.value)
