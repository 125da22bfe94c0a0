"""Shared fixtures of the tests of the log."""

import pytest

from tests.broker.log.compacting import Room


@pytest.fixture(params=["plain", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Room` compacts in either way."""
    monkeypatch.setattr(Room, "worthwhile_bytes", 0 if request.param == "compiled" else 1 << 62)
