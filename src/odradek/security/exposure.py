"""Which listeners are reachable from beyond the machine (DESIGN 5: those need --allow-anonymous-network)."""

import re
from collections.abc import Iterable
from typing import Final

_IPV4_LOOPBACK: Final = re.compile(r"127(\.\d{1,3}){3}")


def is_loopback(host: str) -> bool:
    """Whether nobody beyond the machine reaches `host`. Names are not looked up: of them only `localhost` is safe."""
    return host.lower() in {"localhost", "::1"} or _IPV4_LOOPBACK.fullmatch(host) is not None


def exposed_listeners(hosts: Iterable[str]) -> list[str]:
    """Those of `hosts` that are reachable from outside; an empty one is every interface."""
    return [host for host in hosts if not is_loopback(host)]
