"""Dynamic broker configuration (KIP-226): the keys that change at run time, and the effective configuration.

    own        /config/brokers/{id}           DYNAMIC_BROKER_CONFIG
    all        /config/brokers/<default>      DYNAMIC_DEFAULT_BROKER_CONFIG
    static     file and command line          STATIC_BROKER_CONFIG
    default                                   DEFAULT_CONFIG

A dynamic key is read at each use, or passed to its users when it changes. Changing any other key is refused: a key that
is only read at the start, a key of a mechanism that this broker lacks (`unimplemented_keys`), an unknown key.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource, Definition
from odradek.config.replaced_keys import REPLACED_KEYS
from odradek.config.topic import topic_config
from odradek.config.unimplemented_keys import check_dynamic, unimplemented_keys
from odradek.model import ConfigurationError

DYNAMIC: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "follower.replication.throttled.rate",
        "group.consumer.assignment.interval.ms",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.threads",
        "log.cleanup.policy",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.local.retention.bytes",
        "log.local.retention.ms",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.remote.copy.lag.bytes",
        "log.remote.copy.lag.ms",
        "log.retention.bytes",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.decompressed.message.bytes",
        "message.max.bytes",
        "min.insync.replicas",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "transaction.partition.verification.enable",
        "unclean.leader.election.enable",
    }
)
"""Kafka's dynamic keys that are implemented here."""


_LAYERS: Final = (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
"""The dynamic layers, the weaker one first."""


def validate_broker_overrides(config: BrokerConfig, overrides: Mapping[str, str], source: ConfigSource) -> None:
    """Raise `ConfigurationError` unless `overrides` are valid as the dynamic layer `source` of `config`."""
    for name, text in overrides.items():
        _check_key(name, text, source)
    layers = {layer.source: _texts(layer) for layer in config.layers[:-1]} | {source: overrides}
    result = config.layers[-1]
    for each in _LAYERS:
        result = _with_layer(result, layers.get(each, {}), each)


def broker_config_in_force(
    static: BrokerConfig, for_all: Mapping[str, str], own: Mapping[str, str]
) -> tuple[BrokerConfig, list[str]]:
    """Return the effective configuration, and a sentence for each invalid part of the overrides that was left out.

    The overrides `for_all` brokers and the broker's `own` come from the metadata tree, where tools may write anything.
    """
    config = static
    ignored: list[str] = []
    for overrides, source in zip((for_all, own), _LAYERS, strict=True):
        usable = dict(overrides)
        for name, problem in _problems(overrides, source):
            ignored.append(problem)
            del usable[name]
        try:
            config = _with_layer(config, usable, source)
        except ConfigurationError as error:
            ignored.append(str(error))
    return config, ignored


def _with_layer(config: BrokerConfig, overrides: Mapping[str, str], source: ConfigSource) -> BrokerConfig:
    """Return `config` with another layer; the values that topics inherit from it must be valid, too."""
    if not overrides:
        return config
    result = config.overridden(overrides, source)
    topic_config(result, {})
    return result


def _problems(overrides: Mapping[str, str], source: ConfigSource) -> Iterator[tuple[str, str]]:
    known = BrokerConfig.definitions()
    for name, text in overrides.items():
        try:
            _check_key(name, text, source)
            if name in known:
                known[name].parse(text)
        except ConfigurationError as error:
            yield name, str(error)


def dynamic_definitions() -> dict[str, Definition]:
    """Return the definitions of a broker's keys by name, keys without effect included."""
    return {**{name: key.definition for name, key in unimplemented_keys().items()}, **BrokerConfig.definitions()}


def _check_key(name: str, text: str, source: ConfigSource) -> None:
    if name in DYNAMIC:
        return
    if name in REPLACED_KEYS:
        raise ConfigurationError(f"{name} cannot be changed: {REPLACED_KEYS[name]}")
    if name in BrokerConfig.definitions():
        raise ConfigurationError(
            f"{name} cannot be changed while the broker runs; set it in its file and start it again"
        )
    check_dynamic(name, text, BrokerConfig.definitions(), for_all=source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def _texts(layer: BrokerConfig) -> dict[str, str]:
    known = BrokerConfig.definitions()
    return {name: str(known[name].format(layer.get(name))) for name in layer.explicit}
