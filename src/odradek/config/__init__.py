"""Kafka's configuration keys, typed: a broker's, a topic's, and Java's properties files.

Every key is a field of a frozen dataclass, named as the key with `_` for `.`: `config.log_segment_bytes` is the value
of `log.segment.bytes`, an `int` to mypy. No clock and no state; a changed configuration is a new value.

A new key is a field in `broker`, `topic` or `group`, declared by a function of `definition` (type, default, limits,
text form); one of Kafka's leaves the table of `unimplemented_keys`. A broker's key that can change while the broker
runs is also listed in `dynamic`, which combines file and tree. A key that logs use is also a field in `log.log_config`.

`unimplemented_keys` has Kafka's keys for mechanisms that this broker lacks, which are kept without effect, and usual
keys that are ignored with a warning; `replaced_keys` has keys that are refused with a replacement. `consistency` has
conditions of keys. `altering` and `describe` serve requests that change and describe configurations. `load` reads a
file by `properties`, and `listeners` parses addresses.

`toml_table` reads the TOML files of pipelines and of the lab.
"""

from odradek.config.altering import Alteration, AlterOperation, altered, check_alterations
from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX, ConfigSource, ConfigType, Definition, Value
from odradek.config.describe import (
    ConfigEntry,
    ConfigSynonym,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from odradek.config.dynamic import DYNAMIC, broker_config_in_force, dynamic_definitions, validate_broker_overrides
from odradek.config.group import GroupConfig, group_config
from odradek.config.listeners import ListenerAddress, parse_host_port, parse_ip_counts, parse_listener
from odradek.config.load import load
from odradek.config.properties import parse_properties
from odradek.config.topic import TopicConfig, topic_config, validate_topic_overrides

__all__ = [
    "DYNAMIC",
    "LONG_MAX",
    "AlterOperation",
    "Alteration",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Definition",
    "GroupConfig",
    "ListenerAddress",
    "TopicConfig",
    "Value",
    "altered",
    "broker_config_in_force",
    "check_alterations",
    "describe_broker",
    "describe_broker_defaults",
    "describe_group",
    "describe_topic",
    "dynamic_definitions",
    "group_config",
    "load",
    "parse_host_port",
    "parse_ip_counts",
    "parse_listener",
    "parse_properties",
    "topic_config",
    "validate_broker_overrides",
    "validate_topic_overrides",
]
