"""Frames come out as they went in, however the bytes were cut, and never cost more memory than their bytes justify."""

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.testing import Simulation
from odradek.wire.buffers import SMALL_BUFFER_BYTES, SMALLEST_BUFFER_BYTES, BufferPool
from odradek.wire.frames import FrameBuffer, FrameSizeError

LARGEST = 8 * 1024 * 1024


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def feed(frames: FrameBuffer, data: bytes, most: int = 1 << 30) -> list[bytes]:
    """Put `data` in, at most `most` bytes a read, and take out all whole frames after each read."""
    out = []
    position = 0
    while position < len(data):
        space = frames.space()
        count = min(len(space), most, len(data) - position)
        space[:count] = data[position : position + count]
        del space
        frames.filled(count)
        position += count
        while (frame := frames.next_frame()) is not None:
            out.append(bytes(frame))
        frames.release_if_empty()
    return out


@given(
    payloads=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.integers(100, 3 * SMALLEST_BUFFER_BYTES).map(lambda size: bytes([size % 251]) * size),
        ),
        max_size=8,
    ),
    most=st.one_of(st.integers(1, 9), st.integers(1000, 300_000)),
)
def test_frames_do_not_depend_on_how_the_bytes_arrive(payloads: list[bytes], most: int) -> None:
    if most < 10:
        payloads = [payload[:200] for payload in payloads]
    frames = FrameBuffer(BufferPool(), LARGEST)
    assert feed(frames, framed(*payloads), most) == payloads
    assert frames.unread_bytes == 0


def test_a_frame_is_a_view_of_the_bytes_that_were_read() -> None:
    frames = FrameBuffer(BufferPool(), LARGEST)
    data = framed(b"one", b"two")
    space = frames.space()
    space[: len(data)] = data
    frames.filled(len(data))
    first = frames.next_frame()
    assert first is not None
    assert first.obj is space.obj


def test_a_kept_frame_is_not_changed_by_later_frames() -> None:
    frames = FrameBuffer(BufferPool(), LARGEST)
    kept = []
    for number in range(50):
        data = framed(bytes([number]) * 30_000)
        for start in range(0, len(data), 7_001):
            piece = data[start : start + 7_001]
            space = frames.space()
            length = min(len(space), len(piece))
            space[:length] = piece[:length]
            frames.filled(length)
            if length < len(piece):
                frames.space()[: len(piece) - length] = piece[length:]
                frames.filled(len(piece) - length)
            frame = frames.next_frame()
            if frame is not None:
                kept.append(frame)
        frames.release_if_empty()
    assert [bytes(frame) for frame in kept] == [bytes([number]) * 30_000 for number in range(50)]


@pytest.mark.parametrize("size", [-1, -(2**31), LARGEST + 1, 2**31 - 1])
def test_an_invalid_size_is_an_error(size: int) -> None:
    frames = FrameBuffer(BufferPool(), LARGEST)
    with pytest.raises(FrameSizeError, match="the limit is"):
        feed(frames, struct.pack(">i", size))


def test_an_announced_size_alone_allocates_nothing() -> None:
    frames = FrameBuffer(BufferPool(), 1 << 30)
    feed(frames, struct.pack(">i", 1 << 30) + b"x")
    assert len(frames.space()) <= 2 * 1024 * 1024


def test_when_much_is_lent_only_bytes_that_arrived_get_memory() -> None:
    frames = FrameBuffer(BufferPool(limit_bytes=2), LARGEST)
    payload = bytes(1_000_000)
    feed(frames, framed(payload)[:10])
    assert len(frames.space()) <= SMALLEST_BUFFER_BYTES
    frames = FrameBuffer(BufferPool(limit_bytes=2), LARGEST)
    assert feed(frames, framed(payload, b"next"), 50_000) == [payload, b"next"]


def test_a_large_frame_gets_a_buffer_that_grows_with_its_bytes() -> None:
    payload = bytes(range(256)) * (5 * 4096)
    frames = FrameBuffer(BufferPool(), LARGEST)
    assert feed(frames, framed(payload, b"next"), 100_000) == [payload, b"next"]


