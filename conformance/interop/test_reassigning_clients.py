"""Reassignments and elections by existing clients, through any of three brokers (M10)."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient

from odradek.clients import Admin
from odradek.clients.admin.reassignments import ElectionType
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import Cluster
from odradek.testing.conditions import eventually

pytestmark = pytest.mark.long

BROKERS: Final = (0, 1, 2)
DEADLINE_S: Final = 120.0


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"auto.leader.rebalance.enable": "false"}) as cluster:
        yield cluster


def fresh() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("broker_id", BROKERS)
def test_kafka_python_reassigns_and_elects_through_any_broker(three: Cluster, broker_id: int):
    topic = fresh()
    three.create_topic(topic, assignment={0: [0]})
    place, gone = kafka.TopicPartition(topic, 0), kafka.TopicPartition(f"{topic}-gone", 0)
    with closing(KafkaAdminClient(bootstrap_servers=three.address(broker_id))) as client:
        refused = client.alter_partition_reassignments({place: [0, 77], gone: [1]})
        assert {key: error.__name__ for key, error in refused.items()} == {
            place: "InvalidReplicationAssignmentError",
            gone: "UnknownTopicOrPartitionError",
        }
        assert client.alter_partition_reassignments({place: [1, 2]}) == {place: None}
        eventually(lambda: not client.list_partition_reassignments([place]), within_s=DEADLINE_S, what="it is moved")
        (result,) = client.elect_leaders(0, {topic: [0]}).replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.election_not_needed
    moved = three.described(three.controller()).topics[topic].partitions[0]
    assert (moved.replicas, moved.leader, set(moved.isr)) == ((1, 2), 1, {1, 2})


@pytest.mark.parametrize("broker_id", BROKERS)
def test_librdkafka_elects_through_any_broker(three: Cluster, broker_id: int):
    topic, client = fresh(), AdminClient({"bootstrap.servers": three.address(broker_id)})
    three.create_topic(topic, assignment={0: [1]})
    places = [confluent_kafka.TopicPartition(topic, 0), confluent_kafka.TopicPartition(topic, 9)]
    for kind in confluent_kafka.ElectionType.PREFERRED, confluent_kafka.ElectionType.UNCLEAN:
        results = client.elect_leaders(kind, places).result(DEADLINE_S)
        found = {place.partition: error.name() for place, error in results.items()}
        assert found == {0: "ELECTION_NOT_NEEDED", 9: "UNKNOWN_TOPIC_OR_PART"}


@pytest.mark.parametrize("broker_id", BROKERS)
def test_odradek_s_admin_finds_the_controller_through_any_broker(three: Cluster, broker_id: int):
    key = TopicPartition(fresh(), 0)

    async def administer() -> dict[TopicPartition, Any]:
        async with Admin(three.address(broker_id)) as admin:
            await admin.create_topic(key.topic)
            await admin.create_partitions(key.topic, 2)
            assert await admin.list_partition_reassignments([key]) == {}
            results = await admin.elect_leaders(ElectionType.PREFERRED, [key])
            await admin.delete_topics([key.topic])
            return results

    results = asyncio.run(administer())
    assert {place: error.code for place, error in results.items()} == {key: ErrorCode.election_not_needed}


TOPIC: Final = {"name": "t", "topic": "t"}
ASKED: Final = {
    ApiKey.CREATE_TOPICS: {
        "topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
        "timeout": 1000,
        "validate_only": False,
    },
    ApiKey.DELETE_TOPICS: {"topics": [{"name": "t", "topic_id": None}], "topic_names": ["t"], "timeout": 1000},
    ApiKey.CREATE_PARTITIONS: {
        "topics": [{"name": "t", "count": 2, "assignments": None}],
        "timeout": 1000,
        "validate_only": False,
    },
    ApiKey.ELECT_LEADERS: {
        "election_type": 0,
        "topic_partitions": [{"topic": "t", "partitions": [0]}],
        "timeout": 1000,
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "timeout": 1000,
        "allow_replication_factor_change": True,
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"timeout": 1000, "topics": None},
}


def codes(answer: Any) -> list[ErrorCode]:
    """Every code of an answer, wherever it is."""
    found = []
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value)
        elif isinstance(value, tuple):
            found += [code for each in value for code in codes(each)]
    return found


@pytest.mark.parametrize("api", ASKED)
def test_a_broker_that_is_not_the_controller_returns_not_controller(three: Cluster, api: ApiKey):
    other = next(each for each in BROKERS if each != three.controller())
    with BlockingWireClient(three.address(other)) as connection:
        for version in versions(connection, api):
            found = codes(connection.ask(api, ASKED[api], version))
            assert set(found) == {ErrorCode.not_controller}, version


def versions(connection: BlockingWireClient, api: ApiKey) -> range:
    known = connection.ask(ApiKey.API_VERSIONS, {"client_software_name": "raw", "client_software_version": "1"}, 3)
    (entry,) = (each for each in known.api_keys if each.api_key == api)
    return range(entry.min_version, entry.max_version + 1)


def test_an_unknown_election_type_is_an_error_in_every_version_with_types(three: Cluster):
    with BlockingWireClient(three.address(three.controller())) as connection:
        for version in versions(connection, ApiKey.ELECT_LEADERS)[1:]:
            answer = connection.ask(ApiKey.ELECT_LEADERS, ASKED[ApiKey.ELECT_LEADERS] | {"election_type": 7}, version)
            assert codes(answer) == [ErrorCode.invalid_request] * 2


def test_a_partition_named_twice_is_refused(three: Cluster):
    topic = fresh()
    three.create_topic(topic, assignment={0: [0]})
    places = [{"partition_index": 0, "replicas": [1]}, {"partition_index": 0, "replicas": [2]}]
    message = ASKED[ApiKey.ALTER_PARTITION_REASSIGNMENTS] | {"topics": [{"name": topic, "partitions": places}]}
    with BlockingWireClient(three.address(three.controller())) as connection:
        (answer,) = connection.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, message, 1).responses
    (result,) = answer.partitions
    assert result.error_code == ErrorCode.invalid_request
    assert "twice" in result.error_message
