"""Fetch responses by hand, against the schema's own encoder and decoder, in every version."""

import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.fetch import (
    VERSIONS,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_response,
)
from odradek.protocol.messages.message_codec import encode_response
from odradek.protocol.messages.produce import NodeEndpoint

IDS = [uuid.UUID(int=7), uuid.UUID(int=1 << 100)]
TOPICS = [
    FetchedTopic(
        "flights",
        IDS[0],
        [
            FetchedPartition(3, 6, 77, 66, 55, [(1, 2), (3, 4)], 4, b"r" * 300, (5, 6), (7, 8), (9, 10)),
            FetchedPartition(4, records=None),
            FetchedPartition(5, 0, 1 << 60, 1 << 60, 0, [], -1, b"s", current_leader=(1, 2)),
        ],
    ),
    FetchedTopic("é" * 100, IDS[1], [FetchedPartition(0)]),
    FetchedTopic("none", IDS[1], []),
]
ENDPOINTS = [NodeEndpoint(1, "host", 9092, "rack"), NodeEndpoint(2, "other", 9093)]
SETTINGS = {"throttle_time_ms": 9, "error_code": 70, "session_id": 8, "node_endpoints": ENDPOINTS}


def pair(values, *names):
    return values and dict(zip(names, values, strict=True))


MESSAGE = {
    "throttle_time": 9,
    "error_code": 70,
    "session_id": 8,
    "node_endpoints": [endpoint._asdict() for endpoint in ENDPOINTS],
    "responses": [
        {
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [
                partition._asdict()
                | {
                    "partition_index": partition.partition,
                    "aborted_transactions": partition.aborted_transactions
                    and [pair(aborted, "producer_id", "first_offset") for aborted in partition.aborted_transactions],
                    "diverging_epoch": pair(partition.diverging_epoch, "epoch", "end_offset"),
                    "current_leader": pair(partition.current_leader, "leader_id", "leader_epoch"),
                    "snapshot_id": pair(partition.snapshot_id, "end_offset", "epoch"),
                }
                for partition in topic.partitions
            ],
        }
        for topic in TOPICS
    ],
}


def test_every_version_with_a_schema_is_encoded():
    assert schema_versions(ApiKey.FETCH) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_are_those_of_the_schema_and_records_are_gathered(version):
    pieces = encode_fetch_response(version, TOPICS, **SETTINGS)
    assert b"".join(pieces) == encode_response(ApiKey.FETCH, version, MESSAGE)
    assert any(piece is TOPICS[0].partitions[0].records for piece in pieces)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_responses_are_decoded_unchanged_in_the_fields_of_their_version(version, kind):
    def carried(partition):
        if version < 5:
            partition = partition._replace(log_start_offset=-1)
        if version < 11:
            partition = partition._replace(preferred_read_replica=-1)
        if version < 12:
            partition = partition._replace(diverging_epoch=None, current_leader=None, snapshot_id=None)
        return partition

    frame = kind(b"head" + b"".join(encode_fetch_response(version, TOPICS, **SETTINGS)))
    response = decode_fetch_response(version, frame, 4)
    assert response == FetchResponse(
        9,
        70 if version >= 7 else 0,
        8 if version >= 7 else 0,
        [
            FetchedTopic(
                None if version >= 13 else topic.name,
                topic.topic_id if version >= 13 else None,
                [carried(partition) for partition in topic.partitions],
            )
            for topic in TOPICS
        ],
        ENDPOINTS if version >= 16 else [],
    )
    assert response.topics[0].partitions[0].records.obj is memoryview(frame).obj


@given(chance=st.randoms(use_true_random=False), version=st.sampled_from(VERSIONS))
def test_false_lengths_are_malformed_and_allocate_nothing(chance: random.Random, version):
    frame = b"".join(encode_fetch_response(version, TOPICS, **SETTINGS))
    lie = bytearray(frame)
    place = chance.randrange(len(lie))
    lie[place : place + 5] = chance.choice([b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", chance.randbytes(4)])
    del lie[chance.randrange(len(frame)) :]
    try:
        assert decode_fetch_response(version, bytes(lie)) is not None
    except MalformedMessageError as error:
        assert "malformed" in str(error)  # noqa: PT017


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 12])
def test_unknown_tagged_fields_are_skipped(version):
    frame = b"".join(encode_fetch_response(version, TOPICS))
    assert decode_fetch_response(version, frame[:-1] + b"\x01\x63\x03abc") == decode_fetch_response(version, frame)
