"""The page's tests on a slow machine: an answer that takes long is no broker that hangs."""

import pytest

from odradek.page import readings


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for each value; tests of brokers that hang wait for none."""
    for name in ("_LONGEST_WAIT_S", "_MOMENT_S"):
        monkeypatch.setattr(readings, name, 60.0)
