"""The broker's keys, with Kafka 4's defaults and limits.

Deliberate deviations:

| key | Kafka | here | why |
|---|---|---|---|
| `broker.id` | -1, generated | 0 | a single broker needs no generator |
| `listeners` | `PLAINTEXT://:9092` | `PLAINTEXT://localhost:9092` | other machines need an explicit listener |
| `log.dirs` | `/tmp/kafka-logs` | `odradek-data` | reboots delete /tmp |
| `log.segment.bytes` | at least 1 MiB | at least 14 | as Kafka until 4.0, for tests and small topics |
| `offsets.topic.num.partitions` | 50 | 16 | each costs a directory and three open files at every start |
| `offsets.topic.replication.factor` | 3 | 1 | most users begin with one broker; `odradek up` sets min(3, brokers) |
| `transaction.state.log.num.partitions` | 50 | 16 | as `offsets.topic.num.partitions` |
| `transaction.state.log.replication.factor` | 3 | 3, if there are 3 brokers | one broker has to suffice |
| `queued.max.request.bytes` | -1, no limit | 256 MiB | memory is bounded by configuration |
| `socket.{send,receive}.buffer.bytes` | 100 KiB | -1 | the kernel sizes its buffers by what a connection needs |
| `socket.listen.backlog.size` | 50 | 1024 | clients of a restarted broker connect all at once |
| `max.connections.per.ip.overrides` | also names | addresses only | a DNS answer can be forged |
| `max.connection.creation.rate` | at least 0 | at least 1 | 0 would refuse every connection |
| `log.flush.mode` | - | `none` | `group` makes every acknowledgement wait for one shared fsync |
| `group.rebalance.journal.enable` | - | `true` | `__rebalances` records the cause and the cost of every rebalance |
| `log.validate.records` | - | `all` | `needed` reads records only where a rule needs it (docs/decisions/0005) |
| `log.validate.max.bytes` | no limit | 100 MiB | memory is bounded by configuration |
| `bench.discard.writes` | - | false | measures a broker without its disk |
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.config.consistency import check_consistency
from odradek.config.definition import (
    INT_MAX,
    LONG_MAX,
    ConfigSource,
    Definition,
    Value,
    boolean,
    definitions,
    double,
    integer,
    long,
    names,
    parse_all,
    short,
    text,
)
from odradek.config.listener_settings import PREFIX, check_listener_keys
from odradek.config.replaced_keys import check_not_replaced
from odradek.config.transactions import TransactionConfig
from odradek.config.unimplemented_keys import check_static, divided
from odradek.config.zookeeper import ZookeeperKeys

COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES: Final = ("compact", "delete")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

NO_PREALLOCATION: Final = "segments grow as they are written; leave it unset"
_ANY_RATE: Final = sys.float_info.max
_MOST_ENTRIES: Final = 32_768
_PROTOCOLS: Final = ("classic", "consumer", "streams", "share")
_MIGRATIONS: Final = ("disabled", "upgrade", "downgrade", "bidirectional")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(TransactionConfig, ZookeeperKeys):
    """One broker's configuration. Raises `ConfigurationError` if a value is outside its limits."""

    # Identity
    broker_id: int = integer("broker.id", 0, "The broker's id, unique in its cluster.", minimum=0)
    broker_rack: str | None = text("broker.rack", None, "The rack that replicas are spread over.", nullable=True)
    replica_selector_class: str | None = text(
        "replica.selector.class", None, "The class that chooses which replica consumers read.", nullable=True
    )
    zookeeper_session_timeout_ms: int = integer(
        "zookeeper.session.timeout.ms",
        18_000,
        "How long a broker without contact keeps its ephemeral nodes in the metadata tree.",
        minimum=1,
    )
    zookeeper_connection_timeout_ms: int | None = integer(
        "zookeeper.connection.timeout.ms",
        None,
        "How long to wait for a ZooKeeper server to answer; if unset, a broker that starts waits without limit.",
        minimum=1,
        nullable=True,
    )

    # Topics
    num_partitions: int = integer("num.partitions", 1, "Partitions of a topic created without a number.", minimum=1)
    default_replication_factor: int = integer(
        "default.replication.factor", 1, "Replicas of a topic created without a number.", minimum=1
    )
    auto_create_topics_enable: bool = boolean(
        "auto.create.topics.enable", True, "Whether a metadata request for an unknown topic creates it."
    )
    delete_topic_enable: bool = boolean("delete.topic.enable", True, "Whether topics may be deleted.")
    min_insync_replicas: int = integer(
        "min.insync.replicas", 1, "In-sync replicas that an append with acks=all needs.", minimum=1
    )
    unclean_leader_election_enable: bool = boolean(
        "unclean.leader.election.enable", False, "Whether a replica outside the ISR may lead, losing records."
    )
    auto_leader_rebalance_enable: bool = boolean(
        "auto.leader.rebalance.enable", True, "Whether leadership returns to the preferred replicas automatically."
    )
    leader_imbalance_check_interval_seconds: int = long(
        "leader.imbalance.check.interval.seconds", 300, "How often the imbalance of leaders is checked.", minimum=1
    )
    leader_imbalance_per_broker_percentage: int = integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "The percentage of its preferred partitions that a broker need not lead.",
        minimum=0,
    )
    controlled_shutdown_enable: bool = boolean(
        "controlled.shutdown.enable", True, "Whether a stopping broker moves its leaders to other brokers first."
    )
    controlled_shutdown_max_retries: int = integer(
        "controlled.shutdown.max.retries", 3, "Retries of a controlled shutdown.", minimum=0
    )
    controlled_shutdown_retry_backoff_ms: int = long(
        "controlled.shutdown.retry.backoff.ms",
        5_000,
        "Time before a retry of a controlled shutdown, unless the cluster changes meanwhile.",
        minimum=0,
    )
    max_decompressed_message_bytes: int = integer(
        "max.decompressed.message.bytes",
        2_147_483_639,
        "The largest decompressed record; the default is no limit.",
        honoured=(2_147_483_639,),
        reason="records are not limited by their decompressed size; message.max.bytes limits batches",
    )
    message_max_bytes: int = integer("message.max.bytes", 1_048_588, "The largest record batch.", minimum=0)
    compression_type: str = text(
        "compression.type",
        "producer",
        "How a topic's batches are compressed; producer leaves them.",
        choices=COMPRESSION_TYPES,
    )
    compression_gzip_level: int = integer(
        "compression.gzip.level",
        -1,
        "The level if compression.type is gzip; -1 is gzip's own default.",
        minimum=-1,
        maximum=9,
        excluded=(0,),
    )
    compression_lz4_level: int = integer(
        "compression.lz4.level", 9, "The level if compression.type is lz4.", minimum=1, maximum=17
    )
    compression_zstd_level: int = integer(
        "compression.zstd.level", 3, "The level if compression.type is zstd.", minimum=-131_072, maximum=22
    )

    # Replication
    num_replica_fetchers: int = integer(
        "num.replica.fetchers", 1, "Fetchers for each leader broker, each with a connection.", minimum=1
    )
    replica_lag_time_max_ms: int = long(
        "replica.lag.time.max.ms", 30_000, "A follower that lags for so long leaves the ISR.", minimum=1
    )
    replica_fetch_max_bytes: int = integer(
        "replica.fetch.max.bytes", 1_048_576, "Bytes that a follower fetches of a partition at once.", minimum=0
    )
    replica_fetch_response_max_bytes: int = integer(
        "replica.fetch.response.max.bytes", 10_485_760, "Bytes that a follower fetches in all at once.", minimum=0
    )
    replica_fetch_min_bytes: int = integer(
        "replica.fetch.min.bytes", 1, "Bytes that the leader waits for before it responds to a follower.", minimum=0
    )
    replica_fetch_wait_max_ms: int = integer(
        "replica.fetch.wait.max.ms", 500, "How long the leader waits for replica.fetch.min.bytes.", minimum=0
    )
    replica_fetch_backoff_ms: int = integer(
        "replica.fetch.backoff.ms", 1_000, "How long a follower waits after an error, at most.", minimum=0
    )
    leader_replication_throttled_rate: int = long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second, at most, that this broker sends of leader.replication.throttled.replicas.",
        minimum=0,
    )
    follower_replication_throttled_rate: int = long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second, at most, that this broker fetches for follower.replication.throttled.replicas.",
        minimum=0,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "The limit of bytes per second that are copied from one data directory to another.",
        minimum=0,
    )
    replication_quota_window_num: int = integer(
        "replication.quota.window.num", 11, "Samples over which replication's rates are measured.", minimum=1
    )
    replication_quota_window_size_seconds: int = integer(
        "replication.quota.window.size.seconds", 1, "Length of a sample of replication's rates.", minimum=1
    )
    alter_log_dirs_replication_quota_window_num: int = integer(
        "alter.log.dirs.replication.quota.window.num",
        11,
        "Samples over which the rate of copies between directories is measured.",
        minimum=1,
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = integer(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        "Length of a sample of the rate of copies between directories.",
        minimum=1,
    )

    # The log
    log_dirs: tuple[str, ...] = names("log.dirs", ("odradek-data",), "Directories of the partitions.")
    log_segment_bytes: int = integer("log.segment.bytes", 1_073_741_824, "A segment's largest size.", minimum=14)
    log_preallocate: bool = boolean(
        "log.preallocate", False, "A segment takes its whole size.", honoured=(False,), reason=NO_PREALLOCATION
    )
    log_local_retention_bytes: int = long(
        "log.local.retention.bytes", -2, "No effect without tiered storage, as in Kafka.", minimum=-2
    )
    log_local_retention_ms: int = long(
        "log.local.retention.ms", -2, "No effect without tiered storage, as in Kafka.", minimum=-2
    )
    log_remote_copy_lag_bytes: int = long(
        "log.remote.copy.lag.bytes", -1, "No effect without tiered storage, as in Kafka.", minimum=-1
    )
    log_remote_copy_lag_ms: int = long(
        "log.remote.copy.lag.ms", 0, "No effect without tiered storage, as in Kafka.", minimum=-1
    )
    log_roll_ms: int | None = long("log.roll.ms", None, "A segment's greatest age.", minimum=1, nullable=True)
    log_roll_hours: int = integer("log.roll.hours", 168, "log.roll.ms in hours, if that is unset.", minimum=1)
    log_roll_jitter_ms: int | None = long(
        "log.roll.jitter.ms", None, "Random time taken off a segment's greatest age.", minimum=0, nullable=True
    )
    log_roll_jitter_hours: int = integer(
        "log.roll.jitter.hours", 0, "log.roll.jitter.ms in hours, if that is unset.", minimum=0
    )
    log_retention_ms: int | None = long(
        "log.retention.ms", None, "How long records are kept; -1 for ever.", minimum=-1, nullable=True
    )
    log_retention_minutes: int | None = integer(
        "log.retention.minutes", None, "log.retention.ms in minutes, if that is unset.", nullable=True
    )
    log_retention_hours: int = integer("log.retention.hours", 168, "Retention in hours, if minutes are unset too.")
    log_retention_bytes: int = long(
        "log.retention.bytes", -1, "A partition's largest size; -1 is no limit.", minimum=-1
    )
    log_retention_check_interval_ms: int = long(
        "log.retention.check.interval.ms", 300_000, "How often old segments are deleted.", minimum=1
    )
    log_cleanup_policy: tuple[str, ...] = names(
        "log.cleanup.policy", ("delete",), "What happens to old records.", choices=CLEANUP_POLICIES
    )
    log_cleaner_enable: bool = boolean("log.cleaner.enable", True, "Whether logs are compacted at all.")
    log_cleaner_threads: int = integer(
        "log.cleaner.threads", 1, "How many logs are compacted at a time; one thread serves them in turn.", minimum=1
    )
    log_cleaner_backoff_ms: int = long(
        "log.cleaner.backoff.ms", 15_000, "How long to wait when there is no log to compact.", minimum=0
    )
    log_cleaner_dedupe_buffer_size: int = long(
        "log.cleaner.dedupe.buffer.size", 134_217_728, "Memory for keys, of all logs that are compacted.", minimum=1
    )
    log_cleaner_io_buffer_load_factor: float = double(
        "log.cleaner.io.buffer.load.factor", 0.9, "How full the memory for keys may be.", minimum=0, maximum=1
    )
    log_cleaner_io_buffer_size: int = integer(
        "log.cleaner.io.buffer.size", 524_288, "Memory to read and write, of all logs that are compacted.", minimum=0
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        "log.cleaner.io.max.bytes.per.second",
        _ANY_RATE,
        "The limit of bytes per second that compaction reads and writes.",
        minimum=1,
        maximum=_ANY_RATE,
    )
    log_cleaner_delete_retention_ms: int = long(
        "log.cleaner.delete.retention.ms", 86_400_000, "How long compaction keeps a key's tombstone.", minimum=0
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        "log.cleaner.min.compaction.lag.ms", 0, "The age from which a record may be compacted.", minimum=0
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        "log.cleaner.max.compaction.lag.ms", LONG_MAX, "The age by which a record must be compacted.", minimum=1
    )
    log_cleaner_min_cleanable_ratio: float = double(
        "log.cleaner.min.cleanable.ratio", 0.5, "The share of a log that must be dirty.", minimum=0, maximum=1
    )
    log_segment_delete_delay_ms: int = long(
        "log.segment.delete.delay.ms", 60_000, "How long deleted segments and partitions stay on disk.", minimum=0
    )
    log_index_size_max_bytes: int = integer(
        "log.index.size.max.bytes", 10_485_760, "An index's largest size.", minimum=4
    )
    log_index_interval_bytes: int = integer(
        "log.index.interval.bytes", 4096, "Bytes of log between two entries of its index.", minimum=0
    )
    log_message_timestamp_type: str = text(
        "log.message.timestamp.type", "CreateTime", "The producer's or the broker's time.", choices=TIMESTAMP_TYPES
    )
    log_message_timestamp_before_max_ms: int = long(
        "log.message.timestamp.before.max.ms", LONG_MAX, "How far behind the broker's a time may be.", minimum=0
    )
    log_message_timestamp_after_max_ms: int = long(
        "log.message.timestamp.after.max.ms", 3_600_000, "How far ahead of the broker's a time may be.", minimum=0
    )
    log_validate_records: str = text(
        "log.validate.records",
        "all",
        "all looks into every batch, as Kafka does; needed only where a rule of its topic asks for it.",
        choices=("needed", "all"),
    )
    log_validate_max_bytes: int = integer(
        "log.validate.max.bytes",
        104_857_600,
        "Limit of a batch's decompressed records when the broker validates them.",
        minimum=1,
    )
    num_recovery_threads_per_data_dir: int = integer(
        "num.recovery.threads.per.data.dir",
        2,
        "Threads that open, recover and in the end close the logs of one data directory.",
        minimum=1,
    )
    log_flush_mode: str = text(
        "log.flush.mode",
        "none",
        "none leaves flushing to the log.flush.interval keys; group acknowledges after one fsync for all that wait.",
        choices=("none", "group"),
    )
    log_flush_interval_messages: int = long(
        "log.flush.interval.messages", LONG_MAX, "Records of a partition between two flushes.", minimum=1
    )
    log_flush_interval_ms: int | None = long(
        "log.flush.interval.ms", None, "Time between two flushes of a partition.", minimum=0, nullable=True
    )
    log_flush_scheduler_interval_ms: int = long(
        "log.flush.scheduler.interval.ms", LONG_MAX, "How often it is checked whether a log is due.", minimum=1
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "How often recovery points are written.", minimum=1
    )
    bench_discard_writes: bool = boolean(
        "bench.discard.writes", False, "Forget records instead of writing them. Loses all data.", internal=True
    )

    # Groups and their offsets
    group_min_session_timeout_ms: int = integer(
        "group.min.session.timeout.ms", 6_000, "The shortest session.", minimum=1
    )
    group_max_session_timeout_ms: int = integer(
        "group.max.session.timeout.ms", 1_800_000, "The longest session a member may ask for.", minimum=1
    )
    group_initial_rebalance_delay_ms: int = integer(
        "group.initial.rebalance.delay.ms", 3_000, "How long an empty group waits for more members.", minimum=0
    )
    group_max_size: int = integer("group.max.size", INT_MAX, "Members of a group.", minimum=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = names(
        "group.coordinator.rebalance.protocols", _PROTOCOLS[:3], "Streams and share have no effect.", choices=_PROTOCOLS
    )
    group_consumer_assignors: tuple[str, ...] = names(
        "group.consumer.assignors", ("uniform", "range"), "Names or import paths; the first is the default."
    )
    group_consumer_session_timeout_ms: int = integer(
        "group.consumer.session.timeout.ms", 45_000, "How long a member (KIP-848) may be silent.", minimum=1
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        "group.consumer.heartbeat.interval.ms", 5_000, "Time between a member's heartbeats (KIP-848).", minimum=1
    )
    group_consumer_min_session_timeout_ms: int = integer(
        "group.consumer.min.session.timeout.ms", 45_000, "Limit of the session timeout of a group.", minimum=1
    )
    group_consumer_max_session_timeout_ms: int = integer(
        "group.consumer.max.session.timeout.ms", 60_000, "Limit of the session timeout of a group.", minimum=1
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        "group.consumer.min.heartbeat.interval.ms", 5_000, "Limit of the heartbeat interval of a group.", minimum=1
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        "group.consumer.max.heartbeat.interval.ms", 15_000, "Limit of the heartbeat interval of a group.", minimum=1
    )
    group_consumer_migration_policy: str = text(
        "group.consumer.migration.policy", "bidirectional", "Groups that change protocol live.", choices=_MIGRATIONS
    )
    group_consumer_assignment_interval_ms: int = integer(
        "group.consumer.assignment.interval.ms", 1_000, "The longest time between two assignments.", minimum=0
    )
    group_consumer_min_assignment_interval_ms: int = integer(
        "group.consumer.min.assignment.interval.ms", 0, "Limit of the assignment interval of a group.", minimum=0
    )
    group_consumer_max_assignment_interval_ms: int = integer(
        "group.consumer.max.assignment.interval.ms", 15_000, "Limit of the assignment interval of a group.", minimum=1
    )
    group_consumer_max_size: int = integer("group.consumer.max.size", INT_MAX, "As group.max.size.", minimum=1)
    group_rebalance_journal_enable: bool = boolean("group.rebalance.journal.enable", True, "Keeps __rebalances.")
    offsets_topic_num_partitions: int = integer(
        "offsets.topic.num.partitions", 16, "Partitions of __consumer_offsets, fixed when it is created.", minimum=1
    )
    offsets_topic_replication_factor: int = short(
        "offsets.topic.replication.factor", 1, "Replicas of __consumer_offsets.", minimum=1
    )
    offsets_topic_segment_bytes: int = integer(
        "offsets.topic.segment.bytes", 104_857_600, "A segment of __consumer_offsets.", minimum=14
    )
    offsets_retention_minutes: int = integer(
        "offsets.retention.minutes", 10_080, "How long a group without members keeps its offsets.", minimum=1
    )
    offsets_retention_check_interval_ms: int = long(
        "offsets.retention.check.interval.ms", 600_000, "How often old offsets are deleted.", minimum=1
    )
    offsets_commit_timeout_ms: int = integer(
        "offsets.commit.timeout.ms", 5_000, "How long a commit waits to be replicated.", minimum=1
    )
    offset_metadata_max_bytes: int = integer(
        "offset.metadata.max.bytes", 4_096, "The largest note beside a committed offset.", minimum=0
    )

    # Fetching and idempotent producing
    fetch_max_bytes: int = integer("fetch.max.bytes", 57_671_680, "The largest fetch response.", minimum=1024)
    max_incremental_fetch_session_cache_slots: int = integer(
        "max.incremental.fetch.session.cache.slots", 1_000, "Fetch sessions that are kept.", minimum=0
    )
    producer_id_expiration_ms: int = integer(
        "producer.id.expiration.ms", 86_400_000, "How long an idle producer's sequence is kept.", minimum=1
    )

    listener_overrides: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Texts of this layer's keys `listener.name.NAME.KEY`."""
    unimplemented: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Texts of this layer's keys that have no effect (module `unimplemented_keys`)."""
    explicit: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Keys that this layer sets, even to their default, for the sources in DescribeConfigs."""
    source: ConfigSource = field(default=ConfigSource.STATIC_BROKER_CONFIG, compare=False, repr=False)
    """The source of this layer."""
    beneath: "BrokerConfig | None" = field(default=None, compare=False, repr=False)
    """The weaker layer that this one overrides (module `dynamic`)."""

    def __post_init__(self) -> None:
        for definition in definitions(type(self)).values():
            definition.check(getattr(self, definition.attribute))
        check_consistency(self)

    @property
    def most_request_entries(self) -> int:
        """Limit of array items in a request: one per 2 KiB of `queued.max.request.bytes`, 10,000 to 32,768.

        An item takes about 1 KiB while it is decoded, processed and encoded, however small it was on the wire, and the
        garbage collection of more of them holds the event loop for too long.
        """
        limit_bytes = self.queued_max_request_bytes
        return _MOST_ENTRIES if limit_bytes < 0 else min(max(limit_bytes // 2048, 10_000), _MOST_ENTRIES)

    @property
    def most_session_partitions(self) -> int:
        """Limit of partitions in all fetch sessions: one per 512 bytes of `queued.max.request.bytes`, none if -1."""
        limit_bytes = self.queued_max_request_bytes
        return 1 << 62 if limit_bytes < 0 else max(limit_bytes // 512, 10_000)

    @classmethod
    def definitions(cls) -> Mapping[str, Definition]:
        """Return every key's definition by Kafka's name."""
        return definitions(cls)

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> "BrokerConfig":
        """Return the configuration of `properties`. Raises `ConfigurationError` for unknown keys or invalid values."""
        check_not_replaced(properties)
        listeners = {name: text for name, text in properties.items() if name.startswith(PREFIX)}
        check_listener_keys(listeners)
        rest = {name: text for name, text in properties.items() if name not in listeners}
        meant, others = divided(rest, definitions(cls))
        check_static(others, definitions(cls))
        values = parse_all(definitions(cls), meant)
        return cls(**values, explicit=frozenset(meant), unimplemented=others, listener_overrides=listeners)  # type: ignore[arg-type]

    def get(self, name: str) -> Value:
        """Return the value of a key by Kafka's name. Raises `KeyError` for an unknown key."""
        value: Value = getattr(self, definitions(type(self))[name].attribute)
        return value

    @property
    def layers(self) -> tuple["BrokerConfig", ...]:
        """The layers from this one down, the strongest first; each has its own `explicit` and `source`."""
        return (self,) if self.beneath is None else (self, *self.beneath.layers)

    def overridden(self, overrides: Mapping[str, str], source: ConfigSource) -> "BrokerConfig":
        """Return a stronger layer on top of this one. Raises `ConfigurationError` for values outside their limits."""
        meant, others = divided(overrides, definitions(type(self)))
        values = parse_all(definitions(type(self)), meant)
        return replace(self, **values, explicit=frozenset(meant), unimplemented=others, source=source, beneath=self)  # type: ignore[arg-type]

    def sets(self, name: str) -> bool:
        """Return whether this layer sets the key; the lowest layer also sets every value that is not the default."""
        is_default = self.beneath is not None or self.get(name) == definitions(type(self))[name].default
        return name in self.explicit or not is_default

    def is_explicit(self, name: str) -> bool:
        """Return whether any layer sets the key."""
        return any(layer.sets(name) for layer in self.layers)
