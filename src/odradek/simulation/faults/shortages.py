"""Faults of limited resources of a broker: sockets, connections and memory for requests."""

import asyncio
from contextlib import suppress
from typing import Final

from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.setup import MOST_CONNECTIONS, REQUEST_BYTES
from odradek.simulation.wire_client import WireClient

CROWD: Final = "crowd"
"""The host of clients that take a broker's connections or memory."""


async def take_sockets(schedule: Schedule, one: int, other: int) -> None:
    """Let a broker open and accept no more sockets (EMFILE); clients connect, and are not answered."""
    del other
    schedule.world.simulation.network.exhaust(schedule.world.hosts[one])


async def crowd(schedule: Schedule, one: int, other: int) -> None:
    """Open connections to a broker until it refuses more, and hold them."""
    del other
    await asyncio.gather(*(_connect(schedule, one, b"") for _ in range(MOST_CONNECTIONS)))


async def hoard(schedule: Schedule, one: int, other: int) -> None:
    """Send two requests, each without its last byte, that together exceed a broker's memory for requests."""
    del other
    size = REQUEST_BYTES * 3 // 4
    for _ in range(2):
        await _connect(schedule, one, size.to_bytes(4, "big") + bytes(size - 1))


async def _connect(schedule: Schedule, one: int, data: bytes) -> None:
    """Connect to a broker, send data, and hold the connection until the faults end or the broker closes it."""
    network, host = schedule.world.simulation.runtime(CROWD).network, schedule.world.hosts[one]
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            client = await WireClient.connect(network, host, client_id=CROWD)
        client.transport.write(data)

        async def disconnect() -> None:
            client.transport.abort()

        schedule.repair_later(disconnect)
