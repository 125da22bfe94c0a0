"""A user's own asyncio code on simulated brokers in virtual time, with faults that a seed draws.

```python
async def scenario(world: World) -> None:
    await world.create_topic("payments", 2)
    async with world.producer("shop") as producer:
        await producer.send("payments", b"10 EUR")

simulate(scenario, seed=7, faults=("kill", "isolate"))
```
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.metadata import paths
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.promises import BROKERS
from odradek.simulation.setup import CONFIG
from odradek.simulation.world import Scenario, World, until

_FIRST_FAULT_S = 5.0
"""Virtual seconds before the first fault, in which a scenario can create its topics."""

_OF_CLIENTS: Final = frozenset({"disconnect_client", "lose_responses_to_clients", "slow_links", "pause_client"})
"""Faults that draw one of `clients`."""


class _Faults(Schedule):
    def is_whole(self) -> bool:
        self.topics = sorted(self.world.tree.names(paths.TOPICS))
        return super().is_whole()


def simulate(
    scenario: Scenario,
    *,
    seed: int,
    faults: Sequence[str] = (),
    count: int = 5,
    virtual_s: float = 60.0,
    clients: Sequence[str] = (),
    config: Mapping[str, str] | None = None,
) -> str:
    """Play `scenario` on three brokers, and meanwhile `count` of `faults` within about `virtual_s`; return a digest.

    The same seed and code give the same run, and the same digest. An error has a note with the seed and the faults that
    were played. `clients` are the hosts that faults may disconnect from brokers, `config` adds configuration of
    brokers. All faults end before the brokers stop. Raises `ValueError` for an unknown fault, or
    for a fault of clients if `clients` is empty.
    """
    if unknown := sorted(set(faults) - FAULTS.keys()):
        raise ValueError(f"unknown faults {unknown}; known are {sorted(FAULTS)}")
    if not clients and (aimed := sorted(_OF_CLIENTS.intersection(faults))):
        raise ValueError(f"the faults {aimed} need clients: give the hosts of your clients as `clients`")
    world = World(seed, {**CONFIG, **(config or {})}, brokers=BROKERS)
    schedule = _Faults(world, FAULTS, faults, count=count if faults else 0, virtual_s=virtual_s)
    schedule.clients += clients

    async def play_faults() -> None:
        await asyncio.sleep(_FIRST_FAULT_S)
        await schedule.play()

    async def with_faults(world: World) -> None:
        await until(lambda: all(len(each.image.brokers) == BROKERS for each in world.running.values()))
        playing = asyncio.create_task(play_faults(), name="faults")
        try:
            await scenario(world)
        finally:
            playing.cancel()
            await asyncio.wait([playing])
            await schedule.end_faults()
        if not playing.cancelled():
            playing.result()

    try:
        return world.play(with_faults)
    except BaseException as error:
        error.add_note(f"the faults: {'; '.join(schedule.done) or 'none'}")
        raise
