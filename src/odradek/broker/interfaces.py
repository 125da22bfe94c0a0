"""Protocols for the parts of a broker, so that a signature says what a function uses, and the broker's `Phase`.

`lifecycle.Broker` has all parts. A function that uses one part takes `broker: HasGroups`; a module that uses several
declares `class _Broker(HasGroups, HasImage, Protocol)`, and adds the parts that no other module uses.
"""

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from odradek.broker.cluster.metadata.metadata_loop import MetadataLoop
    from odradek.broker.cluster.registration.fencing import Fence
    from odradek.broker.controller.controller import Controller
    from odradek.broker.counters import BrokerCounters
    from odradek.broker.groups.group_coordinator import GroupCoordinator
    from odradek.broker.log.directories.log_manager import LogManager
    from odradek.broker.replication.replica_manager import ReplicaManager
    from odradek.broker.security.quotas.client_quotas import ClientQuotas
    from odradek.broker.security.request_proofs import RequestProofs
    from odradek.broker.serving.fetch_sessions import FetchSessions
    from odradek.broker.serving.purgatory import Purgatory
    from odradek.broker.serving.server import Server
    from odradek.broker.transactions.transaction_coordinator import TransactionCoordinator
    from odradek.config import BrokerConfig
    from odradek.metadata.image import ClusterImage
    from odradek.runtime import Runtime


class Phase(IntEnum):
    """The phases of a broker's life, numbered as Kafka's `BrokerState`."""

    STARTING = 1
    RUNNING = 3
    LEAVING = 6
    STOPPING = 7


class HasConfig(Protocol):
    """A broker's configuration."""

    @property
    def config(self) -> "BrokerConfig":
        """The configuration in force: the static one and the dynamic changes."""


class HasController(Protocol):
    """A broker's controller."""

    @property
    def controller(self) -> "Controller":
        """The controller. Raises `KafkaError` NOT_CONTROLLER while this broker is not elected."""


class HasCounters(Protocol):
    """A broker's counters."""

    @property
    def counters(self) -> "BrokerCounters":
        """The counters of errors, rejections and replication."""


class HasFence(Protocol):
    """A broker's fence."""

    @property
    def fence(self) -> "Fence":
        """The fence, which is closed while the session with the metadata tree may have expired."""


class HasFetchSessions(Protocol):
    """A broker's fetch sessions."""

    @property
    def fetch_sessions(self) -> "FetchSessions":
        """The sessions of incremental fetches (KIP-227)."""


class HasGroups(Protocol):
    """A broker's groups."""

    @property
    def groups(self) -> "GroupCoordinator":
        """The coordinator of the groups on this broker's partitions of `__consumer_offsets`."""


class HasImage(Protocol):
    """A broker's view of the cluster."""

    @property
    def image(self) -> "ClusterImage":
        """The current cluster image, an immutable value that every change replaces."""


class HasLogs(Protocol):
    """A broker's logs."""

    @property
    def logs(self) -> "LogManager":
        """The data directories and the logs in them."""


class HasMetadataLoop(Protocol):
    """A broker's metadata loop."""

    @property
    def metadata_loop(self) -> "MetadataLoop[Controller]":
        """The loop that reads and changes the tree, and executes the controller's commands."""


class HasPartitions(Protocol):
    """A broker's partitions."""

    @property
    def partitions(self) -> "ReplicaManager":
        """The partitions that this broker leads or follows."""


class HasProofs(Protocol):
    """A broker's proofs of requests between brokers."""

    @property
    def proofs(self) -> "RequestProofs": ...


class HasPurgatory(Protocol):
    """A broker's purgatory."""

    @property
    def purgatory(self) -> "Purgatory":
        """The waiting requests, with their deadlines."""


class HasQuotas(Protocol):
    """A broker's quotas of clients."""

    @property
    def quotas(self) -> "ClientQuotas":
        """The quotas of users and client ids, and the muted connections."""


class HasRuntime(Protocol):
    """A broker's runtime."""

    @property
    def runtime(self) -> "Runtime":
        """The clock, the randomness, the disk and the network."""


class HasServer(Protocol):
    """A broker's connections."""

    @property
    def server(self) -> "Server":
        """The ports, the connections, and the memory of requests and responses."""


class HasTransactions(Protocol):
    """A broker's transactions."""

    @property
    def transactions(self) -> "TransactionCoordinator":
        """The coordinator of the transactional ids on this broker's partitions of `__transaction_state`."""
