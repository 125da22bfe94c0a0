"""Addresses in text form, `HOST:PORT` and `[IPV6]:PORT`: the function that writes them, and the one that reads."""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Final

from odradek.model.errors import ConfigurationError

_OF_IPV6: Final = frozenset("[:]")
_BOOTSTRAP: Final = re.compile(r"(?:(?:[A-Z0-9_.-]+|(?i:(?:sasl_)?(?:plaintext|ssl)))://)?([^\s/@,;]*)")
"""An address with the name of a listener, or without; a URL such as kafka+ssl://h:1 means more than that."""


def address_text(host: str, port: int | str) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host_port(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse `HOST:PORT`, where an empty host means every interface; IPv6 addresses are returned in their short form.

    With a default port, `HOST` alone is an address, too. Raises `ConfigurationError` for other text.
    """
    address = text.strip()
    host, colon, port = address.rpartition(":")
    if "://" in text:
        raise ConfigurationError(f"an address is HOST:PORT without a protocol, not {text!r}")
    if default_port is not None and (not colon or address.endswith("]")):
        host, colon, port = address, ":", str(default_port)
    if not colon or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65_535:
        raise ConfigurationError(f"an address is HOST:PORT with a port from 0 to 65535, not {text!r}")
    if not _OF_IPV6 & {*host}:
        return host, int(port)
    try:
        short = str(IPv6Address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        short = ""
    if not short or {*"[]"} & {*short}:
        raise ConfigurationError(f"an address is HOST:PORT or [IPV6]:PORT, not {text!r}")
    if not (host.startswith("[") and host.endswith("]")):
        raise ConfigurationError(f"an IPv6 address needs brackets: [{short}]:{port}")
    return short, int(port)


def parse_server(text: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse the address of a server to connect to, which has a host, and no port 0. Raises `ConfigurationError`."""
    host, port = parse_host_port(text, default_port)
    if not host or not port:
        raise ConfigurationError(f"a server's address is HOST:PORT with a port from 1 to 65535, not {text!r}")
    return host, port


def bootstrap_addresses(servers: Iterable[str]) -> tuple[str, ...]:
    """Return the HOST:PORT texts of `bootstrap.servers`; Kafka's clients ignore a protocol, and a comma at the end.

    Raises `ConfigurationError` for other text, and if there is no address.
    """
    texts = [text for each in servers for text in map(str.strip, each.split(",")) if text]
    if not texts:
        raise ConfigurationError("bootstrap_servers is empty: give the HOST:PORT of at least one broker")
    addresses = []
    for text in texts:
        found = _BOOTSTRAP.fullmatch(text)
        addresses.append(address_text(*parse_server(text if found is None else found[1])))
        if found is None:
            raise ConfigurationError(f"an address is HOST:PORT, not {text!r}")
    return tuple(addresses)
