"""The buffer pool reuses a buffer only when no view of it lives."""

from collections.abc import Callable

from odradek.wire.buffers import LARGEST_POOLED_BYTES, SMALLEST_BUFFER_BYTES, BufferPool, ResponseBuffers


def test_a_free_buffer_is_reused() -> None:
    pool = BufferPool()
    buffer = pool.take()
    pool.give(buffer)
    assert pool.take() is buffer


def test_a_buffer_with_a_live_view_is_not_reused() -> None:
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


def test_searching_for_a_free_buffer_does_not_change_its_content() -> None:
    pool = BufferPool()
    buffer = pool.take()
    buffer[-1] = 7
    pool.give(buffer)
    assert pool.take()[-1] == 7
    assert len(buffer) == SMALLEST_BUFFER_BYTES


def test_sizes_are_powers_of_two_at_least_as_large_as_requested() -> None:
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


def test_waiters_are_called_an_iteration_later_oldest_first_while_there_is_memory() -> None:
    class Waiter:
        def has_memory(self) -> None:
            called.append(self)
            pool.take()

    turns: list[Callable[[], None]] = []
    called: list[Waiter] = []
    pool = BufferPool(limit_bytes=2 * SMALLEST_BUFFER_BYTES, call_soon=turns.append)
    buffers = [pool.take() for _ in range(3)]
    waiters = [Waiter() for _ in range(4)]
    for waiter in waiters:
        pool.wait(waiter)
    pool.give(buffers.pop())
    assert not turns, "there is none yet"
    pool.give(buffers.pop())
    pool.give(buffers.pop())
    assert (len(turns), called) == (1, []), "whoever gives is not interrupted"
    pool.forget(waiters[0])
    turns.pop()()
    assert called == waiters[1:3]
    pool.give(pool.take())
    assert (turns, pool.first_waiter) == ([], waiters[3])


def test_a_waiter_keeps_waiting_if_others_took_the_memory() -> None:
    class Waiter:
        def has_memory(self) -> None:
            raise AssertionError("there is none")

    turns: list[Callable[[], None]] = []
    pool = BufferPool(limit_bytes=SMALLEST_BUFFER_BYTES, call_soon=turns.append)
    buffer, waiter = pool.take(), Waiter()
    pool.wait(waiter)
    pool.give(buffer)
    buffer = pool.take()
    turns.pop()()
    assert pool.first_waiter is waiter
    pool.give(buffer)
    assert len(turns) == 1


def test_response_memory_is_reused_when_no_view_of_it_lives() -> None:
    buffers = ResponseBuffers()
    first = buffers.lend(1 << 20)
    address = id(first.obj)
    second = buffers.lend(1 << 20)
    assert id(second.obj) != address
    answer = first[:10].toreadonly()
    del first
    assert id(buffers.lend(1 << 20).obj) != address, "a part of it is still looked at"
    del answer
    addresses = {id(buffers.lend(1 << 20).obj) for _ in range(3)}
    assert addresses <= {id(buffer) for buffer in buffers._kept}
    assert buffers.kept_bytes == 3 << 20


def test_memory_of_unread_responses_is_not_kept_beyond_the_limit() -> None:
    buffers = ResponseBuffers(most_bytes=4 << 20)
    unread = [buffers.lend(1 << 20) for _ in range(10)]
    for number, view in enumerate(unread):
        view[:1] = bytes([number])
    assert buffers.kept_bytes == 4 << 20
    assert [view[0] for view in unread] == list(range(10))
    unread.clear()
    buffers.lend(1 << 20)
    assert buffers.kept_bytes == 4 << 20, "what was free was lent again"


def test_a_response_larger_than_the_limit_gets_memory_of_its_own() -> None:
    buffers = ResponseBuffers(most_bytes=1 << 20)
    assert len(buffers.lend((1 << 20) + 1)) == (1 << 20) + 1
    assert buffers.kept_bytes == 0
