"""The entries of DescribeConfigs: each key's value, its source, and its synonyms.

An entry's synonyms are all settings of the key, strongest first; the first one determines the value.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from odradek import __version__
from odradek.config.broker import BrokerConfig
from odradek.config.definition import ConfigSource, ConfigType, Definition
from odradek.config.dynamic import DYNAMIC
from odradek.config.group import GroupConfig
from odradek.config.topic import TopicConfig, topic_config
from odradek.config.unimplemented_keys import unimplemented_keys


class ConfigSynonym(Struct, frozen=True, kw_only=True):
    """One setting of a key, or of a broker's key that the key falls back to."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(Struct, frozen=True, kw_only=True):
    """One key in DescribeConfigs. `read_only`: not changeable while the broker runs."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    doc: str
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool
    sensitive: bool = False


VERSION_KEY: Final = "odradek.version"
"""A read-only entry that is no key: Kafka's protocol has no field for the version of a broker's software."""


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """Return a broker's keys by name: all that are not internal, and the keys without effect that are set.

    Among them is `VERSION_KEY`.
    """
    unimplemented = sorted({name for layer in config.layers for name in layer.unimplemented})
    entries = [
        _entry(
            definition,
            _broker_synonyms(config, name),
            definition.format(config.get(name)),
            read_only=name not in DYNAMIC,
        )
        for name, definition in sorted(BrokerConfig.definitions().items())
        if not definition.internal
    ]
    return sorted(
        [
            *entries,
            _version_entry(),
            *(_unimplemented_entry(name, config.layers, with_default=True) for name in unimplemented),
        ],
        key=lambda each: each.name,
    )


def _version_entry() -> ConfigEntry:
    return ConfigEntry(
        name=VERSION_KEY,
        value=__version__,
        source=ConfigSource.DEFAULT_CONFIG,
        type=ConfigType.STRING,
        doc="The version of the broker's software.",
        synonyms=(),
        read_only=True,
    )


def describe_broker_defaults(config: BrokerConfig) -> list[ConfigEntry]:
    """Return the keys of the cluster-wide default configuration."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for layer in config.layers:
        for name in sorted(layer.explicit) if layer.source is source else ():
            definition = BrokerConfig.definitions()[name]
            value = definition.format(layer.get(name))
            synonyms = [ConfigSynonym(name=name, value=value, source=source)]
            entries.append(_entry(definition, synonyms, value, read_only=False))
        entries += [
            _unimplemented_entry(name, [layer], with_default=False)
            for name in sorted(layer.unimplemented)
            if layer.source is source
        ]
    return entries


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every key of a topic with these `overrides` on a broker of this `config`, by name."""
    complete = topic_config(config, overrides)
    entries = []
    for name, definition in sorted(TopicConfig.definitions().items()):
        synonyms = [synonym for key, _ in definition.synonyms for synonym in _broker_synonyms(config, key)]
        if name in overrides:
            own = ConfigSynonym(name=name, value=overrides[name], source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
            synonyms.insert(0, own)
        entries.append(_entry(definition, synonyms, definition.format(complete.get(name)), read_only=False))
    return entries


def describe_group(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """Return every key of a group with these `overrides` on a broker of this `config`, by name."""
    entries = []
    for name, definition in sorted(GroupConfig.definitions().items()):
        synonyms = [synonym for key, _ in definition.synonyms for synonym in _broker_synonyms(config, key)]
        if name in overrides:
            synonyms.insert(0, ConfigSynonym(name=name, value=overrides[name], source=ConfigSource.GROUP_CONFIG))
        entries.append(_entry(definition, synonyms, synonyms[0].value, read_only=False))
    return entries


def _entry(definition: Definition, synonyms: list[ConfigSynonym], value: str | None, *, read_only: bool) -> ConfigEntry:
    return ConfigEntry(
        name=definition.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        type=definition.type,
        doc=definition.doc,
        synonyms=tuple(synonyms),
        read_only=read_only,
        sensitive=definition.type in {ConfigType.UNKNOWN, ConfigType.PASSWORD},
    )


def _unimplemented_entry(name: str, layers: Sequence[BrokerConfig], *, with_default: bool) -> ConfigEntry:
    """Return the entry of a key without effect; an unknown key is sensitive, as in Kafka."""
    key = unimplemented_keys().get(name)
    unknown = Definition(name=name, type=ConfigType.UNKNOWN, default=None, doc="Unknown to this broker: no effect.")
    definition = unknown if key is None else key.definition
    synonyms = [
        ConfigSynonym(name=name, value=layer.unimplemented[name], source=layer.source)
        for layer in layers
        if name in layer.unimplemented
    ]
    value = synonyms[0].value
    default = definition.format(definition.default)
    if with_default and default is not None:
        synonyms.append(ConfigSynonym(name=name, value=default, source=ConfigSource.DEFAULT_CONFIG))
    is_fixed = key is None or key.mode == "read-only"
    return _entry(definition, synonyms, value, read_only=is_fixed)


def _broker_synonyms(config: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """Return the values of every layer that sets the broker's key, and the default if there is one."""
    definition = BrokerConfig.definitions()[name]
    found = [
        ConfigSynonym(name=name, value=definition.format(layer.get(name)), source=layer.source)
        for layer in config.layers
        if layer.sets(name)
    ]
    if definition.default is not None:
        value = definition.format(definition.default)
        found.append(ConfigSynonym(name=name, value=value, source=ConfigSource.DEFAULT_CONFIG))
    return found
