"""Checks of listeners: whether other machines can reach their hosts, and whether their protocols are implemented."""

import re
from collections.abc import Iterable
from typing import Final

_IPV4_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}")
_PROTECTED: Final = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})
"""Kafka's security protocols that are not implemented. A listener that has the name of a protocol uses it."""


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable only from this machine. Names other than `localhost` are not resolved."""
    return host.lower() in {"localhost", "::1"} or _IPV4_LOOPBACK.fullmatch(host) is not None


def exposed_listeners(hosts: Iterable[str]) -> list[str]:
    """Return the `hosts` that are reachable from other machines; an empty host means every interface.

    Their listeners need --allow-anonymous-network, as there is no authentication.
    """
    return [host for host in hosts if not is_loopback(host)]


def unprotected_listeners(names: Iterable[str]) -> list[str]:
    """Return the listener `names` that are unimplemented security protocols."""
    return [name for name in names if name in _PROTECTED]
