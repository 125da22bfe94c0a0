"""A broker in virtual time that coordinates groups: `play` runs a scenario, whose clients choose their versions."""

from collections.abc import Callable

import pytest

from odradek.simulation.world import Scenario, World

CONFIG = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2", "num.partitions": "3"}


@pytest.fixture
def play(seed: int) -> Callable[..., None]:
    """Run a scenario; keywords are the brokers' configuration, with `_` for `.`."""

    def run(scenario: Scenario, *, brokers: int = 1, **config: str) -> None:
        more = {key.replace("_", "."): value for key, value in config.items()}
        World(seed, CONFIG | more, brokers=brokers, limit_s=100_000).play(scenario)

    return run
