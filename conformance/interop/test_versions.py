"""Every version of every API that the broker advertises is answered in that version, to the last byte (M1, M6)."""

import uuid
from typing import Any, Final

import pytest

from conformance.interop.existing_clients import CLIENTS
from odradek.broker.apis import SWITCHED_OFF
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.headers import decode_response_header
from odradek.protocol.messages.message_codec import response_decoder
from odradek.simulation.wire_client import BlockingWireClient

pytestmark = pytest.mark.long

TOPIC: Final = "every-version"
GROUP: Final = "every-version"
BATCH: Final = bytes(encode_batch([(1_790_000_000_000, b"k", b"v", ())], codec=0))

# Each dict has a field under all the names that it has had.
PLACE: Final = {"partition_index": 0, "partition": 0, "index": 0, "current_leader_epoch": -1}
COMMIT: Final = {
    **PLACE,
    "committed_offset": 3,
    "committed_leader_epoch": -1,
    "committed_metadata": "m",
    "commit_timestamp": -1,
}
FETCH: Final = {
    **PLACE,
    "fetch_offset": 0,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "partition_max_bytes": 1000,
}
MEMBER: Final = {"member_id": "nobody", "group_instance_id": None, "reason": "test"}
CONFIG: Final = {"name": "retention.ms", "value": "1000", "config_operation": 0}


TRANSACTION: Final = {"transactional_id": "test", "producer_id": 1, "producer_epoch": 0}
STATE: Final = {
    "partition_index": 0,
    "controller_epoch": 1,
    "leader": 1,
    "leader_epoch": 1,
    "isr": [1],
    "partition_epoch": 1,
    "replicas": [1],
    "adding_replicas": [],
    "removing_replicas": [],
}


