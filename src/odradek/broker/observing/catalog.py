"""All metrics: MBean in Kafka, Prometheus name, labels, help, and how they are read. `docs/metrics.md` repeats them.

Names follow the usual JMX exporter configurations, so that dashboards for Kafka work:
`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` is `kafka_server_brokertopicmetrics_bytesin_total`. Metrics
that Kafka does not have start with `odradek_`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from odradek import __version__
from odradek.broker.counters import Histogram, ListenerCounters, TopicTraffic
from odradek.broker.interfaces import BrokerParts, Phase
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.log.cleaner.log_cleaner import CleanerStats
    from odradek.broker.log.log import Log


class Kind(Enum):
    """A metric's Prometheus type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


Sample = tuple[tuple[str, ...], float | Histogram]
"""Label values in the order of the metric's labels, and a number or a histogram that no longer changes."""
Read = Callable[[BrokerParts], float | Sequence[Sample]]
"""Reads a metric of a broker: its samples, or the number of a metric without labels."""


class Family(Struct, frozen=True):
    """All samples of one metric."""

    metric: "Metric"
    samples: Sequence[Sample]


class Metric(Struct, frozen=True, kw_only=True):
    """One metric: `name` is without the suffix `_total`; `mbean` is its name in Kafka, None for Odradek's own.

    Metrics without `read` come from one walk for several of them (`observation`).
    """

    mbean: str | None
    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    help: str
    read: Read | None = None

    @property
    def exposed_name(self) -> str:
        """The name on the page; samples of a histogram append `_bucket`, `_sum` and `_count`."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


def prometheus_name(mbean: str) -> str:
    """Return the Prometheus name for an MBean `domain:type=T,name=N`, without a final `PerSec` or `-total`."""
    domain, _, rest = mbean.partition(":")
    properties = dict(item.split("=") for item in rest.split(","))
    words = [
        domain.replace(".", "_"),
        properties["type"],
        properties["name"].removesuffix("PerSec").removesuffix("-total"),
    ]
    return "_".join(words).replace("-", "_").lower()


_defined: Final[list[Metric]] = []
"""All metrics defined so far, in order."""


def _counter(name: str, help_: str, *labels: str, read: Read | None = None) -> Metric:
    return _define(name, Kind.COUNTER, help_, labels, read)


def _gauge(name: str, help_: str, *labels: str, read: Read | None = None) -> Metric:
    return _define(name, Kind.GAUGE, help_, labels, read)


def _histogram(name: str, help_: str, *labels: str, read: Read | None = None) -> Metric:
    return _define(name, Kind.HISTOGRAM, help_, labels, read)


def _define(name: str, kind: Kind, help_: str, labels: tuple[str, ...], read: Read | None) -> Metric:
    """Define a metric by its MBean, or by its own name."""
    mbean = name if ":" in name else None
    name = name if mbean is None else prometheus_name(mbean)
    metric = Metric(mbean=mbean, name=name, kind=kind, labels=labels, help=help_, read=read)
    _defined.append(metric)
    return metric


def logs_of(broker: BrokerParts) -> Mapping[TopicPartition, "Log"]:
    """Return the broker's logs; none during the start, when another thread opens them."""
    return {} if broker.phase is Phase.STARTING else broker.logs.logs


def _by_topic(pick: Callable[[TopicTraffic], float], *, elsewhere: bool = False) -> Read:
    """Read a counter of each topic; with `elsewhere`, the empty name is for all topics not led here."""

    def read(broker: BrokerParts) -> list[Sample]:
        others = [("", broker.counters.elsewhere)] if elsewhere else []
        return [((name,), pick(topic)) for name, topic in [*broker.partitions.traffic.items(), *others]]

    return read


def _by_listener(pick: Callable[[ListenerCounters], float]) -> Read:
    return lambda broker: [((name,), pick(listener)) for name, listener in broker.server.counters.items()]


def _of_cleaner(pick: "Callable[[CleanerStats], float]") -> Read:
    return lambda broker: pick(broker.logs.cleaner.stats)


def _since_ms(broker: BrokerParts, then_ms: int | None) -> int:
    return 0 if then_ms is None else broker.runtime.clock.now_ms() - then_ms


