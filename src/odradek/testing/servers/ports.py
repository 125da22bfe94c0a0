"""Loopback ports for servers that need a port number before they start, or the same one after a restart."""

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
"""The assumed first ephemeral port if the system does not report it: Linux's default, the lowest of all systems."""
_TRIES: Final = 1000
_choose: Final = random.SystemRandom()
"""Not the global generator, which parallel test processes seed equally."""


class HeldPort:
    """A loopback port reserved for a server that restarts: the system gives it to no process that binds port 0.

    `number` is the wanted port, 0 for any. Linux lets the server bind the held port with SO_REUSEADDR, which asyncio
    sets. On other systems nothing is held. Raises `OSError` if the port is taken.
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
    """Return `count` free loopback ports, for servers that cannot bind port 0 and report the result.

    They are below the ephemeral ports, so that no connection takes one before the server does. Raises `OSError` if
    too few are free.
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
