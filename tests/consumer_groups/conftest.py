"""A world of one broker for a test."""

import pytest

from odradek.testing.world import Play, World


@pytest.fixture
def play(seed: int) -> Play:
    """Run a scene to its end; brokers that it leaves running are abandoned."""
    return lambda scene: World(seed).run(scene)
