"""Decodes Avro values by the package fastavro, with the one schema of a file.

    boolean, int, long, float, double, string, bytes      the same
    enum → string     fixed → binary     array, map, record → array, map, struct
    a union of one type and null → that type
    date, timestamp-millis/-micros, local-timestamp-millis/-micros, decimal → date, timestamps, decimal
    other logical types → the type that they annotate

A value is one record in Avro's binary encoding, without a container file's header. Spark has no type for other unions,
recursive records, and values that are no records; `odradek consume` shows them.
"""

import datetime
import io
import json
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from odradek.model import ConfigurationError, packages_of
from odradek.values.avro_columns import LOGICAL_TYPES, avro_columns
from odradek.values.cursors import Column, Cursors
from odradek.values.decoding import skip_framing, without_framing

_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_EPOCH: Final = datetime.datetime(1970, 1, 1)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""After so much time, the calendar repeats."""
_DAY_US: Final = 86_400_000_000
_OWN: Final = "odradek-"
"""The prefix of logical types that are read here: fastavro rounds decimals, and has no time after the year 9999."""


class AvroDecoder(Struct, frozen=True, kw_only=True):
    """Decodes records of `schema`, the JSON text of an `.avsc` file. `framing` is None or `confluent`."""

    schema: str
    framing: str | None = None

    @property
    def column(self) -> Column:
        """The records' column. Raise `ConfigurationError` for a schema that is invalid or that Spark cannot have."""
        _compiled(self.schema)
        record = avro_columns(self.schema)

        def read(cursors: Cursors) -> pa.Array:
            skip_framing(cursors, self.framing)
            found = record.read(cursors)
            cursors.fail(np.flatnonzero(cursors.at < cursors.end))
            return found

        return Column(record.type, read)

    def __call__(self, value: bytes) -> Any:
        """Return one value. Raise `ValueError` if it is not exactly one, `ConfigurationError` for a wrong schema."""
        schema, read = _compiled(self.schema)
        body = io.BytesIO(without_framing(value, self.framing))
        try:
            found = read(body, schema, None)
        except Exception as error:
            # Other bytes make the library fail in many ways: EOFError, IndexError, OverflowError, …
            raise ValueError(f"the value is not a record of the Avro schema: {type(error).__name__}") from None
        if body.read(1):
            raise ValueError("the value has bytes after the Avro record")
        return found


@lru_cache(maxsize=16)
def _compiled(text: str) -> tuple[Any, Callable[..., Any]]:
    """Return fastavro's schema, and its function that reads a value."""
    with packages_of("avro", "Avro values"):
        from fastavro import _read_py, parse_schema, read
        from fastavro.schema import SchemaParseException, UnknownType
    try:
        schema = json.loads(text)
        parse_schema(schema)
        parsed = parse_schema(_with_own_logical_types(schema))
        try:
            avro_columns(text)
            reader = read
        except ConfigurationError:
            reader = _read_py  # a recursive record could overflow the stack of C
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"the Avro schema is not JSON: {error}") from None
    except (
        SchemaParseException, UnknownType, AttributeError, KeyError, TypeError, ValueError, RecursionError
    ) as error:  # fmt: skip
        raise ConfigurationError(f"the Avro schema is wrong: {type(error).__name__}: {error}") from None
    reader.LOGICAL_READERS.update(_READERS)
    return parsed, reader.schemaless_reader


def _with_own_logical_types(schema: Any) -> Any:
    """Return the schema with `_OWN` before the logical types that are read here, and without others."""
    if isinstance(schema, list):
        return [_with_own_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    nested = ("type", "items", "values", "fields")
    made = {key: _with_own_logical_types(value) if key in nested else value for key, value in schema.items()}
    logical = made.pop("logicalType", None)
    return made | {"logicalType": f"{_OWN}{logical}"} if logical in LOGICAL_TYPES else made


class _Beyond(int):
    """Days or microseconds since 1970 for which Python has no date: Arrow takes the number, JSON the text."""

    text: str

    def __str__(self) -> str:
        return self.text


def _beyond(number: int, text: str) -> _Beyond:
    made = _Beyond(number)
    made.text = text
    return made


def _date(days: int, *_: object) -> Any:
    try:
        return datetime.date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        return _beyond(days, _day_text(days))


def _timestamps(unit_us: int, zone: datetime.tzinfo | None) -> Callable[..., Any]:
    def timestamp(number: int, *_: object) -> Any:
        try:
            return (_EPOCH + datetime.timedelta(microseconds=number * unit_us)).replace(tzinfo=zone)
        except OverflowError:
            days, rest_us = divmod(number * unit_us, _DAY_US)
            time = (_EPOCH + datetime.timedelta(microseconds=rest_us)).time()
            return _beyond(number * unit_us, f"{_day_text(days)}T{time}{'' if zone is None else 'Z'}")

    return timestamp


def _day_text(days: int) -> str:
    """Return a day in the form of java.time, with a sign before years of more than four digits."""
    cycles, day = divmod(days + _EPOCH_DAY - 1, _CYCLE_DAYS)
    date = datetime.date.fromordinal(day + 1)
    year = date.year + cycles * _CYCLE_YEARS
    return f"{'+' if year > datetime.MAXYEAR else '-' if year < 0 else ''}{abs(year):04}{date:-%m-%d}"


def _decimal(data: bytes, schema: Mapping[str, Any], *_: object) -> Decimal:
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-schema.get("scale", 0), _EXACT)


_READERS: Final = {
    f"int-{_OWN}date": _date,
    f"long-{_OWN}timestamp-millis": _timestamps(1000, datetime.UTC),
    f"long-{_OWN}timestamp-micros": _timestamps(1, datetime.UTC),
    f"long-{_OWN}local-timestamp-millis": _timestamps(1000, None),
    f"long-{_OWN}local-timestamp-micros": _timestamps(1, None),
    f"bytes-{_OWN}decimal": _decimal,
    f"fixed-{_OWN}decimal": _decimal,
}
