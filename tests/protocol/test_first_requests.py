"""ApiVersions and Metadata by hand, against the schemas' own encoders and decoders, in every version."""

import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.api_versions import decode_api_versions_request, encode_api_versions_response
from odradek.protocol.messages.message_codec import decode_request, encode_request, encode_response, optional
from odradek.protocol.messages.metadata import decode_metadata_request, encode_metadata_response
from odradek.protocol.primitives import Meter

pytestmark = pytest.mark.long

METADATA = schema_versions(ApiKey.METADATA)
API_VERSIONS = schema_versions(ApiKey.API_VERSIONS)
UNKNOWN_TAG = b"\x01\x07\x02ab"

int16, int32 = st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1)
texts, ids = st.text(max_size=40), st.uuids()
nodes = st.lists(int32, max_size=3)
partitions = st.fixed_dictionaries(
    {
        "error_code": st.sampled_from([0, 5, 72]),
        "partition_index": int32,
        "leader_id": int32,
        "leader_epoch": int32,
        "replica_nodes": nodes,
        "isr_nodes": nodes,
        "offline_replicas": nodes,
    }
)
topics = st.fixed_dictionaries(
    {
        "error_code": st.sampled_from([0, 3, 17]),
        "name": texts,
        "topic_id": ids,
        "is_internal": st.booleans(),
        "partitions": st.lists(partitions, max_size=3),
        "topic_authorized_operations": int32,
    }
)
brokers = st.fixed_dictionaries({"node_id": int32, "host": texts, "port": int32, "rack": st.none() | texts})
answers = st.fixed_dictionaries(
    {
        "brokers": st.lists(brokers, max_size=3),
        "cluster_id": st.none() | texts,
        "controller_id": int32,
        "topics": st.lists(topics, max_size=4),
        "cluster_authorized_operations": int32,
    }
)


def test_the_versions_are_those_of_the_schemas():
    assert range(14) == METADATA
    assert range(5) == API_VERSIONS


@pytest.mark.parametrize("version", METADATA)
@given(message=answers)
def test_metadata_responses_are_those_of_the_schema(version, message):
    assert encode_metadata_response(version, message) == encode_response(ApiKey.METADATA, version, message)


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_known_only_by_id_has_no_name(version):
    topic = {
        "error_code": 100,
        "name": None,
        "topic_id": uuid.UUID(int=5),
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": 0,
    }
    message = {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": [topic]}
    assert encode_metadata_response(version, message) == encode_response(ApiKey.METADATA, version, message)


@pytest.mark.parametrize("version", METADATA)
@given(
    names=st.lists(texts, max_size=130),
    wanted=st.lists(st.tuples(st.none() | texts, ids), max_size=3),
    every=st.booleans(),
    switches=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_metadata_requests_are_those_of_the_schema(version, names, wanted, every, switches):
    asked = [{"name": name, "topic_id": None} for name in names]
    if version >= 10:
        asked += [{"name": name, "topic_id": topic_id} for name, topic_id in wanted]
    fields = "allow_auto_topic_creation", "include_cluster_authorized_operations", "include_topic_authorized_operations"
    message = {"topics": None if every and version else asked, **dict(zip(fields, switches, strict=True))}
    body = encode_request(ApiKey.METADATA, version, message)
    theirs = decode_request(ApiKey.METADATA, version, body)
    ours = decode_metadata_request(version, b"head" + body, 4)
    if theirs.topics is None:
        assert ours.topics is None
    else:
        assert [(each.name, each.topic_id) for each in ours.topics] == [
            (each.name, optional(each, "topic_id", None)) for each in theirs.topics
        ]
    assert ours[1:] == tuple(
        optional(theirs, field, default) for field, default in zip(fields, (True, False, False), strict=True)
    )


@pytest.mark.parametrize("version", METADATA)
def test_a_metadata_request_that_ends_early_is_malformed(version):
    topic = {"name": "flights", "topic_id": uuid.UUID(int=9)}
    body = encode_request(ApiKey.METADATA, version, _metadata([topic]))
    assert decode_metadata_request(version, body)
    for end in range(len(body)):
        with pytest.raises(MalformedMessageError):
            decode_metadata_request(version, body[:end])


def test_a_metadata_request_of_too_many_topics_is_refused_before_they_are_read():
    body = encode_request(ApiKey.METADATA, 1, _metadata([{"name": "a"}] * 5))
    assert decode_metadata_request(1, body, meter=Meter(5))
    with pytest.raises(MalformedMessageError):
        decode_metadata_request(1, body, meter=Meter(4))
    with pytest.raises(MalformedMessageError):
        decode_metadata_request(1, b"\x7f\xff\xff\xff")


def test_a_null_list_or_name_is_malformed_in_versions_without_it():
    for version, body in ((0, b"\xff\xff\xff\xff"), (1, b"\x00\x00\x00\x01\xff\xff"), (9, b"\x02\x00\x00\x00\x00\x00")):
        with pytest.raises(MalformedMessageError):
            decode_metadata_request(version, body)


def test_unknown_tagged_fields_are_skipped_and_counted():
    body = encode_request(ApiKey.METADATA, 13, _metadata([]))[:-1] + UNKNOWN_TAG
    assert decode_metadata_request(13, body, meter=Meter(1)).topics == ()
    software = encode_request(ApiKey.API_VERSIONS, 4, _software("a", "1"))[:-1] + UNKNOWN_TAG
    assert decode_api_versions_request(4, software, meter=Meter(1))[:2] == ("a", "1")
    for decode, version, each in (
        (decode_metadata_request, 13, body),
        (decode_api_versions_request, 4, software),
    ):
        with pytest.raises(MalformedMessageError):
            decode(version, each, meter=Meter(0))


@pytest.mark.parametrize("version", API_VERSIONS)
@given(api_keys=st.lists(st.tuples(int16, int16, int16), max_size=130), error_code=st.sampled_from([0, 35, 42]))
def test_api_versions_responses_are_those_of_the_schema(version, api_keys, error_code):
    names = "api_key", "min_version", "max_version"
    told = [dict(zip(names, each, strict=True)) for each in api_keys]
    expected = encode_response(ApiKey.API_VERSIONS, version, {"error_code": error_code, "api_keys": told})
    assert encode_api_versions_response(version, api_keys, error_code=error_code) == expected


@pytest.mark.parametrize("version", API_VERSIONS)
def test_api_versions_requests_are_those_of_the_schema(version):
    body = encode_request(ApiKey.API_VERSIONS, version, _software("librdkafka", "2.1"))
    expected = ("librdkafka", "2.1", None, -1) if version >= 3 else ("", "", None, -1)
    assert decode_api_versions_request(version, b"head" + body, 4) == expected
    for end in range(len(body)):
        with pytest.raises(MalformedMessageError):
            decode_api_versions_request(version, body[:end])


def test_an_api_versions_request_of_version_5_names_the_broker_that_it_means():
    body = encode_request(ApiKey.API_VERSIONS, 4, _software("a", "1"))[:-1]
    for target, expected in ((b"\x03c1\x00\x00\x00\x07\x00", ("c1", 7)), (b"\x00\xff\xff\xff\xff\x00", (None, -1))):
        assert decode_api_versions_request(5, body + target)[2:] == expected
        for end in range(len(target)):
            with pytest.raises(MalformedMessageError):
                decode_api_versions_request(5, body + target[:end])


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
