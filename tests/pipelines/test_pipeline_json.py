"""JSON that the reader decodes: nothing that Spark would read otherwise, and all that is usual."""

import itertools
import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql.functions import unix_date, unix_micros
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from odradek.pipelines.values import parse_values, value_options
from odradek.spark.writing.dead_letters import LettersDirectory
from odradek.values.json_columns import decode_objects
from tests.pipelines.test_pipeline_values import BAD, GOOD, records, stream

FIELDS: Final = (
    "i INT, l BIGINT, d DOUBLE, s STRING, t TIMESTAMP, b BOOLEAN, k TINYINT, w SMALLINT, y DATE, "
    "o STRUCT<x: INT, y: STRUCT<z: DOUBLE, `a b`: STRING>, t: DATE>"
)
LITERALS: Final = [
    *[
        "null",
        "true",
        "false",
        "tru",
        "",
        "[]",
        "[1]",
        "{}",
        '{"x":1}',
        '{"x":"1"}',
        '{"x":1,"x":2}',
        '{"y":{"z":1e999}}',
        '{"t":"2013-02-28"}',
        '{"t":"2013-02-29"}',
        '{"t":"28.2.2013"}',
        "127",
        "128",
        "-32768",
        "-32769",
    ],
    *['{"x":2,"y":{"z":1.5,"a b":"c","q":[{}]}}', '{"x":1}}', '{"y":[]}', '{"x":null,"y":{}}'],
    *[
        "0",
        "-0",
        "7",
        "-7",
        "07",
        "+7",
        "7.0",
        "7.",
        ".7",
        "7e2",
        "7E-2",
        "-",
        "0x7",
        "7 7",
        "1_000",
        "NaN",
        "Infinity",
    ],
    *["-Infinity", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "9223372036854775808", "1e400"],
    *["-1e400", "1e-400", "0.1", "12345678901234567890", "0.30000000000000004", "1.7976931348623157e308", "5e-324"],
    *["123456789012345678901234567890", "1e22", "1e23", "-0.0", "9007199254740993", "2.2250738585072011e-308"],
    *[
        '"x"',
        "'x'",
        '"7"',
        '""',
        '"NaN"',
        '"Infinity"',
        '"1e5"',
        '"true"',
        r'"\u0041\u00e9"',
        r'"\u0000"',
        r'"\/\"\\\b"',
    ],
    *['"\u00e9\U0001f600"', r'"\ud83d\ude00"', r'"\ud83d"', r'"\uDE00"', r'"\x"', r'"\u12"', '"a\nb"', '"a\tb"', '"a'],
    *['"2013-01-01T10:00:00Z"', '"2013-01-01 10:00:00Z"', '"2013-01-01T10:00:00+01:00"', '"2013-01-01T10:00:00+0100"'],
    *[
        '"2013-01-01T10:00:00+01"',
        '"2013-01-01T10:00:00-23:30"',
        '"2013-01-01T10:00:00.1Z"',
        '"2013-01-01T10:00:00UTC"',
    ],
    *['"2013-01-01T10:00:00.123456Z"', '"2013-01-01T10:00:00.1234567Z"', '"2013-01-01T10:00Z"', '"2013-01-01T10Z"'],
    *['"2013-01-01"', '"2013-01-01Z"', '"2013-01-01T10:00:00"', '"2013-02-30T10:00:00Z"', '"2013-01-01T24:00:00Z"'],
    *['"2013-01-01T23:59:60Z"', '"0001-01-01T00:00:00Z"', '"0000-01-01T00:00:00Z"', '"1500-03-01T00:00:00Z"'],
    *['"9999-12-31T23:59:59.999999Z"', '"10000-01-01T00:00:00Z"', '"2013-1-1T1:0:0Z"', '" 2013-01-01T10:00:00Z "'],
    *['"2013-01-01T10:00:00 Z"', '"2013-01-01t10:00:00z"', '"2013-01-01T10:00:00Z\\n"', "1356998400", "1356998400.5"],
]
FORMS: Final = [
    *["{}", " {}", "{} ", "{}\n", "{},", "{}{}", "{}]}", "[{}]", "{,}", '{"i":1,}', '{"i":1}{', '{"i"}', '{"i":}', "{"],
    *[
        '{"i":1}{"i":2}',
        '{"i":1}\n{"i":2}',
        '{"i":1,"i":2}',
        '{"I":1}',
        '{"i":1,"u":{"i":[1,{"i":2}]}}',
        '{"u":1,"u":2}',
    ],
    *['{\n"i"\t:\r1\n}', '{"\\u0069":1}', "{i:1}", "{'i':1}", '{"i":1}//c', '{"i":/*c*/1}', '\ufeff{"i":1}', '{"s":"}'],
    *['{"i":1}\x00', '{"":1,"i":2}', '{"s":"{\\"i\\":1}"}', '{"__odradek_end":true}', '{"s":"' + "x" * 100_000 + '"}'],
]
VALUES: Final = [
    *(value.encode() for value in FORMS),
    *(f'{{"{name}":{literal}}}'.encode() for name, literal in itertools.product("ildstbokwy", LITERALS)),
    b'{"s":"\xff"}',
    b'{"u":"\xc3"}',
    *(value for value, _ in GOOD if value is not None),
    *(value for value, _ in BAD),
]
USUAL: Final = [
    b"{}",
    b'{"i":7,"l":9223372036854775807,"d":0.1,"s":"\\u00e9 \\"","t":"2013-01-01T10:00:00Z","b":true,"u":[{}]}',
    b'{"d":7,"o":{"x":null,"y":{"z":1e22,"a b":"c"}},"s":null}',
]


