"""Error codes in answers, by the answer's schema: those that an answer has (Kafka's `ErrorsPerSec`), error answers."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NamedTuple

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)

from odradek.model import KafkaError
from odradek.protocol.messages.schemas import load_response_schema


class _Places(NamedTuple):
    """The fields of a struct with error codes: its own, and those of structs within it."""

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
    """Yield each error code in `message`, looking only at fields that the schema has for codes."""
    return _codes(_places(load_response_schema(api_key, version)), message)


def _codes(places: _Places, message: Mapping[str, Any]) -> Iterator[int]:
    for name in places.own:
        if code := message.get(name):
            yield int(code)
    for name, inner in places.inner:
        value = message.get(name) or ()
        for item in (value,) if isinstance(value, Mapping) else value:
            yield from _codes(inner, item)


def error_answer(api_key: int, version: int, error: KafkaError) -> dict[str, Any]:
    """Return an answer that has only the error: lists are empty, strings empty or null, numbers -1."""
    return {**_empty_answer(api_key, version), "error_code": error.code, "error_message": str(error)}


@cache
def _empty_answer(api_key: int, version: int) -> Mapping[str, Any]:
    empty: dict[str, Any] = {}
    for field in fields(load_response_schema(api_key, version)):
        if field.default is not MISSING or field.name in {"error_code", "throttle_time"}:
            continue  # the encoder has a value
        if isinstance(classify_field(field), EntityTupleField | PrimitiveTupleField):
            empty[field.name] = []
        elif is_optional(field):
            empty[field.name] = None
        else:
            kind = get_schema_field_type(field)
            empty[field.name] = {"string": "", "bytes": b"", "bool": False}.get(kind, -1)
    return empty
