"""Parses the values of a stream into columns, and separates the records that do not parse: bad rows.

Tombstones (null values) are not parsed: they become rows of nulls with their keys, and are counted. The reader decodes
Avro and Protobuf and writes their bad rows, and decodes JSON that is plainly an object of the fields
(`odradek.spark.value_columns`). Spark parses the JSON that is left: its `from_json` ignores text after the first JSON
value, and returns nulls for values that it cannot parse. So each value is parsed inside of a list, before an element
that marks its end:

    {"value":[ THE VALUE ,{"__odradek_end":true}]}

A value is one JSON object exactly if this text parses into two elements, the second of which is the mark.
"""

import functools
import operator
from typing import Any, Final

import msgspec

from odradek.model import ConfigurationError
from odradek.pipelines.config.pipelines import Stream
from odradek.pipelines.progress import OBSERVED
from odradek.spark.options import DeadLetters
from odradek.spark.writing.dead_letters import Destination, without_dead_letters
from odradek.values.decoding import make_decoder, read_schema

_END: Final = "__odradek_end"
_NO_OBJECT: Final = "the value is not one JSON object"
_ESCAPED: Final = r"(?<!\\)(?:\\\\){0,99}"
"""Before a backslash: nothing, or backslashes that escape each other."""
_HIGH, _LOW = (rf"\\u[dD][{digits}][0-9a-fA-F]{{2}}" for digits in ("89aAbB", "c-fC-F"))
_LONE: Final = rf"({_ESCAPED})(?:{_HIGH}(?!{_LOW})|(?<!{_ESCAPED}{_HIGH}){_LOW})"
"""Half of a surrogate pair, which is no character: Spark would read a question mark."""
_MOST_FIELDS: Final = 100
"""The fields of which a reason may speak: each makes the query's plan larger."""
_MOST_CHARACTERS: Final = 60
"""How much of a type and of a value a reason shows."""
_CORRUPT: Final = "__odradek_corrupt"
"""The field where `from_json` puts a text that it cannot parse."""


def value_options(stream: Stream, letters: DeadLetters | None) -> dict[str, str]:
    """Return the options by which the source decodes a stream's values, and writes `letters` of those that it cannot.

    None: bad rows stay. Raise `ConfigurationError` for the stream's schema.
    """
    if stream.schema is None:
        return _json_options(stream) if stream.has_fields else {}
    schema = read_schema(stream.format, str(stream.schema))
    # Spark would raise the error without the file's key.
    _ = make_decoder(stream.format, schema, stream.message, stream.framing).column
    options = {"Format": stream.format, "Schema": schema, "Message": stream.message, "Framing": stream.framing}
    if letters is not None:
        options["DeadLetters"] = msgspec.json.encode(letters).decode()
    return {f"value{name}": text for name, text in options.items() if text is not None}


def _json_options(stream: Stream) -> dict[str, str]:
    from pyspark.sql.types import StructType

    from odradek.spark.value_columns import can_decode_json

    fields = StructType(_fields(stream))
    return {"valueFormat": "json", "valueSchema": fields.json()} if can_decode_json(fields) else {}


def parse_values(records: Any, stream: Stream, columns: list[Any], bad_rows: Destination | None) -> Any:
    """Return the records, read with `value_options`, with `columns` and the fields of their values.

    Records that do not parse go to `bad_rows` (the read itself writes those of Avro and Protobuf); if it is None, they
    stay with null fields. A field with the name of one of `columns` becomes `value_NAME`. Raise `ConfigurationError`
    for an invalid schema, or two fields of one name.
    """
    from pyspark.sql import functions as sql

    fields, parser, parsed_value, reason = _json(stream) if stream.schema is None else _encoded(records)
    values = [sql.col("_fields")] if "fields" in records.columns else []
    is_tombstone = functools.reduce(operator.and_, (each.isNull() for each in values), sql.col("_value").isNull())
    if parsed_value is not None:
        values.append(sql.when(sql.col("_reason").isNull(), parsed_value) if bad_rows is None else parsed_value)
    parsed = records.select(
        *columns,
        sql.col("key").alias("_key"),
        sql.col("value").alias("_value"),
        *(sql.col(name).alias(f"_{name}") for name in ("headers", "fields") if name in records.columns),
        parser.alias("_parsed"),
    )
    checked = parsed.withColumn("_reason", reason).observe(
        f"{OBSERVED}.{stream.name}",
        sql.count("_reason").alias("bad_rows"),
        sql.max("_reason").alias("reason"),
        sql.count_if(is_tombstone).alias("tombstones"),
    )
    shown = records.select(*columns).columns
    names = _names(stream, fields, shown)
    if bad_rows is not None and stream.schema is not None:
        checked = checked.where(sql.col("_reason").isNull())
    elif bad_rows is not None:
        has_headers = "headers" in records.columns
        letter, is_bad = _letter(stream, has_headers=has_headers), sql.col("_reason").isNotNull()
        checked = without_dead_letters(checked, is_bad, letter, bad_rows, has_headers=has_headers)
    found = (sql.coalesce(*(value.getField(field) for value in values)).alias(name) for field, name in names.items())
    return checked.select(*shown, *found)


