"""The columns of a Protobuf message: Arrow types, and functions that read many messages at once.

A tag of each message is read at a time. The bytes of a field are kept as they are, numbers as 64 bits without a sign,
others as where they begin and end, until all tags are read.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from odradek.model import ConfigurationError
from odradek.values.cursors import FEWEST, Column, Cursors, Numbers, decimals, grouped, signed, spread

TIMESTAMP: Final = "google.protobuf.Timestamp"
_FIRST_SECOND, _LAST_SECOND = -62_135_596_797, 253_402_300_796
"""Between them, a timestamp is one of Python's datetime, whatever its nanoseconds are."""
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
"""Wire types."""
_LONGEST_LENGTH: Final = 5
_RawReaders = Mapping[int, Callable[[Cursors], Numbers]]
_RAW: Final[_RawReaders] = {
    _VARINT: Cursors.varint,
    _FIXED64: lambda cursors: cursors.fixed("<u8"),
    _LENGTH: lambda cursors: np.stack(cursors.span(cursors.varint(_LONGEST_LENGTH)), axis=1),
    _FIXED32: lambda cursors: cursors.fixed("<u4").astype(np.uint64),
}
_MOST_TAG, _LONGEST_TAG = 2**32 - 1, 5
_NONE: Final = np.zeros(0, np.int64)


class _Value(NamedTuple):
    """A type of fields: how its values are written, and a function from the bytes at cursors to an array."""

    type: pa.DataType
    wire: int
    read: Callable[[Cursors, Numbers], pa.Array]


_Found = list[tuple[Numbers, Numbers]]
"""A field's indices of cursors, and the bytes there, in the order in which the messages have them."""


class _Field(NamedTuple):
    name: str
    type: pa.DataType
    tags: tuple[int, ...]
    value: _Value
    read: Callable[[Cursors, Numbers, Numbers], pa.Array]


def message_column(descriptor: Any, inside: tuple[str, ...] = ()) -> Column:
    """Return a message's column; `inside` are the messages around it. Raise `ConfigurationError` without one."""
    name = descriptor.full_name
    if name in inside:
        raise ConfigurationError(f"message {name} is inside of itself, which Spark cannot have")
    if not descriptor.fields:
        raise ConfigurationError(f"message {name} has no fields, which Spark cannot have")
    is_entry = descriptor.GetOptions().map_entry
    fields = [_field(field, (*inside, name), has_default=is_entry) for field in descriptor.fields]
    kind = pa.struct([(field.name, field.type) for field in fields])
    unions = [[each.name for each in union.fields] for union in descriptor.oneofs if len(union.fields) > 1]

    def read(cursors: Cursors) -> pa.Array:
        if descriptor.is_extendable:
            cursors.fail(np.arange(len(cursors)))  # an extension may have required fields
        # protobuf drops the entry of a map that has other fields.
        found = _read_fields(cursors, fields, skipped={} if is_entry else _RAW)
        for names in unions:
            members = np.concatenate([_NONE, *(owner for each in names for owner, _ in found[each])])
            cursors.fail(np.flatnonzero(np.bincount(members, minlength=len(cursors)) > 1))
        return pa.StructArray.from_arrays(
            [field.read(cursors, *_joined(found[field.name], field.value)) for field in fields], fields=list(kind)
        )

    return Column(kind, read)


def _read_fields(cursors: Cursors, fields: list[_Field], *, skipped: _RawReaders) -> dict[str, _Found]:
    """Read messages to their end. Other fields of the wire types `skipped` are skipped; more make a message odd."""
    found: dict[str, _Found] = {field.name: [] for field in fields}
    known = {tag: field for field in fields for tag in field.tags}
    while len(active := np.flatnonzero(cursors.at < cursors.end)):
        if len(active) < FEWEST:
            cursors.fail(active)
            break
        step = cursors.among(active)
        tags = step.varint(_LONGEST_TAG)
        # Most messages have their fields in the same order.
        present = tags[:1] if (tags == tags[0]).all() else np.unique(tags)
        rest = np.ones(len(step), np.bool_)
        for tag in [each for each in present.tolist() if each in known]:
            chosen = np.flatnonzero(tags == tag)
            rest[chosen] = False
            field, part = known[tag], step.among(chosen)
            raw = _RAW[tag & 7](part)
            step.at[chosen] = part.at
            if tag & 7 == field.value.wire:
                found[field.name].append((active[chosen], raw))
            else:
                found[field.name] += _unpacked(cursors, active[chosen], raw, field.value.wire)
        for wire, read_raw in skipped.items() if rest.any() else ():
            chosen = np.flatnonzero(rest & (tags & 7 == wire) & (tags > 7) & (tags <= _MOST_TAG))
            rest[chosen] = False
            part = step.among(chosen)
            read_raw(part)
            step.at[chosen] = part.at
        step.fail(np.flatnonzero(rest))
        cursors.at[active] = step.at
    return found


def _unpacked(cursors: Cursors, owner: Numbers, spans: Numbers, wire: int) -> _Found:
    """Return the numbers of packed repeated fields."""
    found: _Found = []
    inner = cursors.within(owner, *spans.T)
    while len(active := np.flatnonzero(inner.at < inner.end)):
        if len(active) < FEWEST:
            inner.fail(active)
            break
        part = inner.among(active)
        found.append((owner[active], _RAW[wire](part)))
        inner.at[active] = part.at
    return found


