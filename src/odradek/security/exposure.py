"""Checks of listeners: whether other machines can reach their hosts."""

import re
from collections.abc import Iterable
from typing import Final

_IPV4_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}")


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable only from this machine. Names other than `localhost` are not resolved."""
    return host.lower() in {"localhost", "::1"} or _IPV4_LOOPBACK.fullmatch(host) is not None


def exposed_listeners(hosts: Iterable[str]) -> list[str]:
    """Return the `hosts` that are reachable from other machines; an empty host means every interface.

    Their listeners need --allow-anonymous-network, as there is no authentication.
    """
    return [host for host in hosts if not is_loopback(host)]
