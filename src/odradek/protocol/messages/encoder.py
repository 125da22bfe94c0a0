"""Compiles an encoder from a kio schema: a plain dict to bytes, for one message in one version.

A message is a dict with kio's field names. Keys that a version lacks are ignored, and absent keys take the schema's
default (0 for `error_code` and `throttle_time`), so that one dict fits every version, as in Kafka's generated classes.
Values are plain: int (also for error codes, and ms of times and time spans), str, bytes, bool, `uuid.UUID`, lists; None
where the schema allows it.

A record's key or value is an object of its class; fields that the version lacks are not written.

The result is Python source, one function per struct; adjacent fixed-size fields share one `struct.pack`.
"""

import datetime
import struct
import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Final

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from odradek.protocol.messages.schemas import Encoder, Layout, RecordEncoder
from odradek.protocol.primitives import INT16
from odradek.protocol.varint import write_unsigned_varint

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_USUALLY_ZERO: Final = {"error_code", "throttle_time"}
_ZERO_UUID: Final = bytes(16)


def compile_encoder(entity_type: Any) -> Encoder:
    """Return the encoder of a kio entity class.

    The encoder raises `KeyError`, `struct.error` or `TypeError` for an invalid message.
    """
    encode: Encoder = _compile(entity_type, Layout(flexible=entity_type.__flexible__), prefix=b"")
    return encode


def compile_record_encoder(entity_type: Any, layout: Layout, *, prefix: bytes) -> RecordEncoder:
    """Return the encoder of a record's key or value in one version; its bytes start with `prefix`.

    The encoder raises `struct.error`, `AttributeError` or `TypeError` for an invalid value.
    """
    encode: RecordEncoder = _compile(entity_type, layout, prefix=prefix)
    return encode


def _compile(entity_type: Any, layout: Layout, *, prefix: bytes) -> Any:
    source = _Source(layout)
    root = source.struct(entity_type)
    code = "\n".join(source.functions)
    code += f"\ndef encode(m):\n    b = bytearray({prefix!r})\n    {root}(b, m)\n    return bytes(b)\n"
    version = entity_type.__version__ if layout.version is None else layout.version
    exec(compile(code, f"<encoder of {entity_type.__name__} v{version}>", "exec"), source.names)
    return source.names["encode"]


class _Source:
    """The generated functions, and the constants that they use."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._is_record = layout.version is not None
        self.functions: list[str] = []
        self.names: dict[str, Any] = {
            name.__name__: name
            for name in (_string, _compact_string, _bytes, _compact_bytes, _uuid, write_unsigned_varint)
        }
        self._structs: dict[Any, str] = {}

    def constant(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def struct(self, entity_type: Any) -> str:
        """Generate the function that appends an `entity_type`, once, and return its name."""
        if entity_type in self._structs:
            return self._structs[entity_type]
        name = self._structs[entity_type] = f"s{len(self._structs)}"
        body = _Body(self, flexible=self._layout.flexible)
        tagged = []
        for field in self._layout.fields(entity_type):
            tag = get_field_tag(field)
            if tag is None:
                body.field(field, self.value(field))
            else:
                tagged.append((int(tag), field))
        body.flush()
        if self._layout.flexible:
            self._tags(body, sorted(tagged, key=lambda pair: pair[0]))
        self.functions.append(f"def {name}(b, m):\n" + "\n".join(body.lines or ["    pass"]))
        return name

    def value(self, field: Field[Any]) -> str:
        """Return an expression for a field's value in `m`, a dict or the object of a record."""
        if self._is_record:
            return f"m.{field.name}"
        if field.default is MISSING:
            return f"m.get({field.name!r}, 0)" if field.name in _USUALLY_ZERO else f"m[{field.name!r}]"
        return f"m.get({field.name!r}, {self.constant(_plain(field.default))})"

    def _tags(self, body: "_Body", tagged: list[tuple[int, Field[Any]]]) -> None:
        if not tagged:
            body.lines.append("    b.append(0)")
            return
        body.lines.append("    o, b, n = b, bytearray(), 0")
        for tag, field in tagged:
            inner = _Body(self, flexible=True, indent="        ")
            default = None if field.default is MISSING else _plain(field.default)
            if self._is_record:
                read, differs = f"m.{field.name}", f"v != {self.constant(default)}"
            else:
                read = f"m.get({field.name!r})"
                # The default of a tagged array is always the empty one.
                differs = "v" if default == () else f"v is not None and v != {self.constant(default)}"
            body.lines.append(f"    v = {read}")
            body.lines.append(f"    if {differs}:")
            body.lines.append("        t, b = b, bytearray()")
            inner.field(field, "v", tagged=True)
            inner.flush()
            body.lines += inner.lines
            body.lines.append(f"        write_unsigned_varint(t, {tag}); write_unsigned_varint(t, len(b)); t += b")
            body.lines.append("        b, n = t, n + 1")
        body.lines.append("    write_unsigned_varint(o, n); o += b")


