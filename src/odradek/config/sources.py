"""Where a value comes from, numbered as DescribeConfigs numbers it, strongest first."""

from enum import IntEnum


class ConfigSource(IntEnum):
    """The places that a configuration is looked for in (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
