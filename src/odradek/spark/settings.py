"""The Kafka client keys that a read and a write accept: the part of their options behind `kafka.`."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from odradek.clients.settings import ClientSettings, make_settings
from odradek.config.definition import boolean, definitions, integer, text, unknown_key
from odradek.model import ConfigurationError
from odradek.model.values import dataclass

_IGNORED: Final = frozenset(
    {
        "group.id",
        "linger.ms",
        "buffer.memory",
        "max.poll.records",
        "max.poll.interval.ms",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "auto.commit.interval.ms",
        "max.in.flight.requests.per.connection",
        "retries",
    }
)
"""Keys of the JVM's clients without an effect here: no group is joined, no batch lingers. Jobs often carry them
along."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings(ClientSettings):
    """The keys of a read."""

    isolation_level: str = text(
        "isolation.level",
        "read_uncommitted",
        "Whether records of transactions that did not end well are left out.",
        choices=("read_uncommitted", "read_committed"),
    )
    max_partition_fetch_bytes: int = integer(
        "max.partition.fetch.bytes", 4 << 20, "How much one fetch brings; a larger batch comes whole.", minimum=1
    )
    fetch_max_wait_ms: int = integer(
        "fetch.max.wait.ms", 500, "How long a broker waits for records that it does not have yet.", minimum=0
    )
    check_crcs: bool = boolean("check.crcs", True, "Whether the checksum of every batch is compared.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings(ClientSettings):
    """The keys of a write."""

    acks: str = text("acks", "all", "Which replicas have a batch before it counts.", choices=("all", "-1", "1"))
    compression_type: str = text(
        "compression.type",
        "none",
        "The codec of record batches.",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    )
    batch_size: int = integer("batch.size", 512 << 10, "About how many bytes a record batch has.", minimum=1)
    delivery_timeout_ms: int = integer(
        "delivery.timeout.ms", 120_000, "How long a batch is sent again before the task fails.", minimum=1
    )
    allow_auto_create_topics: bool = boolean(
        "allow.auto.create.topics",
        True,
        "Whether a topic that is not there is asked for, so that a broker may make it.",
    )
    enable_idempotence: bool = boolean(
        "enable.idempotence", True, "Whether brokers drop a batch that a task sends a second time."
    )


S = TypeVar("S", bound=ClientSettings)


def client_settings(cls: type[S], bootstrap_servers: str, client: Mapping[str, str]) -> S:
    """Return settings made of an option's `kafka.*` keys, which come without their prefix.

    Raise `ConfigurationError` for an unknown key, naming similar ones, or for a value out of range.
    """
    known = definitions(cls)
    values: dict[str, object] = {"bootstrap_servers": bootstrap_servers}
    for key, value in client.items():
        if key in _IGNORED:
            continue
        if key not in known:
            raise ConfigurationError(f"an option kafka.*: {unknown_key(key, known)}")
        values[known[key].attribute] = value
    return make_settings(cls, values)


def shared_keywords(bootstrap_servers: str, client: Mapping[str, str]) -> dict[str, Any]:
    """Return those `kafka.*` keys that every client accepts, as keyword arguments for an `Admin`."""
    known = definitions(ClientSettings)
    shared = {known[key].attribute: value for key, value in client.items() if key in known}
    return shared | {"bootstrap_servers": bootstrap_servers}