def _letter(stream: Stream, *, has_headers: bool) -> Any:
    from pyspark.sql import functions as sql

    return sql.struct(
        sql.lit(stream.name).alias("stream"),
        "topic",
        "partition",
        "offset",
        sql.unix_micros("timestamp").alias("timestamp"),
        sql.col("_key").alias("key"),
        sql.col("_value").alias("value"),
        sql.col("_reason").alias("reason"),
        *([sql.col("_headers").alias("headers")] if has_headers else []),
    )


def _names(stream: Stream, fields: list[Any], shown: list[str]) -> dict[str, str]:
    """Return the column name of every field. Raise `ConfigurationError` if two are equal."""
    taken = {name.lower() for name in shown}
    names = {each.name: f"value_{each.name}" if each.name.lower() in taken else each.name for each in fields}
    columns = [name.lower() for name in names.values()]
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise ConfigurationError(f"two columns would be named {twice}: rename a field")
    return names


def _encoded(records: Any) -> tuple[list[Any], Any, Any, Any]:
    """Return the fields of Avro or Protobuf, the column `_parsed`, no parsed value, and the reason of a bad record."""
    from pyspark.sql import functions as sql

    return list(records.schema["fields"].dataType), sql.col("reason"), None, sql.col("_parsed")


def _json(stream: Stream) -> tuple[list[Any], Any, Any, Any]:
    """Return the fields, then columns: `_parsed`, the parsed value in it, and the reason why the record is bad."""
    from pyspark.sql import functions as sql

    fields = _fields(stream)
    options = {"columnNameOfCorruptRecord": _CORRUPT}
    parser = sql.from_json(_delimited("value"), _delimited_schema(fields), options)
    return fields, parser, sql.col("_parsed.value").getItem(0), _reason(fields)


def _fields(stream: Stream) -> list[Any]:
    """Return the fields of the values, parsed by Spark from the stream's DDL."""
    from pyspark.sql.types import DataType, StructType

    kind = DataType.fromDDL(stream.value)
    if not isinstance(kind, StructType):
        raise ConfigurationError(f"name fields, such as 'id INT', not {kind.simpleString()}")
    return list(kind.fields)


def _delimited(column: str) -> Any:
    """Return a column's text to parse: a JSON object with a list of the value and the end mark."""
    from pyspark.sql import functions as sql

    text = sql.col(column).cast("string")
    # Most texts have no escape: then they are searched once.
    may_have_surrogates = sql.contains(text, sql.lit("\\u")) & (
        sql.contains(text, sql.lit("\\ud")) | sql.contains(text, sql.lit("\\uD"))
    )
    replaced = sql.regexp_replace(text, sql.lit(_LONE), sql.lit(r"$1\\ufffd"))
    text = sql.when(may_have_surrogates, replaced).otherwise(text)
    return sql.concat(sql.lit('{"value":['), text, sql.lit(f',{{"{_END}":true}}]}}'))


def _delimited_schema(fields: list[Any]) -> Any:
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    element = StructType([*fields, StructField(_END, BooleanType())])
    return StructType([StructField("value", ArrayType(element)), StructField(_CORRUPT, StringType())])


def _misfit(fields: list[Any]) -> Any:
    """Return which of the fields a JSON object does not fit; each field is parsed alone."""
    from pyspark.sql import functions as sql

    misfit = sql
    for field in fields[:_MOST_FIELDS]:
        alone = sql.from_json(_delimited("_value"), _delimited_schema([field]), {"columnNameOfCorruptRecord": _CORRUPT})
        found = sql.get_json_object(sql.col("_value").cast("string"), f"$['{field.name}']")
        text = sql.concat(
            sql.lit(f"field {field.name} is not {field.dataType.simpleString()[:_MOST_CHARACTERS].upper()}: "),
            sql.left(sql.coalesce(found, sql.lit("?")), sql.lit(_MOST_CHARACTERS)),
        )
        misfit = misfit.when(alone.getField(_CORRUPT).isNotNull(), text)
    return misfit.otherwise("the value does not fit the schema")


def _reason(fields: list[Any]) -> Any:
    """Return why a value is not one JSON object of the stream's fields; null for an object or a tombstone."""
    from pyspark.sql import functions as sql

    value, parsed = sql.col("_value"), sql.col("_parsed.value")
    text = value.cast("string")
    trimmed = sql.btrim(text, sql.lit(" \t\r\n"))
    is_one_object = (
        (sql.size(parsed) == 2)
        & parsed.getItem(0).isNotNull()
        & sql.coalesce(parsed.getItem(1).getField(_END), sql.lit(False))
    )
    is_corrupt = sql.col(f"_parsed.{_CORRUPT}").isNotNull()
    # Each row is compared with the conditions in turn: those that most rows meet, and that cost least, are the first.
    return (
        sql.when(value.isNull(), None)
        .when(~sql.is_valid_utf8(text), "the value is not UTF-8")
        .when(~is_corrupt & sql.coalesce(is_one_object, sql.lit(False)), None)
        .when(sql.length(trimmed) == 0, "the value is empty")
        .when(~is_corrupt, _NO_OBJECT)
        .when(sql.try_parse_json(_delimited("_value")).isNull(), "the value is not JSON")
        .when(~sql.startswith(trimmed, sql.lit("{")), _NO_OBJECT)
        .otherwise(_misfit(fields))
    )
