"""Decodes Avro values by the package fastavro, with the one schema of a file.

    boolean, int, long, float, double, string, bytes      the same
    enum → string     fixed → binary     array, map, record → array, map, struct
    a union of one type and null → that type; other unions are refused
    date, timestamp-millis/-micros, local-timestamp-millis/-micros, decimal → date, timestamps, decimal
    other logical types → the type that they annotate

A value is one record in Avro's binary encoding, without a container file's header.
"""

import io
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from odradek.model import ConfigurationError, packages_of
from odradek.spark.values.decoding import without_framing

_PRIMITIVE: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "null": pa.null(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_MOST_DIGITS: Final = 38
"""Digits of Spark's decimal."""


class AvroDecoder(Struct, frozen=True, kw_only=True):
    """Decodes records of `schema`, the JSON text of an `.avsc` file. `framing` is None or `confluent`."""

    schema: str
    framing: str | None = None

    @property
    def fields(self) -> pa.StructType:
        """The fields of the record. Raise `ConfigurationError` for a schema that is invalid or unsupported."""
        return _compiled(self.schema)[1]

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return the fields of one record. Raise `ValueError` if `value` is not exactly one record of the schema."""
        from fastavro import schemaless_reader

        body = io.BytesIO(without_framing(value, self.framing))
        try:
            found: dict[str, Any] = schemaless_reader(body, _compiled(self.schema)[0], None)
        except Exception as error:
            # Other bytes make the library fail in many ways: EOFError, IndexError, OverflowError, …
            raise ValueError(f"the value is not a record of the Avro schema: {type(error).__name__}") from None
        if body.read(1):
            raise ValueError("the value has bytes after the Avro record")
        return found


@lru_cache(maxsize=16)
def _compiled(text: str) -> tuple[Any, pa.StructType]:
    """Return fastavro's schema and the Arrow type."""
    with packages_of("avro", "Avro values"):
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    try:
        schema = _without_other_logical_types(json.loads(text))
        parsed, kind = parse_schema(schema), _ArrowTypes().of(schema, ())
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"the Avro schema is not JSON: {error}") from None
    except (SchemaParseException, UnknownType, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"the Avro schema is wrong: {type(error).__name__}: {error}") from None
    if not isinstance(kind, pa.StructType) or not kind.num_fields:
        raise ConfigurationError(f"the Avro schema describes {kind}: a stream needs a record with fields")
    return parsed, kind


def _without_other_logical_types(schema: Any) -> Any:
    """Return the schema without the logical types that fastavro would turn into objects that Arrow does not take."""
    if isinstance(schema, list):
        return [_without_other_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    logical = schema.get("logicalType")
    kept = schema if logical in {*_LOGICAL, "decimal"} else {k: v for k, v in schema.items() if k != "logicalType"}
    nested = ("type", "items", "values", "fields")
    return {key: _without_other_logical_types(value) if key in nested else value for key, value in kept.items()}


class _ArrowTypes:
    """Arrow types of the schemas of one file, which refer to each other by name."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, inside: tuple[str, ...], namespace: str = "") -> pa.DataType:
        """Return a schema's Arrow type; `inside` are the records around it. Raise `ConfigurationError` without one."""
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
        if (logical := _logical_type(schema)) is not None:
            self._name(schema, namespace, logical)
            return logical
        if kind == "array":
            return pa.list_(self.of(schema["items"], inside, namespace))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], inside, namespace))
        if kind in {"enum", "fixed"}:
            found = pa.string() if kind == "enum" else pa.binary()
            self._name(schema, namespace, found)
            return found
        if kind in {"record", "error"}:
            return self._record(schema, inside, namespace)
        return self.of(kind, inside, namespace)

    def _record(self, schema: Mapping[str, Any], inside: tuple[str, ...], namespace: str) -> pa.DataType:
        full = _full_name(schema, namespace)
        space = full.rpartition(".")[0]
        found = pa.struct([(each["name"], self.of(each["type"], (*inside, full), space)) for each in schema["fields"]])
        self._named[full] = found
        return found

    def _union(self, schemas: list[Any], inside: tuple[str, ...], namespace: str) -> pa.DataType:
        others = [each for each in schemas if each != "null"]
        if len(others) != 1:
            raise ConfigurationError(
                f"the Avro schema has a union of {len(others)} types besides null: Spark needs one"
            )
        return self.of(others[0], inside, namespace)

    def _name(self, schema: Mapping[str, Any], namespace: str, kind: pa.DataType) -> None:
        if "name" in schema:
            self._named[_full_name(schema, namespace)] = kind


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name: str = schema["name"]
    return name if "." in name else f"{schema.get('namespace', namespace)}.{name}".lstrip(".")


def _logical_type(schema: Mapping[str, Any]) -> pa.DataType | None:
    logical = schema.get("logicalType")
    if logical != "decimal":
        return _LOGICAL.get(str(logical))
    precision, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 < precision <= _MOST_DIGITS:
        raise ConfigurationError(
            f"the Avro schema has a decimal of {precision} digits: Spark has at most {_MOST_DIGITS}"
        )
    return pa.decimal128(precision, scale)
