"""Administration amid faults."""

import asyncio

from odradek.clients import Admin
from odradek.model import ErrorCode, KafkaError, UnavailableError
from odradek.testing.simulated_cluster.faults.schedule import Schedule, is_in_tree, partition_states
from odradek.testing.simulated_cluster.promises import BROKERS, CLIENTS, PATIENCE_S
from odradek.testing.world import until


async def create(schedule: Schedule, one: int, other: int) -> None:
    """Create a topic with as many replicas as there are brokers, alive or not.

    It may fail while no broker is reachable, but not because some are down.
    """
    del one, other
    world = schedule.world
    name = f"created-{schedule.chance.randrange(1_000_000)}"

    async def create_topic() -> None:
        try:
            async with Admin(world.servers, runtime=world.simulation.runtime(name), **CLIENTS) as admin:
                await admin.create_topic(name, partitions=2, replication_factor=BROKERS)
        except UnavailableError:
            pass
        except KafkaError as error:
            if error.code == ErrorCode.invalid_replication_factor:
                raise

    creation = asyncio.create_task(create_topic(), name=f"creating {name}")

    async def is_whole() -> None:
        await creation
        if is_in_tree(world, name):
            await until(
                lambda: all(each is not None and len(each.isr) == BROKERS for each in partition_states(world, name)),
                within_s=PATIENCE_S,
            )

    schedule.at_the_end(is_whole)
