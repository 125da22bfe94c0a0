"""Worlds with consumers of generation 1."""

from collections.abc import Callable

import pytest

from tests.clients.zookeeper_consumer.zookeeper_world import Scenario, play


@pytest.fixture(name="play")
def fixture_play(seed: int) -> Callable[[Scenario], str]:
    """Return a function that runs a scenario in a world of the test's seed."""
    return lambda scenario: play(seed, scenario)
