"""Produce by hand, against the schema's own encoder and decoder, in every version."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.message_codec import decode_response, encode_request, encode_response
from odradek.protocol.messages.produce import (
    VERSIONS,
    NodeEndpoint,
    PartitionResponse,
    ProduceResponse,
    ProduceTopic,
    RecordError,
    TopicResponse,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
    encode_produce_response,
)

IDS = [uuid.UUID(int=7), uuid.UUID(int=1 << 100)]
REQUEST = {
    "transactional_id": "tx",
    "acks": -1,
    "timeout": 1500,
    "topic_data": [
        {
            "name": "flights",
            "topic_id": IDS[0],
            "partition_data": [{"index": 3, "records": b"r" * 300}, {"index": 4, "records": None}],
        },
        {"name": "é" * 100, "topic_id": IDS[1], "partition_data": [{"index": 0, "records": b""}]},
        {"name": "none", "topic_id": IDS[1], "partition_data": []},
    ],
}
RESPONSES = [
    TopicResponse(
        "flights", IDS[0], [PartitionResponse(3, 6, 77, 88, 99, [RecordError(1, "no"), RecordError(2)], "bad", (4, 5))]
    ),
    TopicResponse("é" * 100, IDS[1], [PartitionResponse(0), PartitionResponse(1, 0, 1 << 60)]),
]
ENDPOINTS = [NodeEndpoint(1, "host", 9092, "rack"), NodeEndpoint(2, "other", 9093)]


def test_every_version_with_a_schema_is_encoded():
    assert schema_versions(ApiKey.PRODUCE) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_requests_are_decoded_without_a_copy(version, kind):
    frame = kind(b"head" + encode_request(ApiKey.PRODUCE, version, REQUEST))
    request = decode_produce_request(version, frame, 4)
    assert (request.transactional_id, request.acks, request.timeout_ms) == ("tx", -1, 1500)
    assert [topic.name for topic in request.topics] == ([None] * 3 if version >= 13 else ["flights", "é" * 100, "none"])
    assert [topic.topic_id for topic in request.topics] == ([IDS[0], IDS[1], IDS[1]] if version >= 13 else [None] * 3)
    (three, records), (four, nothing) = request.topics[0].partitions
    assert (three, bytes(records), four, nothing) == (3, b"r" * 300, 4, None)
    assert records.obj is memoryview(frame).obj
    assert request.topics[1].partitions == [(0, b"")]
    assert request.topics[2].partitions == []


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_those_of_the_schema(version):
    topics = [
        ProduceTopic(topic["name"], topic["topic_id"], [(p["index"], p["records"]) for p in topic["partition_data"]])
        for topic in REQUEST["topic_data"]
    ]
    pieces = encode_produce_request(version, topics, acks=-1, timeout_ms=1500, transactional_id="tx")
    assert b"".join(pieces) == encode_request(ApiKey.PRODUCE, version, REQUEST)
    assert any(piece is topics[0].partitions[0][1] for piece in pieces)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_those_of_the_schema(version):
    encoded = encode_produce_response(version, RESPONSES, throttle_time_ms=9, node_endpoints=ENDPOINTS)
    message = {
        "throttle_time": 9,
        "node_endpoints": [endpoint._asdict() for endpoint in ENDPOINTS],
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [
                    {
                        "index": partition.partition,
                        "error_code": partition.error_code,
                        "base_offset": partition.base_offset,
                        "log_append_time": partition.log_append_time,
                        "log_start_offset": partition.log_start_offset,
                        "record_errors": [
                            {"batch_index": index, "batch_index_error_message": text}
                            for index, text in partition.record_errors
                        ],
                        "error_message": partition.error_message,
                        "current_leader": partition.current_leader
                        and dict(zip(("leader_id", "leader_epoch"), partition.current_leader, strict=True)),
                    }
                    for partition in topic.partitions
                ],
            }
            for topic in RESPONSES
        ],
    }
    assert encoded == encode_response(ApiKey.PRODUCE, version, message)
    assert len(decode_response(ApiKey.PRODUCE, version, encoded).responses) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_decoded_unchanged_in_the_fields_of_their_version(version):
    def carried(partition):
        fields = 4 if version < 5 else 5 if version < 8 else 7 if version < 10 else 8
        return PartitionResponse(*(list(field) if type(field) is list else field for field in partition[:fields]))

    expected = [
        TopicResponse(
            None if version >= 13 else topic.name,
            topic.topic_id if version >= 13 else None,
            [carried(partition) for partition in topic.partitions],
        )
        for topic in RESPONSES
    ]
    encoded = encode_produce_response(version, RESPONSES, throttle_time_ms=9, node_endpoints=ENDPOINTS)
    decoded = decode_produce_response(version, b"head" + encoded, 4)
    assert decoded == ProduceResponse(expected, 9, ENDPOINTS if version >= 10 else [])


@given(chance=st.randoms(use_true_random=False), version=st.sampled_from(VERSIONS))
def test_false_lengths_are_malformed_and_allocate_nothing(chance: random.Random, version):
    for frame, decode in (
        (encode_request(ApiKey.PRODUCE, version, REQUEST), decode_produce_request),
        (encode_produce_response(version, RESPONSES, node_endpoints=ENDPOINTS), decode_produce_response),
    ):
        lie = bytearray(frame)
        place = chance.randrange(len(lie))
        lie[place : place + 5] = chance.choice([b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", chance.randbytes(4)])
        del lie[chance.randrange(len(frame)) :]
        try:
            assert decode(version, bytes(lie)) is not None
        except MalformedMessageError as error:
            assert "malformed" in str(error)  # noqa: PT017


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 9])
def test_unknown_tagged_fields_are_skipped(version):
    frame = encode_request(ApiKey.PRODUCE, version, REQUEST)
    later = frame[:-1] + b"\x01\x63\x03abc"
    assert decode_produce_request(version, later) == decode_produce_request(version, frame)
    answer = encode_produce_response(version, RESPONSES)
    assert decode_produce_response(version, answer[:-1] + b"\x01\x63\x01a") == decode_produce_response(version, answer)
