"""A broker in virtual time: `play` runs a scene, which starts it."""

import pytest

from odradek.simulation.world import Play, World


@pytest.fixture
def play(seed: int) -> Play:
    """Run a scene to its end; brokers that it leaves running are abandoned."""
    return lambda scene: World(seed).run(scene)
