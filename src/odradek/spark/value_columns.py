"""A decoder of single values as an expression of Spark's columns."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from odradek.values.decoding import Decoder, decode_arrays


def decoded(column: Any, decoder: Decoder) -> Any:
    """Return a Spark column of structs (value, reason). Raise `ConfigurationError` if Spark lacks a field's type."""
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import StringType, StructField, StructType

    kind = StructType([StructField("value", StructType(spark_fields(decoder))), StructField("reason", StringType())])

    def decode(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return decode_arrays(arrays, decoder)

    return arrow_udf(decode, kind)(column)


def spark_fields(decoder: Decoder) -> list[Any]:
    """Return a decoder's fields as Spark's. Raise `ConfigurationError` if Spark lacks a field's type."""
    from pyspark.sql.pandas.types import from_arrow_type

    return list(from_arrow_type(decoder.column.type).fields)
