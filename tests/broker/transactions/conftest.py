"""Brokers in virtual time that coordinate transactions."""

from collections.abc import Callable

import pytest

from odradek.simulation.world import Scenario, World

CONFIG = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture
def play(seed: int) -> Callable[..., None]:
    """Run a scenario; keywords are the brokers' configuration, with `_` for `.`."""

    def run(scenario: Scenario, *, brokers: int = 1, **config: str) -> None:
        more = {key.replace("_", "."): value for key, value in config.items()}
        World(seed, CONFIG | more, brokers=brokers).play(scenario)

    return run
