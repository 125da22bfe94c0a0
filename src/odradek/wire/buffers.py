"""Pools of read buffers, so that a busy broker reuses memory pages.

A fresh page costs 3.6 ms per MiB, a reused one 0.08. A buffer may be given back while views of it are still
alive, for example until the records of a produce request are written. `take` skips such a buffer: Python refuses to
resize a bytearray that has views.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

SMALLEST_BUFFER_BYTES: Final = 128 * 1024
"""The smallest space for a read: room for many small requests, and small enough for the second-level cache."""
SMALL_BUFFER_BYTES: Final = 16 * 1024
"""The size of buffers while the pool's limit is reached: enough for most requests."""
LARGEST_POOLED_BYTES: Final = 16 * 1024 * 1024
"""A larger buffer is used once: such frames are rare, and kept buffers of that size would fill the pool."""
_MOST_CHECKED: Final = 8
"""Limit of buffers with live views that `take` skips before it allocates a new one."""


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


class BufferPool:
    """A pool of bytearrays whose sizes are powers of two.

    It keeps at most `most_bytes` of returned buffers. When `limit_bytes` are taken, a connection that begins to read
    gets a small buffer, and one that needs a larger buffer waits. From half of the limit on, a buffer must not be sized
    by the length in a frame's header.

    Waiters are called by `call_soon`, never inside `give`, whose caller may be in the middle of an operation.
    """

    def __init__(
        self,
        most_bytes: int = 32 * 1024 * 1024,
        limit_bytes: int = 512 * 1024 * 1024,
        call_soon: Callable[[Callable[[], None]], object] = _call_soon,
    ) -> None:
        self._most_bytes = min(most_bytes, limit_bytes)
        self._limit_bytes = limit_bytes
        self._call_soon = call_soon
        self._waiting: dict[Waiter, None] = {}
        self._will_wake = False
        self._reader: Reader | None = None
        self._used_bytes = self._waiting_bytes = 0
        self._by_size: dict[int, list[bytearray]] = {}

    @property
    def has_free_memory(self) -> bool:
        """Whether less than half of the limit is taken, so that a frame's header may decide a buffer's size."""
        return self._used_bytes * 2 < self._limit_bytes

    @property
    def is_exhausted(self) -> bool:
        return self._used_bytes >= self._limit_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the buffers that were taken and not yet given back."""
        return self._used_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the returned buffers that the pool keeps, with or without live views."""
        return self._waiting_bytes

    def take(self, least_bytes: int = SMALLEST_BUFFER_BYTES) -> bytearray:
        """Return a buffer of at least `least_bytes` without live views; its content is arbitrary."""
        size = _size_class(least_bytes)
        self._used_bytes += size
        waiting = self._by_size.get(size)
        if waiting:
            # The newest first: its pages are the likeliest to be in the processor's cache.
            for index in range(len(waiting) - 1, max(-1, len(waiting) - 1 - _MOST_CHECKED), -1):
                if _is_free(waiting[index]):
                    self._waiting_bytes -= size
                    return waiting.pop(index)
        return bytearray(size)

    def take_small(self) -> bytearray:
        """Return a buffer of `SMALL_BUFFER_BYTES`, even if the limit is reached."""
        self._used_bytes += SMALL_BUFFER_BYTES
        return bytearray(SMALL_BUFFER_BYTES)

    def set_reader(self, reader: "Reader") -> None:
        """Record that `reader` took a buffer to read into; release the previous reader's buffer if it is empty.

        A connection takes a buffer even to read the end of its stream: without this, 10,000 clients that disconnect in
        one turn of the event loop would hold a gigabyte.
        """
        before, self._reader = self._reader, reader
        if before is not None and before is not reader:
            before.release_if_empty()

    def wait(self, waiter: "Waiter") -> None:
        """Call `waiter.has_memory()` in a later turn of the event loop when there is memory, oldest waiter first."""
        self._waiting[waiter] = None

    @property
    def first_waiter(self) -> "Waiter | None":
        """The waiter that has waited longest; None if none waits."""
        return next(iter(self._waiting), None)

    def forget(self, waiter: "Waiter") -> None:
        self._waiting.pop(waiter, None)

    def give(self, buffer: bytearray) -> None:
        """Return a buffer to the pool. Live views of it keep their content."""
        size = len(buffer)
        self._used_bytes -= size
        if SMALLEST_BUFFER_BYTES <= size <= LARGEST_POOLED_BYTES and self._waiting_bytes + size <= self._most_bytes:
            self._by_size.setdefault(size, []).append(buffer)
            self._waiting_bytes += size
        if self._waiting and not self._will_wake and not self.is_exhausted:
            self._will_wake = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """Call the waiters, oldest first, as long as the limit is not reached."""
        self._will_wake = False
        while self._waiting and not self.is_exhausted:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            waiter.has_memory()


class ResponseBuffers:
    """Buffers into which records for responses are read, reused when no view of them is alive.

    A transport keeps views of unsent data. At most `most_bytes` are kept; beyond that the buffer that was lent longest
    ago is dropped, and its memory is freed when its client has read the data.
    """

    def __init__(self, most_bytes: int = 16 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        self._kept_bytes = 0
        self._kept: list[bytearray] = []  # in the order in which they were lent

    @property
    def kept_bytes(self) -> int:
        """Bytes of the kept buffers, with or without live views."""
        return self._kept_bytes

    def lend(self, least_bytes: int) -> memoryview:
        """Return a view of a buffer of at least `least_bytes` without other live views; the content is arbitrary."""
        size = _size_class(least_bytes)
        if size > self._most_bytes:
            return memoryview(bytearray(least_bytes))
        buffer = self._free(size)
        if buffer is None:
            buffer = bytearray(size)
            self._kept_bytes += size
            while self._kept_bytes > self._most_bytes:
                self._kept_bytes -= len(self._kept.pop(0))
        self._kept.append(buffer)
        return memoryview(buffer)

    def _free(self, size: int) -> bytearray | None:
        kept = self._kept
        # The newest first, as in `BufferPool.take`.
        for index in range(len(kept) - 1, -1, -1):
            if len(kept[index]) == size and _is_free(kept[index]):
                return kept.pop(index)
        return None


class Reader(Protocol):
    """The owner of a buffer that bytes are read into."""

    def release_if_empty(self) -> None:
        """Give the buffer back if it has almost no unread bytes."""


class Waiter(Protocol):
    """A connection that waits for memory."""

    def has_memory(self) -> None:
        """Take memory now; other waiters may take it afterwards."""


def _size_class(least_bytes: int) -> int:
    if least_bytes <= SMALLEST_BUFFER_BYTES:
        return SMALLEST_BUFFER_BYTES
    return 1 << (least_bytes - 1).bit_length()


def _is_free(buffer: bytearray) -> bool:
    """Return whether no view of `buffer` is alive.

    Python over-allocates by a byte at least, so `append` moves nothing.
    """
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
