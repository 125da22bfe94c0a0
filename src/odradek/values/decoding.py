"""Decodes Arrow arrays of values, a field at a time; odd values one by one, with a reason if they cannot be decoded.

    binary → struct(value struct(the fields), reason string)

`reason` is null for decoded and for null values; `value` is null unless one was decoded.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from odradek.model import ConfigurationError
from odradek.values.cursors import FEWEST, Column, Cursors

_CONFLUENT_BYTES: Final = 5
"""The length of Confluent's framing: a zero byte, and the schema's id in four bytes, which is not looked up."""


class Decoder(Protocol):
    """Decodes values. Picklable: Spark sends it to its workers."""

    @property
    def column(self) -> Column:
        """The values as a column of structs. Raise `ConfigurationError` if Spark has no type for a field.

        It returns for each value that is not odd what `__call__` does.
        """

    def __call__(self, value: bytes) -> Any:
        """Return the fields of one value. Raise `ValueError` with the reason, or `ConfigurationError`."""


def make_decoder(kind: str, schema: str, message: str | None, framing: str | None) -> Decoder:
    """Return the decoder of a schema as `read_schema` returns it: of `avro`, or of a `message` of `protobuf`.

    Raise `ConfigurationError` if it is not base64.
    """
    if kind == "avro":
        from odradek.values.avro import AvroDecoder

        return AvroDecoder(schema=schema, framing=framing)
    from odradek.values.protobuf import ProtobufDecoder

    try:
        descriptors = base64.b64decode(schema, validate=True)
    except ValueError as error:
        raise ConfigurationError(f"the descriptor file is not in base64: {error}") from None
    return ProtobufDecoder(descriptors=descriptors, message=str(message), framing=framing)


def read_schema(kind: str, path: str) -> str:
    """Return a schema file's text, in base64 for `protobuf`. Raise `ConfigurationError`."""
    try:
        content = Path(path).read_bytes()
        return content.decode("utf-8-sig") if kind == "avro" else base64.b64encode(content).decode()
    except OSError as error:
        raise ConfigurationError(f"can't read the schema {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not an Avro schema: it is not UTF-8") from None


def decode_arrays(arrays: Iterator[pa.Array], decoder: Decoder) -> Iterator[pa.Array]:
    """Yield an array of structs (value, reason) for each array of bytes."""
    column = decoder.column
    kind = pa.struct([("value", column.type), ("reason", pa.string())])
    for array in arrays:
        yield _by_rows(array, decoder, kind) if len(array) < FEWEST else _by_columns(array, decoder, column, kind)


def _by_columns(array: pa.Array, decoder: Decoder, column: Column, kind: pa.StructType) -> pa.Array:
    cursors = Cursors.of(array)
    columns = [column.read(cursors), pa.nulls(len(array), pa.string())]
    found = pa.StructArray.from_arrays(columns, fields=list(kind))
    odd = np.flatnonzero(cursors.is_odd)
    if not odd.size:
        return found
    places = np.arange(len(array))
    places[odd] = len(array) + np.arange(len(odd))
    return pa.concat_arrays([found, _by_rows(array.take(pa.array(odd)), decoder, kind)]).take(pa.array(places))


def _by_rows(array: pa.Array, decoder: Decoder, kind: pa.StructType) -> pa.Array:
    rows = [_decode(value, decoder) for value in array.to_pylist()]
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, OverflowError):
        # Some number is out of the range of its type.
        return pa.concat_arrays([_converted(row, kind) for row in rows])


def without_framing(value: bytes, framing: str | None) -> bytes:
    """Return a value without the prefix of `framing` (None: no prefix). Raise `ValueError` if the prefix is missing."""
    if framing is None:
        return value
    if len(value) < _CONFLUENT_BYTES or value[0] != 0:
        raise ValueError("the value does not begin with Confluent's zero byte and schema id")
    return value[_CONFLUENT_BYTES:]


def skip_framing(cursors: Cursors, framing: str | None) -> None:
    """Move the cursors behind the prefix of `framing`; values without it are odd."""
    if framing is not None:
        cursors.fail(np.flatnonzero(cursors.fixed("u1") != 0))
        cursors.span(np.full(len(cursors), _CONFLUENT_BYTES - 1))


def _decode(value: bytes | None, decoder: Decoder) -> dict[str, Any]:
    if value is None:
        return {}
    try:
        return {"value": decoder(value)}
    except ValueError as error:
        return {"reason": str(error)}


def _converted(row: dict[str, Any], kind: pa.StructType) -> pa.Array:
    try:
        return pa.array([row], kind)
    except (pa.ArrowException, OverflowError):
        return pa.array([{"reason": _misfit(row["value"], kind.field("value").type)}], kind)


def _misfit(value: dict[str, Any], fields: pa.StructType) -> str:
    """Return which field has a value that its type cannot hold."""
    for field in fields:
        try:
            pa.array([value.get(field.name)], field.type)
        except (pa.ArrowException, OverflowError) as error:
            return f"field {field.name} is not {field.type}: {error}"
    return "the value has a number that its type cannot hold"
