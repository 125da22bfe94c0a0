"""Typed configuration of brokers, topics and groups, by Kafka's keys, and its parsing from Java's properties files.

Every key is a field of a frozen dataclass, named as the key with `_` for `.`: `config.log_segment_bytes` is the value
of `log.segment.bytes`. A changed configuration is a new value.

To add a key, declare a field in `broker`, `topic` or `group` by a function of `definition`, and delete the key from
the table of `unimplemented_keys`. If it can change while the broker runs, list it in `dynamic`, which combines file and
tree. If logs use it, add a field to `broker.log.log_config`.
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
from odradek.config.environment import EnvironmentSettings, read_environment
from odradek.config.group import GroupConfig, group_config
from odradek.config.listeners import ListenerAddress, parse_ip_counts, parse_listener
from odradek.config.load import load
from odradek.config.properties import decode_properties, parse_properties
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
    "EnvironmentSettings",
    "GroupConfig",
    "ListenerAddress",
    "TopicConfig",
    "Value",
    "altered",
    "broker_config_in_force",
    "check_alterations",
    "decode_properties",
    "describe_broker",
    "describe_broker_defaults",
    "describe_group",
    "describe_topic",
    "dynamic_definitions",
    "group_config",
    "load",
    "parse_ip_counts",
    "parse_listener",
    "parse_properties",
    "read_environment",
    "topic_config",
    "validate_broker_overrides",
    "validate_topic_overrides",
]
