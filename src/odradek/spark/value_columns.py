"""The columns of values that a read decodes (the option `valueFormat`).

    fields     a struct of the value's fields; null unless the value was decoded
    reason     why it was not; null for `json`, of which only what is plain is decoded
    value      null if it was decoded

A null value has neither fields nor a reason.
"""

import json
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from odradek.model import ConfigurationError
from odradek.spark.options import DeadLetters, ValueOptions
from odradek.values.decoding import Decoder, decode_arrays, make_decoder
from odradek.values.json_columns import can_decode, decode_objects

NAMES: Final = ("fields", "reason")
OF_LETTERS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "reason")
"""The columns of a dead letter, after its stream and before its headers."""


def value_fields(values: ValueOptions) -> list[Any]:
    """Return the columns of Spark that are added. Raise `ConfigurationError` for a schema that Spark cannot have."""
    kind = _json_type(values.schema) if values.format == "json" else _decoder(values).column.type
    return [StructField("fields", from_arrow_type(kind)), StructField("reason", StringType())]


def with_decoded_values(batch: pa.RecordBatch, values: ValueOptions) -> pa.RecordBatch:
    """Return a batch of records with the columns that are added."""
    value = batch.column("value")
    if values.format == "json":
        fields, reason = decode_objects(value, _json_type(values.schema)), pa.nulls(len(value), pa.string())
    else:
        (found,) = decode_arrays(iter([value]), _decoder(values))
        fields, reason = found.field("value"), found.field("reason")
    rest = pc.if_else(fields.is_valid(), pa.nulls(len(value), value.type), value)
    batch = batch.set_column(batch.schema.get_field_index("value"), "value", rest)
    return batch.append_column("fields", fields).append_column("reason", reason)


def dead_letters(batch: pa.RecordBatch, letters: DeadLetters) -> pa.RecordBatch | None:
    """Return the letters of a batch with the columns `OF_LETTERS` and perhaps `headers`; None if there is none."""
    is_bad = batch.column("reason").is_valid()
    if not is_bad.true_count:
        return None
    at = batch.column("timestamp")
    if letters.since_ms is not None:
        is_bad = pc.and_(is_bad, pc.greater_equal(at, _moment(letters.since_ms, at.type)))
    if letters.until_ms is not None:
        is_bad = pc.and_(is_bad, pc.less(at, _moment(letters.until_ms, at.type)))
    bad = batch.filter(is_bad)
    if not bad.num_rows:
        return None
    stream = pa.array([letters.stream] * bad.num_rows, pa.string())
    names = [*OF_LETTERS, *(["headers"] if "headers" in batch.schema.names else [])]
    return pa.RecordBatch.from_arrays([stream, *(bad.column(name) for name in names)], ["stream", *names])


def can_decode_json(fields: StructType) -> bool:
    """Return whether a read decodes JSON objects of these fields."""
    try:
        kind = _arrow_type(fields)
        # Arrow has no collations, lengths or comments.
        return can_decode(kind) and from_arrow_type(kind) == fields
    except TypeError:
        return False


@cache
def _json_type(schema: str) -> pa.StructType:
    try:
        fields = StructType.fromJson(json.loads(schema))
        kind = _arrow_type(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"valueSchema is not the JSON of a StructType: {error}") from None
    if not can_decode_json(fields):
        raise ConfigurationError(f"valueFormat=json has no fields of these types: {fields.simpleString()}")
    return kind


def _arrow_type(fields: StructType) -> pa.StructType:
    return to_arrow_type(fields, timezone="UTC")


def _moment(milliseconds: int, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(milliseconds, pa.timestamp("ms", kind.tz)).cast(kind)


def _decoder(values: ValueOptions) -> Decoder:
    return make_decoder(values.format, values.schema, values.message, values.framing)
