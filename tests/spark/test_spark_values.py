"""Avro and Protobuf values as rows of Arrow: every type, and the bytes that are no value (M11).

Values are written by fastavro and by protobuf themselves.
"""

import base64
import datetime
import decimal
import io
import json
import pickle
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from fastavro import parse_schema, schemaless_writer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import ConfigurationError
from odradek.spark.writing import dead_letters
from odradek.spark.writing.dead_letters import MOST_ROWS, LettersDirectory, split_dead_letters
from odradek.values.avro import AvroDecoder
from odradek.values.cursors import Column
from odradek.values.decoding import Decoder, decode_arrays
from odradek.values.protobuf import ProtobufDecoder

NOON: Final = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)

AVRO: Final = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "wall", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "before", "type": ["shop.Kind", "null"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "item", "type": {"type": "record", "name": "Item", "fields": [{"name": "hash", "type": "Hash"}]}},
    ],
}
ORDER: Final = {
    "id": 2**63 - 1,
    "note": None,
    "tags": ["a", "b"],
    "counts": {"x": -1},
    "at": NOON,
    "wall": NOON.replace(tzinfo=None),
    "price": decimal.Decimal("12.50"),
    "kind": "NEW",
    "before": "OLD",
    "day": NOON.date(),
    "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "hash": b"\x00\xff",
    "item": {"hash": b"ab"},
}


def avro(schema: Any, value: Any) -> bytes:
    file = io.BytesIO()
    schemaless_writer(file, parse_schema(schema), value)
    return file.getvalue()


def rows(decoder: Decoder, *values: bytes | None) -> list[Any]:
    (array,) = decode_arrays(iter([pa.array(values, pa.binary())]), pickle.loads(pickle.dumps(decoder)))
    return [row["reason"] or row["value"] for row in array.to_pylist(maps_as_pydicts="strict")]


def test_an_avro_record_has_all_its_types():
    decoder = AvroDecoder(schema=json.dumps(AVRO))
    assert rows(decoder, avro(AVRO, ORDER), None) == [ORDER, None]
    assert decoder.column.type.field("at").type == pa.timestamp("us", "UTC")
    assert decoder.column.type.field("price").type == pa.decimal128(10, 2)


def test_a_number_beyond_its_type_is_named_with_its_field():
    class Numbers:
        column = Column(pa.struct([("name", pa.string()), ("n", pa.int32())]), lambda cursors: pa.nulls(len(cursors)))

        def __call__(self, value: bytes) -> dict[str, Any]:
            return {"name": "x", "n": int(value)}

    numbers = decode_arrays(iter([pa.array([b"5", b"99999999999"])]), Numbers())
    assert [row["reason"] for array in numbers for row in array.to_pylist()] == [
        None,
        "field n is not int32: Value 99999999999 too large to fit in C integer type",
    ]


@pytest.mark.parametrize(
    ("kind", "logical", "number", "stored"),
    [
        ("int", "date", 2_932_897, 2_932_897),
        ("int", "date", -719_163, -719_163),
        ("long", "timestamp-millis", 253_402_300_800_000, 253_402_300_800_000_000),
        ("long", "timestamp-micros", 2**63 - 1, 2**63 - 1),
        ("long", "timestamp-micros", -(2**62), -(2**62)),
        ("long", "local-timestamp-millis", 253_402_300_800_000, 253_402_300_800_000_000),
        ("long", "local-timestamp-micros", 2**62, 2**62),
        ("long", "timestamp-millis", 2**63 - 1, "field a is not timestamp[us, tz=UTC]: "),
    ],
)
def test_a_time_for_which_python_has_no_date_is_exact(kind: str, logical: str, number: int, stored: int | str):
    field = {"name": "a", "type": {"type": kind, "logicalType": logical}}
    schema = {"type": "record", "name": "R", "fields": [field]}
    bare = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    values = pa.array([avro(bare, {"a": number}), avro(bare, {"a": 0})])
    (array,) = decode_arrays(iter([values]), AvroDecoder(schema=json.dumps(schema)))
    if isinstance(stored, str):
        assert array.field("reason")[0].as_py().startswith(stored)
    else:
        found = array.field("value").field("a")
        assert found.cast(pa.int32() if kind == "int" else pa.int64()).to_pylist() == [stored, 0]


@pytest.mark.parametrize(("number", "said"), [(1250, None), (123456, "precision 6"), (-123456, "precision 6")])
def test_a_decimal_beyond_its_precision_is_no_row(number: int, said: str | None):
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    value = bytes([6]) + number.to_bytes(3, "big", signed=True)
    (found,) = rows(AvroDecoder(schema=json.dumps(schema)), value)
    if said is None:
        assert found == {"a": decimal.Decimal("12.50")}
    else:
        assert found.startswith("field a is not decimal128(4, 2): ")
        assert said in found


