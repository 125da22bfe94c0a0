"""Where things are in the tree: the paths of SPEC 8, which are Kafka's."""

import re
from typing import Final
from uuid import UUID

from odradek.model import TopicPartition

BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQUENCE: Final = "/brokers/seqid"
BROKER_DIRECTORIES: Final = "/brokers/log_dirs"
"""Not Kafka's, whose brokers tell the controller of their directories when they register (KIP-858)."""
BROKER_REGISTRATIONS: Final = "/brokers/registrations"
"""Not Kafka's, whose KRaft controller keeps the registrations of brokers that are away (`RegisterBrokerRecord`)."""
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER: Final = "/cluster"
CLUSTER_ID: Final = "/cluster/id"
CONSUMERS: Final = "/consumers"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
DELETED_REPLICAS: Final = "/admin/deleted_replicas"
"""Not Kafka's: which brokers were away when which topics were deleted, and may still have their logs."""
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION: Final = "/admin/preferred_replica_election"
CONFIG: Final = "/config"
ALL_BROKERS: Final = "<default>"
"""The name of the node with what holds for every broker, where others have a broker's id."""
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
CLIENT_CONFIGS: Final = "/config/clients"
USER_CONFIGS: Final = "/config/users"
ISR_CHANGE_NOTIFICATION: Final = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION: Final = "/log_dir_event_notification"
LATEST_PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

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
    CLIENT_CONFIGS,
    USER_CONFIGS,
    ISR_CHANGE_NOTIFICATION,
    LOG_DIR_EVENT_NOTIFICATION,
    LATEST_PRODUCER_ID_BLOCK,
)
"""What a broker creates empty in a new tree, parents first, so that everything else has a parent."""


def broker(broker_id: int) -> str:
    """A broker's registration; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_directories(broker_id: int) -> str:
    """The data directories that a broker had when it last started."""
    return f"{BROKER_DIRECTORIES}/{broker_id}"


def broker_registration(broker_id: int) -> str:
    """A broker's last registration; persistent, so that a broker that is away is known."""
    return f"{BROKER_REGISTRATIONS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's id and replicas."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(topic_partition: TopicPartition) -> str:
    """The parent of a partition's state."""
    return f"{TOPICS}/{topic_partition.topic}/partitions/{topic_partition.partition}"


def partition_state(topic_partition: TopicPartition) -> str:
    """A partition's leader, epoch and in-sync replicas."""
    return f"{partition(topic_partition)}/state"


def topic_config(name: str) -> str:
    """A topic's own configuration."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(broker_id: int | None) -> str:
    """A broker's dynamic configuration, or the default of all brokers."""
    return f"{BROKER_CONFIGS}/{ALL_BROKERS if broker_id is None else broker_id}"


def delete_topic(name: str) -> str:
    """The wish to delete a topic."""
    return f"{DELETE_TOPICS}/{name}"


def deleted_replica(broker_id: int, topic_id: UUID) -> str:
    """Return where the controller notes that a topic was deleted while a broker was away."""
    return f"{DELETED_REPLICAS}/{broker_id}-{topic_id.hex}"


def deleted_topic(name: str, broker_id: int) -> UUID | None:
    """Return the topic's id from the name of a node of `deleted_replica`, None if it is another broker's."""
    owner, _, text = name.partition("-")
    return UUID(hex=text) if owner == str(broker_id) and re.fullmatch("[0-9a-f]{32}", text) else None


def log_dir_event() -> str:
    """The beginning of the name of a broker's notice that logs can't be used any more; a number follows."""
    return f"{LOG_DIR_EVENT_NOTIFICATION}/log_dir_event_"


def consumer_id(group: str, consumer: str) -> str:
    """A generation 1 consumer's registration; ephemeral."""
    return f"{CONSUMERS}/{group}/ids/{consumer}"


def consumer_owner(group: str, topic_partition: TopicPartition) -> str:
    """Which thread owns a partition in generation 1; ephemeral."""
    return f"{CONSUMERS}/{group}/owners/{topic_partition.topic}/{topic_partition.partition}"


def consumer_offset(group: str, topic_partition: TopicPartition) -> str:
    """A group's offset of a partition when offsets are kept in the tree."""
    return f"{CONSUMERS}/{group}/offsets/{topic_partition.topic}/{topic_partition.partition}"


def child(path: str, name: str) -> str:
    """The path of a node's child."""
    return f"{path.rstrip('/')}/{name}"


def parent(path: str) -> str:
    """The path above; the root is its own parent."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]
