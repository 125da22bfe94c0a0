"""The messages between controller and brokers, byte by byte (M1)."""

import uuid

import pytest
from kio.schema.errors import ErrorCode

from odradek.protocol.api import CONTROLLER_VERSIONS, ApiKey, schema_versions
from odradek.protocol.messages import controller_messages
from odradek.protocol.messages.headers import encode_request_header, encode_response_header
from odradek.protocol.messages.message_codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    metered_request_decoder,
)
from odradek.protocol.primitives import Meter

TOPIC_ID = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def hexes(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


REQUESTS = {
    ApiKey.UPDATE_METADATA: (
        {
            "controller_id": 9,
            "controller_epoch": 7,
            "broker_epoch": 0x0102030405060708,
            "is_full": True,
            "topic_states": [
                {
                    "topic_name": "tp",
                    "topic_id": TOPIC_ID,
                    "partition_states": [
                        {
                            "partition_index": 1,
                            "controller_epoch": 2,
                            "leader": 3,
                            "leader_epoch": 4,
                            "isr": [3, 5],
                            "partition_epoch": 6,
                            "replicas": [5, 3],
                            "adding_replicas": [5],
                            "removing_replicas": [],
                            "leader_recovery_state": 1,
                        }
                    ],
                },
                {"topic_name": "d", "topic_id": None, "is_deleted": True, "partition_states": []},
            ],
            "live_brokers": [
                {"id": 3, "endpoints": [{"port": 9092, "host": "h", "listener": "L"}], "rack": None, "epoch": 8}
            ],
            "stops": [{"topic_name": "tp", "partition_index": 2, "leader_epoch": -2, "delete_partition": True}],
        },
        hexes(
            *("00000009", "00000007", "0102030405060708", "01"),
            *("03", "03 7470", TOPIC_ID.hex, "00"),
            *("02", "00000001", "00000002", "00000003", "00000004"),
            *("03 00000003 00000005", "00000006", "03 00000005 00000003", "02 00000005", "01", "01", "00", "00"),
            *("02 64", "00" * 16, "01", "01", "00"),
            *("02", "00000003", "02", "00002384", "02 68", "02 4c", "00", "00", "0000000000000008", "00"),
            *("02", "03 7470", "00000002", "fffffffe", "01", "00", "00"),
        ),
    ),
    ApiKey.CONTROLLED_SHUTDOWN: ({"broker_id": 3, "broker_epoch": 5}, hexes("00000003", "0000000000000005", "00")),
}
RESPONSES = {
    ApiKey.UPDATE_METADATA: (
        {
            "error_code": int(ErrorCode.stale_controller_epoch),
            "partition_errors": [{"topic_name": "tp", "partition_index": 1, "error_code": 56}],
        },
        hexes("000b", "02", "03 7470", "00000001", "0038", "00", "00"),
    ),
    ApiKey.CONTROLLED_SHUTDOWN: (
        {"remaining_partitions": [{"topic_name": "tp", "partition_index": 1}]},
        hexes("0000", "02", "03 7470", "00000001", "00", "00"),
    ),
}


@pytest.mark.parametrize("api", CONTROLLER_VERSIONS, ids=lambda api: api.name.lower())
def test_a_request_has_these_bytes(api):
    [version] = schema_versions(api)
    message, expected = REQUESTS[api]
    encoded = encode_request(api, version, message)
    assert encoded.hex() == expected.hex()
    decoded = decode_request(api, version, expected)
    assert type(decoded) is controller_messages.REQUESTS[api]
    assert metered_request_decoder(api, version)(expected, 0, Meter(100)) == (decoded, len(expected))


@pytest.mark.parametrize("api", CONTROLLER_VERSIONS, ids=lambda api: api.name.lower())
def test_a_response_has_these_bytes(api):
    [version] = schema_versions(api)
    message, expected = RESPONSES[api]
    assert encode_response(api, version, message).hex() == expected.hex()
    assert type(decode_response(api, version, expected)) is controller_messages.RESPONSES[api]


def test_decoded_messages_equal_the_encoded_ones():
    version = CONTROLLER_VERSIONS[ApiKey.UPDATE_METADATA]
    decoded = decode_request(ApiKey.UPDATE_METADATA, version, REQUESTS[ApiKey.UPDATE_METADATA][1])
    assert (decoded.is_full, decoded.broker_epoch) == (True, 0x0102030405060708)
    assert decoded.live_brokers[0].endpoints[0].listener == "L"
    [state] = decoded.topic_states[0].partition_states
    assert (state.isr, state.adding_replicas, state.removing_replicas) == ((3, 5), (5,), ())
    assert state.leader_recovery_state == 1
    assert [each.is_deleted for each in decoded.topic_states] == [False, True]


@pytest.mark.parametrize("api", CONTROLLER_VERSIONS, ids=lambda api: api.name.lower())
def test_there_is_one_version_and_it_is_flexible(api):
    [version] = schema_versions(api)
    for schema in (controller_messages.REQUESTS[api], controller_messages.RESPONSES[api]):
        assert (schema.__api_key__, schema.__version__, schema.__flexible__) == (api, version, True)
    assert encode_request_header(api, version, 1, None)[-1] == 0
    assert encode_response_header(api, version, 1) == b"\0\0\0\1\0"
