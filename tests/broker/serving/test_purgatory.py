"""Answers of the purgatory are given in turns."""

import asyncio

import pytest

from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.turns import TURN


@pytest.mark.asyncio
async def test_answers_beyond_a_turn_wait_for_the_next_iterations_in_their_order() -> None:
    purgatory, answered = Purgatory(), list[int]()
    for number in range(10):
        purgatory.answer(lambda number=number: answered.append(number), TURN // 2)  # type: ignore[misc]
    assert answered == [0, 1]
    counts = []
    while len(answered) < 10:
        await asyncio.sleep(0)
        counts.append(len(answered))
    assert answered == list(range(10))
    assert counts == [4, 6, 8, 10]
    await asyncio.sleep(0)
    purgatory.answer(lambda: answered.append(10), TURN)
    assert answered[-1] == 10


@pytest.mark.asyncio
async def test_a_purgatory_that_ends_gives_all_answers() -> None:
    purgatory, answered = Purgatory(), list[int]()
    for number in range(3):
        purgatory.answer(lambda number=number: answered.append(number), TURN)  # type: ignore[misc]
    purgatory.expire_all()
    assert answered == [0, 1, 2]
