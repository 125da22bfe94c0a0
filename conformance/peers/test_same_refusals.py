"""A principal without ACLs gets the same answer from our broker and from Apache Kafka, whatever it asks (KIP-11)."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

import pytest

from bench.peers.kafka_peer import KafkaBroker
from conformance.peers.compare_with_kafka import (
    CLOSED,
    KAFKA_OPTIONS,
    OPTIONS,
    OUR_OPTIONS,
    comparable,
    sorted_answer,
)
from odradek.broker.apis import APIS
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.headers import decode_response_header
from odradek.protocol.messages.message_codec import decode_response
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

SECRETS: Final = {"admin": "a", "nobody": "n"}
LOGIN: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=admin password=a "
    "user_admin=a user_nobody=n;"
)
SECURITY: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
OF_KAFKA: Final = {
    "super.users": "User:admin;User:ANONYMOUS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "listener.name.sasl.plain.sasl.jaas.config": LOGIN,
}
OURS: Final = {
    "super.users": "User:admin",
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
}
THERE, ABSENT = "there", "absent"
"""The name of a topic, a group and a transactional id that exist, and of those that do not."""
BATCH: Final = encode_batch([(1, None, b"v", ())])
TRANSACTIONAL: Final = encode_batch(
    [(1, None, b"v", ())], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
)
ANSWER_S: Final = 20.0
NO_ID: Final = UUID(int=1)
SINCE: Final = "since"
"""The first version in which a request is well-formed."""
NO_EPOCH: Final = {"current_leader_epoch": -1, "leader_epoch": 0}
TIMEOUT: Final = {"timeout": 10_000}
MEMBER: Final = {"member_id": "m", "group_instance_id": None, "reason": None}
ACL: Final = {"operation": 3, "permission_type": 3}
ACL_FILTER: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": THERE,
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    **ACL,
}

Answers = Callable[[str, UUID], list[dict[str, Any]]]
"""Requests that name resources of this name and topic id."""


def of_partitions(**fields: Any) -> Answers:
    """Return a request about partition 0 of a topic, by every name that the field of topics has."""
    inner = {"partition": 0, "partition_index": 0, "index": 0, **fields.pop("inner", {})}

    def messages(name: str, topic_id: UUID) -> list[dict[str, Any]]:
        names = {"name": name, "topic": name, "topic_id": topic_id}
        lists = {"partitions": [inner], "partition_data": [inner], "partition_indexes": [0]}
        topics = [{**names, **lists}]
        found = {key: name if value is THERE else value for key, value in fields.items()}
        return [{"topics": topics, "topic_data": topics, **found}]

    return messages


def of_configs(operation: dict[str, int]) -> Answers:
    def messages(name: str, _: UUID) -> list[dict[str, Any]]:
        options = {"validate_only": False, "include_synonyms": True, "include_documentation": False}
        keys = {"configuration_keys": None, "configs": [{"name": "retention.ms", "value": "1", **operation}]}
        resources = ((2, name), (4, "0"), (4, ""), (8, "0"), (16, name), (32, name))
        return [
            {
                "resources": [{"resource_type": kind, "resource_name": each, **keys}],
                **options,
            }
            for kind, each in resources
        ]

    return messages


def of_group(**fields: Any) -> Answers:
    return lambda name, _: [{"group_id": name, "generation_id": 1, "members": [MEMBER], **MEMBER, **fields}]


def always(*messages: dict[str, Any]) -> Answers:
    return lambda *_: list(messages)


def listed(key: str, make: Callable[[str], Any] = str, **fields: Any) -> Answers:
    """Return a request with a list of names."""
    return lambda name, _: [{key: [make(name)], **fields}]


REQUESTS: Final[dict[ApiKey, Answers]] = {
    ApiKey.PRODUCE: lambda name, topic_id: [
        {**message, "transactional_id": transactional_id, "acks": -1, **TIMEOUT}
        for transactional_id, records in ((None, BATCH), (name, BATCH), (name, TRANSACTIONAL))
        for message in of_partitions(inner={"records": records})(name, topic_id)
    ],
    ApiKey.FETCH: lambda name, topic_id: [
        {**message, "replica_id": replica_id, "replica_state": {"replica_id": replica_id, "replica_epoch": -1}}
        for replica_id in (-1, 0)
        for message in of_partitions(
            inner={"fetch_offset": 0, "partition_max_bytes": 1 << 20},
            max_wait=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, forgotten_topics_data=[], isolation_level=0,
        )(name, topic_id)
    ],
    ApiKey.LIST_OFFSETS: of_partitions(
        inner={**NO_EPOCH, "timestamp": -1}, replica_id=-1, isolation_level=0, **TIMEOUT
    ),
    ApiKey.METADATA: lambda name, topic_id: [
        {"topics": topics, "allow_auto_topic_creation": creates, "include_topic_authorized_operations": True,
         "include_cluster_authorized_operations": True, SINCE: since}
        for since, topics in (
            (0, None), (0, [{"name": name, "topic_id": UUID(int=0)}]), (12, [{"name": None, "topic_id": topic_id}])
        )
        for creates in (False, True)
    ],
    ApiKey.OFFSET_COMMIT: of_partitions(
        inner={"committed_offset": 0, "committed_metadata": ""}, group_id=THERE, member_id="",
        generation_id_or_member_epoch=-1, generation_id=-1,
    ),
    ApiKey.OFFSET_FETCH: lambda name, topic_id: [
        {"group_id": name, "topics": topics, "groups": [{"group_id": name, "member_id": None, "member_epoch": -1,
                                                         "topics": topics}]}
        for topics in (None, of_partitions()(name, topic_id)[0]["topics"])
    ],
    ApiKey.FIND_COORDINATOR: lambda name, _: [
        {"key": name, "coordinator_keys": [name], "key_type": kind} for kind in (0, 1)
    ],
    ApiKey.JOIN_GROUP: of_group(
        member_id="", session_timeout=10_000, rebalance_timeout=10_000, protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    ),
    ApiKey.HEARTBEAT: of_group(),
    ApiKey.LEAVE_GROUP: of_group(),
    ApiKey.SYNC_GROUP: of_group(protocol_type="consumer", protocol_name="range", assignments=[]),
    ApiKey.DESCRIBE_GROUPS: listed("groups", include_authorized_operations=True),
    ApiKey.LIST_GROUPS: always({}),
    ApiKey.SASL_AUTHENTICATE: always({"auth_bytes": b"\0nobody\0n"}),
    ApiKey.CREATE_TOPICS: listed(
        "topics",
        lambda name: {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
        **TIMEOUT,
    ),
    ApiKey.DELETE_TOPICS: lambda name, topic_id: [
        {"topics": [topic], "topic_names": [name], **TIMEOUT}
        for topic in ({"name": name, "topic_id": UUID(int=0)}, {"name": None, "topic_id": topic_id})
    ],
    ApiKey.DELETE_RECORDS: of_partitions(inner={"offset": 0}, **TIMEOUT),
    ApiKey.INIT_PRODUCER_ID: lambda name, _: [
        {"transactional_id": each, "transaction_timeout": 10_000, "producer_id": -1, "producer_epoch": -1}
        for each in (None, name)
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda name, topic_id: [
        {
            "transactions": [{"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "verify_only": verifies,
                              "topics": [{"name": name, "partitions": [0]}]}],
            "v3_and_below_transactional_id": name, "v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": name, "partitions": [0]}],
        }
        for verifies in (False, True)
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: lambda name, _: [
        {"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "group_id": name}
    ],
    ApiKey.END_TXN: lambda name, _: [
        {"transactional_id": name, "producer_id": 1, "producer_epoch": 0, "committed": True}
    ],
    ApiKey.TXN_OFFSET_COMMIT: of_partitions(
        inner={"committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}, transactional_id=THERE,
        group_id=THERE, producer_id=1, producer_epoch=0, generation_id=-1, member_id="",
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: listed("transactional_ids"),
    ApiKey.LIST_TRANSACTIONS: always(
        {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None}
    ),
    ApiKey.UPDATE_FEATURES: always(
        {"timeout": 10_000, "feature_updates": [{"feature": "transaction.version", "max_version_level": 2,
                                                 "upgrade_type": 1, "allow_downgrade": False}], "validate_only": True}
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda name, topic_id: [
        {**message, "replica_id": replica_id}
        for replica_id in (-1, 0)
        for message in of_partitions(inner=NO_EPOCH)(name, topic_id)
    ],
    ApiKey.WRITE_TXN_MARKERS: listed(
        "markers",
        lambda name: {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
                      "topics": [{"name": name, "partition_indexes": [0]}]},
    ),
    ApiKey.DESCRIBE_CONFIGS: of_configs({}),
    ApiKey.ALTER_CONFIGS: of_configs({}),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: of_configs({"config_operation": 0}),
    ApiKey.ALTER_REPLICA_LOG_DIRS: listed(
        "dirs", lambda name: {"path": "/nowhere", "topics": [{"name": name, "partitions": [0]}]}
    ),
    ApiKey.DESCRIBE_LOG_DIRS: lambda name, _: [{"topics": [{"topic": name, "partitions": [0]}]}, {"topics": None}],
    ApiKey.DESCRIBE_ACLS: always(ACL_FILTER),
    ApiKey.CREATE_ACLS: listed(
        "creations",
        lambda name: {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3,
                      "principal": "User:nobody", "host": "*", **ACL},
    ),
    ApiKey.DELETE_ACLS: always({"filters": [ACL_FILTER]}),
    ApiKey.CREATE_PARTITIONS: listed("topics", lambda name: {"name": name, "count": 2, "assignments": None}, **TIMEOUT,
                                    validate_only=False),
    ApiKey.DELETE_GROUPS: listed("groups_names"),
    ApiKey.ELECT_LEADERS: lambda name, _: [
        {"topic_partitions": topics, "election_type": 0, **TIMEOUT}
        for topics in (None, [{"topic": name, "partitions": [0]}])
    ],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: of_partitions(inner={"replicas": [0]}, **TIMEOUT),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: of_partitions(**TIMEOUT),
    ApiKey.OFFSET_DELETE: of_partitions(group_id=THERE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: always({"components": [], "strict": False}),
    ApiKey.ALTER_CLIENT_QUOTAS: always(
        {"entries": [{"entity": [{"entity_type": "user", "entity_name": "nobody"}],
                      "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]}], "validate_only": False}
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: always({"users": [{"name": "nobody"}]}),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: always(
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        {"deletions": [], "upsertions": [
            {"name": "new", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
        ]},
    ),
    ApiKey.DESCRIBE_CLUSTER: always(
        {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    ),
    ApiKey.DESCRIBE_PRODUCERS: of_partitions(),
    ApiKey.DESCRIBE_QUORUM: always(
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    ),
    ApiKey.UNREGISTER_BROKER: always({"broker_id": 0}, {"broker_id": 77}),
    ApiKey.UNREGISTER_CONTROLLER: always({"controller_id": 77}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: of_group(
        member_id="m", member_epoch=0, instance_id=None, rack_id=None, rebalance_timeout=10_000,
        subscribed_topic_names=[THERE], subscribed_topic_regex=None, server_assignor=None, topic_partitions=[],
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: listed("group_ids", include_authorized_operations=True),
    ApiKey.LIST_CONFIG_RESOURCES: always({"resource_types": []}, {"resource_types": [2]}),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda name, _: [
        {"topics": topics, "response_partition_limit": 10, "cursor": None} for topics in ([], [{"name": name}])
    ],
}  # fmt: skip
"""The requests of every API, about resources that exist and that do not."""
NOT_COMPARED: Final = {
    ApiKey.API_VERSIONS: "it needs no rights, and lists what each broker has",
    ApiKey.SASL_HANDSHAKE: "it begins the renewal of a session, which Kafka refuses in the session's first second",
}
DIFFERS: Final = {
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "Kafka adds an entry of no user to the error of the whole request",
}
LEFT_OUT: Final = {
    "cluster_id": "each cluster has its own",
    "aborted_transactions": "beside an error it says nothing: Kafka sends it empty or null, by the error",
}
"""Fields that differ, with the reasons."""


class Asker:
    """An authenticated principal's connection to one broker; it connects again when the broker closes it."""

    def __init__(self, servers: str, user: str) -> None:
        self._servers = servers
        self._user = user
        self._connection: BlockingWireClient | None = None

    def ask(self, api: ApiKey, message: dict[str, Any], version: int) -> Any:
        """Return the decoded response, or `CLOSED`."""
        if self._connection is None:
            self._connection = BlockingWireClient(self._servers, timeout_s=ANSWER_S)
            assert self._connection.ask(ApiKey.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, 1).error_code == ErrorCode.none
            token = f"\0{self._user}\0{SECRETS[self._user]}".encode()
            assert self._connection.ask(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": token}).error_code == ErrorCode.none
        self._connection.send(api, message, version)
        try:
            response = self._connection.receive()
        except TimeoutError:
            response = None
            self.close()
            pytest.fail(f"{self._servers} does not answer {api.name} version {version}: {message}")
        if response is None:
            self.close()
            return CLOSED
        return decode_response(api, version, response, decode_response_header(api, version, response)[1])

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class Side:
    """One of the two brokers, with a topic and a group."""

    def __init__(self, servers: str) -> None:
        admin = Asker(servers, "admin")
        self.nobody = Asker(servers, "nobody")
        self.versions: dict[int, range] = {}
        listed_apis = admin.ask(ApiKey.API_VERSIONS, {"client_software_name": "t", "client_software_version": "1"}, 3)
        for each in listed_apis.api_keys:
            self.versions[each.api_key] = range(each.min_version, each.max_version + 1)
        create = REQUESTS[ApiKey.CREATE_TOPICS](THERE, NO_ID)[0]
        self.topic_id = admin.ask(ApiKey.CREATE_TOPICS, create, 7).topics[0].topic_id
        find = REQUESTS[ApiKey.FIND_COORDINATOR](THERE, NO_ID)[0]
        commit = REQUESTS[ApiKey.OFFSET_COMMIT](THERE, self.topic_id)[0]

        def is_committed() -> bool:
            admin.ask(ApiKey.FIND_COORDINATOR, find, 4)
            answer = admin.ask(ApiKey.OFFSET_COMMIT, commit, 8)
            return bool(answer.topics[0].partitions[0].error_code == ErrorCode.none)

        eventually(is_committed, what="a committed offset")
        admin.close()

    def answers(self, api: ApiKey, version: int) -> list[tuple[dict[str, Any], Any]]:
        """Return the requests of an API in one version, and what the principal without rights gets."""
        found = []
        for name, topic_id in ((THERE, self.topic_id), (ABSENT, NO_ID)):
            for message in REQUESTS[api](name, topic_id):
                if version < message.get(SINCE, 0):
                    continue
                answer = self.nobody.ask(api, message, version)
                found.append((message, sorted_answer(_without_state(comparable(answer)))))
        return found


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Ours and Kafka's."""
    folder = tmp_path_factory.mktemp("refusals")
    ours = ServedBroker(folder / "ours", options=OPTIONS | OUR_OPTIONS | SECURITY | OURS)
    kafka = KafkaBroker(
        folder / "kafka",
        options=OPTIONS | KAFKA_OPTIONS | SECURITY | OF_KAFKA,
        heap="384M",
        short_lived=True,
        listeners=("SASL",),
    )
    with contextlib.ExitStack() as stack:
        for each in (kafka, ours):
            stack.enter_context(each)
        both = Side(ours.bootstrap_servers), Side(kafka.address_of("SASL"))
        for side in both:
            stack.callback(side.nobody.close)
        yield both
    errors = ours.errors.read_text()
    assert "Traceback" not in errors, errors


def _without_state(value: Any) -> Any:
    """Return an answer without the fields that may differ."""
    if isinstance(value, dict):
        return {name: _without_state(each) for name, each in value.items() if name not in LEFT_OUT}
    return [_without_state(each) for each in value] if isinstance(value, list) else value


def _common(sides: tuple[Side, Side], api: ApiKey) -> list[int]:
    ours, kafkas = (side.versions.get(api, range(0)) for side in sides)
    served = APIS[api].served
    return [each for each in ours if each in kafkas and each in served]


@pytest.mark.parametrize("api", [each for each in REQUESTS if each in APIS], ids=lambda api: api.name.lower())
def test_a_principal_without_rights_gets_kafkas_answer(sides: tuple[Side, Side], api: ApiKey) -> None:
    differences: dict[str, str] = {}
    versions = _common(sides, api)
    assert versions
    for version in versions:
        ours, kafkas = (side.answers(api, version) for side in sides)
        for (message, mine), (_, theirs) in zip(ours, kafkas, strict=True):
            if mine != theirs:
                difference = f"  ours:    {mine}\n  Kafka's: {theirs}"
                differences.setdefault(difference, f"version {version}: {message}\n{difference}")
    if api in DIFFERS:
        assert differences, f"no longer true: {DIFFERS[api]}"
        return
    assert not differences, "\n".join(differences.values())


def test_every_api_that_both_advertise_has_its_requests(sides: tuple[Side, Side]) -> None:
    common = {ApiKey(api) for api in APIS if _common(sides, ApiKey(api))}
    assert common - set(NOT_COMPARED) <= set(REQUESTS)
