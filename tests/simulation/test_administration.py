"""The administrator's topics are compared with the images of all brokers, once these had time to follow."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.metadata.image import ClusterImage, PartitionImage, TopicImage
from odradek.simulation.virtual.simulation import Simulation
from odradek.simulation.workloads.administration import Administration, Known


def image(**config: str) -> ClusterImage:
    topic = TopicImage(
        name="t",
        topic_id=UUID(int=1),
        partitions={0: PartitionImage(leader=0, leader_epoch=0, replicas=(0,), isr=(0,))},
        config=config,
    )
    return ClusterImage(topics={"t": topic})


@pytest.mark.parametrize(("after_s", "is_found"), [(5, False), (1_000_000, True)])
def test_a_change_may_reach_a_broker_late_and_must_reach_it(seed: int, after_s: int, *, is_found: bool) -> None:
    simulation = Simulation(seed)

    async def nothing() -> None: ...

    async def main() -> None:
        administration: Any = object.__new__(Administration)
        late = SimpleNamespace(image=image())
        first = SimpleNamespace(image=image(**{"retention.ms": "3600000"}))
        administration.world = SimpleNamespace(running={0: late, 1: first}, tree=SimpleNamespace(names=lambda _: []))
        administration._known = [Known(name="t", exists=True, partitions=1, retention_ms="3600000")]
        administration._working = asyncio.ensure_future(nothing())
        administration._admin = SimpleNamespace(close=nothing)
        learning = asyncio.get_running_loop().call_later(after_s, setattr, late, "image", first.image)
        found = await administration.finish()
        learning.cancel()
        assert bool(found) == is_found
        assert all("on broker 0 there is Known(name='t'" in each for each in found)

    simulation.run(main())