_TOPIC: Final = "kafka.server:type=BrokerTopicMetrics,name="
_REQUEST: Final = "kafka.network:type=RequestMetrics,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_LOG: Final = "kafka.log:type=Log,name="
_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_CLEANERS: Final = "kafka.log:type=LogCleanerManager,name="
_GROUPS: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_GROUP_COUNTS: Final = "kafka.server:type=group-coordinator-metrics,name="
_SESSIONS: Final = "kafka.server:type=FetchSessionCache,name="
_SOCKETS: Final = "kafka.server:type=socket-server-metrics,name="

INFO: Final = _gauge(
    "odradek_info",
    "1; the labels identify the broker.",
    "version",
    "broker_id",
    "cluster_id",
    read=lambda b: [((__version__, str(b.config.broker_id), b.image.cluster_id), 1)],
)
BROKER_STATE: Final = _gauge(
    "kafka.server:type=KafkaServer,name=BrokerState",
    "1 starting, 3 running, 6 controlled shutdown, 7 shutting down.",
    read=lambda b: b.phase,
)

MESSAGES_IN: Final = _counter(
    f"{_TOPIC}MessagesInPerSec", "Records that were written.", "topic", read=_by_topic(lambda t: t.messages_in)
)
BYTES_IN: Final = _counter(
    f"{_TOPIC}BytesInPerSec", "Bytes of batches that were written.", "topic", read=_by_topic(lambda t: t.bytes_in)
)
BYTES_OUT: Final = _counter(
    f"{_TOPIC}BytesOutPerSec", "Bytes of batches that were fetched.", "topic", read=_by_topic(lambda t: t.bytes_out)
)
REPLICATION_BYTES_IN: Final = _counter(
    f"{_TOPIC}ReplicationBytesInPerSec",
    "Bytes of batches that this broker fetched as a follower.",
    read=lambda b: b.counters.replication_bytes_in,
)
REPLICATION_BYTES_OUT: Final = _counter(
    f"{_TOPIC}ReplicationBytesOutPerSec",
    "Bytes of batches that followers fetched from this broker.",
    read=lambda b: b.counters.replication_bytes_out,
)
BYTES_REJECTED: Final = _counter(
    f"{_TOPIC}BytesRejectedPerSec",
    "Bytes of batches that were too large.",
    "topic",
    read=_by_topic(lambda t: t.bytes_rejected, elsewhere=True),
)
TOTAL_PRODUCES: Final = _counter(
    f"{_TOPIC}TotalProduceRequestsPerSec",
    "Partitions of produce requests, with those that failed.",
    "topic",
    read=_by_topic(lambda t: t.produces + t.failed_produces),
)
TOTAL_FETCHES: Final = _counter(
    f"{_TOPIC}TotalFetchRequestsPerSec",
    "Partitions of consumers' fetch requests that were answered with records or an error.",
    "topic",
    read=_by_topic(lambda t: t.fetches + t.failed_fetches),
)
FAILED_PRODUCES: Final = _counter(
    f"{_TOPIC}FailedProduceRequestsPerSec",
    "Partitions of produce requests that were answered with an error.",
    "topic",
    read=_by_topic(lambda t: t.failed_produces, elsewhere=True),
)
FAILED_FETCHES: Final = _counter(
    f"{_TOPIC}FailedFetchRequestsPerSec",
    "Partitions of fetch requests that were answered with an error.",
    "topic",
    read=_by_topic(lambda t: t.failed_fetches, elsewhere=True),
)
KEYLESS: Final = _counter(
    f"{_TOPIC}NoKeyCompactedTopicRecordsPerSec",
    "Batches rejected for a record without a key in a compacted topic.",
    read=lambda b: b.counters.keyless_batches,
)
INVALID_MAGIC: Final = _counter(
    f"{_TOPIC}InvalidMagicNumberRecordsPerSec",
    "Batches rejected for their format.",
    read=lambda b: b.counters.invalid_magic_batches,
)
INVALID_CRC: Final = _counter(
    f"{_TOPIC}InvalidMessageCrcRecordsPerSec",
    "Batches rejected for their checksum.",
    read=lambda b: b.counters.invalid_crc_batches,
)
INVALID_SEQUENCE: Final = _counter(
    f"{_TOPIC}InvalidOffsetOrSequenceRecordsPerSec",
    "Batches rejected for their sequence numbers, their offsets, or an inconsistent header.",
    read=lambda b: b.counters.invalid_sequence_batches,
)

