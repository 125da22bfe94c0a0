"""Which listeners may be opened: what they promise must be kept, and who can reach them must be meant."""

import re
from collections.abc import Iterable
from typing import Final

_IPV4_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}")
_PROTECTED: Final = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""Kafka's security protocols that are not built here. A listener's name is its protocol, unless it is another word."""


def is_loopback(host: str) -> bool:
    """Whether nobody beyond the machine reaches `host`. Names are not looked up: of them only `localhost` is safe."""
    return host.lower() in {"localhost", "::1"} or _IPV4_LOOPBACK.fullmatch(host) is not None


def exposed_listeners(hosts: Iterable[str]) -> list[str]:
    """Those of `hosts` that are reachable from outside; an empty one is every interface.

    DESIGN 5: without authentication they need --allow-anonymous-network.
    """
    return [host for host in hosts if not is_loopback(host)]


def unprotected_listeners(names: Iterable[str]) -> list[str]:
    """Those of the listeners' `names` that promise encryption or authentication, which would not be kept."""
    return [name for name in names if name in _PROTECTED]
