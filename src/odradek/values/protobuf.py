"""Decodes Protobuf values by the package protobuf, with a message of a descriptor file.

    protoc --include_imports --descriptor_set_out=orders.desc orders.proto

    bool, string, bytes, float, double      the same        uint32, fixed32 → bigint     uint64, fixed64 → decimal(20,0)
    other integers → int, bigint            enum → its name as a string, or its number where it has none
    repeated, map → array, map              message → struct         google.protobuf.Timestamp → timestamp

A field with presence (`optional`, a message, one of a `oneof`) is null if it is not set; other fields have their
default. Fields that the descriptor does not have are ignored, as Protobuf demands.
"""

import datetime
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import Struct

from odradek.model import ConfigurationError, packages_of
from odradek.values.cursors import Column, Cursors, signed
from odradek.values.decoding import skip_framing, without_framing
from odradek.values.protobuf_columns import TIMESTAMP, message_column

_Reader = Callable[[Any], Any]
_LONGEST_INDEX: Final = 5
"""Bytes of a number in Confluent's framing."""
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ProtobufDecoder(Struct, frozen=True, kw_only=True):
    """Decodes messages of the full name `message`, by a descriptor file's content. `framing` is None or `confluent`."""

    descriptors: bytes
    message: str
    framing: str | None = None

    @property
    def column(self) -> Column:
        """The messages' column. Raise `ConfigurationError` if the message is missing or Spark lacks a field's type."""
        message = message_column(_compiled(self.descriptors, self.message)[1])

        def read(cursors: Cursors) -> pa.Array:
            skip_framing(cursors, self.framing)
            if self.framing is not None:
                _skip_index(cursors)
            return message.read(cursors)

        return Column(message.type, read)

    def __call__(self, value: bytes) -> dict[str, Any]:
        """Return the fields of one message. Raise `ValueError` if `value` is not such a message."""
        from google.protobuf.message import DecodeError

        kind, _, read = _compiled(self.descriptors, self.message)
        body = without_framing(value, self.framing)
        if self.framing is not None:
            body = _without_indexes(body)
        try:
            message = kind.FromString(body)
        except DecodeError:
            raise ValueError(f"the value is not a Protobuf message {self.message}") from None
        if not message.IsInitialized():
            raise ValueError(f"the value lacks a required field of {self.message}")
        found: dict[str, Any] = read(message)
        return found


@lru_cache(maxsize=16)
def _compiled(descriptors: bytes, name: str) -> tuple[Any, Any, _Reader]:
    """Return the class of a message, its descriptor, and a function from a message to its fields."""
    with packages_of("protobuf", "Protobuf values"):
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        from google.protobuf.message import DecodeError
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
        for file in files:
            pool.Add(file)
        descriptor = pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as error:
        raise ConfigurationError(
            "the descriptor file is wrong: make it by protoc --include_imports --descriptor_set_out=FILE "
            f"({type(error).__name__})"
        ) from None
    except KeyError:
        known = ", ".join(f"{file.package}.{each.name}".lstrip(".") for file in files for each in file.message_type)
        raise ConfigurationError(f"the descriptor file has no message {name}; there are {known or 'none'}") from None
    return message_factory.GetMessageClass(descriptor), descriptor, _reader(descriptor, {})


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _reader(descriptor: Any, known: dict[str, _Reader]) -> _Reader:
    """Return a function from a message to a dict of its fields. The descriptor is read here, not for each message.

    `known` has the functions of messages by name, also of those around this one.
    """
    fields: list[tuple[str, bool, _Reader]] = []

    def read(message: Any) -> dict[str, Any]:
        return {
            name: convert(getattr(message, name))
            for name, may_be_absent, convert in fields
            if not may_be_absent or message.HasField(name)
        }

    if descriptor.full_name not in known:
        known[descriptor.full_name] = read
        fields += [
            (field.name, field.has_presence and not field.is_repeated, _field_reader(field, known))
            for field in descriptor.fields
        ]
    return known[descriptor.full_name]


def _field_reader(field: Any, known: dict[str, _Reader]) -> _Reader:
    if _is_map(field):
        value_of = _single_reader(field.message_type.fields_by_name["value"], known)
        return lambda found: [(key, value_of(each)) for key, each in found.items()]
    one = _single_reader(field, known)
    return (lambda found: [one(each) for each in found]) if field.is_repeated else one


def _single_reader(field: Any, known: dict[str, _Reader]) -> _Reader:
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    if field.message_type is None:
        return lambda value: value
    if field.message_type.full_name != TIMESTAMP:
        return _reader(field.message_type, known)

    def moment(value: Any) -> datetime.datetime:
        try:
            return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        except OverflowError:
            raise ValueError(f"field {field.name} is not a moment between the years 1 and 9999") from None

    return moment


def _without_indexes(body: bytes) -> bytes:
    """Return a message without Confluent's message indexes before it: a count and that many indexes, zigzag varints."""
    count, at = _varint(body, 0)
    for _ in range(count):
        _, at = _varint(body, at)
    return body[at:]


def _skip_index(cursors: Cursors) -> None:
    """Move the cursors behind Confluent's message indexes; values with more than one are odd."""
    count = signed(cursors.varint(_LONGEST_INDEX))
    cursors.fail(np.flatnonzero((count < 0) | (count > 1)))
    indexed = np.flatnonzero(count == 1)
    part = cursors.among(indexed)
    part.varint(_LONGEST_INDEX)
    cursors.at[indexed] = part.at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, 7 * _LONGEST_INDEX, 7):
        if at >= len(body):
            break
        found |= (body[at] & 0x7F) << shift
        at += 1
        if not body[at - 1] & 0x80:
            # Zigzag.
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("the value does not have Confluent's list of message indexes")