REQUESTS: Final = _counter(f"{_REQUEST}RequestsPerSec", "Requests that were served.", "request", "version")
REQUEST_QUEUE_TIME: Final = _histogram(
    f"{_REQUEST}RequestQueueTimeMs", "From a request's last byte to the beginning of its service, ms.", "request"
)
LOCAL_TIME: Final = _histogram(
    f"{_REQUEST}LocalTimeMs", "From the beginning of a request's service to its handler's end, ms.", "request"
)
REMOTE_TIME: Final = _histogram(
    f"{_REQUEST}RemoteTimeMs",
    "From a handler's end to a delayed response (a write, a replica, a long poll), ms.",
    "request",
)
RESPONSE_QUEUE_TIME: Final = _histogram(
    f"{_REQUEST}ResponseQueueTimeMs", "Wait of a delayed response for the responses to earlier requests, ms.", "request"
)
TOTAL_TIME: Final = _histogram(
    f"{_REQUEST}TotalTimeMs", "From a request's last byte to sending its response, ms; includes long polls.", "request"
)
ERRORS: Final = _counter(
    f"{_REQUEST}ErrorsPerSec", "Error codes in responses, each occurrence; NONE is not counted.", "request", "error"
)
REQUEST_BYTES: Final = _counter("odradek_request_bytes", "Bytes of requests.", "request")
RESPONSE_BYTES: Final = _counter("odradek_response_bytes", "Bytes of responses.", "request")

CONNECTIONS: Final = _gauge(
    f"{_SOCKETS}connection-count",
    "Open connections.",
    "listener",
    read=lambda b: [((name,), count) for name, count in b.server.connections_by_listener.items()],
)
CONNECTIONS_CREATED: Final = _counter(
    f"{_SOCKETS}connection-creation-total",
    "Connections that were accepted.",
    "listener",
    read=_by_listener(lambda each: each.admitted),
)
CONNECTIONS_CLOSED: Final = _counter(
    f"{_SOCKETS}connection-close-total",
    "Connections that were closed.",
    "listener",
    read=_by_listener(lambda each: each.closed),
)
CONNECTIONS_REJECTED: Final = _counter(
    "odradek_connections_rejected",
    "Connections rejected by the limits per broker and per address, or of open files.",
    "listener",
    read=_by_listener(lambda each: each.rejected),
)
CONNECTIONS_THROTTLED: Final = _gauge(
    "odradek_throttled_connections",
    "Connections that are muted now because of a quota of a user or a client id.",
    read=lambda b: b.quotas.muted_count,
)


def _quota(kind: str, rate: str, help_: str) -> tuple[Metric, Metric]:
    names = (rate, help_), ("throttle-time", "Rest of the clients' longest throttle time now, ms.")
    first, second = [_gauge(f"kafka.server:type={kind},name={name}", text, "user", "client_id") for name, text in names]
    return first, second


PRODUCE_QUOTA: Final = _quota("Produce", "byte-rate", "Bytes of Produce requests/s of clients that share a quota.")
FETCH_QUOTA: Final = _quota("Fetch", "byte-rate", "Bytes of fetched records/s of clients that share a quota.")
REQUEST_QUOTA: Final = _quota("Request", "request-time", "Percentage of time for requests of clients with a quota.")
MUTATION_QUOTA: Final = _quota(
    "ControllerMutation", "mutation-rate", "Partitions that clients with a quota create and delete, per second."
)
IP_CONNECTION_RATE: Final = _gauge(
    f"{_SOCKETS}connection-accept-rate", "Accepted connections/s of an address with a quota.", "ip"
)
QUOTA_SERIES_LEFT_OUT: Final = _gauge(
    "odradek_quota_series_left_out", "Clients or addresses beyond the 200 that are shown, by the type of quota.", "type"
)
LEADER_REPLICATION: Final = _gauge(
    "kafka.server:type=LeaderReplication,name=byte-rate",
    "Bytes/s that followers fetch of throttled partitions that this broker leads.",
    read=lambda b: b.replication_quotas.leader.bytes_per_second,
)
FOLLOWER_REPLICATION: Final = _gauge(
    "kafka.server:type=FollowerReplication,name=byte-rate",
    "Bytes/s that this broker fetches of throttled partitions.",
    read=lambda b: b.replication_quotas.follower.bytes_per_second,
)
ALTER_LOG_DIRS_REPLICATION: Final = _gauge(
    "kafka.server:type=AlterLogDirsReplication,name=byte-rate",
    "Bytes/s that are copied from one data directory to another.",
    read=lambda b: b.replication_quotas.alter_log_dirs.bytes_per_second,
)
IDLE: Final = _gauge(
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    "The share of time, 0 to 1, that the event loop's thread had nothing to do, over the last 10 s or more.",
)
MEMORY_POOL_USED: Final = _gauge(
    "kafka.network:type=SocketServer,name=MemoryPoolUsed",
    "Bytes of requests in progress.",
    read=lambda b: b.server.unanswered_bytes,
)
PURGATORY_SIZE: Final = _gauge(
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize",
    "Fetch requests waiting for records.",
    read=lambda b: len(b.purgatory),
)
FETCH_SESSIONS: Final = _gauge(
    f"{_SESSIONS}NumIncrementalFetchSessions", "Fetch sessions.", read=lambda b: len(b.fetch_sessions)
)
FETCH_SESSION_PARTITIONS: Final = _gauge(
    f"{_SESSIONS}NumIncrementalFetchPartitionsCached",
    "Partitions of all fetch sessions.",
    read=lambda b: b.fetch_sessions.partition_count,
)
FETCH_SESSION_EVICTIONS: Final = _counter(
    f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec",
    "Fetch sessions that were evicted.",
    read=lambda b: b.fetch_sessions.evictions,
)

