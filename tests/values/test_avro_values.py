"""Avro values as `odradek consume` shows them: true values, whatever their schema and size."""

import io
import json
from pathlib import Path
from typing import Any, Final

import pytest
from fastavro import parse_schema, schemaless_writer

from odradek.model import ConfigurationError
from odradek.values.value_formats import Shown, shower


def logical(kind: str, annotated: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": annotated, **more}


def amount(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def bare(schema: Any) -> Any:
    """Return the schema without logical types, to write any number."""
    if isinstance(schema, list):
        return [bare(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: bare(value) for key, value in schema.items() if key != "logicalType"}


def shown(tmp_path: Path, schema: Any, value: Any) -> Shown:
    (tmp_path / "schema.avsc").write_text(json.dumps(schema))
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(bare(schema)), value)
    return shower("avro", str(tmp_path / "schema.avsc"), option="value")(file.getvalue())


DATE, MILLIS, MICROS = logical("int", "date"), logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
LOCAL_MILLIS, LOCAL = logical("long", "local-timestamp-millis"), logical("long", "local-timestamp-micros")
FIXED: Final = logical("fixed", "decimal", name="Fixed", size=8, precision=4, scale=2)
POINT: Final = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
NODE: Final = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (amount(4, 2), unscaled(1250), "12.50"),
        (amount(4, 2), unscaled(123456), "1234.56"),
        (amount(4, 2), unscaled(-123456), "-1234.56"),
        (amount(4, 0), unscaled(123456), "123456"),
        (amount(4, 4), unscaled(123456), "12.3456"),
        (amount(38, 2), unscaled(10**50 + 1), f"1{'0' * 48}.01"),
        (amount(50, 0), unscaled(10**49 + 1), f"1{'0' * 48}1"),
        (FIXED, (123456).to_bytes(8, "big"), "1234.56"),
        (FIXED, (-1).to_bytes(8, "big", signed=True), "-0.01"),
        (DATE, 0, "1970-01-01"),
        (DATE, 2_932_896, "9999-12-31"),
        (DATE, 2_932_897, "+10000-01-01"),
        (DATE, 2**31 - 1, "+5881580-07-11"),
        (DATE, -719_162, "0001-01-01"),
        (DATE, -719_163, "0000-12-31"),
        (DATE, -719_529, "-0001-12-31"),
        (DATE, -(2**31), "-5877641-06-23"),
        (MILLIS, 0, "1970-01-01T00:00:00Z"),
        (MILLIS, 253_402_300_799_999, "9999-12-31T23:59:59.999000Z"),
        (MILLIS, 253_402_300_800_000, "+10000-01-01T00:00:00Z"),
        (MILLIS, 2**63 - 1, "+292278994-08-17T07:12:55.807000Z"),
        (MILLIS, -(2**63), "-292275055-05-16T16:47:04.192000Z"),
        (MICROS, 253_402_300_800_000_001, "+10000-01-01T00:00:00.000001Z"),
        (MICROS, 2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (MICROS, -62_135_596_800_000_001, "0000-12-31T23:59:59.999999Z"),
        (LOCAL, 253_402_300_800_000_000, "+10000-01-01T00:00:00"),
        (LOCAL_MILLIS, 253_402_300_800_000, "+10000-01-01T00:00:00"),
        (LOCAL_MILLIS, 1, "1970-01-01T00:00:00.001000"),
        (logical("long", "timestamp-nanos"), 5, 5),
        (logical("string", "uuid"), "x", "x"),
        (["null", MILLIS], None, None),
        (["null", MILLIS], 253_402_300_800_000, "+10000-01-01T00:00:00Z"),
        ({"type": "array", "items": DATE}, [0, 2_932_897], ["1970-01-01", "+10000-01-01"]),
        ({"type": "map", "values": amount(4, 2)}, {"a": unscaled(123456)}, {"a": "1234.56"}),
        (["int", "string"], "x", "x"),
        (["int", "string"], 5, 5),
        (["null", "int", "string"], None, None),
        (["null", POINT, "string"], {"x": 1}, {"x": 1}),
        ([{"type": "array", "items": "int"}, {"type": "map", "values": "int"}], {"a": 1}, {"a": 1}),
        (NODE, {"n": 1, "next": {"n": 2, "next": None}}, {"n": 1, "next": {"n": 2, "next": None}}),
    ],
)
def test_a_field_has_its_true_value(tmp_path: Path, schema: Any, value: Any, expected: Any) -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": schema}, {"name": "b", "type": "string"}]}
    found = shown(tmp_path, record, {"a": value, "b": "é"})
    assert (found.encoding, found.error) == ("avro", None)
    assert json.loads(bytes(found.content)) == {"a": expected, "b": "é"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("long", 5),
        ("string", "x"),
        ({"type": "array", "items": "int"}, [1, 2]),
        ({"type": "map", "values": "int"}, {"a": 1}),
        (["null", "string"], "x"),
        ([POINT, NODE], {"n": 1, "next": None}),
        (NODE, {"n": 0, "next": {"n": 1, "next": None}}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ],
)
def test_a_value_of_any_schema_is_shown(tmp_path: Path, schema: Any, value: Any) -> None:
    found = shown(tmp_path, schema, value)
    assert json.loads(bytes(found.content)) == value  # type: ignore[arg-type]


def test_a_value_that_is_nested_too_deeply_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "node.avsc").write_text(json.dumps(NODE))
    found = shower("avro", str(tmp_path / "node.avsc"), option="value")(b"\0\x02" * 100_000 + b"\0\0")
    assert found.encoding is None
    assert found.error == "the value is not a record of the Avro schema: RecursionError"


@pytest.mark.parametrize("schema", ["{", "5", '"lng"', '{"type": "record", "name": "R"}', "[" * 100_000])
def test_a_schema_that_is_wrong_is_refused_at_the_start(tmp_path: Path, schema: str) -> None:
    (tmp_path / "schema.avsc").write_text(schema)
    with pytest.raises(ConfigurationError, match="the Avro schema is"):
        shower("avro", str(tmp_path / "schema.avsc"), option="value")


def test_a_schema_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "schema.avsc").write_bytes(b'\xef\xbb\xbf"long"')
    assert shower("avro", str(tmp_path / "schema.avsc"), option="value")(b"\x0a").error is None
