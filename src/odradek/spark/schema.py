"""The columns of source and sink: names, types and order of Spark's own Kafka connector.

Three extensions: a read may select columns by a user-given schema (others are not sent to the JVM), or decode values
(`value_columns`), and the option `includeTimestamp` makes the sink write a column `timestamp`, so that a mirror keeps
timestamps. Other columns of rows to write are ignored.
"""

from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.model import ConfigurationError
from odradek.spark.options import ValueOptions

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_SOURCE: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
_SINK: Final = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


def source_schema(*, include_headers: bool, values: ValueOptions | None = None) -> Any:
    """Return the columns of a read. Raise `ConfigurationError` for a `valueSchema` that Spark cannot have."""
    fields = [StructField(name, kind) for name, kind in _SOURCE.items() if include_headers or name != "headers"]
    if values is not None:
        from odradek.spark.value_columns import value_fields

        fields += value_fields(values)
    return StructType(fields)


def check_source_schema(schema: Any, *, include_headers: bool, values: ValueOptions | None = None) -> None:
    """Raise `ConfigurationError` unless `schema` has columns of the source, once, nullable, in any order and case."""
    source = source_schema(include_headers=include_headers, values=values)
    offered = {field.name.lower(): field.dataType for field in source}
    if not schema.fields:
        raise ConfigurationError("the schema has no column")
    _check_names(schema)
    for field in schema:
        name = field.name.lower()
        if name == "headers" and not include_headers:
            raise ConfigurationError("the column headers needs the option includeHeaders = true")
        if name not in offered:
            raise ConfigurationError(f"there is no column {field.name!r}: there are {', '.join(source.fieldNames())}")
        if field.dataType != offered[name]:
            wanted = offered[name].simpleString()
            raise ConfigurationError(
                f"the column {field.name} is of type {wanted}, not {field.dataType.simpleString()}"
            )
        if not field.nullable:
            raise ConfigurationError(f"the column {field.name} must be nullable")


def check_sink_schema(schema: Any, *, topic: str | None, include_timestamp: bool) -> None:
    """Raise `ConfigurationError` unless rows of `schema` can be written with the options of these names."""
    _check_names([field for field in schema if field.name in _SINK])
    kinds = {field.name: field.dataType for field in schema}
    if "value" not in kinds:
        raise ConfigurationError("a row to write needs a column value")
    if topic is None and "topic" not in kinds:
        raise ConfigurationError("say where to write: the option topic, or a column topic")
    if include_timestamp and "timestamp" not in kinds:
        raise ConfigurationError("includeTimestamp needs a column timestamp")
    for name, kind in kinds.items():
        # As in the JVM connector, unknown columns are ignored, and so is `timestamp` unless an option includes it.
        accepted = _SINK.get(name)
        if accepted is None or (name == "timestamp" and not include_timestamp):
            continue
        if not isinstance(kind, accepted) or (name == "headers" and not _is_headers(kind)):
            wanted = (
                HEADERS.simpleString() if name == "headers" else " or ".join(each().simpleString() for each in accepted)
            )
            raise ConfigurationError(f"the column {name} must be of type {wanted}, not {kind.simpleString()}")


def _check_names(fields: Iterable[Any]) -> None:
    """Raise `ConfigurationError` if two columns have one name, which has any case in Spark."""
    names = [field.name.lower() for field in fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"two columns are named {twice}: name each once")


def _is_headers(kind: Any) -> bool:
    """Return whether the array type `kind` has structs (key, value); nullability does not matter."""
    element = kind.elementType
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(element["value"].dataType, BinaryType)
