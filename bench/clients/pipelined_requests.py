"""Workload of many connections that each send many small requests without waiting for responses."""

import asyncio
import signal
import struct
from contextlib import suppress
from typing import Final

import uvloop

from bench.clients.workloads import DEADLINE_SECONDS, Figures
from odradek.protocol.api import ApiKey

_READ_BYTES: Final = 256 * 1024
_CONNECTING_AT_ONCE: Final = 50
_METADATA_VERSION: Final = 1
"""The version whose request is 23 bytes: no flexible header, and null for all topics."""


def pipeline_requests(bootstrap_servers: str, *, connections: int, per_second: int) -> Figures:
    """Send `per_second` Metadata requests each second on every connection, until the process gets SIGTERM.

    A connection whose last requests are still in the client's buffer sends none in that second.
    """
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    with suppress(asyncio.CancelledError), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(host, int(port), connections, per_second))
    return {}


async def _run(host: str, port: int, connections: int, per_second: int) -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    buffer = bytearray(_READ_BYTES)
    transports: list[asyncio.Transport] = []
    while len(transports) < connections:
        count = min(_CONNECTING_AT_ONCE, connections - len(transports))
        made = await asyncio.gather(
            *(loop.create_connection(lambda: _Discard(buffer), host, port) for _ in range(count))
        )
        transports += [transport for transport, _ in made]
    requests = b"".join(_metadata_request(number) for number in range(per_second))
    print("started", flush=True)
    for _ in range(DEADLINE_SECONDS):
        for transport in transports:
            if not transport.get_write_buffer_size():
                transport.write(requests)
        await asyncio.sleep(1)


def _metadata_request(correlation_id: int) -> bytes:
    client_id = b"crowd"
    header = struct.pack(">hhih", ApiKey.METADATA, _METADATA_VERSION, correlation_id, len(client_id)) + client_id
    body = struct.pack(">i", -1)
    return struct.pack(">i", len(header) + len(body)) + header + body


class _Discard(asyncio.BufferedProtocol):
    """Reads responses into one buffer that all connections share, and discards them."""

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = buffer

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        pass
