"""Compiles a decoder from a kio schema: bytes to kio's frozen dataclass, for one message in one version.

kio's native reader is three times as fast, but unsafe for untrusted bytes: it allocates the 2³¹ items that a compact
array claims to have, which aborts the process. It also rejects unknown tagged fields, which KIP-482 requires to be
skipped. This decoder refuses an array with more items than fit into the remaining bytes.

The result is Python source, one function per struct. Adjacent fixed-size fields share one `struct.unpack_from`, and the
frozen dataclass is filled through its slots, without `__init__`. Fields that a record's version lacks get their
defaults.

A metered decoder limits the entries (array items and tagged fields) in requests from clients, since a decoded entry may
take fifty times its encoded size.
"""

import datetime
import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from typing import Any, Final

from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from odradek.model import Buffer, ErrorCode
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.encoder import FIXED
from odradek.protocol.messages.schemas import Decoder, Layout, MeteredDecoder
from odradek.protocol.primitives import (
    read_count,
    read_string,
    read_tags,
    read_text,
    read_uuid,
    read_view,
    skip_tags,
    tag_ended,
)

_ERRORS: Final = {int(code): code for code in ErrorCode}
_UNKNOWN_ERROR: Final = ErrorCode.unknown_server_error
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ZERO: Final = datetime.timedelta()
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_LONGEST_MS: Final = datetime.timedelta.max // _MILLISECOND
_FIRST_MS: Final = (datetime.datetime.min.replace(tzinfo=datetime.UTC) - _EPOCH) // _MILLISECOND
_LAST_MS: Final = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // _MILLISECOND


def compile_decoder(entity_type: Any) -> Decoder:
    """Return the decoder of a kio entity class.

    For malformed bytes the decoder raises `MalformedMessageError`, one of `DECODE_ERRORS`, or `OverflowError`. Unknown
    error codes become UNKNOWN_SERVER_ERROR, as in Kafka's clients.
    """
    decode: Decoder = _compile(entity_type, Layout(flexible=entity_type.__flexible__))
    return decode


def compile_metered_decoder(entity_type: Any) -> MeteredDecoder:
    """Return the decoder of a kio entity class with a `Meter` as third argument, which limits the entries."""
    decode: MeteredDecoder = _compile(entity_type, Layout(flexible=entity_type.__flexible__), metered=True)
    return decode


def compile_record_decoder(entity_type: Any, layout: Layout) -> Decoder:
    """Return the decoder of a record's key or value in one version.

    For malformed bytes the decoder raises `MalformedMessageError`, one of `DECODE_ERRORS`, or `OverflowError`.
    """
    decode: Decoder = _compile(entity_type, layout)
    return decode


def _compile(entity_type: Any, layout: Layout, *, metered: bool = False) -> Any:
    source = _Source(layout, metered=metered)
    root = source.struct(entity_type)
    version = entity_type.__version__ if layout.version is None else layout.version
    code = compile("\n".join(source.functions), f"<decoder of {entity_type.__name__} v{version}>", "exec")
    exec(code, source.names)
    return source.names[root]


class _Source:
    """The generated functions, and the constants that they use."""

    def __init__(self, layout: Layout, *, metered: bool) -> None:
        self.layout = layout
        self.metered = metered
        self.meter = ", m" if metered else ""
        """The additional parameter of generated functions: the `Meter`, if metered."""
        self.functions: list[str] = []
        self.names: dict[str, Any] = {
            "new": object.__new__,
            "count": read_count,
            "tags": read_tags,
            "skip": skip_tags,
            "ended": tag_ended,
            "refuse": _refuse,
            "error": _error,
            "span": _span,
            "moment": _moment,
            "array": _fixed_array,
        }
        for flexible in (False, True):
            for nullable in (False, True):
                self.names[_variable("string", flexible, nullable)] = _string_reader(flexible, nullable)
                self.names[_variable("bytes", flexible, nullable)] = _bytes_reader(flexible, nullable)
                self.names[_variable("uuid", flexible, nullable)] = read_uuid
        self._structs: dict[Any, str] = {}

    def constant(self, value: object) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def struct(self, entity_type: Any) -> str:
        """Generate the function that reads an `entity_type`, once, and return its name."""
        if entity_type in self._structs:
            return self._structs[entity_type]
        name = self._structs[entity_type] = f"s{len(self._structs)}"
        body = _Body(self, flexible=self.layout.flexible)
        tagged = []
        present = self.layout.fields(entity_type)
        for field in present:
            tag = get_field_tag(field)
            if tag is None:
                body.field(field)
            else:
                tagged.append((int(tag), field))
        body.flush()
        if self.layout.flexible:
            self._tags(body, tagged)
        body.lines.append(f"    o = new({self.constant(entity_type)})")
        for field in fields(entity_type):
            setter = self.constant(getattr(entity_type, field.name).__set__)
            value = f"v_{field.name}" if field in present else self.constant(field.default)
            body.lines.append(f"    {setter}(o, {value})")
        body.lines.append("    return o, p")
        self.functions.append(f"def {name}(b, p{self.meter}):\n" + "\n".join(body.lines))
        return name

    def _tags(self, body: "_Body", tagged: list[tuple[int, Field[Any]]]) -> None:
        if not tagged:
            body.lines.append(f"    p = skip(b, p{self.meter}) if b[p] else p + 1")
            return
        for _, field in tagged:
            body.lines.append(f"    v_{field.name} = {self.constant(get_tagged_field_default(field))}")
        body.lines.append("    e = p + 1")
        body.lines.append("    if b[p]:")
        known = self.constant(frozenset(tag for tag, _ in tagged))
        body.lines.append(f"        t, e = tags(b, p, {known}{self.meter})")
        for tag, field in tagged:
            inner = _Body(self, flexible=True, indent="            ")
            inner.field(field, tagged=True)
            inner.flush()
            body.lines += [
                f"        if {tag} in t:",
                f"            p = t[{tag}][0]",
                *inner.lines,
                f"            if p != t[{tag}][1]: ended(p, t[{tag}][1])",
            ]
        body.lines.append("    p = e")


