"""A broker as users run it: `odradek serve` in a process of its own."""

from collections.abc import Iterator

import pytest

from conformance.interop.existing_clients import BROKER_OPTIONS
from odradek.testing.servers.odradek_process import ServedBroker


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """One broker for all tests of a session; each test takes topics and groups of its own."""
    broker = ServedBroker(tmp_path_factory.mktemp("served") / "data", options=BROKER_OPTIONS)
    broker.start()
    yield broker
    status = broker.stop()
    errors = broker.errors.read_text()
    assert status == 0, errors
    assert "Traceback" not in errors, errors


@pytest.fixture
def servers(served: ServedBroker) -> str:
    """The value of `bootstrap.servers`."""
    return served.bootstrap_servers


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return "".join(character if character.isalnum() else "." for character in request.node.name)[:200]