def _joined(found: _Found, value: _Value) -> tuple[Numbers, Numbers]:
    """Return indices of cursors in ascending order, and the bytes of each."""
    none = np.zeros((0, 2), np.int64) if value.wire == _LENGTH else np.zeros(0, np.uint64)
    owner = np.concatenate([_NONE, *(each for each, _ in found)])
    order = np.argsort(owner, kind="stable")
    return owner[order], np.concatenate([none, *(raw for _, raw in found)])[order]


def _field(field: Any, inside: tuple[str, ...], *, has_default: bool) -> _Field:
    """Return how a field is read; with `has_default`, it is never null, as in the entry of a map."""
    value = _value(field, inside)
    # A message with a group is odd: its wire type is another.
    tags: tuple[int, ...] = () if field.type == field.TYPE_GROUP else (field.number << 3 | value.wire,)
    kind = value.type

    def read_repeated(cursors: Cursors, owner: Numbers, raw: Numbers) -> pa.Array:
        return grouped(cursors, value.read(cursors.among(owner), raw), owner, kind)

    def read_single(cursors: Cursors, owner: Numbers, raw: Numbers) -> pa.Array:
        count = np.bincount(owner, minlength=len(cursors))
        cursors.fail(np.flatnonzero((count > 1) | (field.is_required & (count == 0))))
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        owner, raw = owner[first], raw[first]
        if field.has_presence and not has_default:
            return spread(value.read(cursors.among(owner), raw), count > 0)
        both = np.stack([cursors.end] * 2, axis=1) if value.wire == _LENGTH else np.zeros(len(cursors), np.uint64)
        both[owner] = raw
        return value.read(cursors, both)

    if not field.is_repeated:
        return _Field(field.name, kind, tags, value, read_single)
    if value.wire != _LENGTH:
        tags = (*tags, field.number << 3 | _LENGTH)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = pa.map_(*(each.type for each in kind))
    else:
        kind = pa.list_(kind)
    return _Field(field.name, kind, tags, value, read_repeated)


def _value(field: Any, inside: tuple[str, ...]) -> _Value:
    def low(raw: Numbers) -> Numbers:
        return raw.astype(np.uint32)

    if field.message_type is not None:
        return _message_value(field.message_type, inside)
    if field.enum_type is not None:
        return _enum_value(field.enum_type)
    if field.type == field.TYPE_STRING:
        return _Value(pa.string(), _LENGTH, lambda cursors, raw: cursors.text(*raw.T))
    if field.type == field.TYPE_BYTES:
        return _Value(pa.binary(), _LENGTH, lambda cursors, raw: cursors.binary(*raw.T))
    if field.cpp_type == field.CPPTYPE_UINT64:
        wire, kind = _VARINT if field.type == field.TYPE_UINT64 else _FIXED64, pa.decimal128(20)
        return _Value(kind, wire, lambda _, raw: decimals(raw, kind))
    numbers: dict[int, tuple[int, pa.DataType, Callable[[Numbers], Numbers]]] = {
        field.TYPE_BOOL: (_VARINT, pa.bool_(), lambda raw: raw != 0),
        field.TYPE_INT32: (_VARINT, pa.int32(), lambda raw: low(raw).view(np.int32)),
        field.TYPE_SINT32: (_VARINT, pa.int32(), lambda raw: signed(low(raw))),
        field.TYPE_UINT32: (_VARINT, pa.int64(), lambda raw: low(raw).astype(np.int64)),
        field.TYPE_INT64: (_VARINT, pa.int64(), lambda raw: raw.view(np.int64)),
        field.TYPE_SINT64: (_VARINT, pa.int64(), signed),
        field.TYPE_FIXED32: (_FIXED32, pa.int64(), lambda raw: raw.view(np.int64)),
        field.TYPE_SFIXED32: (_FIXED32, pa.int32(), lambda raw: low(raw).view(np.int32)),
        field.TYPE_SFIXED64: (_FIXED64, pa.int64(), lambda raw: raw.view(np.int64)),
        field.TYPE_FLOAT: (_FIXED32, pa.float32(), lambda raw: low(raw).view(np.float32)),
        field.TYPE_DOUBLE: (_FIXED64, pa.float64(), lambda raw: raw.view(np.float64)),
    }
    wire, kind, convert = numbers[field.type]
    return _Value(kind, wire, lambda _, raw: pa.array(convert(raw), kind))


def _message_value(descriptor: Any, inside: tuple[str, ...]) -> _Value:
    column = message_column(descriptor, inside)

    def read(cursors: Cursors, raw: Numbers) -> pa.Array:
        return column.read(cursors.within(np.arange(len(cursors)), *raw.T))

    def read_timestamp(cursors: Cursors, raw: Numbers) -> pa.Array:
        found = read(cursors, raw)
        seconds, nanos = (found.field(name).fill_null(0).to_numpy() for name in ("seconds", "nanos"))
        cursors.fail(np.flatnonzero((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)))
        return pa.array(seconds * 1_000_000 + nanos // 1000).view(pa.timestamp("us", "UTC"))

    if descriptor.full_name == TIMESTAMP:
        return _Value(pa.timestamp("us", "UTC"), _LENGTH, read_timestamp)
    return _Value(column.type, _LENGTH, read)


def _enum_value(enum: Any) -> _Value:
    named = {number: value.name for number, value in enum.values_by_number.items()}  # the last of aliases
    numbers = np.array(sorted(named))
    names = pa.array([named[number] for number in numbers.tolist()])

    def read(cursors: Cursors, raw: Numbers) -> pa.Array:
        found = raw.astype(np.uint32).view(np.int32)
        place = np.minimum(np.searchsorted(numbers, found), len(numbers) - 1)
        cursors.fail(np.flatnonzero(numbers[place] != found))
        return names.take(pa.array(place))

    return _Value(pa.string(), _VARINT, read)
