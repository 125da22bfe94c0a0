"""Targets: requests and responses of every API and version, and the codecs of Produce and Fetch beside them.

An input is three bytes, which say what it is of, and a body.
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from kio.serial import entity_reader
from kio.serial.errors import OutOfBoundValue

from conformance.fuzz.client_requests import distinct_requests
from conformance.fuzz.fuzz_engine import Target
from conformance.fuzz.schema_samples import change, items_in, plain, sample
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages import fetch, produce
from odradek.protocol.messages.message_codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from odradek.protocol.messages.schemas import load_request_schema, load_response_schema
from odradek.protocol.primitives import DECODE_ERRORS

_LOAD = (load_request_schema, load_response_schema)
_ENCODE = (encode_request, encode_response)
_DECODE = (decode_request, decode_response)
_APIS = [api for api in ApiKey if schema_versions(api)]
_HOT = ((ApiKey.PRODUCE, 0), (ApiKey.PRODUCE, 1), (ApiKey.FETCH, 1))
_HEAD = 3
_LIES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80",
    b"\x00\x00\x00\x01",
)


@cache
def _reader(api: int, version: int, half: int) -> Any:
    return entity_reader(_LOAD[half](api, version))


def _what(data: bytes) -> tuple[int, int, int]:
    """The API, the version and the half (0 request, 1 response) that an input is of."""
    api = _APIS[data[0] % len(_APIS)]
    versions = schema_versions(api)
    return api, versions[data[1] % len(versions)], data[2] & 1


def check_message(data: bytes) -> None:
    """Bytes are refused, or are a message that we write, and that we and kio then read, the same."""
    if len(data) < _HEAD:
        return
    api, version, half = _what(data)
    try:
        entity = _DECODE[half](api, version, data, _HEAD)
    except MalformedMessageError:
        return
    message = plain(entity)
    assert items_in(message) <= len(data), "more items than bytes"
    encoded = _ENCODE[half](api, version, message)
    again = _DECODE[half](api, version, encoded)
    assert repr(again) == repr(entity)
    # These bytes are of the schema, so that kio's native reader is safe with them. It computes times
    # as floats, and has none before 1970 and none that Python has not.
    try:
        theirs, _ = _reader(api, version, half)(encoded, 0)
    except (OutOfBoundValue, OverflowError, ValueError):
        return
    assert repr(plain(theirs, "{:.6g}")) == repr(plain(entity, "{:.6g}"))


def message_seeds() -> Iterator[bytes]:
    """A message of each API, in its first and its last version, both halves, and requests of existing clients."""
    for header, frame in distinct_requests():
        place, known = _APIS.index(ApiKey(header.api_key)), list(schema_versions(header.api_key))
        if header.api_version in known:
            yield bytes([place, known.index(header.api_version), 0]) + frame[header.body_offset :]
    for place, api in enumerate(_APIS):
        versions = schema_versions(api)
        for number in {0, len(versions) - 1}:
            for half in (0, 1):
                chance = random.Random(f"{api} {number} {half}")
                message, _ = sample(_LOAD[half](api, versions[number]), chance)
                yield bytes([place, number, half]) + _ENCODE[half](api, versions[number], message)


def mutate_message(data: bytes, chance: random.Random) -> bytes | None:
    """Change a field, a length in the bytes, the version, or take another message."""
    if len(data) < _HEAD or chance.random() < 0.1:
        data = bytes([chance.randrange(256), chance.randrange(256), chance.randrange(2)])
        message, _ = sample(_LOAD[data[2]](*_what(data)[:2]), chance)
        return data + _ENCODE[data[2]](*_what(data)[:2], message)
    return data[:_HEAD] + mutate_body(*_what(data), data[_HEAD:], chance)


def mutate_body(api: int, version: int, half: int, body: bytes, chance: random.Random) -> bytes:
    """Change a field of a request (half 0) or a response (1), or put a length that lies into its bytes."""
    if chance.random() < 0.3 and body:
        lie, start = chance.choice(_LIES), chance.randrange(len(body))
        return body[:start] + lie + body[start + len(lie) * chance.randrange(2) :]
    try:
        message = plain(_DECODE[half](api, version, body))
    except MalformedMessageError:
        message, _ = sample(_LOAD[half](api, version), chance)
    for _ in range(chance.choice((1, 1, 2, 5))):
        change(message, chance)
    try:
        return _ENCODE[half](api, version, message)
    except (*DECODE_ERRORS, KeyError, TypeError, AttributeError, OverflowError):
        return body  # the change was one that nobody can write


# ---- the codecs by hand ---------------------------------------------------------------------------------------------


def _hot_what(data: bytes) -> tuple[int, int, int]:
    api, half = _HOT[data[0] % len(_HOT)]
    versions = fetch.VERSIONS if api == ApiKey.FETCH else produce.VERSIONS
    return api, versions[data[1] % len(versions)], half


def check_produce_and_fetch(data: bytes) -> None:
    """Check that the hand-written codecs accept, refuse and decode the same bytes as those compiled from the schema."""
    if len(data) < _HEAD:
        return
    api, version, half = _hot_what(data)
    try:
        entity = _DECODE[half](api, version, data, _HEAD)
    except MalformedMessageError:
        entity = None
    try:
        body = _hot_body(api, half, version, data, _HEAD)
    except MalformedMessageError:
        assert entity is None, "refused, though it is of the schema"
        return
    assert entity is not None, "taken, though it is not of the schema"
    assert repr(_DECODE[half](api, version, body)) == repr(entity)


def _hot_body(api: int, half: int, version: int, data: bytes, offset: int) -> bytes:
    """Decoded by hand and encoded by hand."""
    if api == ApiKey.FETCH:
        fetched = fetch.decode_fetch_response(version, data, offset)
        return b"".join(
            fetch.encode_fetch_response(
                version,
                fetched.topics,
                throttle_time_ms=fetched.throttle_time_ms,
                error_code=fetched.error_code,
                session_id=fetched.session_id,
                node_endpoints=fetched.node_endpoints,
            )
        )
    if half:
        answer = produce.decode_produce_response(version, data, offset)
        return produce.encode_produce_response(
            version, answer.topics, throttle_time_ms=answer.throttle_time_ms, node_endpoints=answer.node_endpoints
        )
    request = produce.decode_produce_request(version, data, offset)
    return b"".join(
        produce.encode_produce_request(
            version,
            [produce.ProduceTopic(*topic) for topic in request.topics],
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            transactional_id=request.transactional_id,
        )
    )


def hot_seeds() -> Iterator[bytes]:
    """Two messages of each kind in each version, and requests of existing clients."""
    for header, frame in distinct_requests():
        if header.api_key == ApiKey.PRODUCE:
            yield bytes([0, list(produce.VERSIONS).index(header.api_version), 0]) + frame[header.body_offset :]
    for kind, (api, half) in enumerate(_HOT):
        for number, version in enumerate(fetch.VERSIONS if api == ApiKey.FETCH else produce.VERSIONS):
            for turn in range(2):
                message, _ = sample(_LOAD[half](api, version), random.Random(f"{api} {version} {half} {turn}"))
                yield bytes([kind, number, 0]) + _ENCODE[half](api, version, message)


def mutate_hot(data: bytes, chance: random.Random) -> bytes | None:
    """As `mutate_message`."""
    if len(data) < _HEAD:
        return None
    return data[:_HEAD] + mutate_body(*_hot_what(data), data[_HEAD:], chance)


TARGETS = {
    "messages": Target(
        check=check_message,
        seeds=message_seeds,
        mutate=mutate_message,
        reaches={"odradek.protocol.primitives": 0.6},
        runs=1000,
        longest=4096,
    ),
    "produce_and_fetch": Target(
        check=check_produce_and_fetch,
        seeds=hot_seeds,
        mutate=mutate_hot,
        reaches={
            "odradek.protocol.messages.produce": 0.95,
            "odradek.protocol.messages.fetch": 0.95,
            "odradek.protocol.primitives": 0.8,
        },
        longest=4096,
    ),
}
