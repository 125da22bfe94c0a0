"""The pool lends a buffer again only when nobody looks at it any more."""

from odradek.wire.buffers import LARGEST_POOLED_BYTES, SMALLEST_BUFFER_BYTES, BufferPool


def test_a_free_buffer_is_lent_again() -> None:
    pool = BufferPool()
    buffer = pool.take()
    pool.give(buffer)
    assert pool.take() is buffer


def test_a_buffer_with_a_living_view_is_not_lent_again_until_the_view_dies() -> None:
    pool = BufferPool()
    buffer = pool.take()
    buffer[:5] = b"hello"
    records = memoryview(buffer)[:5]
    pool.give(buffer)
    other = pool.take()
    assert other is not buffer
    assert bytes(records) == b"hello"
    del records
    assert pool.take() is buffer


def test_looking_for_a_free_buffer_changes_nothing_in_it() -> None:
    pool = BufferPool()
    buffer = pool.take()
    buffer[-1] = 7
    pool.give(buffer)
    assert pool.take()[-1] == 7
    assert len(buffer) == SMALLEST_BUFFER_BYTES


def test_sizes_are_powers_of_two_at_least_as_large_as_asked() -> None:
    pool = BufferPool()
    assert len(pool.take(SMALLEST_BUFFER_BYTES + 1)) == 2 * SMALLEST_BUFFER_BYTES
    assert len(pool.take(1)) == SMALLEST_BUFFER_BYTES
    assert len(pool.take(1 << 20)) == 1 << 20


def test_the_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(most_bytes=2 * SMALLEST_BUFFER_BYTES)
    buffers = [pool.take() for _ in range(5)]
    for buffer in buffers:
        pool.give(buffer)
    assert pool.waiting_bytes == 2 * SMALLEST_BUFFER_BYTES


def test_very_large_buffers_are_not_kept() -> None:
    pool = BufferPool(most_bytes=1 << 30)
    pool.give(bytearray(2 * LARGEST_POOLED_BYTES))
    assert pool.waiting_bytes == 0