class _Body:
    """The lines of one generated function; `flush` reads adjacent fixed-size fields together."""

    def __init__(self, source: _Source, *, flexible: bool, indent: str = "    ") -> None:
        self.lines: list[str] = []
        self._source, self._flexible, self._indent = source, flexible, indent
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []

    def flush(self) -> None:
        if self._run:
            layout = struct.Struct(">" + "".join(FIXED[type_name] for _, type_name in self._run))
            names = "".join(f"{name}, " for name, _ in self._run)
            self._line(f"{names}= {self._source.constant(layout.unpack_from)}(b, p)")
            self._line(f"p += {layout.size}")
            self.lines += self._after_run
            self._run, self._after_run = [], []

    def field(self, field: Field[Any], *, tagged: bool = False) -> None:
        """Generate the code that reads the field into the variable `v_<name>`."""
        target = f"v_{field.name}"
        kind = classify_field(field)
        nullable = is_optional(field)
        if isinstance(kind, EntityField | EntityTupleField):
            self.flush()
            read = self._source.struct(kind.type_)
            meter = self._source.meter
            if kind.is_array:
                size = smallest_size(kind.type_, self._source.layout)
                self._array(target, size, lambda: self._items(target, f"{read}(b, p{meter})"), nullable=nullable)
            elif nullable:
                # The first byte is negative if the struct is null; in a tagged field it is 0.
                self._line(f"if b[p] {'== 0' if tagged else '> 127'}: {target} = None; p += 1")
                self._line(f"else: {target}, p = {read}(b, p + 1{meter})")
            else:
                self._line(f"{target}, p = {read}(b, p{meter})")
            return
        type_name = get_schema_field_type(field)
        if kind.is_array:
            self.flush()
            # In kio's schemas a nullable uuid array has nullable items: the uuid of zeros is None.
            self._array(
                target,
                _smallest_primitive(type_name, flexible=self._flexible),
                lambda: self._primitives(target, type_name),
                nullable=nullable and type_name != "uuid",
            )
        elif type_name in FIXED:
            self._run.append((target, type_name))
            if (converted := _converted(target, type_name, nullable=nullable)) != target:
                self._after_run.append(f"{self._indent}{target} = {converted}")
        else:
            self.flush()
            general = f"{target}, p = {_variable(type_name, self._flexible, nullable)}(b, p)"
            if type_name == "string":
                self._string(target, general)
            else:
                self._line(general)

    def _string(self, target: str, general: str) -> None:
        """Generate the inline reading of a string; null, long compact and malformed ones use the general reader."""
        prefix = 1 if self._flexible else 2
        self._line("n = b[p] - 1" if self._flexible else "n = b[p] << 8 | b[p + 1]")
        limit = " and n < 127" if self._flexible else " and n < 32768"
        self._line(f"z = p + {prefix} + n")
        self._line(f"if n >= 0{limit} and z <= len(b): {target} = str(b[p + {prefix}:z], 'utf-8'); p = z")
        self._line(f"else: {general}")

    def _line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def _array(self, target: str, item_size: int, items: Callable[[], None], *, nullable: bool) -> None:
        general = f"n, p = count(b, p, flexible={self._flexible}, nullable={nullable})"
        if self._flexible:
            self._line("n = b[p] - 1")
            self._line("if 0 <= n < 127: p += 1")
            self._line(f"else: {general}")
        else:
            self._line(general)
        self._line(f"if n < 0: {target} = None")
        self._line("else:")
        self._line(f"    if n * {item_size} > len(b) - p: refuse(b, p, n)")
        if self._source.metered:
            self._line("    m.take(n)")
        items()

    def _items(self, target: str, read: str) -> None:
        self._line("    a = []")
        self._line("    for _ in range(n):")
        self._line(f"        x, p = {read}")
        self._line("        a.append(x)")
        self._line(f"    {target} = tuple(a)")

    def _primitives(self, target: str, type_name: str) -> None:
        if type_name in FIXED:
            self._line(f"    {target}, p = array(b, p, n, {FIXED[type_name]!r})")
        else:
            self._items(target, f"{_variable(type_name, self._flexible, type_name == 'uuid')}(b, p)")