ACL_FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def requests(topic_id: uuid.UUID) -> dict[ApiKey, dict[str, Any]]:
    """One message for all versions of each API: a version takes the fields that it has."""
    named = {"name": TOPIC, "topic": TOPIC, "topic_id": topic_id}
    return {
        ApiKey.UPDATE_METADATA: {
            "controller_id": 1,
            "controller_epoch": 1,
            "broker_epoch": 1,
            "is_full": False,
            "topic_states": [{"topic_name": TOPIC, "topic_id": topic_id, "partition_states": [STATE]}],
            "live_brokers": [
                {"id": 1, "endpoints": [{"port": 9, "host": "h", "listener": "PLAINTEXT"}], "rack": None, "epoch": 1}
            ],
            "stops": [{**PLACE, "topic_name": TOPIC, "leader_epoch": 1, "delete_partition": True}],
        },
        ApiKey.CONTROLLED_SHUTDOWN: {"broker_id": 1, "broker_epoch": 1},
        ApiKey.DESCRIBE_ACLS: ACL_FILTER,
        ApiKey.CREATE_ACLS: {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": TOPIC,
                    "resource_pattern_type": 3,
                    "principal": "User:alice",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        ApiKey.DELETE_ACLS: {"filters": [ACL_FILTER]},
        ApiKey.API_VERSIONS: {"client_software_name": "test", "client_software_version": "1"},
        ApiKey.PRODUCE: {
            "transactional_id": None,
            "acks": -1,
            "timeout": 1000,
            "topic_data": [{**named, "partition_data": [{**PLACE, "records": BATCH}]}],
        },
        ApiKey.FETCH: {
            "replica_id": -1,
            "max_wait": 100,
            "min_bytes": 1,
            "max_bytes": 1000,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{**named, "partitions": [FETCH]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        },
        ApiKey.LIST_OFFSETS: {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{**named, "partitions": [{**PLACE, "timestamp": -1}]}],
            "timeout": 1000,
        },
        ApiKey.METADATA: {
            "topics": [named],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        },
        ApiKey.OFFSET_COMMIT: {
            "group_id": GROUP,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "retention_time": -1,
            "topics": [{**named, "partitions": [COMMIT]}],
        },
        ApiKey.OFFSET_FETCH: {
            "group_id": GROUP,
            "topics": [{**named, "partition_indexes": [0]}],
            "groups": [{"group_id": GROUP, "member_epoch": -1, "topics": [{**named, "partition_indexes": [0]}]}],
            "require_stable": False,
        },
        ApiKey.ADD_PARTITIONS_TO_TXN: {
            "v3_and_below_transactional_id": TRANSACTION["transactional_id"],
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
            "transactions": [
                {**TRANSACTION, "verify_only": False, "topics": [{"name": TOPIC, "partitions": [0]}]},
            ],
        },
        ApiKey.ADD_OFFSETS_TO_TXN: {**TRANSACTION, "group_id": GROUP},
        ApiKey.END_TXN: {**TRANSACTION, "committed": True},
        ApiKey.TXN_OFFSET_COMMIT: {
            **TRANSACTION,
            "group_id": GROUP,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    **named,
                    "partitions": [
                        {
                            **PLACE,
                            "partition_index": 0,
                            "committed_offset": 1,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        },
        ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": [TRANSACTION["transactional_id"]]},
        ApiKey.LIST_TRANSACTIONS: {"state_filters": [], "producer_id_filters": []},
        ApiKey.FIND_COORDINATOR: {"key": GROUP, "key_type": 0, "coordinator_keys": [GROUP]},
        ApiKey.JOIN_GROUP: {
            "group_id": GROUP,
            "session_timeout": 10_000,
            "rebalance_timeout": 1000,
            **MEMBER,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"}],
        },
        ApiKey.HEARTBEAT: {"group_id": GROUP, "generation_id": 1, **MEMBER},
        ApiKey.CONSUMER_GROUP_HEARTBEAT: {
            "group_id": GROUP,
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout": 1000,
            "subscribed_topic_names": [TOPIC],
            "topic_partitions": [],
        },
        ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": [GROUP], "include_authorized_operations": False},
        ApiKey.LEAVE_GROUP: {"group_id": GROUP, **MEMBER, "members": [MEMBER]},
        ApiKey.SYNC_GROUP: {
            "group_id": GROUP,
            "generation_id": 1,
            **MEMBER,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
        ApiKey.DESCRIBE_GROUPS: {"groups": [GROUP], "include_authorized_operations": False},
        ApiKey.LIST_GROUPS: {"states_filter": [], "types_filter": []},
        ApiKey.CREATE_TOPICS: {
            "topics": [{"name": "a/b", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
            "timeout": 1000,
            "validate_only": True,
        },
        ApiKey.DELETE_TOPICS: {
            "topics": [{"name": "unknown", "topic_id": uuid.UUID(int=0)}],
            "topic_names": ["unknown"],
            "timeout": 1000,
        },
        ApiKey.DELETE_RECORDS: {
            "topics": [{"name": TOPIC, "partitions": [{**PLACE, "offset": 0}]}],
            "timeout": 1000,
        },
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": [{"topic": TOPIC, "partitions": [0]}]},
        ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        ApiKey.WRITE_TXN_MARKERS: {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "transaction_version": 1,
                    "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                }
            ]
        },
        ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": TOPIC, "partition_indexes": [0]}]},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": TOPIC}], "response_partition_limit": 10, "cursor": None},
        ApiKey.ELECT_LEADERS: {
            "election_type": 0,
            "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
            "timeout": 1000,
        },
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
            "timeout": 1000,
            "allow_replication_factor_change": True,
            "topics": [{"name": TOPIC, "partitions": [{**PLACE, "replicas": None}]}],
        },
        ApiKey.ALTER_PARTITION: {
            "broker_id": 0,
            "broker_epoch": -1,
            "topics": [
                {
                    "topic_id": topic_id,
                    "partitions": [
                        {
                            **PLACE,
                            "leader_epoch": 0,
                            "new_isr": [0],
                            "new_isr_with_epochs": [{"broker_id": 0, "broker_epoch": -1}],
                            "partition_epoch": 0,
                        }
                    ],
                }
            ],
        },
        ApiKey.LIST_PARTITION_REASSIGNMENTS: {
            "timeout": 1000,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        },
        ApiKey.DESCRIBE_QUORUM: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        ApiKey.DELETE_GROUPS: {"groups_names": ["nobody"]},
        ApiKey.OFFSET_DELETE: {"group_id": "nobody", "topics": [{"name": TOPIC, "partitions": [PLACE]}]},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "replica_id": -1,
            "topics": [{**named, "partitions": [{**PLACE, "leader_epoch": 0}]}],
        },
        ApiKey.INIT_PRODUCER_ID: {
            "transactional_id": None,
            "transaction_timeout": 1000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
        ApiKey.DESCRIBE_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}],
            "include_synonyms": True,
            "include_documentation": True,
        },
        ApiKey.ALTER_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": [CONFIG]}],
            "validate_only": True,
        },
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": TOPIC, "configs": [CONFIG]}],
            "validate_only": True,
        },
        ApiKey.CREATE_PARTITIONS: {
            "topics": [{"name": TOPIC, "count": 2, "assignments": None}],
            "timeout": 1000,
            "validate_only": True,
        },
        ApiKey.DESCRIBE_CLUSTER: {
            "include_cluster_authorized_operations": False,
            "include_fenced_brokers": False,
            "endpoint_type": 1,
        },
        ApiKey.DESCRIBE_CLIENT_QUOTAS: {
            "components": [{"entity_type": "user", "match_type": 0, "match": "a"}],
            "strict": False,
        },
        ApiKey.ALTER_CLIENT_QUOTAS: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "a"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        ApiKey.UNREGISTER_BROKER: {"broker_id": 99},
        ApiKey.UNREGISTER_CONTROLLER: {"controller_id": 99},
        ApiKey.UPDATE_FEATURES: {
            "feature_updates": [
                {
                    "feature": "transaction.version",
                    "max_version_level": 2,
                    "upgrade_type": 1,
                    "allow_downgrade": False,
                }
            ],
            "validate_only": True,
        },
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": [{"name": "nobody"}]},
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": []},
        ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
        ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b""},
    }


