"""Messages out of kio's schemas: random ones, changed ones, and a decoded one as the plain dict that encoders take."""

import datetime
import random
import uuid
from dataclasses import MISSING, fields
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_EDGES = (0, 1, -1, 2, 127, 128, 255, 2**15 - 1, -(2**15), 2**16, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


def sample(entity_type: Any, chance: random.Random) -> tuple[dict[str, Any], Any]:
    """A random message as our dict and as kio's entity."""
    message, arguments = {}, {}
    for field in fields(entity_type):
        if get_field_tag(field) is not None and field.default is not MISSING and chance.random() < 0.4:
            continue
        message[field.name], arguments[field.name] = _sample_field(field, chance)
    return message, entity_type(**arguments)


def _sample_field(field: Any, chance: random.Random) -> tuple[Any, Any]:
    kind = classify_field(field)
    nullable = is_optional(field) and get_field_tag(field) is None
    if isinstance(kind, EntityField | EntityTupleField):
        if nullable and chance.random() < 0.3:
            return None, None
        if not kind.is_array:
            return sample(kind.type_, chance)
        pairs = [sample(kind.type_, chance) for _ in range(chance.randrange(3))]
        return [plain for plain, _ in pairs], tuple(value for _, value in pairs)
    type_name = get_schema_field_type(field)
    if kind.is_array:
        # Of uuids, kio marks the items as nullable, since zeros are None to it; the array is not.
        if nullable and type_name != "uuid" and chance.random() < 0.3:
            return None, None
        pairs = [_sample_primitive(type_name, chance) for _ in range(chance.randrange(4))]
        return [plain for plain, _ in pairs], tuple(value for _, value in pairs)
    if nullable and chance.random() < 0.3:
        return None, None
    return _sample_primitive(type_name, chance)


def _sample_primitive(type_name: str, chance: random.Random) -> tuple[Any, Any]:
    if type_name in WIDTHS:
        number = chance.randrange(-(2 ** (WIDTHS[type_name] - 1)), 2 ** (WIDTHS[type_name] - 1))
        return number, number
    if type_name.startswith("uint"):
        number = chance.randrange(2 ** int(type_name[4:]))
        return number, number
    if type_name == "bool":
        return (flag := chance.random() < 0.5), flag
    if type_name == "float64":
        return (share := chance.random()), share
    if type_name == "string":
        return (text := "é" * chance.choice([0, 1, 3, 70]) + "name"), text
    if type_name in ("bytes", "records"):
        return (data := chance.randbytes(chance.choice([0, 1, 200]))), data
    if type_name == "uuid":
        return (value := uuid.UUID(int=chance.getrandbits(128) | 1)), value
    if type_name == "error_code":
        return int(code := chance.choice(list(KioErrorCode))), code
    if type_name.startswith("timedelta"):
        return (ms := chance.randrange(2**31)), datetime.timedelta(milliseconds=ms)
    assert type_name == "datetime_i64"
    return (ms := chance.randrange(2**40)), _EPOCH + datetime.timedelta(milliseconds=ms)


@cache
def _names(entity_type: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(entity_type))


def plain(value: Any, times: str | None = None) -> Any:
    """An entity, or a value in one, as an encoder takes it; with a format for seconds, times are texts instead."""
    if hasattr(value, "__flexible__"):
        kind: Any = type(value)
        return {name: plain(getattr(value, name), times) for name in _names(kind)}
    if isinstance(value, tuple):
        return [plain(each, times) for each in value]
    if isinstance(value, datetime.datetime):
        value -= _EPOCH
    if isinstance(value, datetime.timedelta):
        return value // _MILLISECOND if times is None else times.format(value.total_seconds())
    return int(value) if isinstance(value, KioErrorCode) else value


def items_in(message: Any) -> int:
    """How many things in lists there are, at any depth of a plain message."""
    if isinstance(message, dict):
        return sum(map(items_in, message.values()))
    return len(message) + sum(map(items_in, message)) if isinstance(message, list) else 0


def change(message: dict[str, Any], chance: random.Random) -> None:
    """Change one value somewhere in a plain message: to a limit, to nothing, to another's, or to more of the same."""
    places: list[tuple[Any, Any]] = []

    def collect(holder: Any, keys: Any) -> None:
        for key in keys:
            places.append((holder, key))
            value = holder[key]
            if isinstance(value, dict):
                collect(value, list(value))
            elif isinstance(value, list):
                collect(value, range(len(value)))

    collect(message, list(message))
    if places:
        holder, key = chance.choice(places)
        holder[key] = _changed(holder[key], chance)


def _changed(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice(_EDGES) if chance.random() < 0.7 else value ^ 1 << chance.randrange(31)
    if isinstance(value, str):
        return chance.choice(["", "a", "\x00", "é" * 100, "x" * 300, value + value, value[:-1]])
    if isinstance(value, bytes):
        return chance.choice([b"", value[:-1], value + value, chance.randbytes(20)])
    if isinstance(value, list):
        if value and chance.random() < 0.6:
            return value + [chance.choice(value)] * chance.choice([1, 2, 20])
        return chance.choice([[], None, value[1:]])
    if isinstance(value, uuid.UUID):
        return chance.choice([None, uuid.UUID(int=1)])
    return value if isinstance(value, float) else None
