"""The configuration of a log: Kafka's topic keys, the broker's overridden by the topic's, and a few broker keys."""

import logging
from collections.abc import Hashable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX
from odradek.config.topic import TopicConfig, throttled_partitions, topic_config
from odradek.metadata.image import TopicImage
from odradek.model import ConfigurationError

LOG_APPEND_TIME: Final = "LogAppendTime"


class LogConfig(Struct, frozen=True, kw_only=True):
    """Kafka's topic keys with `_` for `.`, and Kafka's defaults. Sizes in bytes, times in ms; -1 means no limit.

    `leader_throttled` and `follower_throttled` are the topic's partitions that this broker sends and fetches at a
    throttled rate; `ALL_PARTITIONS` among them stands for all. `flush_group` is `log.flush.mode=group`: each write is
    synced before it can be read. `discard_writes`, for benchmarks, drops records. `validate_all` is
    `log.validate.records=all`; `validate_max_bytes` limits a decompressed batch.
    """

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = 86_400_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    flush_group: bool = False
    producer_id_expiration_ms: int = 86_400_000
    validate_all: bool = True
    validate_max_bytes: int = 104_857_600
    discard_writes: bool = False
    leader_throttled: frozenset[int] = frozenset()
    follower_throttled: frozenset[int] = frozenset()

    @classmethod
    def of(cls, broker: BrokerConfig, topic: TopicConfig) -> "LogConfig":
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=topic.segment_ms,
            segment_jitter_ms=topic.segment_jitter_ms,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            cleanup_policy=topic.cleanup_policy,
            delete_retention_ms=topic.delete_retention_ms,
            min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=topic.min_compaction_lag_ms,
            max_compaction_lag_ms=topic.max_compaction_lag_ms,
            file_delete_delay_ms=topic.file_delete_delay_ms,
            max_message_bytes=topic.max_message_bytes,
            compression_type=topic.compression_type,
            compression_gzip_level=topic.compression_gzip_level,
            compression_lz4_level=topic.compression_lz4_level,
            compression_zstd_level=topic.compression_zstd_level,
            min_insync_replicas=topic.min_insync_replicas,
            message_timestamp_type=topic.message_timestamp_type,
            message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
            flush_messages=topic.flush_messages,
            flush_ms=topic.flush_ms,
            flush_group=broker.log_flush_mode == "group",
            producer_id_expiration_ms=broker.producer_id_expiration_ms,
            validate_all=broker.log_validate_records == "all",
            validate_max_bytes=broker.log_validate_max_bytes,
            discard_writes=broker.bench_discard_writes,
            leader_throttled=throttled_partitions(topic.leader_replication_throttled_replicas, broker.broker_id),
            follower_throttled=throttled_partitions(topic.follower_replication_throttled_replicas, broker.broker_id),
        )


_log = logging.getLogger("odradek.broker")
_MOST_CACHED: Final = 100


class TopicLogConfigs:
    """Makes log configurations, and caches some: most topics of a cluster have the same one."""

    def __init__(self) -> None:
        self._broker: BrokerConfig | None = None
        self._cache: dict[Hashable, LogConfig] = {}

    def of(self, name: str, topic: TopicImage | None, broker: BrokerConfig) -> LogConfig:
        """Return the configuration of a topic's logs. `topic` is None if the image does not have it.

        If the topic's configuration is unknown or invalid, `cleanup.policy` is empty, as the topic's retention may be
        longer than the broker's.
        """
        if self._broker is not broker or len(self._cache) > _MOST_CACHED:
            self._broker, self._cache = broker, {}
        is_known = topic is not None and topic.is_config_known
        key: Hashable = is_known, frozenset(() if topic is None else topic.config.items())
        config = self._cache.get(key) or self._cache.get((name, key))
        if config is None:
            own = topic_config(broker, {})
            try:
                own = own if topic is None else topic_config(broker, topic.config)
            except ConfigurationError as error:
                _log.error("the configuration of topic %s is ignored, and nothing of it is deleted: %s", name, error)
                is_known, key = False, (name, key)
            config = LogConfig.of(broker, own)
            if not is_known:
                config = replace(config, cleanup_policy=())
            self._cache[key] = config
        return config
