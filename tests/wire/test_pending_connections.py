"""The limit of unauthenticated connections of a listener."""

import asyncio
import logging

import pytest

from odradek.runtime import pending_connections
from odradek.runtime.pending_connections import PendingConnections


def test_at_the_limit_the_oldest_of_the_address_with_the_most_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pending_connections, "MOST_PENDING", 4)
    closed: list[str] = []

    async def scene() -> None:
        pending = PendingConnections("the listener CLIENTS")
        for number, host in enumerate(["good", "flood", "flood", "flood", "flood", "flood", "other", "other"]):
            pending.add(number, host, lambda place=f"{host} {number}": closed.append(place))

    asyncio.run(scene())
    assert closed == ["flood 1", "flood 2", "flood 3", "flood 4"]
    (line,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert line == (
        "Closed a connection from flood to the listener CLIENTS, because 4 others have not authenticated yet"
    )


def test_authenticated_and_closed_connections_make_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_connections, "MOST_PENDING", 2)
    closed: list[int] = []

    async def scene() -> None:
        pending = PendingConnections("a listener")
        for number in range(5):
            pending.add(number, "host", lambda number=number: closed.append(number))
            if number < 3:
                pending.remove(number, "host")
                pending.remove(number, "host")
        assert not closed
        pending.add(5, "host", lambda: None)

    asyncio.run(scene())
    assert closed == [3]
