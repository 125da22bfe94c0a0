"""Scenes with an admin client: of a world's brokers, or of one scripted broker."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from odradek.clients import Admin
from odradek.simulation.world import World
from odradek.testing import Simulation


def play(
    seed: int,
    scene: Callable[[Admin, World], Awaitable[None]],
    *,
    brokers: int = 1,
    partitions: int = 0,
    config: Mapping[str, str] | None = None,
    **settings: Any,
) -> None:
    """Run a scene in which groups do not wait for members; with `partitions`, there is a topic `t`."""
    replicas = {"offsets.topic.replication.factor": str(brokers), "default.replication.factor": str(brokers)}
    world = World(seed, {"group.initial.rebalance.delay.ms": "0", **replicas, **(config or {})}, brokers=brokers)

    async def scenario(_: World) -> None:
        async with world.admin(**settings) as admin:
            if partitions:
                await admin.create_topic("t", partitions=partitions)
            await scene(admin, world)

    world.play(scenario)


def play_scripted(simulation: Simulation, broker: Any, scene: Callable[[Admin], Awaitable[None]], **more: Any) -> None:
    async def main() -> None:
        await broker.start()
        async with Admin(broker.address, runtime=simulation.runtime("admin"), **more) as admin:
            await scene(admin)
        broker.stop()

    simulation.run(main())
