"""The configuration of `ZookeeperConsumer`: the keys and defaults of Kafka 0.8."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from odradek.assignors import Assignor
from odradek.assignors.registry import KAFKA_0_8_CLASSES, KAFKA_CLASSES
from odradek.clients.settings import ABSENT_KEYS, RENAMED, ClientSettings, make_settings
from odradek.clients.zookeeper_consumer.machine.registration import validate_node_name
from odradek.config.definition import boolean, definitions, integer, text
from odradek.config.zookeeper import ZookeeperKeys
from odradek.model import ConfigurationError

_RESETS: Final = {"smallest": "earliest", "largest": "latest", "earliest": "earliest", "latest": "latest"}
_STRATEGIES: Final = {
    "range": "zookeeper-range",
    "roundrobin": "zookeeper-roundrobin",
    **{name.rpartition(".")[2]: own for name, own in KAFKA_0_8_CLASSES.items()},
    **KAFKA_0_8_CLASSES,
}
"""Kafka 0.8's names of its assignors → Odradek's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperConsumerSettings(ClientSettings, ZookeeperKeys):
    """The consumer's configuration keys, in addition to those of `ClientSettings`."""

    group_id: str = text("group.id", "default", "The group, which shares its topics' partitions.", kafka="no default")
    consumer_id: str | None = text(
        "consumer.id", None, "The consumer's name; its id is GROUP_NAME. Made from host and time.", nullable=True
    )
    partition_assignment_strategy: str = text(
        "partition.assignment.strategy", "zookeeper-range", "The assignor, the same for all consumers of a group."
    )
    zookeeper_session_timeout_ms: int = integer(
        "zookeeper.session.timeout.ms", 6_000, "How long a silent consumer keeps its partitions.", minimum=1
    )
    zookeeper_connection_timeout_ms: int = integer(
        "zookeeper.connection.timeout.ms", 6_000, "How long a call waits for a ZooKeeper server.", minimum=1
    )
    rebalance_max_retries: int = integer(
        "rebalance.max.retries", 4, "Attempts of a rebalance before it has failed.", minimum=1
    )
    rebalance_backoff_ms: int = integer(
        "rebalance.backoff.ms", 2_000, "The pause between two attempts of a rebalance.", minimum=0
    )
    auto_offset_reset: str = text(
        "auto.offset.reset", "largest", "Where to start without an offset.", choices=tuple(_RESETS)
    )
    auto_commit_enable: bool = boolean("auto.commit.enable", True, "Whether offsets are committed automatically.")
    auto_commit_interval_ms: int = integer(
        "auto.commit.interval.ms", 60_000, "The interval of automatic commits.", minimum=1
    )
    offsets_storage: str = text(
        "offsets.storage", "zookeeper", "Where offsets are kept.", choices=("zookeeper", "kafka")
    )
    dual_commit_enabled: bool = boolean(
        "dual.commit.enabled", True, "Whether offsets kept in Kafka are written to the tree, too, for a migration."
    )
    consumer_timeout_ms: int = integer(
        "consumer.timeout.ms", -1, "How long a stream waits for a record before it raises an error; -1: for ever.",
        minimum=-1,
    )  # fmt: skip
    exclude_internal_topics: bool = boolean(
        "exclude.internal.topics", True, "Whether a filter leaves internal topics out."
    )
    fetch_message_max_bytes: int = integer(
        "fetch.message.max.bytes", 1 << 20, "The maximum of bytes of one partition in a fetch.", minimum=1
    )
    fetch_min_bytes: int = integer(
        "fetch.min.bytes", 1, "The bytes that a broker collects before it answers.", minimum=0
    )
    fetch_wait_max_ms: int = integer(
        "fetch.wait.max.ms", 100, "How long a broker waits for fetch.min.bytes.", minimum=0
    )

    @classmethod
    def absent_keys(cls) -> Mapping[str, str]:
        own = definitions(cls)
        return ABSENT_KEYS | {new: f"use {old}" for old, new in RENAMED.items() if old in own}

    @property
    def of_all_clients(self) -> dict[str, Any]:
        """Return the values of `ClientSettings` without `bootstrap_servers`, for the clients that this one opens."""
        names = (each.name for each in fields(ClientSettings))
        return {name: getattr(self, name) for name in names if name != "bootstrap_servers"}

    @property
    def reset(self) -> str:
        """Return `auto_offset_reset` as `earliest` or `latest`."""
        return _RESETS[self.auto_offset_reset]


def zookeeper_strategy(strategy: str | Assignor) -> str | Assignor:
    """Return the strategy, by Odradek's name if `strategy` is a name of Kafka 0.8.

    Raises `ConfigurationError` for a class name of the modern consumer, whose rules are others.
    """
    if not isinstance(strategy, str):
        return strategy
    if strategy in KAFKA_CLASSES:
        of_0_8 = f"kafka.consumer.{strategy.rpartition('.')[2]}"
        raise ConfigurationError(
            f"{strategy} is an assignor of the modern consumer: a ZookeeperConsumer takes "
            + (f"{of_0_8} ({KAFKA_CLASSES[strategy]})" if of_0_8 in _STRATEGIES else " or ".join(KAFKA_0_8_CLASSES))
        )
    return _STRATEGIES.get(strategy, strategy)


def zookeeper_consumer_settings(values: Mapping[str, object]) -> ZookeeperConsumerSettings:
    """Create settings from keyword arguments. Raises `ConfigurationError` for unknown keys and invalid values."""
    if "bootstrap_servers" in values:
        raise ConfigurationError("bootstrap_servers is not a key of this consumer: it finds the brokers in the tree")
    settings = make_settings(ZookeeperConsumerSettings, values)
    if settings.consumer_timeout_ms == 0:
        raise ConfigurationError(
            "consumer_timeout_ms is 0, but a stream fetches only while it is read: give it 1 ms or more, or -1 to wait "
            "without limit"
        )
    validate_node_name("group_id", settings.group_id)
    if settings.consumer_id is not None:
        validate_node_name("consumer_id", settings.consumer_id)
    return settings