def test_a_frame_that_was_pushed_back_is_returned_again() -> None:
    frames = FrameBuffer(BufferPool(), LARGEST)
    data = framed(b"one", b"two")
    frames.space()[: len(data)] = data
    frames.filled(len(data))
    first = frames.next_frame()
    assert first is not None
    frames.push_back(first)
    again = frames.next_frame()
    assert again is not None
    assert bytes(again) == b"one"
    second = frames.next_frame()
    assert second is not None
    assert bytes(second) == b"two"


def test_without_unread_bytes_no_buffer_is_held() -> None:
    pool = BufferPool()
    frames = FrameBuffer(pool, LARGEST)
    feed(frames, framed(b"a request"))
    assert pool.waiting_bytes == SMALLEST_BUFFER_BYTES


@pytest.mark.parametrize("begun", [b"", b"\0\0\0"])
def test_a_reader_without_bytes_gives_its_buffer_back_when_the_next_one_takes_one(begun: bytes) -> None:
    pool = BufferPool()
    ending = [FrameBuffer(pool, LARGEST) for _ in range(1000)]
    for frames in ending:
        feed(frames, begun)
    for frames in ending:
        frames.space()  # its connection has ended, and nothing came
    assert pool.used_bytes == SMALLEST_BUFFER_BYTES
    assert [feed(frames, framed(b"x" * 9)[len(begun) :]) for frames in ending] == [[b"x" * 9]] * 1000


class Waiting:
    """A connection that waits for memory for `frames`."""

    def __init__(self, frames: FrameBuffer) -> None:
        self._frames = frames

    def has_memory(self) -> None:
        self._frames.grow()


def receive(frames: FrameBuffer, data: bytes) -> bytes:
    """Fill what `frames` has space for with the beginning of `data`; returns the rest."""
    space = frames.space()
    count = min(len(space), len(data))
    space[:count] = data[:count]
    frames.filled(count)
    return data[count:]


def test_a_reader_may_give_back_the_buffer_it_waits_for() -> None:
    async def scene() -> None:
        pool = BufferPool(limit_bytes=SMALLEST_BUFFER_BYTES)
        frames = FrameBuffer(pool, LARGEST)
        first, second = b"a" * (SMALLEST_BUFFER_BYTES - 104), b"b" * 1000
        rest = receive(frames, framed(first, second))
        assert (frames.needs_more, pool.is_exhausted) == (True, True)
        pool.wait(Waiting(frames))
        assert frames.next_frame() == first
        assert frames.next_frame() is None
        frames.release_if_empty()
        assert frames.unread_bytes == 100
        await asyncio.sleep(1)
        receive(frames, rest)
        assert frames.next_frame() == second
        frames.release_if_empty()
        assert pool.used_bytes == 0

    Simulation(1).run(scene())


def test_a_new_reader_keeps_its_buffer_when_waiters_are_called() -> None:
    async def scene() -> None:
        pool = BufferPool(limit_bytes=SMALLEST_BUFFER_BYTES)
        holder, waiter, ending, beginner = (FrameBuffer(pool, LARGEST) for _ in range(4))
        holder.space()
        first, second = b"a" * (SMALL_BUFFER_BYTES - 104), b"b" * 1000
        data = framed(first, second)
        receive(waiter, data[:8000])
        holder.close()
        ending.space()  # its connection has ended, and nothing came
        rest = receive(waiter, data[8000:])
        assert (waiter.needs_more, pool.is_exhausted) == (True, True)
        pool.wait(Waiting(waiter))
        assert waiter.next_frame() == first
        assert waiter.next_frame() is None
        waiter.release_if_empty()
        assert pool.is_exhausted
        space = beginner.space()
        message = framed(b"a request")
        space[: len(message)] = message
        beginner.filled(len(message))
        assert beginner.next_frame() == b"a request"
        beginner.release_if_empty()
        await asyncio.sleep(1)
        receive(waiter, rest)
        assert waiter.next_frame() == second
        waiter.release_if_empty()
        assert pool.used_bytes == 0

    Simulation(1).run(scene())
