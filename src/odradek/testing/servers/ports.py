"""Ports for servers that need theirs before they start, and for servers that restart."""

import random
import socket
import sys
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

_LOWEST: Final = 10_000
_OF_CONNECTIONS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_OF_CONNECTIONS: Final = 32_768
"""Linux's default, which is below that of other systems."""
_TRIES: Final = 1000
_choose: Final = random.SystemRandom()
"""A generator of its own: tests that run at the same time set the same seed for the global one."""


class HeldPort:
    """A port of loopback for a server that restarts: no process that takes any port gets it meanwhile.

    `number` is the wanted port, 0 for any. The server binds it beside this, as Linux allows with SO_REUSEADDR, which
    asyncio sets. On other systems nothing is held. Raises `OSError` if the port is taken.
    """

    def __init__(self, number: int = 0) -> None:
        held = socket.socket()
        self._release = weakref.finalize(self, held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", number))
        self.number: int = held.getsockname()[1]
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Stop holding the port."""
        self._release()


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback, for servers that can't report which free port they took.

    No connection takes them before the server does: they are below those that the system hands out. Raises `OSError`
    if there are none.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for _ in range(_TRIES):
            if len(ports) == count:
                return ports
            taken = held.enter_context(socket.socket())
            with suppress(OSError):
                taken.bind(("127.0.0.1", _choose.randrange(_LOWEST, _first_of_connections())))
                ports.append(taken.getsockname()[1])
    raise OSError(f"no {count} free ports on loopback")


def _first_of_connections() -> int:
    try:
        first = int(_OF_CONNECTIONS.read_text().split()[0])
    except OSError:
        return _FIRST_OF_CONNECTIONS
    return first if first > _LOWEST else _FIRST_OF_CONNECTIONS
