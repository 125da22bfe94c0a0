"""The sources of configuration values, with their numbers in DescribeConfigs, strongest first."""

from enum import IntEnum


class ConfigSource(IntEnum):
    """A source of configuration values (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    GROUP_CONFIG = 8