PARTITION_COUNT: Final = _gauge(
    f"{_REPLICAS}PartitionCount", "Replicas on this broker.", read=lambda b: len(logs_of(b))
)
LEADER_COUNT: Final = _gauge(f"{_REPLICAS}LeaderCount", "Partitions that this broker leads.")
UNDER_REPLICATED: Final = _gauge(
    f"{_REPLICAS}UnderReplicatedPartitions", "Partitions led here with a replica that is not in sync."
)
UNDER_MIN_ISR: Final = _gauge(
    f"{_REPLICAS}UnderMinIsrPartitionCount", "Partitions led here with fewer than min.insync.replicas in sync."
)
AT_MIN_ISR: Final = _gauge(
    f"{_REPLICAS}AtMinIsrPartitionCount", "Partitions led here with exactly min.insync.replicas in sync."
)
ISR_SHRINKS: Final = _counter(
    f"{_REPLICAS}IsrShrinksPerSec",
    "Removals of a lagging follower from the ISR of a partition led here.",
    read=lambda b: b.alter_partition_manager.shrinks,
)
ISR_EXPANDS: Final = _counter(
    f"{_REPLICAS}IsrExpandsPerSec",
    "Additions of a follower to the ISR of a partition led here.",
    read=lambda b: b.alter_partition_manager.expansions,
)
FAILED_ISR_UPDATES: Final = _counter(
    f"{_REPLICAS}FailedIsrUpdatesPerSec",
    "ISR changes that the controller refused.",
    read=lambda b: b.alter_partition_manager.failed_updates,
)
MAX_LAG: Final = _gauge(
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
    "Lag of the follower here that is furthest behind its leader's high watermark, in offsets.",
    read=lambda b: b.fetchers.max_lag,
)
OFFLINE_REPLICAS: Final = _gauge(
    f"{_REPLICAS}OfflineReplicaCount",
    "Replicas here whose log can't be opened or failed with a disk error.",
    read=lambda b: b.partitions.offline_count,
)
OFFLINE_DIRECTORIES: Final = _gauge(
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    "Data directories that could not be opened or failed since.",
    read=lambda b: len(b.logs.directories.offline),
)
FREE_BYTES: Final = _gauge(
    "odradek_log_directory_free_bytes", "Bytes that the broker may still use on a data directory's volume.", "directory"
)
TOTAL_BYTES: Final = _gauge("odradek_log_directory_total_bytes", "The size of a data directory's volume.", "directory")
FULL_DIRECTORIES: Final = _gauge(
    "odradek_full_log_directories",
    "Data directories in which writes fail for lack of space, as listed by /healthz.",
    read=lambda b: len(b.partitions.write_scheduler.full_disks),
)
LATE_TRANSACTIONS: Final = _gauge(
    f"{_REPLICAS}PartitionsWithLateTransactionsCount",
    "Partitions led here with a transaction open for longer than transaction.max.timeout.ms and five minutes.",
)
PRODUCER_IDS: Final = _gauge(
    f"{_REPLICAS}ProducerIdCount",
    "Producers whose state is kept by the logs here.",
    read=lambda b: sum(len(log.producers.entries) for log in logs_of(b).values()),
)

