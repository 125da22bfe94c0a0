"""The producer's configuration: the keys and defaults of Kafka 4, and checks across keys."""

from collections.abc import Mapping
from dataclasses import replace

from odradek.clients.settings import ClientSettings, make_settings
from odradek.config.definition import INT_MAX, boolean, integer, text
from odradek.model import ConfigurationError
from odradek.model.values import dataclass
from odradek.protocol.compression import Codec

_MAX_IN_FLIGHT = 5
"""Brokers remember the last five batches of an idempotent producer per partition; a sixth could be duplicated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """The producer's keys, besides those of all clients."""

    acks: str = text(
        "acks",
        "all",
        "Which replicas must have a record before it counts as delivered.",
        choices=("all", "-1", "0", "1"),
    )
    linger_ms: int = integer("linger.ms", 5, "How long a batch waits for more records.", minimum=0)
    batch_size: int = integer("batch.size", 16_384, "Bytes of a batch; a larger record is a batch alone.", minimum=1)
    buffer_memory: int = integer("buffer.memory", 32 << 20, "Bytes of memory for undelivered records.", minimum=1)
    compression_type: str = text(
        "compression.type", "none", "How batches are compressed.", choices=("none", "gzip", "snappy", "lz4", "zstd")
    )
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
    partitioner_ignore_keys: bool = boolean("partitioner.ignore.keys", False, "Whether `adaptive` ignores keys.")
    partitioner_adaptive_partitioning_enable: bool = boolean(
        "partitioner.adaptive.partitioning.enable", True, "Whether `adaptive` gives slow brokers less."
    )

    @property
    def required_acks(self) -> int:
        """Return `acks` as in the Produce request: -1 is all."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def codec(self) -> Codec:
        """Return the codec of `compression_type`."""
        return Codec[self.compression_type.upper()]


def producer_settings(values: Mapping[str, object]) -> ProducerSettings:
    """Create settings from keywords. Raises `ConfigurationError`, also for contradictory values.

    As in Kafka, idempotence is disabled if another key excludes it and `enable_idempotence` is not given, and a
    `delivery_timeout_ms` that is not given is raised to its minimum.
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
    return settings


def _idempotence_conflict(settings: ProducerSettings) -> str | None:
    """Return what must change to enable idempotence."""
    if settings.required_acks != -1:
        return f"acks=all, not {settings.acks}"
    if settings.max_in_flight_requests_per_connection > _MAX_IN_FLIGHT:
        return f"max_in_flight_requests_per_connection of at most {_MAX_IN_FLIGHT}"
    if settings.retries == 0:
        return "retries above 0"
    return None
