"""The `Phase` of a broker, and its parts as handlers and metrics see them; lower rooms take what they need."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.broker.cluster.counted_store import CountedStore
    from odradek.broker.cluster.metadata.metadata_loop import MetadataLoop
    from odradek.broker.cluster.producer_ids import ProducerIds
    from odradek.broker.cluster.registration.fencing import Fence
    from odradek.broker.controller.auto_topic_creation_manager import AutoTopicCreationManager
    from odradek.broker.controller.controller import Controller
    from odradek.broker.controller.machine.topic_creation import NewPartitions, TopicCreation
    from odradek.broker.counters import BrokerCounters
    from odradek.broker.groups.group_coordinator import GroupCoordinator
    from odradek.broker.groups.rebalance_journal import RebalanceJournal
    from odradek.broker.log.directories.log_manager import LogManager
    from odradek.broker.replication.alter_partition_manager import AlterPartitionManager
    from odradek.broker.replication.reading.replica_selector import PreferredReadReplicas
    from odradek.broker.replication.replica_fetcher import ReplicaFetcherManager
    from odradek.broker.replication.replica_manager import ReplicaManager
    from odradek.broker.security.quotas.client_quotas import ClientQuotas
    from odradek.broker.security.quotas.replication_quotas import ReplicationQuotas
    from odradek.broker.security.request_proofs import RequestProofs
    from odradek.broker.serving.dispatch import Dispatcher
    from odradek.broker.serving.fetch_sessions import FetchSessions
    from odradek.broker.serving.purgatory import Purgatory
    from odradek.broker.serving.response_cache import ResponseCache
    from odradek.broker.serving.server import Server
    from odradek.broker.transactions.partition_verification import PartitionVerification
    from odradek.broker.transactions.transaction_coordinator import TransactionCoordinator
    from odradek.config.broker import BrokerConfig
    from odradek.metadata.image import ClusterImage
    from odradek.metadata.new_topic import NewTopic
    from odradek.model import KafkaError
    from odradek.runtime import Runtime


class Phase(IntEnum):
    """The phases of a broker's life, numbered as Kafka's `BrokerState`."""

    STARTING = 1
    RUNNING = 3
    LEAVING = 6
    STOPPING = 7


class BrokerParts(Protocol):
    """The parts of a broker that requests and metrics use."""

    alter_partition_manager: "AlterPartitionManager"
    auto_topic_creation_manager: "AutoTopicCreationManager"
    counters: "BrokerCounters"
    dispatcher: "Dispatcher"
    fence: "Fence"
    fetch_sessions: "FetchSessions"
    fetchers: "ReplicaFetcherManager"
    groups: "GroupCoordinator"
    logs: "LogManager"
    metadata_loop: "MetadataLoop[Controller]"
    partitions: "ReplicaManager"
    phase: Phase
    preferred_read_replicas: "PreferredReadReplicas | None"
    producer_ids: "ProducerIds"
    proofs: "RequestProofs"
    purgatory: "Purgatory"
    quotas: "ClientQuotas"
    rebalance_journal: "RebalanceJournal"
    replication_quotas: "ReplicationQuotas"
    response_cache: "ResponseCache"
    runtime: "Runtime"
    server: "Server"
    transactions: "TransactionCoordinator"
    tree: "CountedStore"
    verification: "PartitionVerification"

    @property
    def config(self) -> "BrokerConfig":
        """The configuration in force: the static one and the dynamic changes."""

    @property
    def image(self) -> "ClusterImage":
        """The current cluster image, an immutable value that every change replaces."""

    @property
    def controller(self) -> "Controller":
        """The controller. Raises `KafkaError` NOT_CONTROLLER while this broker is not elected."""

    async def create_topics(
        self, wanted: "Sequence[NewTopic]", *, validate_only: bool = False
    ) -> "list[TopicCreation]": ...

    async def create_partitions(
        self, wanted: "Sequence[NewPartitions]", *, validate_only: bool = False
    ) -> "list[KafkaError | None]": ...
