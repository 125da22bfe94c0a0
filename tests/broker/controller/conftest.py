"""`play` runs a scenario with a `ControlPlane`."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.testing import Simulation
from tests.broker.controller.control_plane import ControlPlane


@pytest.fixture
def play(seed: int) -> Callable[[Callable[[ControlPlane], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[ControlPlane], Coroutine[Any, Any, None]]) -> None:
        simulation = Simulation(seed)

        async def main() -> None:
            await scenario(ControlPlane(simulation))

        simulation.run(main())

    return run
