"""Checks of listeners: whether other machines can reach their hosts."""

import re
from typing import Final

_IPV4_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}")


def is_loopback(host: str) -> bool:
    """Return whether `host` is reachable only from this machine.

    An empty host means every interface, so it is not loopback. Names other than `localhost` are not resolved.
    """
    return host.lower() in {"localhost", "::1"} or _IPV4_LOOPBACK.fullmatch(host) is not None
