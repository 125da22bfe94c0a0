"""Addresses in text form: `HOST:PORT`, `[IPV6]:PORT`, and Kafka's `NAME://HOST:PORT`."""

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from odradek.model import ConfigurationError, SecurityProtocol


class ListenerAddress(NamedTuple):
    """A listener's name, host and port. `listener.security.protocol.map` gives the name's security protocol."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_host_port(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, where an empty host means every interface. Raises `ConfigurationError` for other text."""
    host, colon, port = text.strip().rpartition(":")
    if "://" in text:
        raise ConfigurationError(f"an address is HOST:PORT without a protocol, not {text!r}")
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65_535:
        raise ConfigurationError(f"an address is HOST:PORT with a port from 0 to 65535, not {text!r}")
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ConfigurationError(f"an IPv6 address needs brackets: [{host}]:{port}")
    return host, int(port)


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
