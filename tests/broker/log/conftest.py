"""Shared fixtures of the tests of the log."""

import pytest

from odradek.kernels import LIBRARY
from tests.broker.log.compacting import Room


@pytest.fixture(params=["plain", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `Room` compacts in either way."""
    monkeypatch.setattr(Room, "library", LIBRARY if request.param == "compiled" else None)
