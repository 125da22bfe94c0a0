"""Values read a field at a time: what fastavro and protobuf find in each value alone, for any schema and any bytes."""

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from odradek.model import ConfigurationError
from odradek.values import avro_columns, decoding, protobuf_columns
from odradek.values.avro import AvroDecoder
from odradek.values.decoding import Decoder, decode_arrays
from odradek.values.protobuf import ProtobufDecoder

FRAMED: Final = b"\0\0\0\0\7"
"""The prefix that Confluent's serializers write before an Avro value."""
ALWAYS, NEVER = 1, 1_000_000
"""Fewest values that are read a field at a time."""


def decoded(decoder: Decoder, values: list[bytes | None], fewest: int) -> list[Any]:
    """Return the rows of one array; less than `fewest` values are decoded one by one."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (avro_columns, decoding, protobuf_columns):
            patch.setattr(module, "FEWEST", fewest)
        (array,) = decode_arrays(iter([pa.array([b"before", *values, b"after"], pa.binary())[1:-1]]), decoder)
    array.validate(full=True)
    return [plain(row) for row in array]


def plain(scalar: pa.Scalar) -> Any:
    """Return a value that can be compared: with numbers for times, as Python lacks some, and text for floats."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {field.name: plain(scalar[field.name]) for field in scalar.type}
    if pa.types.is_map(scalar.type):
        entries = [(plain(entry["key"]), plain(entry["value"])) for entry in scalar.values]
        assert len(dict(entries)) == len(entries)
        return dict(entries)
    if pa.types.is_list(scalar.type):
        return [plain(item) for item in scalar.values]
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    return repr(scalar.as_py()) if pa.types.is_floating(scalar.type) else scalar.as_py()


