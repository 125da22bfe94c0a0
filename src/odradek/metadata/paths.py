"""The paths of the metadata tree, which are Kafka's except where noted (SPEC 8)."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

from odradek.model import TopicPartition
from odradek.security import RESOURCE_TYPES, PatternType, ResourcePattern, ResourceType, kafka_name
from odradek.security.quotas import DEFAULT, QuotaEntity

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
BROKER_DIRECTORIES: Final = "/brokers/log_dirs"
"""Not in Kafka, whose brokers register their directories with the controller (KIP-858)."""
BROKER_REGISTRATIONS: Final = "/brokers/registrations"
"""Not in Kafka, whose KRaft controller keeps registrations of offline brokers (`RegisterBrokerRecord`)."""
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
CLUSTER_SECRET: Final = "/cluster/secret"
"""Not in Kafka: random bytes that only readers of the tree know, such as the cluster's brokers."""
CONSUMERS: Final = "/consumers"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
DELETED_REPLICAS: Final = "/admin/deleted_replicas"
"""Not in Kafka: deleted replicas whose logs an offline broker may still have."""
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
CONFIG: Final = "/config"
ALL_BROKERS: Final = "<default>"
"""The name of the node with the cluster-wide default configuration."""
DEFAULT_ENTITY: Final = ALL_BROKERS
"""The name of the node with the quotas of users, clients or IP addresses that have none of their own."""
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
GROUP_CONFIGS: Final = "/config/groups"
CLIENT_CONFIGS: Final = "/config/clients"
USER_CONFIGS: Final = "/config/users"
IP_CONFIGS: Final = "/config/ips"
ISR_CHANGE_NOTIFICATION: Final = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION: Final = "/log_dir_event_notification"
FEATURE: Final = "/feature"
LATEST_PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
ACL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE_ROOTS: Final = (ACL_CHANGES, PREFIXED_ACL_CHANGES)

PERSISTENT_ROOTS: Final = (
    "/brokers",
    BROKER_IDS,
    BROKER_SEQUENCE,
    BROKER_DIRECTORIES,
    BROKER_REGISTRATIONS,
    TOPICS,
    CLUSTER,
    CONSUMERS,
    ADMIN,
    DELETE_TOPICS,
    DELETED_REPLICAS,
    CONFIG,
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    LATEST_PRODUCER_ID_BLOCK,
    *ACL_CHANGE_ROOTS,
    ACLS,
    "/kafka-acl-extended",
    PREFIXED_ACLS,
    *(f"{root}/{kafka_name(kind)}" for root in (ACLS, PREFIXED_ACLS) for kind in RESOURCE_TYPES),
)
"""Empty nodes that a broker creates in a new tree, parents first."""


def broker(broker_id: int) -> str:
    """Return the path of a live broker's registration; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_directories(broker_id: int) -> str:
    """Return the path of the node that lists a broker's data directories."""
    return f"{BROKER_DIRECTORIES}/{broker_id}"


def broker_registration(broker_id: int) -> str:
    """Return the path of a broker's last registration; persistent, also for offline brokers."""
    return f"{BROKER_REGISTRATIONS}/{broker_id}"


def topic(name: str) -> str:
    """Return the path of a topic's id and replicas."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Return the path of the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    """Return the path of the parent of a partition's state."""
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    """Return the path of a partition's state: leader, leader epoch and ISR."""
    return f"{partition(topic_partition)}/state"


def partition_of_state(path: str) -> TopicPartition | None:
    """Return the partition of a `partition_state` path; None for other paths."""
    match = re.fullmatch(f"{TOPICS}/([^/]+)/partitions/([0-9]+)/state", path)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def topic_of(path: str) -> str | None:
    """Return the topic of a node at or below a `topic` or `topic_config` path; None for other paths."""
    match = re.match(f"(?:{TOPICS}|{TOPIC_CONFIGS})/([^/]+)", path)
    return None if match is None else match[1]


def topic_config(name: str) -> str:
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker_id: int | None) -> str:
    """Return the path of a broker's dynamic configuration; None means the default of all brokers."""
    return f"{BROKER_CONFIGS}/{ALL_BROKERS if broker_id is None else broker_id}"


def group_config(group_id: str) -> str:
    """Return the path of a group's configuration, with the group id percent-encoded."""
    return f"{GROUP_CONFIGS}/{_quoted(group_id)}"


def group_of_config(name: str) -> str | None:
    """Return the group id of a node name below `/config/groups`; None for an invalid name."""
    return _unquoted(name)


def user_config(user: str) -> str:
    """Return the path of a user's SCRAM credentials and quotas, with the user name percent-encoded."""
    return f"{USER_CONFIGS}/{_quoted(user)}"


