"""Repeated events cost a line of each kind and one that counts the others, however many kinds a client makes up."""

import asyncio
import logging

import pytest

from odradek.runtime.rate_limited_log import MOST_KEYS, RateLimitedLog
from odradek.testing import Simulation


def test_a_flood_costs_its_first_line_and_a_count_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("odradek.wire"))
        for number in range(130):
            log.log("a", logging.INFO, "a client did it %d times", number)
            log.log("b", logging.WARNING, "another did, too")
            await asyncio.sleep(1)
        await asyncio.sleep(120)
        log.log("a", logging.INFO, "again")

    with caplog.at_level("INFO"):
        Simulation(0).run(scene())
    first = "a client did it 0 times"
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.INFO] == [
        first,
        f"59 more lines like this one in the last 60 s: {first}",
        f"60 more lines like this one in the last 60 s: {first}",
        f"10 more lines like this one in the last 60 s: {first}",
        "again",
    ]


def test_a_client_that_makes_up_kinds_of_lines_gets_one_for_all_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("odradek.wire"))
        for number in range(1_000):
            log.log(number, logging.INFO, "an invalid frame size of %d bytes", number)
        await asyncio.sleep(200)

    with caplog.at_level("INFO"):
        Simulation(0).run(scene())
    assert len(caplog.records) == MOST_KEYS + 2
    assert caplog.messages[-1].startswith(f"{1_000 - MOST_KEYS - 1} more lines like this one")


def test_lines_of_one_owner_do_not_hide_those_of_another(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        log = RateLimitedLog(logging.getLogger("odradek.wire"))
        for number in range(1_000):
            log.log(number, logging.INFO, "mallory does %d", number, owner="mallory")
        log.log("login", logging.INFO, "alice is refused", owner="alice")
        await asyncio.sleep(200)

    with caplog.at_level("INFO"):
        Simulation(0).run(scene())
    assert caplog.messages.count("alice is refused") == 1
    assert len([each for each in caplog.messages if each.startswith("mallory")]) == MOST_KEYS + 1