class Alone:
    """A decoder, and how many values were decoded one by one."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder, self.count, self.column = decoder, 0, decoder.column

    def __call__(self, value: bytes) -> Any:
        self.count += 1
        return self._decoder(value)


def varint(number: int) -> bytes:
    found = b""
    while number > 0x7F:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 ^ number >> 63)


@st.composite
def damaged(draw: DrawFn, value: bytes) -> bytes:
    """Draw a value with a byte that is changed, its end cut off, or bytes that are appended."""
    place = draw(st.integers(0, len(value)))
    return draw(
        st.sampled_from([value[:place], value + b"x", value[:place] + draw(st.binary(max_size=3)) + value[place + 1 :]])
    )


def batches(one: SearchStrategy[bytes]) -> SearchStrategy[list[bytes | None]]:
    return st.lists(one | one | one.flatmap(damaged) | st.binary(max_size=12) | st.none(), min_size=1, max_size=12)


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_an_avro_array_of_items_without_bytes_is_refused(items: Any) -> None:
    """A value of ten bytes could claim any number of them."""
    schema = {"type": "record", "name": "A", "fields": [{"name": "a", "type": {"type": "array", "items": items}}]}
    with pytest.raises(ConfigurationError, match="the items of an array take no bytes"):
        AvroDecoder(schema=json.dumps(schema))(b"\xff\xff\xff\xff\x7f")


def test_an_avro_enum_without_symbols_is_refused() -> None:
    schema = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "a", "type": {"type": "enum", "name": "E", "symbols": []}}],
    }
    with pytest.raises(ConfigurationError, match="an enum has no symbols"):
        AvroDecoder(schema=json.dumps(schema))(b"\0")


@pytest.mark.parametrize("label", [1, 3])
def test_a_protobuf_group_is_not_read_as_a_message_with_a_length(label: int) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="file", syntax="proto2")
    message = file.message_type.add(name="M")
    group = message.nested_type.add(name="G")
    group.field.add(name="a", number=1, type=Kind.TYPE_INT32, label=1)
    message.field.add(name="g", number=1, type=Kind.TYPE_GROUP, label=label, type_name="M.G")
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    decoder = ProtobufDecoder(descriptors=descriptors, message="M")
    values = [b"\x0a\x02\x08\x05", b"\x0b\x08\x05\x0c", b""]
    assert decoded(decoder, values, 1) == decoded(decoder, values, NEVER)


# ---- Avro ------------------------------------------------------------------------------------------------------------

LOGICAL: Final = ("date", "timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")


@st.composite
def avro_types(draw: DrawFn, names: Iterator[int], depth: int = 3) -> Any:
    """Draw an Avro schema that Spark can have. `names` are numbers for named types."""
    simple = ["boolean", "int", "long", "float", "double", "string", "bytes", "null", "logical", "decimal", "enum"]
    kind = draw(st.sampled_from([*simple, "fixed", *(["array", "map", "union", "record"] if depth else [])]))
    if kind == "logical":
        return {"type": draw(st.sampled_from(["int", "long", "long"])), "logicalType": draw(st.sampled_from(LOGICAL))}
    if kind == "decimal":
        precision = draw(st.integers(1, 38))
        logical = {"logicalType": "decimal", "precision": precision, "scale": draw(st.integers(0, precision))}
        if draw(st.booleans()):
            return {"type": "bytes", **logical}
        # fastavro refuses a precision that the bytes cannot hold.
        return {"type": "fixed", "name": f"D{next(names)}", "size": draw(st.integers(17, 18)), **logical}
    if kind == "enum":
        return {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{next(names)}", "size": draw(st.integers(1, 9))}
    if kind == "array":
        return {"type": "array", "items": draw(avro_types(names, depth - 1).filter(has_bytes))}
    if kind == "map":
        return {"type": "map", "values": draw(avro_types(names, depth - 1))}
    if kind == "record":
        return draw(avro_records(names, depth - 1))
    if kind == "union":
        one = draw(avro_types(names, depth - 1).filter(lambda found: found != "null" and not isinstance(found, list)))
        return draw(st.sampled_from([["null", one], [one, "null"], [one]]))
    return kind


def has_bytes(schema: Any) -> bool:
    is_record = isinstance(schema, dict) and schema["type"] == "record"
    return any(has_bytes(field["type"]) for field in schema["fields"]) if is_record else schema != "null"


@st.composite
def avro_records(draw: DrawFn, names: Iterator[int], depth: int = 2) -> Any:
    types = draw(st.lists(avro_types(names, depth), min_size=1, max_size=4))
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(types)]
    return {"type": "record", "name": f"R{next(names)}", "fields": fields}


def text() -> SearchStrategy[bytes]:
    return st.text(max_size=4).map(str.encode) | st.binary(max_size=4)


@st.composite
def avro_values(draw: DrawFn, schema: Any) -> bytes:
    """Draw the bytes of a value as some writer writes it."""
    if isinstance(schema, list):
        branch = draw(st.integers(0, len(schema) - 1))
        return zigzag(branch) + draw(avro_values(schema[branch]))
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(draw(avro_values(field["type"])) for field in schema["fields"])
    if kind in {"array", "map"}:
        return draw(avro_blocks(kind, schema))
    if kind in {"int", "long"}:
        bits = draw(st.sampled_from([4, 31, 31 if kind == "int" else 63]))
        return zigzag(draw(st.integers(-(2**bits), 2**bits - 1)))
    if kind == "boolean":
        return draw(st.sampled_from([b"\0", b"\1"]))
    if kind == "enum":
        return zigzag(draw(st.integers(0, len(schema["symbols"]) - 1)))
    if kind in {"string", "bytes"}:
        content = draw(
            text() | st.integers(-(2**70), 2**70).map(lambda number: number.to_bytes(10, "big", signed=True))
        )
        return zigzag(len(content)) + content
    if kind == "fixed":
        return draw(st.integers(-(2**67), 2**67)).to_bytes(18, "big", signed=True)[-schema["size"] :]
    return struct.pack("<f", draw(st.floats(width=32))) if kind == "float" else b"" if kind == "null" else struct.pack(
        "<d", draw(st.floats())
    )  # fmt: skip


@st.composite
def avro_blocks(draw: DrawFn, kind: str, schema: Any) -> bytes:
    found = b""
    for count in draw(st.lists(st.integers(1, 3), max_size=2)):
        items = b""
        for _ in range(count):
            if kind == "map":
                key = draw(text())
                items += zigzag(len(key)) + key
            items += draw(avro_values(schema["items" if kind == "array" else "values"]))
        found += (zigzag(-count) + zigzag(len(items)) if draw(st.booleans()) else zigzag(count)) + items
    return found + b"\0"


@given(data=st.data(), fewest=st.sampled_from([1, 1, 2, 3]), is_framed=st.booleans())
def test_avro_values_are_those_that_fastavro_reads(data: st.DataObject, fewest: int, is_framed: bool) -> None:
    schema = data.draw(avro_records(iter(range(1_000))))
    prefix = st.just(FRAMED if is_framed else b"")
    values = data.draw(batches(st.tuples(prefix, avro_values(schema)).map(b"".join)))
    decoder = AvroDecoder(schema=json.dumps(schema), framing="confluent" if is_framed else None)
    assert decoded(decoder, values, fewest) == decoded(decoder, values, NEVER)


ALL_OF_AVRO: Final = {
    "type": "record", "name": "R", "fields": [
        {"name": "a", "type": ["null", "long"]},
        {"name": "b", "type": {"type": "array", "items": {"type": "map", "values": "string"}}},
        {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}},
        {"name": "d", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "e", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}  # fmt: skip
AVRO_PARTS: Final = (
    zigzag(1) + zigzag(-(2**63)),
    zigzag(2) + zigzag(1) + b"\2a\2b\0" + zigzag(-1) + zigzag(4) + b"\2c\2d\0\0",
    zigzag(9) + (2**63 - 1).to_bytes(9, "big"),
    zigzag(1),
    zigzag(2**62 // 1000),
)


def test_no_value_of_avro_that_writers_write_is_read_alone() -> None:
    alone = Alone(AvroDecoder(schema=json.dumps(ALL_OF_AVRO)))
    (row,) = decoded(alone, [b"".join(AVRO_PARTS)], ALWAYS)
    assert alone.count == 0
    assert row["value"]["b"] == [{"a": "b"}, {"c": "d"}]
    assert str(row["value"]["c"]) == "92233720368547758.07"


def test_a_damaged_value_is_read_alone_and_the_others_are_not() -> None:
    alone, good = Alone(AvroDecoder(schema=json.dumps(ALL_OF_AVRO))), b"".join(AVRO_PARTS)
    rows = decoded(alone, [good, good[:-1], None, good + b"x", good.replace(b"\2a", b"\2\xff"), good], ALWAYS)
    assert alone.count == 3
    assert [row["value"] is None for row in rows] == [False, True, True, True, True, False]


# ---- Protobuf --------------------------------------------------------------------------------------------------------

Kind = descriptor_pb2.FieldDescriptorProto
VARINTS: Final = (
    Kind.TYPE_BOOL,
    Kind.TYPE_INT32,
    Kind.TYPE_SINT32,
    Kind.TYPE_UINT32,
    Kind.TYPE_INT64,
    Kind.TYPE_SINT64,
)
NUMBERS: Final = (
    *VARINTS, Kind.TYPE_UINT64, Kind.TYPE_FIXED32, Kind.TYPE_SFIXED32, Kind.TYPE_FLOAT, Kind.TYPE_FIXED64,
    Kind.TYPE_SFIXED64, Kind.TYPE_DOUBLE,
)  # fmt: skip
FIXED32: Final = (Kind.TYPE_FIXED32, Kind.TYPE_SFIXED32, Kind.TYPE_FLOAT)
FIXED64: Final = (Kind.TYPE_FIXED64, Kind.TYPE_SFIXED64, Kind.TYPE_DOUBLE)


@st.composite
def messages(draw: DrawFn, file: Any, name: str, depth: int = 2) -> Any:
    """Draw a message of up to five fields, and those in it, into `file`."""
    made = file.message_type.add(name=name)
    is_proto3 = file.syntax == "proto3"
    for number in range(1, draw(st.integers(1, 5)) + 1):
        kinds = [*NUMBERS, Kind.TYPE_STRING, Kind.TYPE_STRING, Kind.TYPE_BYTES, Kind.TYPE_ENUM]
        kind = draw(st.sampled_from(kinds + [Kind.TYPE_MESSAGE, Kind.TYPE_GROUP, None] * bool(depth)))
        label = draw(st.sampled_from([1, 1, 3] if is_proto3 else [1, 2, 3]))
        type_name = "e.Enum" if kind == Kind.TYPE_ENUM else ""
        if kind == Kind.TYPE_GROUP:
            kind, type_name = Kind.TYPE_MESSAGE, "google.protobuf.Timestamp"
        elif kind == Kind.TYPE_MESSAGE:
            type_name = draw(messages(file, f"{name}x{number}", depth - 1)).name
        elif kind is None:
            kind, label, type_name = Kind.TYPE_MESSAGE, 3, draw(entries(made, file, number, depth - 1))
        field = made.field.add(name=f"f{number}", number=number, type=kind, label=label, type_name=type_name or None)
        if label == 1 and draw(st.booleans()):
            if not made.oneof_decl:
                made.oneof_decl.add(name="one")
            field.oneof_index = 0
    return made


@st.composite
def entries(draw: DrawFn, message: Any, file: Any, number: int, depth: int) -> str:
    entry = message.nested_type.add(name=f"F{number}Entry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=draw(st.sampled_from([*VARINTS, Kind.TYPE_STRING])), label=1)
    kind = draw(st.sampled_from([*NUMBERS, Kind.TYPE_STRING, Kind.TYPE_ENUM, *[Kind.TYPE_MESSAGE] * bool(depth)]))
    type_name = "e.Enum" if kind == Kind.TYPE_ENUM else ""
    if kind == Kind.TYPE_MESSAGE:
        type_name = draw(messages(file, f"{message.name}v{number}", depth - 1)).name
    entry.field.add(name="value", number=2, type=kind, label=1, type_name=type_name or None)
    return f"{message.name}.F{number}Entry"


@st.composite
def fields(draw: DrawFn, kind: int, find: Callable[[str], Any], type_name: str) -> tuple[int, bytes]:
    """Draw a wire type, and a value of a field, mostly as its type is written."""
    if kind in FIXED32 or kind in FIXED64:
        size = 4 if kind in FIXED32 else 8
        return (5 if size == 4 else 1), draw(st.binary(min_size=size, max_size=size))
    if kind in NUMBERS:
        return 0, varint(draw(st.integers(0, 3) | st.integers(0, 2**64 - 1)))
    if kind == Kind.TYPE_ENUM:
        return 0, varint(draw(st.sampled_from([0, 1, 2**64 - 2, 2**64 - 3])))
    if type_name == "google.protobuf.Timestamp":
        moment = draw(st.integers(-(10**12), 10**12) | st.integers(-(10**9), 10**9)) % 2**64
        content = b"\x08" + varint(moment) + draw(st.sampled_from([b"", b"\x10\x07", b"\x10" + varint(2**64 - 7)]))
    elif kind == Kind.TYPE_MESSAGE:
        content = draw(messages_in_bytes(find(type_name), find))
    else:
        content = draw(text())
    return 2, padded(draw, len(content)) + content


def padded(draw: DrawFn, number: int) -> bytes:
    """Return a varint that rarely has more bytes than it needs, also more than a reader accepts."""
    found = varint(number)
    more = draw(st.sampled_from([0] * 12 + [1, 3, 4, 5, 8]))
    return found[:-1] + bytes([found[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0" if more else found


@st.composite
def messages_in_bytes(draw: DrawFn, message: Any, find: Callable[[str], Any]) -> bytes:
    """Draw the bytes of a message: mostly its fields once, in any order; rarely others, twice, or in other types."""
    found = b""
    for field in draw(st.permutations(message.field) | st.lists(st.sampled_from(message.field), max_size=4)):
        for _ in range(draw(st.integers(0, 3)) if field.label == 3 else 1):
            wire, content = draw(fields(field.type, find, field.type_name))
            if field.type in NUMBERS and draw(st.integers(0, 4)) == 0:
                both = content + draw(fields(field.type, find, ""))[1]
                wire, content = 2, padded(draw, len(both)) + both
            found += padded(draw, field.number << 3 | wire) + content
    if draw(st.integers(0, 3)) == 0:
        number = draw(st.integers(1, 7) | st.integers(0, 2**29))
        wire, content = draw(fields(draw(st.sampled_from([*NUMBERS, Kind.TYPE_STRING])), find, ""))
        found += varint(number << 3 | wire) + content
    return found


@given(data=st.data(), fewest=st.sampled_from([1, 1, 2, 3]), syntax=st.sampled_from(["proto3", "proto2"]))
def test_protobuf_values_are_those_that_protobuf_reads(data: st.DataObject, fewest: int, syntax: str) -> None:
    times = descriptor_pb2.FileDescriptorProto(name="times", package="google.protobuf", syntax="proto3")
    moment = times.message_type.add(name="Timestamp")
    moment.field.add(name="seconds", number=1, type=Kind.TYPE_INT64, label=1)
    moment.field.add(name="nanos", number=2, type=Kind.TYPE_INT32, label=1)
    enum = descriptor_pb2.FileDescriptorProto(name="enum", package="e", syntax=syntax)
    of = enum.enum_type.add(name="Enum")
    of.options.allow_alias = True
    for name, number in (("ZERO", 0), ("ONE", 1), ("BELOW", -2), ("UNO", 1)):
        of.value.add(name=name, number=number)
    file = descriptor_pb2.FileDescriptorProto(name="file", syntax=syntax, dependency=["times", "enum"])
    message = data.draw(messages(file, "M"))
    known = {each.name: each for each in file.message_type}
    known |= {f"{each.name}.{entry.name}": entry for each in file.message_type for entry in each.nested_type}
    one = messages_in_bytes(message, known.__getitem__)
    framing = data.draw(st.sampled_from([None, "confluent"]))
    if framing is not None:
        indexes = st.sampled_from([b"\0", b"\2\0", b"\2\4", b"\4\0\2", b"\1", b"\2\x80", b"\x80" * 5 + b"\0"])
        one = st.tuples(st.just(FRAMED), indexes, one).map(b"".join)
    values = data.draw(batches(one))
    descriptors = descriptor_pb2.FileDescriptorSet(file=[times, enum, file]).SerializeToString()
    decoder = ProtobufDecoder(descriptors=descriptors, message="M", framing=framing)
    assert decoded(decoder, values, fewest) == decoded(decoder, values, NEVER)
