"""The error codes that a response has, found by its schema, for Kafka's metric `ErrorsPerSec`."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_schema_field_type,
)

from odradek.broker.counters import BrokerCounters
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.schemas import load_response_schema


class _Places(NamedTuple):
    """The error code fields of a struct: its own, and those of the structs within it, by field."""

    own: tuple[str, ...]
    inner: tuple[tuple[str, "_Places"], ...]


@cache
def _places(entity_type: Any) -> _Places:
    own, inner = [], []
    for field in fields(entity_type):
        kind = classify_field(field)
        if isinstance(kind, EntityField | EntityTupleField):
            places = _places(kind.type_)
            if places.own or places.inner:
                inner.append((field.name, places))
        elif get_schema_field_type(field) == "error_code":
            own.append(field.name)
    return _Places(tuple(own), tuple(inner))


def error_codes(api_key: int, version: int, message: Mapping[str, Any]) -> Iterator[int]:
    """Yield each error code in `message` that is not 0."""
    return _codes(_places(load_response_schema(api_key, version)), message)


def count_errors(counters: BrokerCounters, header: RequestHeader, message: Mapping[str, Any]) -> None:
    for code in error_codes(header.api_key, header.api_version, message):
        counters.erred(header.api_key, code)


def _codes(places: _Places, message: Mapping[str, Any]) -> Iterator[int]:
    for name in places.own:
        if code := message.get(name):
            yield int(code)
    for name, inner in places.inner:
        value = message.get(name) or ()
        for item in (value,) if isinstance(value, Mapping) else value:
            yield from _codes(inner, item)
