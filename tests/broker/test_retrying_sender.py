"""A sender sends what gathers, goes on after errors, and ends with its owner."""

import asyncio
from collections import deque

import pytest

from odradek.broker.retrying_sender import RetryingSender


class Receiver:
    """Records the requests, and answers each when the test says so."""

    def __init__(self) -> None:
        self.requests: list[list[int]] = []
        self.answers: list[asyncio.Future[bool]] = []

    async def send(self, waiting: deque[int]) -> bool:
        self.requests.append(list(waiting))
        waiting.clear()
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def pause(_: float) -> None:
    await asyncio.sleep(0)


async def begun(receiver: Receiver) -> RetryingSender[deque[int]]:
    """Return a sender with a request in flight."""
    sender = RetryingSender[deque[int]]("test", deque([1]), receiver.send, pause=pause)
    sender.wake()
    await turns()
    return sender


def add(sender: RetryingSender[deque[int]], number: int) -> None:
    sender.waiting.append(number)
    sender.wake()


@pytest.mark.asyncio
async def test_the_next_request_has_all_that_gathered_during_the_last_one() -> None:
    receiver = Receiver()
    sender = await begun(receiver)
    add(sender, 2)
    add(sender, 3)
    await turns()
    assert receiver.requests == [[1]]
    receiver.answers[0].set_result(True)
    await turns()
    assert receiver.requests == [[1], [2, 3]]
    assert not sender.idle.is_set()
    receiver.answers[1].set_result(True)
    await turns()
    assert sender.idle.is_set()


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["error", "cancellation"])
@pytest.mark.asyncio
async def test_a_request_that_fails_does_not_end_the_sender(is_cancelled: bool) -> None:
    """A cancelled future, as a future of a part that stops, cancels the request that waits for it."""
    receiver = Receiver()
    sender = await begun(receiver)
    if is_cancelled:
        receiver.answers[0].cancel()
    else:
        receiver.answers[0].set_exception(ValueError("unexpected"))
    await turns()
    add(sender, 2)
    await turns()
    assert receiver.requests == [[1], [2]]
    receiver.answers[1].set_result(True)
    await sender.idle.wait()


@pytest.mark.asyncio
async def test_a_closed_sender_cancels_its_request_and_sends_no_other() -> None:
    receiver = Receiver()
    sender = await begun(receiver)
    sender.close()
    add(sender, 2)
    await turns()
    assert sender.idle.is_set()
    assert receiver.answers[0].cancelled()
    assert receiver.requests == [[1]]
    assert len(asyncio.all_tasks()) == 1
