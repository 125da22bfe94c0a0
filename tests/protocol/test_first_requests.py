"""Requests for which a connection is held until they are decoded: malformed ones, and those of newer versions."""

import subprocess
import sys
import uuid

import pytest

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.message_codec import decode_request, encode_request
from odradek.protocol.primitives import Meter

METADATA = schema_versions(ApiKey.METADATA)
UNKNOWN_TAG = b"\x01\x07\x02ab"


@pytest.mark.parametrize("version", METADATA)
def test_a_metadata_request_that_ends_early_is_malformed(version):
    topic = {"name": "flights", "topic_id": uuid.UUID(int=9)}
    body = encode_request(ApiKey.METADATA, version, _metadata([topic]))
    assert decode_request(ApiKey.METADATA, version, body)
    for end in range(len(body)):
        with pytest.raises(MalformedMessageError):
            decode_request(ApiKey.METADATA, version, body[:end])


def test_a_metadata_request_of_too_many_topics_is_refused_before_they_are_read():
    body = encode_request(ApiKey.METADATA, 1, _metadata([{"name": "a"}] * 5))
    assert decode_request(ApiKey.METADATA, 1, body, meter=Meter(5))
    for too_many, most in ((body, 4), (b"\x7f\xff\xff\xff", 5)):
        with pytest.raises(MalformedMessageError):
            decode_request(ApiKey.METADATA, 1, too_many, meter=Meter(most))


def test_a_null_list_or_name_is_malformed_in_versions_without_it():
    for version, body in ((0, b"\xff\xff\xff\xff"), (1, b"\x00\x00\x00\x01\xff\xff"), (9, b"\x02\x00\x00\x00\x00\x00")):
        with pytest.raises(MalformedMessageError):
            decode_request(ApiKey.METADATA, version, body)


def test_unknown_tagged_fields_are_skipped_and_counted():
    metadata = encode_request(ApiKey.METADATA, 13, _metadata([]))[:-1] + UNKNOWN_TAG
    assert decode_request(ApiKey.METADATA, 13, metadata, meter=Meter(1)).topics == ()
    software = encode_request(ApiKey.API_VERSIONS, 4, _software("a", "1"))[:-1] + UNKNOWN_TAG
    assert decode_request(ApiKey.API_VERSIONS, 4, software, meter=Meter(1)).client_software_name == "a"
    for api, version, body in ((ApiKey.METADATA, 13, metadata), (ApiKey.API_VERSIONS, 4, software)):
        with pytest.raises(MalformedMessageError):
            decode_request(api, version, body, meter=Meter(0))


def test_an_api_versions_request_of_version_5_names_the_broker_that_it_means():
    body = encode_request(ApiKey.API_VERSIONS, 4, _software("a", "1"))[:-1]
    for target, expected in ((b"\x03c1\x00\x00\x00\x07\x00", ("c1", 7)), (b"\x00\xff\xff\xff\xff\x00", (None, -1))):
        request = decode_request(ApiKey.API_VERSIONS, 5, body + target)
        assert (request.cluster_id, request.node_id) == expected
        for end in range(len(target)):
            with pytest.raises(MalformedMessageError):
                decode_request(ApiKey.API_VERSIONS, 5, body + target[:end])


def test_importing_a_broker_does_not_import_the_codec_compiler():
    code = "import sys, odradek.broker.lifecycle; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(said.stdout.split())
    assert "odradek.protocol.messages.message_codec" in modules
    assert not modules & {"kio.serial", "odradek.protocol.messages.encoder", "odradek.protocol.messages.decoder"}


def _metadata(topics: list[dict[str, object]]) -> dict[str, object]:
    return {
        "topics": topics,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": True,
    }


def _software(name: str, version: str) -> dict[str, str]:
    return {"client_software_name": name, "client_software_version": version}
