"""A TLS transport that gets its data in pieces.

TLS transports of asyncio and uvloop encrypt all that is written at once, pass it to the transport below, and count none
of it as unsent: a client that does not read its responses would hold any amount of memory, and no limit would see it.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

_PIECE_BYTES: Final = 64 * 1024
"""The most that is encrypted at once. A buffer of this size makes the transport below pause the TLS transport, which
then counts further pieces as unsent."""


class PacedTransport(asyncio.Transport):
    """Passes data to `tls` until that pauses the protocol; the rest waits here, and is counted.

    The protocol calls `write_more` from its `resume_writing`.
    """

    def __init__(self, tls: asyncio.Transport) -> None:
        self._tls = tls
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._high_bytes = _PIECE_BYTES
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write data, now or when there is room."""
        if not self._waiting and len(data) <= _PIECE_BYTES and self._tls.get_write_buffer_size() < self._high_bytes:
            self._tls.write(data)  # most often; the rest of this class costs a small response a microsecond more
            return
        view = memoryview(data)
        self._waiting.append(view)
        self._waiting_bytes += len(view)
        self.write_more()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def write_more(self) -> bool:
        """Pass on what fits, and return whether nothing waits any more."""
        tls, waiting = self._tls, self._waiting
        while waiting and tls.get_write_buffer_size() < self._high_bytes:
            view = waiting.popleft()
            if len(view) > _PIECE_BYTES:
                waiting.appendleft(view[_PIECE_BYTES:])
                view = view[:_PIECE_BYTES]
            self._waiting_bytes -= len(view)
            tls.write(view)
        if self._is_closing and not waiting:
            tls.close()
        return not waiting

    def get_write_buffer_size(self) -> int:
        """Return the bytes that are unsent, here and in `tls`."""
        return self._waiting_bytes + self._tls.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the number of unsent bytes in `tls` that pauses the protocol."""
        self._high_bytes = _PIECE_BYTES if high is None else high
        self._tls.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._tls.pause_reading()

    def resume_reading(self) -> None:
        self._tls.resume_reading()

    def close(self) -> None:
        """Close when everything is sent; nothing more is read."""
        self._is_closing = True
        if self._waiting:
            self._tls.pause_reading()
        else:
            self._tls.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self._tls.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what `tls` says of itself."""
        return self._tls.get_extra_info(name, default)
