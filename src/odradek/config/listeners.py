"""Addresses of listeners in text form, Kafka's `NAME://HOST:PORT`, and lists of settings by listener or address."""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from odradek.model import ConfigurationError, SecurityProtocol, address_text, parse_host_port


class ListenerAddress(NamedTuple):
    """A listener's name, host and port. `listener.security.protocol.map` gives the name's security protocol."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{address_text(self.host, self.port)}"


def parse_listener(text: str) -> ListenerAddress:
    """Parse `NAME://HOST:PORT`, or `HOST:PORT` for the name PLAINTEXT. Raises `ConfigurationError` for other text."""
    name, separator, address = text.strip().rpartition("://")
    if separator and not name.replace("_", "").replace("-", "").isalnum():
        raise ConfigurationError(f"a listener is NAME://HOST:PORT, not {text!r}")
    host, port = parse_host_port(address)
    return ListenerAddress(name=name.upper() or "PLAINTEXT", host=host, port=port)


def parse_protocol_map(items: Sequence[str]) -> Mapping[str, SecurityProtocol]:
    """Parse `NAME:PROTOCOL` items. Raises `ConfigurationError` for other text, and for a name that is there twice."""
    found: dict[str, SecurityProtocol] = {}
    for item in items:
        name, _, protocol = item.upper().partition(":")
        if not name or protocol not in SecurityProtocol.__members__ or name in found:
            raise ConfigurationError(
                f"listener.security.protocol.map has each listener name once, as NAME:PROTOCOL with a protocol of "
                f"{', '.join(SecurityProtocol.__members__)}, not {item!r}"
            )
        found[name] = SecurityProtocol(protocol)
    return found


@lru_cache(maxsize=8)
def parse_ip_counts(text: str) -> Mapping[str, int]:
    """Parse `ADDRESS:NUMBER,…`, IPv6 with or without brackets. Raises `ConfigurationError` for other text."""
    found: dict[str, int] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        address, _, count = item.rpartition(":")
        if not (count.isascii() and count.isdigit() and len(count) <= 10):
            raise ConfigurationError(f"max.connections.per.ip.overrides has ADDRESS:NUMBER, not {item!r}")
        try:
            found[str(ipaddress.ip_address(address.strip("[] ")))] = int(count)
        except ValueError:
            raise ConfigurationError(f"max.connections.per.ip.overrides: {address!r} is not an address") from None
    return MappingProxyType(found)