def _variable(type_name: str, flexible: bool, nullable: bool) -> str:  # noqa: FBT001
    kind = "bytes" if type_name == "records" else type_name
    return f"{'compact_' if flexible else ''}{'nullable_' if nullable else ''}{kind}"


def _converted(value: str, type_name: str, *, nullable: bool) -> str:
    """Return an expression that converts a field's number to its Python value."""
    if type_name == "error_code":
        return f"error({value})"
    if type_name.startswith("timedelta"):
        return f"span({value})"
    if type_name.startswith("datetime"):
        return f"None if {value} == -1 else moment({value})" if nullable else f"moment({value})"
    return value


def _error(number: int) -> ErrorCode:
    return _ERRORS.get(number, _UNKNOWN_ERROR)


def _span(ms: int) -> datetime.timedelta:
    """Return the time span, limited to Python's longest, because Kafka uses its largest numbers for "forever"."""
    return datetime.timedelta(0, 0, 0, max(-_LONGEST_MS, min(ms, _LONGEST_MS))) if ms else _ZERO


def _moment(ms: int) -> datetime.datetime:
    """Return the time, limited to the range of Python's `datetime`."""
    return _EPOCH + datetime.timedelta(0, 0, 0, max(_FIRST_MS, min(ms, _LAST_MS)))


@cache
def smallest_size(entity_type: Any, layout: Layout) -> int:
    """Return the smallest encoded size of an `entity_type`, at least 1, so that array items always take bytes."""
    flexible = layout.flexible
    size = 1 if flexible else 0
    for field in layout.fields(entity_type):
        if get_field_tag(field) is not None:
            continue
        kind = classify_field(field)
        if kind.is_array:
            size += 1 if flexible else 4
        elif isinstance(kind, EntityField | EntityTupleField):
            size += 1 if is_optional(field) else smallest_size(kind.type_, layout)
        else:
            size += _smallest_primitive(get_schema_field_type(field), flexible=flexible)
    return max(size, 1)


def _smallest_primitive(type_name: str, *, flexible: bool) -> int:
    if type_name in FIXED:
        return struct.calcsize(">" + FIXED[type_name])
    if type_name == "uuid":
        return 16
    if flexible:
        return 1
    return 2 if type_name == "string" else 4


def _refuse(buffer: Buffer, offset: int, count: int) -> None:
    raise MalformedMessageError(f"malformed message: {count} items in {len(buffer) - offset} bytes")


def _fixed_array(buffer: Buffer, offset: int, count: int, code: str) -> tuple[tuple[Any, ...], int]:
    if count == 0:
        return (), offset
    layout = _layout(count, code) if count < 16 else struct.Struct(f">{count}{code}")
    return layout.unpack_from(buffer, offset), offset + layout.size


@cache
def _layout(count: int, code: str) -> struct.Struct:
    return struct.Struct(f">{count}{code}")


def _string_reader(flexible: bool, nullable: bool) -> Decoder:  # noqa: FBT001
    read: Callable[..., tuple[str | None, int]] = read_string if nullable else read_text
    return lambda buffer, offset: read(buffer, offset, flexible=flexible)


def _bytes_reader(flexible: bool, nullable: bool) -> Decoder:  # noqa: FBT001
    def read(buffer: Buffer, offset: int) -> tuple[bytes | None, int]:
        view, offset = read_view(memoryview(buffer), offset, flexible=flexible)
        if view is None and not nullable:
            raise MalformedMessageError("malformed message: bytes that must be there are null")
        return None if view is None else bytes(view), offset

    return read
