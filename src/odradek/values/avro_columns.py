"""The columns of an Avro schema: Arrow types, and functions that read many values at once."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from odradek.model import ConfigurationError
from odradek.values.cursors import FEWEST, Column, Cursors, Numbers, decimals, grouped, spread

_MOST_DIGITS: Final = 38
"""Digits of Spark's decimal."""


def avro_columns(text: str) -> Column:
    """Return the column of a schema that fastavro has parsed. Raise `ConfigurationError` if Spark has no such type.

    Raise `ValueError` for an array of items without bytes, of which a value of ten bytes may claim any number, and for
    an enum without symbols.
    """
    found = _Columns().of(json.loads(text), ())
    if not isinstance(found.type, pa.StructType) or not found.type.num_fields:
        raise ConfigurationError(f"the Avro schema describes {found.type}: a stream needs a record with fields")
    return found


def _numbers(kind: pa.DataType, read: Callable[[Cursors], Numbers]) -> Column:
    return Column(kind, lambda cursors: pa.array(read(cursors)).view(kind))


def _boolean(cursors: Cursors) -> Numbers:
    found = cursors.fixed("u1")
    cursors.fail(np.flatnonzero(found > 1))
    is_true: Numbers = found == 1
    return is_true


def _int(cursors: Cursors) -> Numbers:
    found = cursors.zigzag()
    cursors.fail(np.flatnonzero(found != found.astype(np.int32)))
    return found.astype(np.int32)


def _span(cursors: Cursors) -> tuple[Numbers, Numbers]:
    return cursors.span(cursors.zigzag())


