"""Kafka's broker keys that are refused, because another key or option replaces them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.model import ConfigurationError

REPLACED_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.dir": "use log.dirs, or --data-dir",
        "node.id": "use broker.id, or --broker-id",
        "process.roles": "there is no KRaft here: metadata lives in the tree named with --metadata",
        "zookeeper.connect": "use --metadata zookeeper://HOST:PORT/CHROOT",
    }
)
"""Refused key → what to use instead."""


def check_not_replaced(properties: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for a key that has a replacement."""
    for name, instead in REPLACED_KEYS.items():
        if name in properties:
            raise ConfigurationError(f"{name} is not supported: {instead}")
