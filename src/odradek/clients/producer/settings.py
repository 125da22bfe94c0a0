"""The producer's configuration: the keys and defaults of Kafka 4, and checks of combinations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from odradek.clients.settings import ABSENT_KEYS, ClientSettings, make_settings
from odradek.config.definition import INT_MAX, boolean, integer, long, text
from odradek.model import ConfigurationError
from odradek.protocol.batches.compression import Codec

_MAX_IN_FLIGHT = 5
"""Brokers detect duplicates only of the last five batches of an idempotent producer per partition."""

_ABSENT_KEYS = {
    "key.serializer": "pass a function as Producer(key_serializer=...)",
    "value.serializer": "pass a function as Producer(value_serializer=...)",
    "interceptor.classes": "pass objects as Producer(interceptors=...)",
    "metadata.max.idle.ms": "topics stay in the metadata until the producer is closed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The producer's configuration keys, in addition to those of `ClientSettings`."""

    acks: str = text(
        "acks",
        "all",
        "Which replicas must have a record before it counts as delivered.",
        choices=("all", "-1", "0", "1"),
    )
    linger_ms: int = integer("linger.ms", 5, "How long a batch waits for more records.", minimum=0)
    batch_size: int = integer(
        "batch.size", 16_384, "Bytes of a batch, compressed; a larger record is a batch alone.", minimum=0
    )
    buffer_memory: int = long("buffer.memory", 32 << 20, "Bytes of memory for undelivered records.", minimum=1)
    compression_type: str = text(
        "compression.type", "none", "How batches are compressed.", choices=("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_gzip_level: int = integer(
        "compression.gzip.level", -1, "gzip's effort, 1 to 9, or -1 for its default.", minimum=-1, maximum=9,
        excluded=(0,),
    )  # fmt: skip
    compression_lz4_level: int = integer("compression.lz4.level", 9, "lz4's effort.", minimum=1, maximum=17)
    compression_zstd_level: int = integer("compression.zstd.level", 3, "zstd's effort.", minimum=-131_072, maximum=22)
    enable_idempotence: bool = boolean(
        "enable.idempotence", True, "Whether retries neither duplicate nor reorder records."
    )
    max_in_flight_requests_per_connection: int = integer(
        "max.in.flight.requests.per.connection", 5, "Requests to a broker that may be unanswered.", minimum=1
    )
    retries: int = integer(
        "retries", INT_MAX, "How often a batch is retried; delivery.timeout.ms limits it too.", minimum=0
    )
    delivery_timeout_ms: int = integer(
        "delivery.timeout.ms", 120_000, "The time after `send` within which a record is delivered or fails.", minimum=1
    )
    max_block_ms: int = integer("max.block.ms", 60_000, "How long `send` waits for memory or for metadata.", minimum=0)
    max_request_size: int = integer("max.request.size", 1 << 20, "Bytes of a request, and of a record.", minimum=1)
    allow_auto_create_topics: bool = boolean(
        "allow.auto.create.topics",
        True,
        "Whether brokers may create a topic at its first use.",
        kafka="a key of librdkafka; Java's producer always allows it",
    )
    partitioner_class: str = text(
        "partitioner.class",
        "adaptive",
        "The rule that chooses partitions: a name, a class of Kafka's, or an import path.",
        kafka="null by default, which is the rule `adaptive`",
    )
    topic_metadata_refresh_interval_ms: int = integer(
        "topic.metadata.refresh.interval.ms",
        600_000,
        "How long `legacy` keeps the partition of records without a key.",
        minimum=0,
        kafka="a key of Kafka 0.8",
    )
    partitioner_ignore_keys: bool = boolean("partitioner.ignore.keys", False, "Whether `adaptive` ignores keys.")
    partitioner_adaptive_partitioning_enable: bool = boolean(
        "partitioner.adaptive.partitioning.enable", True, "Whether `adaptive` gives slow brokers less."
    )
    partitioner_availability_timeout_ms: int = long(
        "partitioner.availability.timeout.ms",
        0,
        "How long a broker may take no batches before `adaptive` skips its partitions; 0 is forever.",
        minimum=0,
    )
    transactional_id: str | None = text(
        "transactional.id",
        None,
        "The name under which transactions are kept: the same after a restart, of one producer at a time.",
        nullable=True,
    )
    transaction_timeout_ms: int = integer(
        "transaction.timeout.ms", 60_000, "The time after which the coordinator aborts a transaction.", minimum=1
    )
    transaction_two_phase_commit_enable: bool = boolean(
        "transaction.two.phase.commit.enable",
        False,
        "Whether transactions can be prepared, and have no timeout: see `prepare`.",
    )

    @classmethod
    def absent_keys(cls) -> Mapping[str, str]:
        return ABSENT_KEYS | _ABSENT_KEYS

    @property
    def required_acks(self) -> int:
        """Return `acks` as a number for Produce; -1 means `all`."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def codec(self) -> Codec:
        return Codec[self.compression_type.upper()]

    @property
    def compression_level(self) -> int | None:
        """Return the compression level of the codec; None if it has no levels."""
        levels = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.codec)


def producer_settings(values: Mapping[str, object]) -> ProducerSettings:
    """Create settings. Raises `ConfigurationError` for an unknown key, and for an invalid or contradictory value.

    As in Kafka, if `enable_idempotence` is not given and another key excludes it, idempotence is disabled; if
    `delivery_timeout_ms` is not given, its default is raised to `linger_ms + request_timeout_ms`.
    """
    settings = make_settings(ProducerSettings, values)
    if settings.enable_idempotence:
        conflict = _idempotence_conflict(settings)
        if conflict and "enable_idempotence" in values:
            raise ConfigurationError(f"enable_idempotence needs {conflict}")
        if conflict:
            settings = replace(settings, enable_idempotence=False)
    shortest_ms = settings.linger_ms + settings.request_timeout_ms
    if settings.delivery_timeout_ms < shortest_ms:
        if "delivery_timeout_ms" in values:
            raise ConfigurationError(
                f"delivery_timeout_ms is at least linger_ms + request_timeout_ms ({shortest_ms:,}), "
                f"not {settings.delivery_timeout_ms:,}"
            )
        settings = replace(settings, delivery_timeout_ms=shortest_ms)
    if conflict := _transaction_conflict(settings, values):
        raise ConfigurationError(conflict)
    return settings


def _transaction_conflict(settings: ProducerSettings, values: Mapping[str, object]) -> str | None:
    """Return what is wrong with the settings of transactions, as a sentence; None if they are valid."""
    two_phase = settings.transaction_two_phase_commit_enable
    if values.get("transactional_id") == "":
        return "transactional_id is empty: give a name that no other producer has"
    if settings.transactional_id is None:
        return "transaction_two_phase_commit_enable needs a transactional_id" if two_phase else None
    if not settings.enable_idempotence:
        return f"transactional_id needs {_idempotence_conflict(settings) or 'enable_idempotence'}"
    if two_phase and "transaction_timeout_ms" in values:
        return "prepared transactions have no timeout: give no transaction_timeout_ms"
    return None


def _idempotence_conflict(settings: ProducerSettings) -> str | None:
    """Return a requirement of idempotence that the settings violate, as text; None without one."""
    if settings.required_acks != -1:
        return f"acks=all, not {settings.acks}"
    if settings.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT:
        return f"max_in_flight_requests_per_connection of at most {_MAX_IN_FLIGHT}"
    if settings.retries == 0:
        return "retries above 0"
    return None
