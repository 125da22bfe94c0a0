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


@pytest.mark.asyncio
async def test_answers_go_on_after_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    purgatory, answered = Purgatory(), list[int]()
    purgatory.answer(lambda: answered.append(0), TURN)
    purgatory.answer(lambda: answered.append(1 // 0), TURN)
    purgatory.answer(lambda: answered.append(2), TURN)
    for _ in range(4):
        await asyncio.sleep(0)
    assert answered == [0, 2]
    assert "ZeroDivisionError" in caplog.text
    purgatory.answer(lambda: answered.append(3), TURN)
    assert answered == [0, 2, 3]


@pytest.mark.asyncio
async def test_a_killed_purgatory_drops_the_answers_that_wait_for_a_turn() -> None:
    purgatory, answered = Purgatory(), list[int]()
    purgatory.answer(lambda: answered.append(0), TURN)
    purgatory.answer(lambda: answered.append(1), TURN)
    purgatory.kill()
    for _ in range(3):
        await asyncio.sleep(0)
    assert answered == [0]
