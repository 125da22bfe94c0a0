"""Buffers that are read into, lent out and taken back, so that a busy broker touches the same pages again and again.

A fresh page costs 3.6 ms per MiB here and an old one 0.08 (DESIGN 3). A buffer may be given back while views into it
still live, a produce request's records until they are written say: Python refuses to resize a bytearray that has
views, and that refusal is how `take` tells a free buffer from a busy one. Nobody has to say when it is done with one.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

SMALLEST_BUFFER_BYTES: Final = 128 * 1024
"""What one read offers the kernel: many small requests, and still small enough for the second-level cache."""
SMALL_BUFFER_BYTES: Final = 16 * 1024
"""What a connection reads into when all that may be lent is lent: enough for most requests."""
LARGEST_POOLED_BYTES: Final = 16 * 1024 * 1024
"""Above this a buffer is used once: frames so large are rare, and kept ones would fill the pool."""
_MOST_LOOKED_AT: Final = 8
"""Busy buffers that `take` passes over before it gives up and makes a new one."""


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


class BufferPool:
    """Bytearrays in sizes of powers of two. At most `most_bytes` wait in it; what is over is left to the allocator.

    When `limit_bytes` are lent, whoever wants to begin is lent a small one, and whoever needs a larger one should wait;
    from half of that on a buffer is not had for bytes that were only announced.

    Who waits is called in a later turn of the event loop, by way of `call_soon`, and never by `give`: who gives is in
    the middle of something, and so may be those who would take.
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
        self._lent_bytes = self._waiting_bytes = 0
        self._by_size: dict[int, list[bytearray]] = {}

    @property
    def is_generous(self) -> bool:
        """Whether so little is lent that a buffer may be had for bytes that were only announced."""
        return self._lent_bytes * 2 < self._limit_bytes

    @property
    def is_used_up(self) -> bool:
        """Whether as much is lent as may be."""
        return self._lent_bytes >= self._limit_bytes

    @property
    def lent_bytes(self) -> int:
        """What was taken and not given back."""
        return self._lent_bytes

    @property
    def waiting_bytes(self) -> int:
        """How much is in the pool, busy or free."""
        return self._waiting_bytes

    def take(self, least_bytes: int = SMALLEST_BUFFER_BYTES) -> bytearray:
        """A buffer of at least `least_bytes` that nobody else has, with whatever was in it before."""
        size = _size_class(least_bytes)
        self._lent_bytes += size
        waiting = self._by_size.get(size)
        if waiting:
            # The newest first: its pages are the likeliest to be in the processor's cache.
            for index in range(len(waiting) - 1, max(-1, len(waiting) - 1 - _MOST_LOOKED_AT), -1):
                if _is_free(waiting[index]):
                    self._waiting_bytes -= size
                    return waiting.pop(index)
        return bytearray(size)

    def take_small(self) -> bytearray:
        """A small buffer, when all that may be lent is lent."""
        self._lent_bytes += SMALL_BUFFER_BYTES
        return bytearray(SMALL_BUFFER_BYTES)

    def set_reader(self, reader: "Reader") -> None:
        """`reader` has taken a buffer for the bytes that are about to come.

        Who took one before it has got its bytes by now. If there were none, its connection has ended, and its end comes
        to the service a turn later: ten thousand that end at once would hold a gigabyte until then.
        """
        before, self._reader = self._reader, reader
        if before is not None and before is not reader:
            before.release_if_empty()

    def wait(self, waiter: "Waiter") -> None:
        """Call `waiter.has_memory()` a turn after something is given back; those who waited longest come first."""
        self._waiting[waiter] = None

    @property
    def first_waiter(self) -> "Waiter | None":
        """Who has waited longest."""
        return next(iter(self._waiting), None)

    def forget(self, waiter: "Waiter") -> None:
        """It waits no more."""
        self._waiting.pop(waiter, None)

    def give(self, buffer: bytearray) -> None:
        """Take back a buffer of `take`'s; views into it may still be alive, and keep what they show."""
        size = len(buffer)
        self._lent_bytes -= size
        if SMALLEST_BUFFER_BYTES <= size <= LARGEST_POOLED_BYTES and self._waiting_bytes + size <= self._most_bytes:
            self._by_size.setdefault(size, []).append(buffer)
            self._waiting_bytes += size
        if self._waiting and not self._will_wake and not self.is_used_up:
            self._will_wake = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """Let those go on who waited, for as long as there is memory; others may have taken it in the meantime."""
        self._will_wake = False
        while self._waiting and not self.is_used_up:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            waiter.has_memory()


class ResponseBuffers:
    """Memory for answers to be read into. Nobody gives it back: it is used again when nobody looks at it any more.

    A transport looks at what it has not sent. At most `most_bytes` are kept, and what was lent longest ago goes first:
    those who read slowest have it, and theirs it is until they have read it.
    """

    def __init__(self, most_bytes: int = 16 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        self._kept_bytes = 0
        self._kept: list[bytearray] = []  # as they were lent, the latest last

    @property
    def kept_bytes(self) -> int:
        """How much is kept, looked at or free."""
        return self._kept_bytes

    def lend(self, least_bytes: int) -> memoryview:
        """At least `least_bytes` that nobody looks at, with whatever was in them before."""
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
        # The latest first, as in `BufferPool`.
        for index in range(len(kept) - 1, -1, -1):
            if len(kept[index]) == size and _is_free(kept[index]):
                return kept.pop(index)
        return None


class Reader(Protocol):
    """Who reads into a buffer."""

    def release_if_empty(self) -> None:
        """Give the buffer back if next to nothing in it is unread."""


class Waiter(Protocol):
    """Who waits for memory."""

    def has_memory(self) -> None:
        """There is some: take it now, or others will."""


def _size_class(least_bytes: int) -> int:
    if least_bytes <= SMALLEST_BUFFER_BYTES:
        return SMALLEST_BUFFER_BYTES
    return 1 << (least_bytes - 1).bit_length()


def _is_free(buffer: bytearray) -> bool:
    """Whether no view into `buffer` is alive. Python over-allocates by a byte at least, so nothing is moved by this."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True
