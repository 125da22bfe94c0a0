"""The texts of errors in `kafkas_texts` are those of Apache Kafka."""

import pytest

from conformance.peers.compare_with_kafka import BrokerPair
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_response_header
from odradek.protocol.messages.message_codec import decode_response
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.conditions import eventually
from tests.broker.handlers.kafkas_texts import ROWS, TOPICS, Row, error_texts

pytestmark = pytest.mark.needs("kafka")


@pytest.fixture(scope="module")
def prepared(pair: BrokerPair) -> BrokerPair:
    """The pair with the topics that rows name."""
    for name, partitions in TOPICS.items():
        pair.create({name: {}}, partitions)
    for servers in (pair.ours.bootstrap_servers, pair.kafka.bootstrap_servers):
        with BlockingWireClient(servers) as connection:
            eventually(lambda connection=connection: _has_coordinator(connection), what="a coordinator")
    return pair


def _has_coordinator(connection: BlockingWireClient) -> bool:
    names = ("texts", "nobody")
    found = connection.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": names}, 4).coordinators
    groups = connection.ask(ApiKey.DESCRIBE_GROUPS, {"groups": names, "include_authorized_operations": False}, 5).groups
    return {each.error_code for each in (*found, *groups)} == {ErrorCode.none}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_brokers_say_what_the_table_says(prepared: BrokerPair, row: Row) -> None:
    """M1"""
    for servers in (prepared.ours.bootstrap_servers, prepared.kafka.bootstrap_servers):
        with BlockingWireClient(servers) as connection:
            connection.send(row.api, row.message, row.version)
            frame = connection.receive()
        assert frame is not None
        start = decode_response_header(row.api, row.version, frame)[1]
        assert next(error_texts(decode_response(row.api, row.version, frame, start))).startswith(row.text)
