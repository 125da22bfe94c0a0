"""The widest requests of every API: for each of its arrays, one request in which this array has very many items."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final
from uuid import UUID

from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_schema_field_type, is_optional

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.schemas import load_request_schema

TOPIC: Final = "name"
"""The value of strings outside of the wide array."""
_ZERO: Final = {"bool": False, "bytes": b"", "records": b"", "float64": 1.0}
_FIXED: Final = {
    "transactional_id": "id",
    "replica_id": -1,
    "replica_state": {"replica_id": -1, "replica_epoch": -1},
    "acks": 1,
    "max_wait": 0,
    "session_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "group_id": "g",
    "member_id": "",
    "group_instance_id": None,
    "key_type": 0,
    "cursor": None,
    "response_partition_limit": 2000,
    "timeout": 1000,
    "timeout_ms": 1000,
    "resource_type": 2,
    "resource_pattern_type": 3,
    "pattern_type": 3,
    "pattern_type_filter": 1,
    "resource_type_filter": 2,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:alice",
    "entity_type": "user",
    "timestamp": -1,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 2,
}


def wide_requests(api: ApiKey, version: int, entries: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `(path of an array, message)`; in each message this array has `entries` items, other arrays at most one."""
    entity_type = load_request_schema(api, version)
    for path in _paths(entity_type, ()):
        yield ".".join(path), _struct(entity_type, path, entries, 0)


def _paths(entity_type: Any, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for field in fields(entity_type):
        kind = classify_field(field)
        path = (*before, field.name)
        if kind.is_array:
            yield path
        if isinstance(kind, EntityField | EntityTupleField):
            yield from _paths(kind.type_, path)


def _struct(entity_type: Any, path: tuple[str, ...], entries: int, number: int) -> dict[str, Any]:
    return {field.name: _value(field, path, entries, number) for field in fields(entity_type)}


def _value(field: Any, path: tuple[str, ...], entries: int, number: int) -> Any:
    kind = classify_field(field)
    is_on_path = path[:1] == (field.name,)
    rest = path[1:] if is_on_path else ()
    if kind.is_array:
        count = (
            entries
            if is_on_path and not rest
            else 1
            if is_on_path
            else int(isinstance(kind, EntityTupleField) and not is_optional(field))
        )
        if isinstance(kind, EntityTupleField):
            return [_struct(kind.type_, rest, entries, each) for each in range(count)]
        return [_primitive(get_schema_field_type(field), each) for each in range(count)]
    if isinstance(kind, EntityField):
        if is_on_path:
            return _struct(kind.type_, rest, entries, number)
        return (
            _FIXED.get(field.name)
            if is_optional(field) or field.name in _FIXED
            else _struct(kind.type_, (), entries, number)
        )
    if field.name in _FIXED:
        return _FIXED[field.name]
    return _primitive(get_schema_field_type(field), number)


def _primitive(type_name: str, number: int) -> Any:
    if type_name == "string":
        return f"{TOPIC}{number}" if number else TOPIC
    if type_name == "uuid":
        return UUID(int=number + 1)
    if type_name in _ZERO:
        return _ZERO[type_name]
    if type_name.startswith(("int", "uint")):
        return number % (128 if type_name in ("int8", "uint8") else 32768)
    if type_name == "error_code":
        return 0
    return 0
