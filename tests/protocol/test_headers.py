"""Request and response headers, against kio's."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from odradek.protocol.messages.schemas import load_request_schema, load_response_schema

VERSIONS = [(api, version) for api in ApiKey for version in schema_versions(api)]


@pytest.mark.parametrize("client_id", [None, "", "clïent"])
def test_request_headers_are_those_of_kio(client_id):
    for api, version in VERSIONS:
        schema = load_request_schema(api, version).__header_schema__
        entity = schema(request_api_key=api, request_api_version=version, correlation_id=-7, client_id=client_id)
        stream = io.BytesIO()
        entity_writer(schema)(stream, entity)
        encoded = encode_request_header(api, version, -7, client_id)
        assert encoded == stream.getvalue(), (api, version)
        assert decode_request_header(encoded + b"body") == (api, version, -7, client_id, len(encoded), b"")


def test_response_headers_are_those_of_kio():
    for api, version in VERSIONS:
        schema = load_response_schema(api, version).__header_schema__
        encoded = encode_response_header(api, version, 12)
        assert entity_reader(schema)(encoded, 0) == (schema(correlation_id=12), len(encoded))
        assert decode_response_header(api, version, encoded + b"body") == (12, len(encoded))


def test_tags_in_a_header_are_skipped():
    header = encode_request_header(ApiKey.HEARTBEAT, 4, 1, "c")[:-1] + b"\x02\x05\x03abc\x90\x01\x00"
    assert decode_request_header(header).body_offset == len(header)
    assert decode_response_header(ApiKey.HEARTBEAT, 4, b"\x00\x00\x00\x09\x01\x05\x01a") == (9, 8)


def test_a_proof_is_read_in_versions_with_tags():
    header = encode_request_header(ApiKey.HEARTBEAT, 4, 1, "c", b"sixteen bytes, !")
    assert decode_request_header(header + b"body")[-2:] == (len(header), b"sixteen bytes, !")
    older = encode_request_header(ApiKey.HEARTBEAT, 3, 1, "c", b"sixteen bytes, !")
    assert older == encode_request_header(ApiKey.HEARTBEAT, 3, 1, "c")


def test_a_header_of_many_tags_is_malformed_before_they_are_read():
    header = encode_request_header(ApiKey.HEARTBEAT, 4, 1, "c")[:-1] + b"\xff\xff\x03" + b"\x05\x00" * 65_535
    with pytest.raises(MalformedMessageError, match="more than 64 entries"):
        decode_request_header(header)


def test_the_header_of_an_unknown_api_is_decoded():
    assert decode_request_header(b"\x03\xe7\x00\x01\x00\x00\x00\x02\x00\x01c") == (999, 1, 2, "c", 11, b"")


@given(data=st.binary(max_size=40), api=st.sampled_from(ApiKey))
def test_random_bytes_are_a_header_or_malformed(data, api):
    frame = int(api).to_bytes(2, "big") + data
    try:
        header = decode_request_header(frame)
    except MalformedMessageError:
        return
    assert 10 <= header.body_offset <= len(frame)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x00\x12", b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x05abc", b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x01\xff"],
)
def test_a_truncated_header_is_malformed(frame):
    with pytest.raises(MalformedMessageError):
        decode_request_header(frame)


@pytest.mark.parametrize("frame", [b"", b"\x00\x12\x00", b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x05"])
def test_the_error_of_a_truncated_header_names_the_missing_field(frame):
    with pytest.raises(MalformedMessageError, match=r"^malformed request header: it ends too early$"):
        decode_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01\x01\x05\x7fab"])
def test_a_truncated_response_header_is_malformed(frame):
    with pytest.raises(MalformedMessageError):
        decode_response_header(ApiKey.HEARTBEAT, 4, frame)