def _millis(cursors: Cursors) -> Numbers:
    found = cursors.zigzag()
    cursors.fail(np.flatnonzero(found != found * 1000 // 1000))
    return found * 1000


_PRIMITIVE: Final = {
    "boolean": _numbers(pa.bool_(), _boolean),
    "int": _numbers(pa.int32(), _int),
    "long": _numbers(pa.int64(), Cursors.zigzag),
    "float": _numbers(pa.float32(), lambda cursors: cursors.fixed("<f4")),
    "double": _numbers(pa.float64(), lambda cursors: cursors.fixed("<f8")),
    "string": Column(pa.string(), lambda cursors: cursors.text(*_span(cursors))),
    "bytes": Column(pa.binary(), lambda cursors: cursors.binary(*_span(cursors))),
    "null": Column(pa.null(), lambda cursors: pa.nulls(len(cursors)), takes_no_bytes=True),
}
_LOGICAL: Final = {
    "date": ("int", _numbers(pa.date32(), _int)),
    "timestamp-millis": ("long", _numbers(pa.timestamp("us", "UTC"), _millis)),
    "timestamp-micros": ("long", _numbers(pa.timestamp("us", "UTC"), Cursors.zigzag)),
    "local-timestamp-millis": ("long", _numbers(pa.timestamp("us"), _millis)),
    "local-timestamp-micros": ("long", _numbers(pa.timestamp("us"), Cursors.zigzag)),
}
LOGICAL_TYPES: Final = (*_LOGICAL, "decimal")


class _Columns:
    """Columns of the schemas of one file, which refer to each other by name."""

    def __init__(self) -> None:
        self._named: dict[str, Column] = {}

    def of(self, schema: Any, inside: tuple[str, ...], namespace: str = "") -> Column:
        """Return a schema's column; `inside` are the records around it. Raise `ConfigurationError` without one."""
        if isinstance(schema, list):
            return self._union(schema, inside, namespace)
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema]
            full = schema if "." in schema else f"{namespace}.{schema}".lstrip(".")
            if full in inside:
                raise ConfigurationError(f"the Avro schema has record {full} inside of itself, which Spark cannot have")
            return self._named[full]
        kind = schema["type"]
        if (logical := _logical_column(schema)) is not None:
            return self._name(schema, namespace, logical)
        if kind == "array":
            return _repeated(self.of(schema["items"], inside, namespace), is_map=False)
        if kind == "map":
            return _repeated(self.of(schema["values"], inside, namespace), is_map=True)
        if kind == "enum":
            return self._name(schema, namespace, _enum(pa.array(schema["symbols"], pa.string())))
        if kind == "fixed":
            return self._name(schema, namespace, _fixed(schema["size"]))
        if kind in {"record", "error"}:
            return self._record(schema, inside, namespace)
        return self.of(kind, inside, namespace)

    def _record(self, schema: Mapping[str, Any], inside: tuple[str, ...], namespace: str) -> Column:
        full = _full_name(schema, namespace)
        space = full.rpartition(".")[0]
        columns = [self.of(each["type"], (*inside, full), space) for each in schema["fields"]]
        kind = pa.struct([(each["name"], of.type) for each, of in zip(schema["fields"], columns, strict=True)])

        def read(cursors: Cursors) -> pa.Array:
            if not columns:
                return pa.array([{}] * len(cursors), kind)
            return pa.StructArray.from_arrays([column.read(cursors) for column in columns], fields=list(kind))

        is_empty = all(column.takes_no_bytes for column in columns)
        return self._name(schema, namespace, Column(kind, read, takes_no_bytes=is_empty))

    def _union(self, schemas: list[Any], inside: tuple[str, ...], namespace: str) -> Column:
        others = [each for each in schemas if each != "null"]
        if len(others) != 1:
            raise ConfigurationError(
                f"the Avro schema has a union of {len(others)} types besides null: Spark needs one"
            )
        one, branch = self.of(others[0], inside, namespace), schemas.index(others[0])

        def read(cursors: Cursors) -> pa.Array:
            index = cursors.zigzag()
            cursors.fail(np.flatnonzero((index < 0) | (index >= len(schemas))))
            has = index == branch
            part = cursors.among(np.flatnonzero(has))
            found = one.read(part)
            cursors.at[has] = part.at
            return spread(found, has)

        return Column(one.type, read)

    def _name(self, schema: Mapping[str, Any], namespace: str, column: Column) -> Column:
        if "name" in schema:
            self._named[_full_name(schema, namespace)] = column
        return column


def _repeated(item: Column, *, is_map: bool) -> Column:
    """Return the column of arrays, or of maps from strings, of `item`."""

    def read_item(cursors: Cursors) -> pa.Array:
        if not is_map:
            return item.read(cursors)
        key = cursors.text(*_span(cursors))
        return pa.StructArray.from_arrays([key, item.read(cursors)], fields=list(item_kind))

    def read(cursors: Cursors) -> pa.Array:
        left, has_ended = np.zeros(len(cursors), np.int64), np.zeros(len(cursors), np.bool_)
        pieces, owners = [pa.array([], item_kind)], [np.zeros(0, np.int64)]
        while True:
            begun = np.flatnonzero((left == 0) & ~has_ended)
            part = cursors.among(begun)
            left[begun] = _items_of_blocks(part)
            cursors.at[begun], has_ended[begun] = part.at, left[begun] == 0
            active = np.flatnonzero(left)
            if len(active) < FEWEST:
                cursors.fail(active)
                break
            part = cursors.among(active)
            pieces.append(read_item(part))
            owners.append(active)
            cursors.at[active] = part.at
            left[active] = np.where(part.is_odd, 0, left[active] - 1)
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        return grouped(cursors, pa.concat_arrays(pieces).take(pa.array(order)), owner[order], kind)

    if item.takes_no_bytes and not is_map:
        raise ValueError("the items of an array take no bytes")
    item_kind = pa.struct([("key", pa.string()), ("value", item.type)]) if is_map else item.type
    kind = pa.map_(pa.string(), item.type) if is_map else pa.list_(item.type)
    return Column(kind, read)


def _items_of_blocks(cursors: Cursors) -> Numbers:
    """Read the count before the items of each block; before a negative one's items is the size of the block."""
    count = cursors.zigzag()
    sized = np.flatnonzero(count < 0)
    part = cursors.among(sized)
    part.zigzag()
    cursors.at[sized] = part.at
    count = np.abs(count)
    # Each item has a byte.
    too_many = np.flatnonzero((count > cursors.end - cursors.at) | (count < 0))
    cursors.fail(too_many)
    count[too_many] = 0
    return count


def _enum(symbols: pa.Array) -> Column:
    if not symbols:
        raise ValueError("an enum has no symbols")

    def read(cursors: Cursors) -> pa.Array:
        index = cursors.zigzag()
        wrong = np.flatnonzero((index < 0) | (index >= len(symbols)))
        cursors.fail(wrong)
        index[wrong] = 0
        return symbols.take(pa.array(index))

    return Column(pa.string(), read)


def _fixed(size: int) -> Column:
    return Column(
        pa.binary(),
        lambda cursors: cursors.binary(*cursors.span(np.full(len(cursors), size))),
        takes_no_bytes=size <= 0,
    )


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name: str = schema["name"]
    return name if "." in name else f"{schema.get('namespace', namespace)}.{name}".lstrip(".")


def _logical_column(schema: Mapping[str, Any]) -> Column | None:
    logical = str(schema.get("logicalType"))
    if logical in _LOGICAL:
        annotated, column = _LOGICAL[logical]
        return column if schema["type"] == annotated else _odd(column.type)
    if logical != "decimal":
        return None
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 < precision <= _MOST_DIGITS:
        raise ConfigurationError(
            f"the Avro schema has a decimal of {precision} digits: Spark has at most {_MOST_DIGITS}"
        )
    kind = pa.decimal128(precision, scale)

    def read(cursors: Cursors) -> pa.Array:
        is_fixed = schema["type"] == "fixed"
        start, end = cursors.span(np.full(len(cursors), schema["size"])) if is_fixed else _span(cursors)
        found = cursors.integers(start, end)
        if precision < 19:
            cursors.fail(np.flatnonzero((found <= -(10**precision)) | (found >= 10**precision)))
        return decimals(found, kind)

    return Column(kind, read) if schema["type"] in {"bytes", "fixed"} else _odd(kind)


def _odd(kind: pa.DataType) -> Column:
    """Return a column whose values are all odd: its logical type annotates a type for which Avro has no such one."""

    def read(cursors: Cursors) -> pa.Array:
        cursors.fail(np.arange(len(cursors)))
        return pa.nulls(len(cursors), kind)

    return Column(kind, read)