def decoded(values: list[bytes | None]) -> list[Any]:
    fields = StructType.fromJson(json.loads(value_options(stream(FIELDS), None)["valueSchema"]))
    found = decode_objects(pa.array(values, pa.binary()), to_arrow_type(fields, timezone="UTC"))
    found.validate(full=True)
    microseconds = found.field("t").cast(pa.int64()).to_pylist()
    days = found.field("y").cast(pa.int32()).to_pylist()
    return [
        row and row | {"t": time, "y": day}
        for row, time, day in zip(found.to_pylist(), microseconds, days, strict=True)
    ]


@pytest.mark.needs("java")
@pytest.mark.timeout(300)
def test_each_object_that_is_decoded_is_as_spark_parses_it(spark: Any, tmp_path: Path) -> None:
    frame = parse_values(
        records(spark, [*VALUES, *USUAL]), stream(FIELDS), ["offset"], LettersDirectory(path=str(tmp_path / "dead"))
    )
    # Python has no dates before the year 1.
    rows = frame.withColumns({"t": unix_micros("t"), "y": unix_date("y")}).collect()
    parsed = {row.offset: row.asDict(recursive=True) for row in rows}
    letters = ds.dataset(tmp_path / "dead", format="parquet").to_table()["offset"].to_pylist()
    assert sorted([*parsed, *letters]) == list(range(len(VALUES) + len(USUAL)))
    count = 0
    for offset, value in enumerate([*VALUES, *USUAL]):
        (found,) = decoded([value])
        if found is not None:
            count += 1
            assert repr(parsed.get(offset)) == repr({"offset": offset} | found), value
    assert count > 100


@pytest.mark.needs("java")
@pytest.mark.usefixtures("spark")
def test_one_unusual_object_leaves_no_other_to_spark() -> None:
    assert None not in decoded([*USUAL] * 3000)
    found = decoded([None, b"", *[b'{"i":7}'] * 5000, b"{", *USUAL, *[b'{"i":7}'] * 10, b'{"i":"x"}'])
    assert found[2]["i"] == 7
    assert found[:2] == [None, None]
    assert [number for number, row in enumerate(found) if row is None] == [0, 1, 5002, len(found) - 1]
    assert len(decoded([b'{"t":"2013-02-29T10:00:00Z"}', b'{"t":"2013-02-28T10:00:00Z"}', b'{"t":"x"}'])) == 3


@pytest.mark.parametrize(
    "fields",
    [
        "n DECIMAL(9, 2)",
        "n FLOAT",
        "n ARRAY<INT>",
        "n MAP<STRING, INT>",
        "n VARIANT",
        "n TIMESTAMP_NTZ",
        "n BINARY",
        "n INT NOT NULL",
        "n STRING COLLATE UNICODE_CI",
        "n STRUCT<x: DECIMAL(9, 2)>",
        "n STRUCT<x: INT, x: INT>",
        '`"` INT',
    ],
)
@pytest.mark.needs("java")
@pytest.mark.usefixtures("spark")
def test_objects_with_fields_of_other_types_are_not_decoded(fields: str) -> None:
    assert value_options(stream(fields), None) == {}
