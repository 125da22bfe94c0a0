"""Splits a stream of bytes into frames without copying them.

```
frame   size int32 | payload of that size
```
A frame is valid if its size is not negative and not above the limit; an invalid one makes the rest of the stream
unreadable. Bytes are read into a pooled buffer, and a frame is a view of it. Only a partial frame at the end of a full
buffer is copied.
"""

import struct
from typing import Final

from odradek.wire.buffers import SMALLEST_BUFFER_BYTES, BufferPool

_SIZE: Final = struct.Struct(">i")
_EAGER_BYTES: Final = 2 * 1024 * 1024
"""A frame up to this size gets its whole buffer once its size is known; the buffer of a larger one grows as bytes
arrive, so that a header that announces a gigabyte does not allocate one."""
_KEPT_BYTES: Final = 4096
"""A partial frame up to this size is copied out and its buffer given back, so that a slow sender holds no more than
this."""
_NOTHING: Final = memoryview(b"")
_BEGINNINGS: Final = {
    b"\x16\x03": "TLS, which this listener does not accept",
    b"SSH-": "SSH",
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "), "HTTP"),
    **dict.fromkeys((b"ruok", b"stat", b"srvr", b"mntr", b"conf", b"envi", b"isro", b"dump"), "a ZooKeeper command"),
}


class FrameSizeError(Exception):
    """The client sent a frame with a negative size or one above the limit."""


class FrameBuffer:
    """Call `space` for the memory to read into, `filled` after a read, then `next_frame` until it returns None."""

    __slots__ = ("_buffer", "_end", "_largest_frame_bytes", "_missing", "_pool", "_start", "_usual_bytes", "_view")

    def __init__(self, pool: BufferPool, largest_frame_bytes: int) -> None:
        self._pool = pool
        self._largest_frame_bytes = largest_frame_bytes
        self._buffer: bytearray | None = None
        self._view = _NOTHING  # of all of the buffer
        self._start = self._end = 0
        self._usual_bytes = 0  # of the last frame, so that a new buffer has room for a frame like it
        self._missing = 0  # bytes until the next frame is complete, as far as is known

    def limit(self, largest_frame_bytes: int) -> None:
        self._largest_frame_bytes = largest_frame_bytes

    @property
    def unread_bytes(self) -> int:
        """Bytes that arrived and that `next_frame` has not returned."""
        return self._end - self._start

    def space(self) -> memoryview:
        """Return the space for the next bytes: never empty, valid until `filled`, `release_if_empty` or `close`."""
        buffer = self._buffer
        if buffer is None:
            return self._begin()
        if self._start < self._end:
            self._make_room(buffer)
        elif self._end == len(buffer):
            self._move(buffer, SMALLEST_BUFFER_BYTES)
        return self._view[self._end :]

    def filled(self, count: int) -> bool:
        """Record that `count` bytes were read into `space`. Return whether `next_frame` may have a frame now."""
        self._end += count
        self._missing -= count
        return self._missing <= 0

    def next_frame(self) -> memoryview | None:
        """Return the payload of the next frame, None if it is incomplete. Raise `FrameSizeError` for a wrong size."""
        start = self._start
        self._missing = start + 4 - self._end
        if self._missing > 0:
            return None
        size: int = _SIZE.unpack_from(self._view, start)[0]
        if not 0 <= size <= self._largest_frame_bytes:
            hint = describe_protocol(bytes(self._view[start : start + 4]))
            raise FrameSizeError(f"invalid frame size {size}, the limit is {self._largest_frame_bytes} bytes{hint}")
        end = start + 4 + size
        self._missing = end - self._end
        if self._missing > 0:
            return None
        self._start = end
        self._usual_bytes = size + 4 if size < _EAGER_BYTES else _EAGER_BYTES
        return self._view[start + 4 : end]

    def push_back(self, frame: memoryview) -> None:
        """Undo the last `next_frame`: the next call returns `frame` again."""
        self._start -= 4 + len(frame)
        assert self._start >= 0

    def release_if_empty(self) -> None:
        """Give the buffer back if it has almost no unread bytes, so that an idle connection holds none."""
        buffer, unread = self._buffer, self._end - self._start
        if buffer is None or unread > _KEPT_BYTES:
            return
        self._view = memoryview(bytearray(self._view[self._start : self._end])) if unread else _NOTHING
        self._buffer = None
        self._start, self._end = 0, unread
        self._pool.give(buffer)

    def close(self) -> None:
        """Give the buffer back and drop unread bytes."""
        buffer, self._buffer, self._view = self._buffer, None, _NOTHING
        self._start = self._end = self._missing = 0
        if buffer is not None:
            self._pool.give(buffer)

    @property
    def held_bytes(self) -> int:
        """The size of the current buffer; 0 without one."""
        return 0 if self._buffer is None else len(self._buffer)

    @property
    def needs_more(self) -> bool:
        """Whether the next read needs a larger buffer."""
        return self._buffer is not None and self._end == len(self._buffer) and self._end - self._start > _KEPT_BYTES

    def grow(self) -> None:
        """Take a larger buffer if the next read still needs it."""
        if self.needs_more:
            self.space()

    def _begin(self) -> memoryview:
        pool, kept = self._pool, self._end - self._start
        if pool.is_exhausted:
            buffer = pool.take_small()
        else:
            buffer = pool.take(max(self._usual_bytes, 2 * kept) if pool.has_free_memory else 0)
        view = memoryview(buffer)
        if kept:
            view[:kept] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, kept
        pool.set_reader(self)
        return view[kept:]

    def _make_room(self, buffer: bytearray) -> None:
        """Make room for the rest of the frame that begins at `_start`."""
        have = self._end - self._start
        needed = 4 + (_SIZE.unpack_from(buffer, self._start)[0] if have >= 4 else SMALLEST_BUFFER_BYTES // 2)
        if needed <= have:
            # The unread frames are complete and wait to be served; the next one may still grow.
            needed = have + 1
        room = len(buffer) - self._start
        eager = min(needed, _EAGER_BYTES) if self._pool.has_free_memory else 0
        if room < eager:
            self._move(buffer, eager)
        elif self._end == len(buffer):
            self._move(buffer, min(needed, 2 * have))

    def _move(self, buffer: bytearray, least_bytes: int) -> None:
        """Copy the unread bytes to another buffer: views of this one may still be alive."""
        have = self._end - self._start
        moved = self._pool.take(max(least_bytes, have + 1))
        moved[:have] = self._view[self._start : self._end]
        self._buffer, self._view = moved, memoryview(moved)
        self._start, self._end = 0, have
        self._pool.give(buffer)


def describe_protocol(first: bytes) -> str:
    """Return ` (it looks like …)` if the first bytes of a connection are another protocol's, else an empty string."""
    for beginning, protocol in _BEGINNINGS.items():
        if first.startswith(beginning):
            return f" (it looks like {protocol})"
    return ""