def test_bytes_that_are_no_avro_record_have_a_reason():
    decoder, good = AvroDecoder(schema=json.dumps(AVRO)), avro(AVRO, ORDER)
    no_record = "the value is not a record of the Avro schema: "
    found = rows(decoder, b"", good[:-1], good + b"x", b'{"id": 1}', b"\xff" * 30)
    assert found[2] == "the value has bytes after the Avro record"
    assert [each.startswith(no_record) for each in found] == [True, True, False, True, True]


def test_the_prefix_of_confluent_s_serializers_is_cut_off():
    simple = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    decoder = AvroDecoder(schema=json.dumps(simple), framing="confluent")
    value = avro(simple, {"n": 7})
    no_prefix = "the value does not begin with Confluent's zero byte and schema id"
    assert rows(decoder, b"\0\0\0\0\x2a" + value, b"\1\0\0\0\x2a" + value, b"\0\0") == [{"n": 7}, no_prefix, no_prefix]


@given(st.binary(max_size=80))
def test_any_bytes_are_an_avro_record_or_have_a_reason(value: bytes):
    assert len(rows(AvroDecoder(schema=json.dumps(AVRO)), value)) == 1


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "the Avro schema is not JSON"),
        ('{"type": "record", "name": "R"}', "the Avro schema is wrong"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "S"}]}', "the Avro schema is wrong"),
        ('"long"', "describes int64: a stream needs a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["int", "string"]}]}', "a union of 2 types"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}', "R inside of itself"),
    ],
)
def test_an_avro_schema_that_spark_cannot_have_is_refused(schema: str, sentence: str):
    with pytest.raises(ConfigurationError, match=sentence):
        _ = AvroDecoder(schema=schema).column


