"""A transport that tests drive by hand, and frames for its connection."""

import asyncio
import struct
from collections.abc import Iterable

from odradek.wire.connection import Connection

Data = bytes | bytearray | memoryview


class Transport(asyncio.Transport):
    """Takes everything, records what its connection does, and says that `unsent` bytes were not sent."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 4711)})
        self.sent: list[bytes] = []
        self.unsent = 0
        self.is_paused = self.is_closed = self.is_aborted = False

    def write(self, data: Data) -> None:
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        self.sent += map(bytes, list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def send(connection: Connection, transport: Transport | None, data: bytes) -> int:
    """Give a connection bytes, until it reads no more if its transport is given; return how many it took."""
    taken = 0
    while taken < len(data) and not (transport and (transport.is_paused or transport.is_closing())):
        space = connection.get_buffer(-1)
        count = min(len(space), len(data) - taken)
        space[:count] = data[taken : taken + count]
        del space
        connection.buffer_updated(count)
        taken += count
    return taken