ACTIVE_CONTROLLER: Final = _gauge(f"{_CONTROLLER}ActiveControllerCount", "1 if this broker is the controller.")
OFFLINE_PARTITIONS: Final = _gauge(
    f"{_CONTROLLER}OfflinePartitionsCount", "Partitions of the cluster without a leader; 0 if not the controller."
)
GLOBAL_TOPICS: Final = _gauge(f"{_CONTROLLER}GlobalTopicCount", "Topics of the cluster; 0 if not the controller.")
GLOBAL_PARTITIONS: Final = _gauge(
    f"{_CONTROLLER}GlobalPartitionCount", "Partitions of the cluster; 0 if not the controller."
)
ACTIVE_BROKERS: Final = _gauge(
    f"{_CONTROLLER}ActiveBrokerCount", "Live brokers of the cluster; 0 if not the controller."
)
PREFERRED_IMBALANCE: Final = _gauge(
    f"{_CONTROLLER}PreferredReplicaImbalanceCount",
    "Partitions of the cluster that another replica than the preferred one leads; 0 if not the controller.",
)
UNCLEAN_ELECTIONS: Final = _counter(
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    "Elections, by this broker as the controller, of a leader that was not in the ISR: records may be lost.",
    read=lambda b: b.counters.unclean_elections,
)

FENCED: Final = _gauge(
    "odradek_fenced",
    "1 while this broker refuses to lead because its metadata session may have expired.",
    read=lambda b: b.fence.is_closed,
)
FENCINGS: Final = _counter("odradek_fencings", "Times that this broker became fenced.", read=lambda b: b.fence.closures)
TREE_OPERATIONS: Final = _counter(
    "odradek_tree_operations",
    "Operations on the metadata tree: nodes read, lists of children, transactions, operations in them.",
    "operation",
    read=lambda b: [((name,), count) for name, count in sorted(b.tree.counts.items())],
)

LOG_FLUSH_TIME: Final = _histogram(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
    "How long syncs of logs took, ms.",
    read=lambda b: [((), b.partitions.write_scheduler.flush_time.copy())],
)
LOG_START_OFFSET: Final = _gauge(f"{_LOG}LogStartOffset", "The first offset.", "topic", "partition")
LOG_END_OFFSET: Final = _gauge(f"{_LOG}LogEndOffset", "The next offset.", "topic", "partition")
STABLE_OFFSET_LAG: Final = _gauge(
    "kafka.cluster:type=Partition,name=LastStableOffsetLag",
    "Offsets from the last stable offset to the high watermark, held back by open transactions.",
    "topic",
    "partition",
    read=lambda b: [
        ((each.topic_partition.topic, str(each.topic_partition.partition)), each.last_stable_offset_lag)
        for each in b.partitions
    ],
)
LOG_SIZE: Final = _gauge(f"{_LOG}Size", "Bytes of all segments.", "topic", "partition")
LOG_SEGMENTS: Final = _gauge(f"{_LOG}NumLogSegments", "Segments.", "topic", "partition")

MAX_CLEAN_TIME: Final = _gauge(
    f"{_CLEANER}max-clean-time-secs",
    "How long the last compaction took, s.",
    read=_of_cleaner(lambda stats: stats.clean_ms / 1000),
)
MAX_BUFFER_UTILIZATION: Final = _gauge(
    f"{_CLEANER}max-buffer-utilization-percent",
    "How full the offset map was in the last compaction.",
    read=_of_cleaner(lambda stats: 100 * stats.buffer_utilization),
)
CLEANER_RECOPY: Final = _gauge(
    f"{_CLEANER}cleaner-recopy-percent",
    "The share of bytes that the last compaction rewrote.",
    read=_of_cleaner(lambda stats: 100 * stats.written_bytes / max(stats.read_bytes, 1)),
)
MAX_COMPACTION_DELAY: Final = _gauge(
    f"{_CLEANER}max-compaction-delay-secs",
    "By how much a log is older than max.compaction.lag.ms allows, s.",
    read=_of_cleaner(lambda stats: stats.max_delay_ms / 1000),
)
MAX_DIRTY: Final = _gauge(
    f"{_CLEANERS}max-dirty-percent",
    "The dirty share of the dirtiest log that is not being compacted.",
    read=_of_cleaner(lambda stats: 100 * stats.max_dirty_ratio),
)
TIME_SINCE_CLEANER_RAN: Final = _gauge(
    f"{_CLEANERS}time-since-last-run-ms",
    "Time since the cleaner last selected logs, ms; 0 before.",
    read=lambda b: _since_ms(b, b.logs.cleaner.stats.last_run_ms),
)
UNCLEANABLE_PARTITIONS: Final = _gauge(
    f"{_CLEANERS}uncleanable-partitions-count",
    "Logs excluded from compaction after damage or an error.",
    read=lambda b: len(b.logs.cleaner.uncleanable),
)
UNCLEANABLE_BYTES: Final = _gauge(
    f"{_CLEANERS}uncleanable-bytes", "Dirty bytes of these logs.", read=lambda b: b.logs.cleaner.uncleanable_bytes
)
CLEANER_READ_BYTES: Final = _counter(
    "odradek_cleaner_read_bytes", "Bytes that compactions read.", read=_of_cleaner(lambda stats: stats.total_read_bytes)
)
CLEANER_WRITTEN_BYTES: Final = _counter(
    "odradek_cleaner_written_bytes",
    "Bytes that compactions wrote.",
    read=_of_cleaner(lambda stats: stats.total_written_bytes),
)
CLEANER_REMOVED_RECORDS: Final = _counter(
    "odradek_cleaner_removed_records",
    "Records that compactions removed.",
    read=_of_cleaner(lambda stats: stats.total_removed_records),
)

