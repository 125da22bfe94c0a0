"""A channel sends what gathers, goes on after errors, and ends with its owner."""

import asyncio
from collections import deque

import pytest

from odradek.broker.channel import Channel


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


async def begun(receiver: Receiver) -> Channel[deque[int]]:
    """Return a channel with a request in flight."""
    channel = Channel[deque[int]]("test", deque([1]), receiver.send, pause=pause)
    channel.wake()
    await turns()
    return channel


def add(channel: Channel[deque[int]], number: int) -> None:
    channel.waiting.append(number)
    channel.wake()


@pytest.mark.asyncio
async def test_the_next_request_has_all_that_gathered_during_the_last_one() -> None:
    receiver = Receiver()
    channel = await begun(receiver)
    add(channel, 2)
    add(channel, 3)
    await turns()
    assert receiver.requests == [[1]]
    receiver.answers[0].set_result(True)
    await turns()
    assert receiver.requests == [[1], [2, 3]]
    assert not channel.idle.is_set()
    receiver.answers[1].set_result(True)
    await turns()
    assert channel.idle.is_set()


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["error", "cancellation"])
@pytest.mark.asyncio
async def test_a_request_that_fails_does_not_end_the_channel(is_cancelled: bool) -> None:
    """A cancelled future, as a future of a part that stops, cancels the request that waits for it."""
    receiver = Receiver()
    channel = await begun(receiver)
    if is_cancelled:
        receiver.answers[0].cancel()
    else:
        receiver.answers[0].set_exception(ValueError("unexpected"))
    await turns()
    add(channel, 2)
    await turns()
    assert receiver.requests == [[1], [2]]
    receiver.answers[1].set_result(True)
    await channel.idle.wait()


@pytest.mark.asyncio
async def test_a_closed_channel_cancels_its_request_and_sends_no_other() -> None:
    receiver = Receiver()
    channel = await begun(receiver)
    channel.close()
    add(channel, 2)
    await turns()
    assert channel.idle.is_set()
    assert receiver.answers[0].cancelled()
    assert receiver.requests == [[1]]
    assert len(asyncio.all_tasks()) == 1