Kind = descriptor_pb2.FieldDescriptorProto


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """The content of a file that `protoc --include_imports` writes for message shop.Order."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    status = file.enum_type.add(name="Status")
    for number, name in enumerate(("NEW", "OLD")):
        status.value.add(name=name, number=number)
    file.message_type.add(name="Item").field.add(name="sku", number=1, type=Kind.TYPE_STRING, label=1)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=Kind.TYPE_MESSAGE, label=1, type_name=".shop.Node")
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Kind.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=Kind.TYPE_SINT32, label=1)
    for number, (name, kind, label, type_name) in enumerate(
        [
            ("id", Kind.TYPE_UINT64, 1, ""),
            ("small", Kind.TYPE_UINT32, 1, ""),
            ("status", Kind.TYPE_ENUM, 1, ".shop.Status"),
            ("items", Kind.TYPE_MESSAGE, 3, ".shop.Item"),
            ("first", Kind.TYPE_MESSAGE, 1, ".shop.Item"),
            ("at", Kind.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("raw", Kind.TYPE_BYTES, 1, ""),
            ("counts", Kind.TYPE_MESSAGE, 3, ".shop.Order.CountsEntry"),
        ],
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=type_name or None)
    times = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    return descriptor_pb2.FileDescriptorSet(file=[times, file])


def order(**fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**fields)
    return bytes(message.SerializeToString())


def decoder(message: str = "shop.Order", **others: Any) -> ProtobufDecoder:
    return ProtobufDecoder(descriptors=descriptors().SerializeToString(), message=message, **others)


EMPTY: Final = {
    "id": decimal.Decimal(0), "small": 0, "status": "NEW", "items": [], "first": None, "at": None, "raw": b"",
    "counts": {},
}  # fmt: skip


def test_a_protobuf_message_has_all_its_types():
    at = NOON.replace(microsecond=1)
    value = order(
        id=2**64 - 1, small=2**32 - 1, status=1, items=[{"sku": "a"}, {}], at=at, raw=b"\xff", counts={"x": -1}
    )
    assert rows(decoder(), value, b"", None) == [
        {
            "id": decimal.Decimal(2**64 - 1),
            "small": 2**32 - 1,
            "status": "OLD",
            "items": [{"sku": "a"}, {"sku": ""}],
            "first": None,
            "at": at,
            "raw": b"\xff",
            "counts": {"x": -1},
        },
        EMPTY,
        None,
    ]


def test_an_enum_s_number_without_a_name_is_kept():
    assert rows(decoder(), b"\x18\x07") == [EMPTY | {"status": "7"}]


def test_bytes_that_are_no_message_have_a_reason():
    no_message = "the value is not a Protobuf message shop.Order"
    at = timestamp_pb2.Timestamp(seconds=253_402_300_800).SerializeToString()
    year_10000 = bytes([0x32, len(at)]) + at
    found = rows(decoder(), b"\xff", b'{"id": 1}', year_10000)
    assert found == [no_message, no_message, "field at is not a moment between the years 1 and 9999"]


@pytest.mark.parametrize("indexes", [b"\0", b"\x02\x04", b"\x04\x02\x00"])
def test_the_prefix_and_the_indexes_of_confluent_s_serializers_are_cut_off(indexes: bytes):
    framed = decoder(framing="confluent")
    assert rows(framed, b"\0\0\0\0\x01" + indexes + order(small=7)) == [EMPTY | {"small": 7}]
    assert (
        rows(framed, b"\0\0\0\0\x01", b"\0\0\0\0\x01\x04\x80")
        == ["the value does not have Confluent's list of message indexes"] * 2
    )


@given(st.binary(max_size=40), st.sampled_from([None, "confluent"]))
def test_any_bytes_are_a_message_or_have_a_reason(value: bytes, framing: str | None):
    assert len(rows(decoder(framing=framing), value)) == 1


def test_a_message_that_spark_cannot_have_is_refused():
    with pytest.raises(ConfigurationError, match=r"no message shop\.Ordre; there are .*, shop\.Item, shop\.Node"):
        _ = decoder("shop.Ordre").column
    with pytest.raises(ConfigurationError, match=r"message shop\.Node is inside of itself"):
        _ = decoder("shop.Node").column
    assert decoder("shop.Node")(b"\x0a\x02\x0a\x00") == {"next": {"next": {}}}
    with pytest.raises(ConfigurationError, match="make it by protoc --include_imports"):
        _ = ProtobufDecoder(descriptors=b"\xff\xff", message="shop.Order").column
    without_imports = descriptor_pb2.FileDescriptorSet(file=descriptors().file[1:]).SerializeToString()
    with pytest.raises(ConfigurationError, match="make it by protoc --include_imports"):
        _ = ProtobufDecoder(descriptors=without_imports, message="shop.Order").column


# ---- Dead letters ----------------------------------------------------------------------------------------------------


def letter(offset: int, partition: int = 0, value: bytes = b"x") -> dict[str, Any]:
    text = base64.b64encode(value).decode()
    return {
        "stream": "s",
        "topic": "t",
        "partition": partition,
        "offset": offset,
        "timestamp": 0,
        "value": text,
        "reason": "r",
    }


def split(directory: Path, *arrays: list[dict[str, Any] | None]) -> list[list[bool]]:
    given = (pa.array([each and json.dumps(each) for each in array], pa.string()) for array in arrays)
    return [kept.to_pylist() for kept in split_dead_letters(given, LettersDirectory(path=str(directory)))]


def offsets(directory: Path) -> list[tuple[int, int]]:
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())])
    table = ds.dataset(directory, schema=schema, format="parquet").to_table()
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_without_a_dead_letter_there_is_no_directory(tmp_path: Path) -> None:
    assert split(tmp_path / "dead", [None, None], []) == [[True, True], []]
    assert not (tmp_path / "dead").exists()


def test_the_dead_letters_of_a_task_are_in_one_file(tmp_path: Path) -> None:
    assert split(tmp_path, [None, letter(1)], [letter(2), None]) == [[True, False], [False, True]]
    assert names(tmp_path) == ["dead-s-t-0-00000000000000000001.parquet"]
    assert offsets(tmp_path) == [(0, 1), (0, 2)]


def test_each_partition_has_its_file(tmp_path: Path) -> None:
    split(tmp_path, [letter(7, partition=1), letter(3), letter(8, partition=1)])
    assert names(tmp_path) == ["dead-s-t-0-00000000000000000003.parquet", "dead-s-t-1-00000000000000000007.parquet"]
    assert offsets(tmp_path) == [(0, 3), (1, 7), (1, 8)]


def test_a_task_that_runs_again_replaces_its_files(tmp_path: Path) -> None:
    given = [letter(offset) for offset in range(2 * MOST_ROWS + 5)]
    arrays = [given[start : start + 4_000] for start in range(0, len(given), 4_000)]
    split(tmp_path, *arrays)
    before = names(tmp_path)
    assert len(before) == 3
    split(tmp_path, *arrays)
    assert names(tmp_path) == before
    assert offsets(tmp_path) == [(0, offset) for offset in range(len(given))]


@pytest.mark.parametrize("limit", ["MOST_ROWS", "MOST_BYTES"])
def test_a_task_that_reads_in_other_pieces_replaces_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(dead_letters, limit, 10)
    some, others = ([letter(offset, partition) for offset in range(12)] for partition in (0, 1))
    split(tmp_path, some[:6], others[:6], some[6:], others[6:])
    split(tmp_path, some[:9], some[9:], others)
    assert offsets(tmp_path) == [(partition, offset) for partition in (0, 1) for offset in range(12)]


def test_large_values_are_written_before_the_byte_limit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dead_letters, "MOST_BYTES", 1_000)
    split(tmp_path, [letter(0, value=b"x" * 2_000)], [letter(1, value=b"x" * 2_000)])
    assert len(names(tmp_path)) == 2


def test_readers_skip_the_file_of_a_task_that_died(tmp_path: Path) -> None:
    unfinished = tmp_path / ".dead-s-t-0-00000000000000000005.parquet.0"
    unfinished.write_bytes(b"")
    assert offsets(tmp_path) == []
    split(tmp_path, [letter(5)])
    assert names(tmp_path) == ["dead-s-t-0-00000000000000000005.parquet"]