def user_clients(name: str) -> str:
    """Return the path of the parent of the quotas of a user's clients; `name` is that of the user's node."""
    return f"{USER_CONFIGS}/{name}/clients"


def quota_config(entity: QuotaEntity) -> str:
    if entity.ip is not None:
        return f"{IP_CONFIGS}/{entity.ip or DEFAULT_ENTITY}"
    client = None if entity.client_id is None else _entity_node(entity.client_id)
    if entity.user is None:
        return f"{CLIENT_CONFIGS}/{client}"
    user = _entity_node(entity.user)
    return f"{USER_CONFIGS}/{user}" if client is None else f"{user_clients(user)}/{client}"


def user_entity(name: str) -> QuotaEntity | None:
    """Return the user of a node name below `/config/users`; None for an invalid name."""
    user = _entity_name(name)
    return None if user is None else QuotaEntity(user=user)


def client_entity(name: str) -> QuotaEntity | None:
    """Return the client of a node name below `/config/clients`; None for an invalid name."""
    client_id = _entity_name(name)
    return None if client_id is None else QuotaEntity(client_id=client_id)


def user_client_entity(user_name: str, name: str) -> QuotaEntity | None:
    """Return the user and client of a node name below `user_clients(user_name)`; None for an invalid name."""
    user, client_id = _entity_name(user_name), _entity_name(name)
    return None if user is None or client_id is None else QuotaEntity(user=user, client_id=client_id)


def ip_entity(name: str) -> QuotaEntity:
    """Return the address of a node name below `/config/ips`, which is not encoded."""
    return QuotaEntity(ip=DEFAULT if name == DEFAULT_ENTITY else name)


def _entity_node(name: str) -> str:
    return _quoted(name) if name else DEFAULT_ENTITY


def _entity_name(text: str) -> str | None:
    return DEFAULT if text == DEFAULT_ENTITY else _unquoted(text)


def _quoted(name: str) -> str:
    text = quote(name, safe="")
    return text.replace(".", "%2E") if text in (".", "..") else text


def _unquoted(text: str) -> str | None:
    name = unquote(text)
    return name if name and _quoted(name) == text else None


def acls(resource_type: ResourceType, pattern_type: PatternType) -> str:
    root = ACLS if pattern_type is PatternType.LITERAL else PREFIXED_ACLS
    return f"{root}/{kafka_name(resource_type)}"


def acl(pattern: ResourcePattern) -> str:
    return f"{acls(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"


def acl_change(pattern: ResourcePattern) -> str:
    """Return the path of a notification that ACLs have changed, to which the store appends a sequence number."""
    root = ACL_CHANGES if pattern.pattern_type is PatternType.LITERAL else PREFIXED_ACL_CHANGES
    return f"{root}/acl_changes_"


def delete_topic(name: str) -> str:
    """Return the path of a request to delete a topic."""
    return f"{DELETE_TOPICS}/{name}"


class DeletedReplica(NamedTuple):
    """Replicas that an offline broker must delete later: of one `partition`, or of all partitions of a topic."""

    broker: int
    topic_id: UUID
    partition: int | None


def deleted_replica(broker_id: int, topic_id: UUID, partition: int | None = None) -> str:
    """Return the path of a `DeletedReplica`; `partition` is None for all partitions of the topic."""
    return f"{DELETED_REPLICAS}/{broker_id}-{topic_id.hex}" + ("" if partition is None else f"-{partition}")


def parse_deleted_replica(name: str) -> DeletedReplica | None:
    """Parse the name of a `deleted_replica` node; return None for other names."""
    match = re.fullmatch("([0-9]{1,10})-([0-9a-f]{32})(?:-([0-9]{1,10}))?", name)
    if match is None:
        return None
    return DeletedReplica(int(match[1]), UUID(hex=match[2]), None if match[3] is None else int(match[3]))


def log_dir_event() -> str:
    """Return the path of a log directory event, to which the store appends a sequence number."""
    return f"{LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"


def consumer_id(group: str, consumer: str) -> str:
    """Return the path of a generation 1 consumer's registration; ephemeral."""
    return f"{CONSUMERS}/{group}/ids/{consumer}"


def consumer_owner(group: str, topic_partition: TopicPartition) -> str:
    """Return the path of the thread that owns a partition in a generation 1 group; ephemeral."""
    return f"{CONSUMERS}/{group}/owners/{topic_partition.topic}/{topic_partition.partition}"


def consumer_offset(group: str, topic_partition: TopicPartition) -> str:
    """Return the path of a group's committed offset, if stored in the tree."""
    return f"{CONSUMERS}/{group}/offsets/{topic_partition.topic}/{topic_partition.partition}"


def child(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def parent(path: str) -> str:
    """Return the path of a node's parent; the root is its own parent."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    return path.rpartition("/")[2]