GROUPS: Final = _gauge(f"{_GROUPS}NumGroups", "Classic groups that this broker coordinates.")
GROUP_OFFSETS: Final = _gauge(f"{_GROUPS}NumOffsets", "Committed offsets of all groups that this broker coordinates.")
COMMITTED_OFFSET: Final = _gauge(
    "kafka_consumergroup_current_offset",
    "A group's committed offset; of the 20,000 of groups with members first.",
    "consumergroup",
    "topic",
    "partition",
)
GROUPS_BY_STATE: Final = {
    state: _gauge(f"{_GROUPS}NumGroups{state}", f"Classic groups in the state {state}.")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
}
GROUP_COUNT: Final = _gauge(
    f"{_GROUP_COUNTS}group-count", "Groups that this broker coordinates, by protocol: classic, consumer.", "protocol"
)
CONSUMER_GROUPS: Final = _gauge(
    f"{_GROUP_COUNTS}consumer-group-count", "Groups of the consumer protocol, by their state.", "state"
)
CONSUMER_GROUP_MEMBERS: Final = _gauge(
    "odradek_consumer_group_members",
    "Members of groups of the consumer protocol, by their state; unrevoked_partitions hold others up.",
    "state",
)
PENDING_REVOCATIONS: Final = _gauge(
    "odradek_consumer_group_partitions_pending_revocation",
    "Partitions that members were told to revoke and still have.",
)
LONGEST_REVOCATION: Final = _gauge(
    "odradek_consumer_group_longest_revocation_seconds",
    "How long ago the slowest member was told to revoke partitions; 0 without one.",
)
GROUP_EPOCH: Final = _gauge(
    "odradek_consumer_group_epoch", "The epoch of a group; of the 100 with the most members.", "group"
)
ASSIGNMENT_EPOCH: Final = _gauge(
    "odradek_consumer_group_assignment_epoch",
    "The epoch of a group's targets, lower than the group's until they are computed.",
    "group",
)
LOWEST_MEMBER_EPOCH: Final = _gauge(
    "odradek_consumer_group_lowest_member_epoch", "The epoch of the member of a group that is furthest behind.", "group"
)
REBALANCES: Final = _counter(
    "odradek_group_rebalances",
    "Rebalances of groups, by their cause.",
    "cause",
    read=lambda b: [((cause,), count) for cause, count in b.rebalance_journal.rebalances.items()],
)
REBALANCE_TIME: Final = _counter(
    "odradek_group_rebalance_seconds",
    "Duration of all these rebalances.",
    read=lambda b: b.rebalance_journal.duration_ms / 1000,
)
UNOWNED_TIME: Final = _counter(
    "odradek_group_unowned_partition_seconds",
    "Time for which partitions had no owner because of a rebalance, in sum.",
    read=lambda b: b.rebalance_journal.unowned_partition_ms / 1000,
)
JOURNAL_DROPPED: Final = _counter(
    "odradek_group_rebalance_journal_dropped",
    "Rebalances that are missing in __rebalances.",
    read=lambda b: b.rebalance_journal.dropped,
)

ALL: Final[tuple[Metric, ...]] = tuple(_defined)
