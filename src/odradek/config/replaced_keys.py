"""Kafka's broker keys that another one replaces: Kafka 0.8's of the listener are translated, others are refused."""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.model import ConfigurationError, address_text

REPLACED_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.dir": "use log.dirs, or --data-dir",
        "node.id": "use broker.id, or --broker-id",
        "process.roles": "there is no KRaft here: metadata lives in the tree named with --metadata",
    }
)
"""Refused key → what to use instead."""
_LISTENER: Final = ("host.name", "port", "advertised.host.name", "advertised.port")
"""Kafka 0.8's keys of a broker's address."""
_log = logging.getLogger("odradek.config")


def with_listeners(properties: Mapping[str, str]) -> dict[str, str]:
    """Return `properties` with `listeners` and `advertised.listeners`, unless given, for Kafka 0.8's keys of them."""
    result = {name: text for name, text in properties.items() if name not in _LISTENER}
    old = {name: properties[name].strip() for name in _LISTENER if properties.get(name, "").strip()}
    if not old:
        return result
    host, port = old.get("host.name", "localhost").strip("[]"), old.get("port", "9092")
    advertised = old.get("advertised.host.name", host).strip("[]"), old.get("advertised.port", port)
    result.setdefault("listeners", f"PLAINTEXT://{address_text(host, port)}")
    if any(name.startswith("advertised.") for name in old):
        result.setdefault("advertised.listeners", f"PLAINTEXT://{address_text(*advertised)}")
    _log.info("%s: the listener is %s", ", ".join(f"{name}={text}" for name, text in old.items()), result["listeners"])
    return result


def check_not_replaced(properties: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for a key that has a replacement."""
    for name, instead in REPLACED_KEYS.items():
        if name in properties:
            raise ConfigurationError(f"{name} is not supported: {instead}")
