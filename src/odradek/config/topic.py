"""A topic's keys, each with the broker's keys that it falls back to (its synonyms)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.config.broker import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    NO_PREALLOCATION,
    TIMESTAMP_TYPES,
    BrokerConfig,
)
from odradek.config.definition import (
    LONG_MAX,
    Definition,
    Value,
    boolean,
    definitions,
    double,
    integer,
    long,
    names,
    parse_all,
    text,
)
from odradek.model import ConfigurationError

ALL_PARTITIONS: Final = -1
"""Stands for every partition of a topic in `throttled_partitions`."""
_FOLLOWERS_THROTTLED: Final = "follower.replication.throttled.replicas"
_LEADERS_THROTTLED: Final = "leader.replication.throttled.replicas"
_REPLICA: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
_HOURS: Final = 3_600_000
_MINUTES: Final = 60_000


def _like(*broker_keys: str) -> tuple[tuple[str, int], ...]:
    """Return synonyms: each key with the milliseconds in its unit (hours or minutes), else 1."""
    units = {"hours": _HOURS, "minutes": _MINUTES}
    return tuple((key, units.get(key.rpartition(".")[2], 1)) for key in broker_keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective configuration of a topic. Raises `ConfigurationError` if a value is outside its limits."""

    cleanup_policy: tuple[str, ...] = names(
        "cleanup.policy",
        ("delete",),
        "What happens to old records: delete removes them, compact keeps the last of each key; without both all stay.",
        choices=CLEANUP_POLICIES,
        synonyms=_like("log.cleanup.policy"),
    )
    compression_type: str = text(
        "compression.type",
        "producer",
        "How batches are compressed; producer leaves them.",
        choices=COMPRESSION_TYPES,
        synonyms=_like("compression.type"),
    )
    compression_gzip_level: int = integer(
        "compression.gzip.level",
        -1,
        "The level if compression.type is gzip; -1 is gzip's own default.",
        minimum=-1,
        maximum=9,
        excluded=(0,),
        synonyms=_like("compression.gzip.level"),
    )
    compression_lz4_level: int = integer(
        "compression.lz4.level",
        9,
        "The level if compression.type is lz4.",
        minimum=1,
        maximum=17,
        synonyms=_like("compression.lz4.level"),
    )
    compression_zstd_level: int = integer(
        "compression.zstd.level",
        3,
        "The level if compression.type is zstd.",
        minimum=-131_072,
        maximum=22,
        synonyms=_like("compression.zstd.level"),
    )
    delete_retention_ms: int = long(
        "delete.retention.ms",
        86_400_000,
        "How long compaction keeps a key's tombstone.",
        minimum=0,
        synonyms=_like("log.cleaner.delete.retention.ms"),
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        "errors.deadletterqueue.group.enable", False, "No effect without share groups, as in Kafka."
    )
    file_delete_delay_ms: int = long(
        "file.delete.delay.ms",
        60_000,
        "How long deleted segments and partitions stay on disk.",
        minimum=0,
        synonyms=_like("log.segment.delete.delay.ms"),
    )
    flush_messages: int = long(
        "flush.messages",
        LONG_MAX,
        "Records between two flushes.",
        minimum=1,
        synonyms=_like("log.flush.interval.messages"),
    )
    flush_ms: int = long(
        "flush.ms",
        LONG_MAX,
        "Time between two flushes.",
        minimum=0,
        synonyms=_like("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    index_interval_bytes: int = integer(
        "index.interval.bytes",
        4096,
        "Bytes of log between two entries of its index.",
        minimum=0,
        synonyms=_like("log.index.interval.bytes"),
    )
    follower_replication_throttled_replicas: tuple[str, ...] = names(
        _FOLLOWERS_THROTTLED,
        (),
        "Replicas that fetch at a throttled rate, as PARTITION:BROKER,…; * is all.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = names(
        _LEADERS_THROTTLED,
        (),
        "Replicas that send to followers at a throttled rate, as PARTITION:BROKER,…; * is all.",
    )
    local_retention_bytes: int = long(
        "local.retention.bytes",
        -2,
        "No effect without tiered storage, as in Kafka; -2 is retention.bytes.",
        minimum=-2,
        synonyms=_like("log.local.retention.bytes"),
    )
    local_retention_ms: int = long(
        "local.retention.ms",
        -2,
        "No effect without tiered storage, as in Kafka; -2 is retention.ms.",
        minimum=-2,
        synonyms=_like("log.local.retention.ms"),
    )
    max_compaction_lag_ms: int = long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "The age by which a record must be compacted.",
        minimum=1,
        synonyms=_like("log.cleaner.max.compaction.lag.ms"),
    )
    max_decompressed_message_bytes: int = integer(
        "max.decompressed.message.bytes",
        2_147_483_639,
        "The largest decompressed record; the default is no limit.",
        honoured=(2_147_483_639,),
        reason="records are not limited by their decompressed size; max.message.bytes limits batches",
        synonyms=_like("max.decompressed.message.bytes"),
    )
    max_message_bytes: int = integer(
        "max.message.bytes", 1_048_588, "The largest record batch.", minimum=0, synonyms=_like("message.max.bytes")
    )
    message_timestamp_after_max_ms: int = long(
        "message.timestamp.after.max.ms",
        3_600_000,
        "How far ahead of the broker's a record's time may be.",
        minimum=0,
        synonyms=_like("log.message.timestamp.after.max.ms"),
    )
    message_timestamp_before_max_ms: int = long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far behind the broker's a record's time may be.",
        minimum=0,
        synonyms=_like("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_type: str = text(
        "message.timestamp.type",
        "CreateTime",
        "The producer's or the broker's time.",
        choices=TIMESTAMP_TYPES,
        synonyms=_like("log.message.timestamp.type"),
    )
    min_cleanable_dirty_ratio: float = double(
        "min.cleanable.dirty.ratio",
        0.5,
        "The share of the log that must be dirty before it is compacted.",
        minimum=0,
        maximum=1,
        synonyms=_like("log.cleaner.min.cleanable.ratio"),
    )
    min_compaction_lag_ms: int = long(
        "min.compaction.lag.ms",
        0,
        "The age from which a record may be compacted.",
        minimum=0,
        synonyms=_like("log.cleaner.min.compaction.lag.ms"),
    )
    min_insync_replicas: int = integer(
        "min.insync.replicas",
        1,
        "In-sync replicas that an append with acks=all needs.",
        minimum=1,
        synonyms=_like("min.insync.replicas"),
    )
    preallocate: bool = boolean(
        "preallocate",
        False,
        "Whether a segment takes its whole size at once; segments grow as they are written here.",
        honoured=(False,),
        reason=NO_PREALLOCATION,
        synonyms=_like("log.preallocate"),
    )
    remote_copy_lag_bytes: int = long(
        "remote.copy.lag.bytes",
        -1,
        "No effect without tiered storage, as in Kafka.",
        minimum=-1,
        synonyms=_like("log.remote.copy.lag.bytes"),
    )
    remote_copy_lag_ms: int = long(
        "remote.copy.lag.ms",
        0,
        "No effect without tiered storage, as in Kafka.",
        minimum=-1,
        synonyms=_like("log.remote.copy.lag.ms"),
    )
    remote_log_copy_disable: bool = boolean(
        "remote.log.copy.disable", False, "No effect without tiered storage, as in Kafka."
    )
    remote_log_delete_on_disable: bool = boolean(
        "remote.log.delete.on.disable", False, "No effect without tiered storage, as in Kafka."
    )
    remote_storage_enable: bool = boolean(
        "remote.storage.enable",
        False,
        "Whether segments are copied to tiered storage; there is none here.",
        honoured=(False,),
        reason="there is no tiered storage; leave it unset",
    )
    retention_bytes: int = long(
        "retention.bytes",
        -1,
        "A partition's largest size; -1 is no limit.",
        minimum=-1,
        synonyms=_like("log.retention.bytes"),
    )
    retention_ms: int = long(
        "retention.ms",
        604_800_000,
        "How long records are kept; -1 for ever.",
        minimum=-1,
        synonyms=_like("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    )
    segment_bytes: int = integer(
        "segment.bytes", 1_073_741_824, "A segment's largest size.", minimum=14, synonyms=_like("log.segment.bytes")
    )
    segment_index_bytes: int = integer(
        "segment.index.bytes",
        10_485_760,
        "An index's largest size.",
        minimum=4,
        synonyms=_like("log.index.size.max.bytes"),
    )
    segment_jitter_ms: int = long(
        "segment.jitter.ms",
        0,
        "Random time taken off a segment's greatest age.",
        minimum=0,
        synonyms=_like("log.roll.jitter.ms", "log.roll.jitter.hours"),
    )
    segment_ms: int = long(
        "segment.ms",
        604_800_000,
        "A segment's greatest age.",
        minimum=1,
        synonyms=_like("log.roll.ms", "log.roll.hours"),
    )
    unclean_leader_election_enable: bool = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica outside the ISR may lead, losing records.",
        synonyms=_like("unclean.leader.election.enable"),
    )

    def __post_init__(self) -> None:
        for definition in definitions(type(self)).values():
            definition.check(getattr(self, definition.attribute))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigurationError(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )
        for name in (_FOLLOWERS_THROTTLED, _LEADERS_THROTTLED):
            replicas = self.get(name)
            assert isinstance(replicas, tuple)
            if replicas != ("*",) and not all(map(_REPLICA.fullmatch, replicas)):
                raise ConfigurationError(
                    f"{name} must be the literal '*' or a list of replicas in the following format: "
                    "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
                )

    @classmethod
    def definitions(cls) -> Mapping[str, Definition]:
        """Return every key's definition by Kafka's name."""
        return definitions(cls)

    def get(self, name: str) -> Value:
        """Return the value of a key by Kafka's name. Raises `KeyError` for an unknown key."""
        value: Value = getattr(self, definitions(type(self))[name].attribute)
        return value


def throttled_partitions(replicas: tuple[str, ...], broker_id: int) -> frozenset[int]:
    """Return the partitions that a topic's throttled replicas name for this broker (KIP-73)."""
    pairs = (tuple(map(int, each.split(":"))) for each in replicas if each != "*")
    return frozenset(
        {ALL_PARTITIONS} if "*" in replicas else {number for number, broker in pairs if broker == broker_id}
    )


def topic_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """Return a topic's effective configuration: its `overrides` (Kafka's names and texts), else the broker's values.

    Raises `ConfigurationError` for unknown keys and for values outside their limits.
    """
    known = definitions(TopicConfig)
    values = {definition.attribute: _inherited(broker, definition) for definition in known.values()}
    values.update(parse_all(known, overrides, "topic"))
    return TopicConfig(**values)  # type: ignore[arg-type]


def validate_topic_overrides(broker: BrokerConfig, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Return `overrides` if they are valid. Raises `ConfigurationError`, also for a null value, as Kafka does."""
    present = {name: value for name, value in overrides.items() if value is not None}
    if len(present) != len(overrides):
        missing = sorted(overrides.keys() - present.keys())
        raise ConfigurationError(f"Null value not supported for topic configs: {','.join(missing)}")
    topic_config(broker, present)
    return present


def _inherited(broker: BrokerConfig, definition: Definition) -> Value:
    for name, unit in definition.synonyms:
        value = broker.get(name)
        if value is None:
            continue
        if unit != 1 and isinstance(value, int):
            return max(value * unit, -1)
        return value
    return definition.default