class _Body:
    """The lines of one generated function; `flush` writes adjacent fixed-size fields together."""

    def __init__(self, source: _Source, *, flexible: bool, indent: str = "    ") -> None:
        self.lines: list[str] = []
        self._source, self._flexible, self._indent = source, flexible, indent
        self._formats: list[str] = []
        self._values: list[str] = []

    def flush(self) -> None:
        if self._formats:
            pack = self._source.constant(struct.Struct(">" + "".join(self._formats)).pack)
            self._line(f"b += {pack}({', '.join(self._values)})")
            self._formats, self._values = [], []

    def field(self, field: Field[Any], value: str, *, tagged: bool = False) -> None:
        kind = classify_field(field)
        nullable = is_optional(field)
        if isinstance(kind, EntityField | EntityTupleField):
            write = self._source.struct(kind.type_)
            if kind.is_array:
                self._array(value, lambda: self._line(f"    for x in a: {write}(b, x)"))
            else:
                self._struct(value, write, nullable=nullable, null=0 if tagged else 255)
            return
        type_name = get_schema_field_type(field)
        if kind.is_array:
            self._array(value, lambda: self._items(type_name))
        elif type_name in FIXED:
            self._formats.append(FIXED[type_name])
            self._values.append(
                f"-1 if (x{len(self._values)} := {value}) is None else x{len(self._values)}" if nullable else value
            )
        else:
            self.flush()
            self._line(f"{self._variable(type_name)}(b, {value})")

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def _variable(self, type_name: str) -> str:
        if type_name == "uuid":
            return "_uuid"
        kind = "string" if type_name == "string" else "bytes"
        return f"_compact_{kind}" if self._flexible else f"_{kind}"

    def _struct(self, value: str, write: str, *, nullable: bool, null: int) -> None:
        self.flush()
        if not nullable:
            self._line(f"{write}(b, {value})")
            return
        self._line(f"x = {value}")
        self._line(f"b.append({null} if x is None else 1)")
        self._line(f"if x is not None: {write}(b, x)")

    def _array(self, value: str, items: Callable[[], None]) -> None:
        self.flush()
        length = self._source.constant(struct.Struct(">i").pack)
        self._line(f"a = {value}")
        absent, present = (
            ("b.append(0)", "write_unsigned_varint(b, len(a) + 1)")
            if self._flexible
            else (f"b += {length}(-1)", f"b += {length}(len(a))")
        )
        self._line(f"if a is None: {absent}")
        self._line("else:")
        self._line(f"    {present}")
        items()

    def _items(self, type_name: str) -> None:
        if type_name in FIXED:
            pack = self._source.constant(struct)
            self._line(f"    b += {pack}.pack('>%d{FIXED[type_name]}' % len(a), *a)")
        else:
            self._line(f"    for x in a: {self._variable(type_name)}(b, x)")


def _plain(default: object) -> object:
    """Convert a default of kio to the plain value that messages use."""
    if isinstance(default, datetime.timedelta):
        return round(default.total_seconds() * 1000)
    if isinstance(default, datetime.datetime):
        return round(default.timestamp() * 1000)
    if hasattr(default, "__flexible__"):
        return {field.name: _plain(getattr(default, field.name)) for field in fields(default)}  # type: ignore[arg-type]
    return default


def _string(buffer: bytearray, value: str | None) -> None:
    if value is None:
        buffer += b"\xff\xff"
        return
    data = value.encode()
    buffer += INT16.pack(len(data))
    buffer += data


def _compact_string(buffer: bytearray, value: str | None) -> None:
    if value is None:
        buffer.append(0)
        return
    data = value.encode()
    write_unsigned_varint(buffer, len(data) + 1)
    buffer += data


def _bytes(buffer: bytearray, value: bytes | None) -> None:
    if value is None:
        buffer += b"\xff\xff\xff\xff"
        return
    buffer += struct.pack(">i", len(value))
    buffer += value


def _compact_bytes(buffer: bytearray, value: bytes | None) -> None:
    if value is None:
        buffer.append(0)
        return
    write_unsigned_varint(buffer, len(value) + 1)
    buffer += value


def _uuid(buffer: bytearray, value: uuid.UUID | None) -> None:
    buffer += _ZERO_UUID if value is None else value.bytes