@pytest.fixture(scope="module")
def connection(served: Any) -> Any:
    CLIENTS[0].create(served.bootstrap_servers, TOPIC, 1)
    with BlockingWireClient(served.bootstrap_servers) as connection:
        yield connection


def test_every_advertised_version_gets_a_complete_response(connection: BlockingWireClient):
    """All on one connection, which any misunderstanding would close."""
    by_name = requests(uuid.UUID(int=0))[ApiKey.METADATA]
    topic_id = connection.ask(ApiKey.METADATA, by_name, 10).topics[0].topic_id
    messages = requests(topic_id)
    advertised = connection.ask(ApiKey.API_VERSIONS, messages[ApiKey.API_VERSIONS], 3).api_keys
    answered = 0
    for entry in advertised:
        api = ApiKey(entry.api_key)
        if api in SWITCHED_OFF:
            continue  # refused in the body: `tests/broker/serving/test_dispatch.py`
        for version in range(max(entry.min_version, schema_versions(api).start), entry.max_version + 1):
            connection.send(api, messages[api], version)
            frame = connection.receive()
            assert frame is not None, f"{api.name} v{version} closed the connection"
            start = decode_response_header(api, version, frame)[1]
            answer, end = response_decoder(api, version)(frame, start)
            assert end == len(frame), f"{api.name} v{version}: {answer}"
            code = getattr(answer, "error_code", ErrorCode.none)
            assert code is not ErrorCode.unknown_server_error, f"{api.name} v{version}: {answer}"
            answered += 1
    assert answered > 100
