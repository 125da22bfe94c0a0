"""Every metric: its name in Kafka, its name here, its labels, and what it says. `docs/metrics.md` is this table.

A name is Kafka's own by the rule of the usual JMX exporter configurations, so that dashboards made for Kafka find it:
`kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec` is `kafka_server_brokertopicmetrics_bytesin_total`.
What Kafka does not have begins with `odradek_`.
"""

from enum import Enum
from typing import Final

from odradek.model.values import dataclass


class Kind(Enum):
    """What may be done with the numbers."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `name` without the suffix that a counter gets; `mbean` is its name in Kafka, None for our own."""

    mbean: str | None
    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    help: str

    @property
    def exposed_name(self) -> str:
        """The name on the page; a histogram's get `_bucket`, `_sum` and `_count` after it."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


def prometheus_name(mbean: str) -> str:
    """The name for `domain:type=T,name=N`; `PerSec` and `-total` are cut off, for what a counter is called."""
    domain, _, rest = mbean.partition(":")
    properties = dict(item.split("=") for item in rest.split(","))
    words = [
        domain.replace(".", "_"),
        properties["type"],
        properties["name"].removesuffix("PerSec").removesuffix("-total"),
    ]
    return "_".join(words).replace("-", "_").lower()


_defined: Final[list[Metric]] = []
"""What the two functions below made so far: the order of the table."""


def _kafkas(mbean: str, kind: Kind, help_: str, *labels: str) -> Metric:
    return _define(Metric(mbean=mbean, name=prometheus_name(mbean), kind=kind, labels=labels, help=help_))


def _own(name: str, kind: Kind, help_: str, *labels: str) -> Metric:
    return _define(Metric(mbean=None, name=f"odradek_{name}", kind=kind, labels=labels, help=help_))


def _define(metric: Metric) -> Metric:
    _defined.append(metric)
    return metric


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM
_TOPIC: Final = "kafka.server:type=BrokerTopicMetrics,name="
_REQUEST: Final = "kafka.network:type=RequestMetrics,name="
_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_LOG: Final = "kafka.log:type=Log,name="
_CLEANER: Final = "kafka.log:type=LogCleaner,name="
_CLEANERS: Final = "kafka.log:type=LogCleanerManager,name="
_GROUPS: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_SESSIONS: Final = "kafka.server:type=FetchSessionCache,name="
_SOCKETS: Final = "kafka.server:type=socket-server-metrics,name="

INFO: Final = _own("info", _G, "1, with who this is in its labels.", "version", "broker_id", "cluster_id")
BROKER_STATE: Final = _kafkas(
    "kafka.server:type=KafkaServer,name=BrokerState",
    _G,
    "1 starting, 3 running, 6 handing over its partitions, 7 shutting down.",
)

MESSAGES_IN: Final = _kafkas(f"{_TOPIC}MessagesInPerSec", _C, "Records that were written.", "topic")
BYTES_IN: Final = _kafkas(f"{_TOPIC}BytesInPerSec", _C, "Bytes of batches that were written.", "topic")
BYTES_OUT: Final = _kafkas(f"{_TOPIC}BytesOutPerSec", _C, "Bytes of batches that were fetched.", "topic")
REPLICATION_BYTES_IN: Final = _kafkas(
    f"{_TOPIC}ReplicationBytesInPerSec", _C, "Bytes of batches that this broker fetched as a follower."
)
REPLICATION_BYTES_OUT: Final = _kafkas(
    f"{_TOPIC}ReplicationBytesOutPerSec", _C, "Bytes of batches that followers fetched from this broker."
)
BYTES_REJECTED: Final = _kafkas(f"{_TOPIC}BytesRejectedPerSec", _C, "Bytes of batches that were too large.", "topic")
FAILED_PRODUCES: Final = _kafkas(
    f"{_TOPIC}FailedProduceRequestsPerSec",
    _C,
    "Partitions of produce requests that were answered with an error.",
    "topic",
)
FAILED_FETCHES: Final = _kafkas(
    f"{_TOPIC}FailedFetchRequestsPerSec", _C, "Partitions of fetch requests that were answered with an error.", "topic"
)
KEYLESS: Final = _kafkas(
    f"{_TOPIC}NoKeyCompactedTopicRecordsPerSec", _C, "Batches refused for a record without a key, in compacted topics."
)
INVALID_MAGIC: Final = _kafkas(f"{_TOPIC}InvalidMagicNumberRecordsPerSec", _C, "Batches refused for their format.")
INVALID_CRC: Final = _kafkas(f"{_TOPIC}InvalidMessageCrcRecordsPerSec", _C, "Batches refused for their checksum.")
INVALID_SEQUENCE: Final = _kafkas(
    f"{_TOPIC}InvalidOffsetOrSequenceRecordsPerSec",
    _C,
    "Batches refused for their sequence numbers, their offsets, or another contradiction.",
)

REQUESTS: Final = _kafkas(f"{_REQUEST}RequestsPerSec", _C, "Requests that were served.", "request", "version")
REQUEST_QUEUE_TIME: Final = _kafkas(
    f"{_REQUEST}RequestQueueTimeMs", _H, "From a request's last byte to the beginning of its service, ms.", "request"
)
LOCAL_TIME: Final = _kafkas(
    f"{_REQUEST}LocalTimeMs", _H, "From the beginning of a request's service to its handler's end, ms.", "request"
)
REMOTE_TIME: Final = _kafkas(
    f"{_REQUEST}RemoteTimeMs",
    _H,
    "From a handler's end to an answer that was not known then: a write, a replica, a long poll, ms.",
    "request",
)
RESPONSE_QUEUE_TIME: Final = _kafkas(
    f"{_REQUEST}ResponseQueueTimeMs", _H, "That such an answer waited for those to earlier requests, ms.", "request"
)
TOTAL_TIME: Final = _kafkas(
    f"{_REQUEST}TotalTimeMs", _H, "From a request's last byte to its answer's way out, ms; long polls too.", "request"
)
ERRORS: Final = _kafkas(
    f"{_REQUEST}ErrorsPerSec",
    _C,
    "Error codes in answers, one for each place; none is not counted.",
    "request",
    "error",
)
REQUEST_BYTES: Final = _own("request_bytes", _C, "Bytes of requests.", "request")
RESPONSE_BYTES: Final = _own("response_bytes", _C, "Bytes of answers.", "request")

CONNECTIONS: Final = _kafkas(f"{_SOCKETS}connection-count", _G, "Clients that are connected.", "listener")
CONNECTIONS_CREATED: Final = _kafkas(
    f"{_SOCKETS}connection-creation-total", _C, "Clients that were let in.", "listener"
)
CONNECTIONS_CLOSED: Final = _kafkas(f"{_SOCKETS}connection-close-total", _C, "Clients that have gone.", "listener")
CONNECTIONS_REJECTED: Final = _own(
    "connections_rejected",
    _C,
    "Clients that were turned away: too many in all, from their address, or for the open files.",
    "listener",
)
IDLE: Final = _kafkas(
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    _G,
    "The share of time, 0 to 1, that the event loop's thread had nothing to do, over the last 10 s or more.",
)
MEMORY_POOL_USED: Final = _kafkas(
    "kafka.network:type=SocketServer,name=MemoryPoolUsed", _G, "Bytes of requests that are not answered yet."
)
PURGATORY_SIZE: Final = _kafkas(
    "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize", _G, "Fetches that wait for records."
)
FETCH_SESSIONS: Final = _kafkas(f"{_SESSIONS}NumIncrementalFetchSessions", _G, "Fetch sessions.")
FETCH_SESSION_PARTITIONS: Final = _kafkas(
    f"{_SESSIONS}NumIncrementalFetchPartitionsCached", _G, "Partitions of all fetch sessions."
)
FETCH_SESSION_EVICTIONS: Final = _kafkas(
    f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec", _C, "Fetch sessions that made room for others."
)

PARTITION_COUNT: Final = _kafkas(f"{_REPLICAS}PartitionCount", _G, "Logs here.")
LEADER_COUNT: Final = _kafkas(f"{_REPLICAS}LeaderCount", _G, "Partitions that this broker leads.")
UNDER_REPLICATED: Final = _kafkas(
    f"{_REPLICAS}UnderReplicatedPartitions", _G, "Partitions led here, of which a replica is not in sync."
)
UNDER_MIN_ISR: Final = _kafkas(
    f"{_REPLICAS}UnderMinIsrPartitionCount", _G, "Partitions led here with less than min.insync.replicas in sync."
)
AT_MIN_ISR: Final = _kafkas(
    f"{_REPLICAS}AtMinIsrPartitionCount", _G, "Partitions led here with just min.insync.replicas in sync."
)
ISR_SHRINKS: Final = _kafkas(
    f"{_REPLICAS}IsrShrinksPerSec", _C, "In-sync sets that a follower left because it lagged behind this broker."
)
ISR_EXPANDS: Final = _kafkas(
    f"{_REPLICAS}IsrExpandsPerSec", _C, "In-sync sets that a follower of this broker came into."
)
FAILED_ISR_UPDATES: Final = _kafkas(
    f"{_REPLICAS}FailedIsrUpdatesPerSec", _C, "Changes of in-sync sets that the controller refused."
)
MAX_LAG: Final = _kafkas(
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
    _G,
    "Committed offsets that the follower here which is furthest behind does not have yet.",
)
OFFLINE_REPLICAS: Final = _kafkas(
    f"{_REPLICAS}OfflineReplicaCount", _G, "Logs here that can't be opened, or that stopped after an error of the disk."
)
OFFLINE_DIRECTORIES: Final = _kafkas(
    "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    _G,
    "Data directories that the disk did not give at the start, or that failed since.",
)
LATE_TRANSACTIONS: Final = _kafkas(
    f"{_REPLICAS}PartitionsWithLateTransactionsCount",
    _G,
    "Partitions led here with a transaction open for longer than transaction.max.timeout.ms and five minutes.",
)
PRODUCER_IDS: Final = _kafkas(f"{_REPLICAS}ProducerIdCount", _G, "Idempotent producers that logs here remember.")

ACTIVE_CONTROLLER: Final = _kafkas(f"{_CONTROLLER}ActiveControllerCount", _G, "1 if this broker is the controller.")
OFFLINE_PARTITIONS: Final = _kafkas(
    f"{_CONTROLLER}OfflinePartitionsCount", _G, "Partitions of the cluster without a leader; 0 if not the controller."
)
GLOBAL_TOPICS: Final = _kafkas(f"{_CONTROLLER}GlobalTopicCount", _G, "Topics of the cluster; 0 if not the controller.")
GLOBAL_PARTITIONS: Final = _kafkas(
    f"{_CONTROLLER}GlobalPartitionCount", _G, "Partitions of the cluster; 0 if not the controller."
)
ACTIVE_BROKERS: Final = _kafkas(
    f"{_CONTROLLER}ActiveBrokerCount", _G, "Brokers of the cluster that live; 0 if not the controller."
)

FENCED: Final = _own(
    "fenced", _G, "1 while this broker leads nothing, since its session with the metadata may be over."
)
FENCINGS: Final = _own("fencings", _C, "Times that this has begun.")
TREE_OPERATIONS: Final = _own(
    "tree_operations",
    _C,
    "What this broker asked of the metadata tree: nodes it read, lists of children, transactions, what they did.",
    "operation",
)

LOG_FLUSH_TIME: Final = _kafkas(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", _H, "How long syncs of logs took, ms."
)
LOG_START_OFFSET: Final = _kafkas(f"{_LOG}LogStartOffset", _G, "The first offset.", "topic", "partition")
LOG_END_OFFSET: Final = _kafkas(f"{_LOG}LogEndOffset", _G, "The next offset.", "topic", "partition")
STABLE_OFFSET_LAG: Final = _kafkas(
    "kafka.cluster:type=Partition,name=LastStableOffsetLag",
    _G,
    "Offsets from the last stable one to the high watermark: what waits for a transaction to end.",
    "topic",
    "partition",
)
LOG_SIZE: Final = _kafkas(f"{_LOG}Size", _G, "Bytes of all segments.", "topic", "partition")
LOG_SEGMENTS: Final = _kafkas(f"{_LOG}NumLogSegments", _G, "Segments.", "topic", "partition")

MAX_CLEAN_TIME: Final = _kafkas(f"{_CLEANER}max-clean-time-secs", _G, "How long the last compaction took, s.")
MAX_BUFFER_UTILIZATION: Final = _kafkas(
    f"{_CLEANER}max-buffer-utilization-percent", _G, "How full the memory for keys was in the last compaction."
)
CLEANER_RECOPY: Final = _kafkas(
    f"{_CLEANER}cleaner-recopy-percent", _G, "The share of bytes that the last compaction wrote anew."
)
MAX_COMPACTION_DELAY: Final = _kafkas(
    f"{_CLEANER}max-compaction-delay-secs", _G, "By how much a log is older than max.compaction.lag.ms allows, s."
)
MAX_DIRTY: Final = _kafkas(
    f"{_CLEANERS}max-dirty-percent", _G, "The dirty share of the dirtiest log that is not being compacted."
)
TIME_SINCE_CLEANER_RAN: Final = _kafkas(
    f"{_CLEANERS}time-since-last-run-ms", _G, "Since logs to compact were last looked for; 0 before."
)
UNCLEANABLE_PARTITIONS: Final = _kafkas(
    f"{_CLEANERS}uncleanable-partitions-count", _G, "Logs that are not compacted any more, after damage or an error."
)
UNCLEANABLE_BYTES: Final = _kafkas(f"{_CLEANERS}uncleanable-bytes", _G, "Dirty bytes of these logs.")
CLEANER_READ_BYTES: Final = _own("cleaner_read_bytes", _C, "Bytes that compactions read.")
CLEANER_WRITTEN_BYTES: Final = _own("cleaner_written_bytes", _C, "Bytes that compactions wrote.")
CLEANER_REMOVED_RECORDS: Final = _own("cleaner_removed_records", _C, "Records that compactions removed.")

GROUPS: Final = _kafkas(f"{_GROUPS}NumGroups", _G, "Groups that this broker coordinates.")
GROUP_OFFSETS: Final = _kafkas(f"{_GROUPS}NumOffsets", _G, "Committed offsets of all these groups.")
GROUPS_BY_STATE: Final = {
    state: _kafkas(f"{_GROUPS}NumGroups{state}", _G, f"Of these, in the state {state}.")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
}

ALL: Final[tuple[Metric, ...]] = tuple(_defined)
