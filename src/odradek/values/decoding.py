"""Applies a decoder of single values to Arrow arrays, with a reason for each value that cannot be decoded.

    binary → struct(value struct(the fields), reason string)

`reason` is null for decoded and for null values; `value` is null unless one was decoded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from odradek.model import ConfigurationError

_CONFLUENT_BYTES: Final = 5
"""The length of Confluent's framing: a zero byte, and the schema's id in four bytes, which is not looked up."""


class Decoder(Protocol):
    """Decodes single values. Picklable: Spark sends it to its workers."""

    @property
    def fields(self) -> pa.StructType:
        """The fields of the values. Raise `ConfigurationError` if Spark has no type for one."""

    def __call__(self, value: bytes) -> Any:
        """Return the fields of one value. Raise `ValueError` with the reason, or `ConfigurationError`."""


def read_decoder(kind: str, path: str, message: str | None, framing: str | None) -> Decoder:
    """Return the decoder of a schema file: of `avro`, or of a `message` of `protobuf`. Raise `ConfigurationError`."""
    try:
        content = Path(path).read_bytes()
        if kind == "protobuf":
            from odradek.values.protobuf import ProtobufDecoder

            return ProtobufDecoder(descriptors=content, message=str(message), framing=framing)
        from odradek.values.avro import AvroDecoder

        return AvroDecoder(schema=content.decode("utf-8-sig"), framing=framing)
    except OSError as error:
        raise ConfigurationError(f"can't read the schema {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not an Avro schema: it is not UTF-8") from None


def decode_arrays(arrays: Iterator[pa.Array], decoder: Decoder) -> Iterator[pa.Array]:
    """Yield an array of structs (value, reason) for each array of bytes."""
    kind = _result_type(decoder.fields)
    for array in arrays:
        rows = [_decode(value, decoder) for value in array.to_pylist()]
        try:
            yield pa.array(rows, kind)
        except (pa.ArrowException, OverflowError):
            # Some number is out of the range of its type.
            yield pa.concat_arrays([_converted(row, kind) for row in rows])


def without_framing(value: bytes, framing: str | None) -> bytes:
    """Return a value without the prefix of `framing` (None: no prefix). Raise `ValueError` if the prefix is missing."""
    if framing is None:
        return value
    if len(value) < _CONFLUENT_BYTES or value[0] != 0:
        raise ValueError("the value does not begin with Confluent's zero byte and schema id")
    return value[_CONFLUENT_BYTES:]


def _result_type(fields: pa.StructType) -> pa.StructType:
    return pa.struct([("value", fields), ("reason", pa.string())])


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
