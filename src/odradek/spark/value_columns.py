"""The columns of values that a read decodes (the option `valueFormat`).

    fields     a struct of the value's fields; null unless the value was decoded
    reason     why it was not
    value      null if it was decoded

A null value has neither fields nor a reason.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField

from odradek.spark.options import ValueOptions
from odradek.values.decoding import Decoder, decode_arrays, make_decoder

NAMES: Final = ("fields", "reason")


def value_fields(values: ValueOptions) -> list[Any]:
    """Return the columns of Spark that are added. Raise `ConfigurationError` for a schema that Spark cannot have."""
    return [StructField("fields", from_arrow_type(_decoder(values).column.type)), StructField("reason", StringType())]


def with_decoded_values(batch: pa.RecordBatch, values: ValueOptions) -> pa.RecordBatch:
    """Return a batch of records with the columns that are added."""
    value = batch.column("value")
    (found,) = decode_arrays(iter([value]), _decoder(values))
    fields, reason = found.field("value"), found.field("reason")
    rest = pc.if_else(fields.is_valid(), pa.nulls(len(value), value.type), value)
    batch = batch.set_column(batch.schema.get_field_index("value"), "value", rest)
    return batch.append_column("fields", fields).append_column("reason", reason)


def _decoder(values: ValueOptions) -> Decoder:
    return make_decoder(values.format, values.schema, values.message, values.framing)
