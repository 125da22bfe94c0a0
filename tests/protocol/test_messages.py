"""Every version of every API's request and response, encoded here and by kio, decoded by kio."""

import datetime
import io
import random
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.serial._introspect import get_field_tag

from conformance.fuzz.schema_samples import sample
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.headers import request_is_flexible
from odradek.protocol.messages.message_codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    milliseconds,
    optional,
)
from odradek.protocol.messages.schemas import load_request_schema, load_response_schema

APIS = [api for api in ApiKey if schema_versions(api)]
HALVES = {
    "request": (load_request_schema, encode_request, decode_request),
    "response": (load_response_schema, encode_response, decode_response),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name.lower())
def test_messages_of_every_version_are_those_of_kio(api, half):
    load, encode, decode = HALVES[half]
    chance = random.Random(f"{api} {half}")
    for version in schema_versions(api):
        entity_type = load(api, version)
        write = entity_writer(entity_type)
        for _ in range(4):
            message, entity = sample(entity_type, chance)
            stream = io.BytesIO()
            write(stream, entity)
            encoded = encode(api, version, message)
            assert encoded == stream.getvalue(), f"version {version} of {message}"
            assert decode(api, version, b"head" + encoded, 4) == entity


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name.lower())
def test_tagged_fields_of_a_later_version_are_skipped(api, half):
    load, encode, decode = HALVES[half]
    chance = random.Random(1)
    for version in schema_versions(api):
        entity_type = load(api, version)
        if not entity_type.__flexible__:
            continue
        tagged = {field.name for field in fields(entity_type) if get_field_tag(field) is not None}
        message, _ = sample(entity_type, chance)
        encoded = encode(api, version, {key: value for key, value in message.items() if key not in tagged})
        assert encoded[-1] == 0
        later = encoded[:-1] + b"\x02\xb0\x01\x03abc\xb1\x01\x00"
        assert decode(api, version, later) == decode(api, version, encoded)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name.lower())
def test_changed_bytes_give_a_message_or_a_kafka_error(api, half):
    load, encode, decode = HALVES[half]
    chance = random.Random(f"{api} {half} lies")
    refused = 0
    for version in (schema_versions(api)[0], schema_versions(api)[-1]):
        encoded = encode(api, version, sample(load(api, version), chance)[0])
        lies = [encoded[:cut] for cut in range(0, len(encoded), max(len(encoded) // 20, 1))]
        for _ in range(40 if encoded else 0):
            lie = bytearray(encoded)
            start = chance.randrange(len(lie))
            lie[start : start + 4] = chance.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80"])
            lies.append(bytes(lie))
        for lie in lies:
            try:
                decode(api, version, lie)
            except KafkaError as error:
                refused += 1
                assert error.code == ErrorCode.invalid_request  # noqa: PT017
    assert refused or not encoded


@given(data=st.binary(max_size=80), api=st.sampled_from(APIS))
def test_random_bytes_give_a_message_or_a_kafka_error(data, api):
    version = schema_versions(api)[-1]
    try:
        decoded = decode_request(api, version, data)
    except MalformedMessageError:
        return
    assert type(decoded) is load_request_schema(api, version)


def test_one_dict_serves_every_version_and_absent_fields_take_their_defaults():
    message = {"brokers": [{"node_id": 1, "host": "a", "port": 2}], "topics": [], "cluster_id": "c", "controller_id": 1}
    for version in schema_versions(ApiKey.METADATA):
        decoded = decode_response(ApiKey.METADATA, version, encode_response(ApiKey.METADATA, version, message))
        assert decoded.brokers[0].port == 2
        assert milliseconds(optional(decoded, "throttle_time", datetime.timedelta())) == 0
        assert optional(decoded, "cluster_id", "absent") == ("c" if version >= 2 else "absent")


@pytest.mark.parametrize(
    ("number", "name"), [(134, "group_deletion_failed"), (136, "controller_id_not_registered"), (30_000, None)]
)
def test_an_unlisted_error_code_is_unknown_server_error(number: int, name: str | None) -> None:
    answer = encode_response(ApiKey.HEARTBEAT, 4, {"error_code": number})
    code = decode_response(ApiKey.HEARTBEAT, 4, answer).error_code
    assert code is (ErrorCode.unknown_server_error if name is None else ErrorCode[name])
    assert not code.retriable


@pytest.mark.parametrize(
    ("value", "error"),
    [({"port": 2**31}, "format requires"), ({"port": None}, "required argument"), ({}, "port")],
)
def test_a_value_that_does_not_fit_raises_an_error_of_the_caller(value, error):
    broker = {"node_id": 1, "host": "a", **value}
    message = {"brokers": [broker], "topics": [], "controller_id": 1}
    with pytest.raises((KeyError, Exception), match=error):
        encode_response(ApiKey.METADATA, 1, message)


def test_every_api_has_its_versions_without_a_gap():
    assert list(schema_versions(ApiKey.PRODUCE)) == list(range(3, 14))
    assert list(schema_versions(ApiKey.FETCH)) == list(range(4, 19))
    assert list(schema_versions(999)) == []
    assert not request_is_flexible(999, 0)
