"""The Kafka client keys that a read and a write accept as options `kafka.*`."""

import functools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.clients.settings import ClientSettings, make_settings, why_ignored
from odradek.config.definition import boolean, definitions, integer, text
from odradek.model import ConfigurationError
from odradek.model.suggestions import similar_names

_log = logging.getLogger("odradek.spark")

_REFUSED: Final = {
    "partitioner.class": "partitioners are Java classes: name the partition in a column partition",
    "transactional.id": "with guarantee=exactly_once, transactionalIdPrefix names the transactions",
}
_SILENT: Final = frozenset({"group.id"})
"""Keys that are not warned of: `StreamReader` commits to this group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSettings(ClientSettings):
    """The keys of a read."""

    isolation_level: str = text(
        "isolation.level",
        "read_uncommitted",
        "read_committed leaves out aborted and open transactions.",
        choices=("read_uncommitted", "read_committed"),
    )
    max_partition_fetch_bytes: int = integer(
        "max.partition.fetch.bytes", 4 << 20, "Bytes per partition in a fetch; larger batches come whole.", minimum=1
    )
    fetch_max_wait_ms: int = integer(
        "fetch.max.wait.ms", 500, "How long a broker waits for records that it does not have yet.", minimum=0
    )
    check_crcs: bool = boolean("check.crcs", True, "Whether the checksum of every batch is compared.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings(ClientSettings):
    """The keys of a write."""

    acks: str = text("acks", "all", "The replicas that must acknowledge a batch.", choices=("all", "-1", "1"))
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
        "Whether brokers may create a missing topic when its metadata is requested.",
    )
    enable_idempotence: bool = boolean(
        "enable.idempotence", True, "Whether brokers drop a batch that a task sends a second time."
    )
    transaction_timeout_ms: int = integer(
        "transaction.timeout.ms",
        900_000,
        "With guarantee=exactly_once, on brokers without two-phase commit: the time from a task's first record to the "
        "commit of its batch.",
        minimum=1,
    )


S = TypeVar("S", bound=ClientSettings)


def client_settings(cls: type[S], bootstrap_servers: str, client: Mapping[str, str], *, in_task: bool = False) -> S:
    """Return the settings in `client`, which are `kafka.*` options without their prefix.

    A key that has no effect is logged as a warning, once per process and never `in_task`. Raise `ConfigurationError`
    for an unsupported or misspelt key, or a value out of range.
    """
    known = definitions(cls)
    values: dict[str, object] = {"bootstrap_servers": bootstrap_servers}
    for key, value in client.items():
        if key in known:
            values[known[key].attribute] = value
        elif key in _REFUSED:
            raise ConfigurationError(f"kafka.{key} can't be set: {_REFUSED[key]}")
        elif key not in _SILENT:
            _check_ignored(key, known, cls)
            if not in_task:
                _warn_once(key)
    return make_settings(cls, values)


def _check_ignored(key: str, known: Iterable[str], cls: type[ClientSettings]) -> None:
    """Raise `ConfigurationError` for a key that is misspelt, and as `why_ignored` does."""
    others = _of_java_clients()
    try:
        why = why_ignored(key, {*known, *others}, (cls,))
    except ConfigurationError as error:
        raise ConfigurationError(f"an option kafka.*: {error}") from None
    if key not in others and similar_names(key, {*known, *others}, cutoff=0.85):
        raise ConfigurationError(f"an option kafka.*: {why}")


@functools.cache
def _of_java_clients() -> frozenset[str]:
    """Return the keys of Kafka's consumer and producer in Java."""
    from odradek.clients.consumer.settings import ConsumerSettings
    from odradek.clients.producer import ProducerSettings

    return frozenset(
        key for each in (ConsumerSettings, ProducerSettings) for key in (*definitions(each), *each.absent_keys())
    )


@functools.cache
def _warn_once(key: str) -> None:
    _log.warning("the option kafka.%s has no effect: no client of Odradek has it", key)


def member_keywords(bootstrap_servers: str, client: Mapping[str, str], group: Mapping[str, str]) -> dict[str, Any]:
    """Return keyword arguments for a consumer in a group. Raise `ConfigurationError` for an invalid value."""
    from odradek.clients.consumer.settings import ConsumerSettings, consumer_settings

    known = definitions(ConsumerSettings)
    keywords = shared_keywords(bootstrap_servers, client) | {known[key].attribute: group[key] for key in group}
    if (level := client.get("isolation.level")) is not None:
        keywords["isolation_level"] = level
    if (strategies := group.get("partition.assignment.strategy")) is not None:
        keywords["partition_assignment_strategy"] = [name.strip() for name in strategies.split(",")]
    consumer_settings(keywords)
    return keywords


def shared_keywords(bootstrap_servers: str, client: Mapping[str, str]) -> dict[str, Any]:
    """Return those `kafka.*` keys that every client accepts, as keyword arguments for an `Admin`."""
    known = definitions(ClientSettings)
    shared = {known[key].attribute: value for key, value in client.items() if key in known}
    return shared | {"bootstrap_servers": bootstrap_servers}
