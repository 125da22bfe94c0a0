"""Every field of every request of every advertised version, with values at and beyond its limits and with false bytes.

Each case changes one place of a message of `test_versions`: by the schema (a number's limits, null, empty, very large)
or in the bytes (false lengths and counts, invalid UTF-8, truncated, too long). The broker answers or closes this
connection; another connection continues, and there is no unexpected exception.
"""

import random
import struct
import uuid
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

import pytest
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, get_schema_field_type

from conformance.interop.test_versions import TOPIC, requests
from odradek.broker.apis import APIS
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.headers import encode_request_header, request_is_flexible
from odradek.protocol.messages.message_codec import decode_request, encode_request
from odradek.protocol.messages.schemas import load_request_schema
from odradek.protocol.primitives import Meter
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

_WIDTHS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "timedelta_i32": 32}
_TEXTS: Final = (None, "", "x" * 32_767, "x" * 32_768, "\0", "ä/\U0001f600", TOPIC)
_BYTES: Final = (None, b"", b"\0", b"\xff" * 100, bytes(70_000))
GROUP: Final = "group"
_PLACES: Final = 12
"""Offsets of a body that are overwritten, of each version; the seed chooses."""
_LIES: Final = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xc3",
    b"\0\0",
)


def message_of(api: ApiKey) -> dict[str, Any]:
    """A message of which each version takes what it has."""
    message = requests(uuid.UUID(int=1))[api]
    return message | {name: GROUP for name in ("group_id", "key") if name in message}


def places(
    entity_type: Any, message: Any, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Where a value is in a message, and what else could be there."""
    for field in fields(entity_type):
        kind, here = classify_field(field), (*path, field.name)
        if field.name not in message:
            continue
        value = message[field.name]
        if kind.is_array:
            yield here, (None, [], *([value[:1] * 300] if value else ()))
        if isinstance(kind, EntityField | EntityTupleField):
            if kind.is_array and value:
                yield from places(kind.type_, value[0], (*here, 0))
            elif isinstance(value, dict):
                yield from places(kind.type_, value, here)
        elif not kind.is_array:
            yield here, limits(get_schema_field_type(field))


def limits(type_name: str) -> tuple[Any, ...]:
    """Values at the limits of a type, and those that mean something special."""
    if type_name in _WIDTHS:
        most = 1 << (_WIDTHS[type_name] - 1)
        return (most - 1, -most, -1, 0, 1)
    if type_name == "bool":
        return (True, False)
    if type_name == "uuid":
        return (None, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1))
    return _BYTES if type_name in ("bytes", "records") else _TEXTS if type_name == "string" else ()


def changed(message: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value in one place."""
    if not path:
        return value
    copy = list(message) if isinstance(message, list) else dict(message)
    copy[path[0]] = changed(message[path[0]], path[1:], value)
    return copy


def complete(entity_type: Any, message: dict[str, Any]) -> dict[str, Any]:
    """The content of `message` in this version; tagged fields may be missing."""
    result = {}
    for field in fields(entity_type):
        if field.name not in message:
            assert get_field_tag(field) is not None or field.default is not MISSING, field.name
            continue
        value, kind = message[field.name], classify_field(field)
        if isinstance(kind, EntityField | EntityTupleField) and value is not None:
            value = [complete(kind.type_, each) for each in value] if kind.is_array else complete(kind.type_, value)
        result[field.name] = value
    return result


def cases(api: ApiKey, version: int, message: dict[str, Any], chance: random.Random) -> Iterator[bytes]:
    """Bodies of requests, headers included, each wrong in one place or unusual."""
    schema = load_request_schema(api, version)
    whole = complete(schema, message)
    for path, values in places(schema, whole):
        for value in chance.sample(values, min(3, len(values))):
            try:
                yield encode_request(api, version, changed(whole, path, value))
            except (struct.error, TypeError, AttributeError, ValueError):
                continue  # values that cannot be encoded are covered by the changed bytes
    body = encode_request(api, version, whole)
    for _ in range(_PLACES):
        place, lie = chance.randrange(len(body) + 1), chance.choice(_LIES)
        yield body[:place] + lie + body[place + len(lie) :]
        yield body[:place] + lie + body[place:]
        yield body[:place]
    yield body + b"trailing"
    if request_is_flexible(api, version):
        yield body[:-1] + b"\x02\xe7\x07\x01x\xe7\x07\x01x"  # an unknown tag, twice
        yield body[:-1] + b"\xff\xff\xff\xff\x0f"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker of its own, since these requests create and change things."""
    options = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1",
        "offsets.topic.num.partitions": "1",
    }
    broker = ServedBroker(tmp_path_factory.mktemp("attacked") / "data", options=options)
    with broker:
        yield broker


@pytest.mark.parametrize("api", [api.key for api in APIS.values()], ids=lambda api: api.name)
def test_an_invalid_field_closes_its_own_connection_at_most(attacked: ServedBroker, seed: int, api: ApiKey) -> None:
    chance = random.Random(f"{seed}/{api.name}")
    servers = attacked.bootstrap_servers
    closed = tried = 0
    lines_before = _closed_lines(attacked.errors)
    with BlockingWireClient(servers) as neighbour:
        topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        neighbour.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 1000, "validate_only": False}, 5)
        message = message_of(api)
        served = APIS[api].served
        for version in sorted({served[0], chance.choice(served), served[-1]}):
            for number, body in enumerate(cases(api, version, message, chance)):
                # Each has its own group, so that none waits for members that others left behind.
                own = body.replace(GROUP.encode(), f"{number % 1000:03}{version:02}".encode())
                header = encode_request_header(api, version, 7, "raw")
                with BlockingWireClient(servers) as connection:
                    connection.send_raw(struct.pack(">i", len(header) + len(own)) + header + own)
                    connection.finish()
                    closed += connection.receive() is None
                tried += 1
            assert neighbour.ask(ApiKey.API_VERSIONS, {}, 0).api_keys, f"after version {version}"
    assert tried > 10
    assert "Traceback" not in attacked.errors.read_text()
    assert _closed_lines(attacked.errors) - lines_before <= closed


@pytest.mark.parametrize("api", [api.key for api in APIS.values() if api.key > ApiKey.FETCH], ids=lambda api: api.name)
def test_a_truncated_message_is_malformed(api: ApiKey) -> None:
    for version in APIS[api].served:
        schema = load_request_schema(api, version)
        body = encode_request(api, version, complete(schema, message_of(api)))
        assert decode_request(api, version, body) == decode_request(api, version, body, meter=Meter(len(body) - 1))
        for end in range(len(body)):
            with pytest.raises(MalformedMessageError):
                decode_request(api, version, body[:end])


def _closed_lines(errors: Path) -> int:
    return errors.read_text().count(" odradek.wire: closing ")
