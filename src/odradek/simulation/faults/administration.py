"""Administration while other faults may last: topics, restarts, reassignments and moves between directories."""

import asyncio
from contextlib import suppress

from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.simulation.faults.schedule import Schedule, assignments, is_in_tree, partition_states
from odradek.simulation.promises import CLIENTS, PATIENCE_S, BrokenPromiseError
from odradek.simulation.world import until


async def create(schedule: Schedule, one: int, other: int) -> None:
    """Create a topic with as many replicas as there are brokers, alive or not.

    It may fail while no broker is reachable, but not because some are down.
    """
    del one, other
    world = schedule.world
    name = f"created-{schedule.chance.randrange(1_000_000)}"

    async def create_topic() -> None:
        try:
            async with world.admin(name, **CLIENTS) as admin:
                await admin.create_topic(name, partitions=2, replication_factor=len(world.hosts))
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
                lambda: all(
                    each is not None and len(each.isr) == len(world.hosts) for each in partition_states(world, name)
                ),
                within_s=PATIENCE_S,
            )

    schedule.at_the_end(is_whole)


async def rolling_restart(schedule: Schedule, one: int, other: int) -> None:
    """End all faults, then stop and start each broker, one after the other, as an upgrade does."""
    await schedule.end_faults()
    await schedule.until_whole()
    for number in schedule.all_brokers(one, other):
        await schedule.world.stop(number)
        await asyncio.sleep(schedule.chance.choice((0.0, 3.0)))
        await schedule.world.start(number)
        await schedule.until_whole()


async def reassign(schedule: Schedule, one: int, other: int) -> None:
    """Move a partition to two brokers, and back when the faults have ended."""
    if not schedule.topics:
        return
    world = schedule.world
    place = TopicPartition(schedule.chance.choice(schedule.topics), 0)
    replicas = schedule.homes.setdefault(place.topic, assignments(world, place.topic)[0])
    home = sorted(replicas, key=lambda replica: replica != other)

    async def set_replicas(*replicas: int) -> None:
        with suppress(OdradekError):
            async with world.admin("reassigner", **CLIENTS) as admin:
                await admin.alter_partition_reassignments({place: replicas})

    async def move_back() -> None:
        def is_back() -> bool:
            (state, *_) = partition_states(world, place.topic)
            return state is not None and sorted(state.isr) == sorted(home)

        await asyncio.sleep(5)  # requests that the network held take effect first
        for _ in range(20):
            await set_replicas(*home)
            with suppress(TimeoutError):
                await until(is_back, within_s=10.0)
                return
        raise BrokenPromiseError(f"the reassignment of {place} does not end")

    async def begin_to_move_back() -> None:
        moving_back = asyncio.create_task(move_back(), name="moving back")

        async def is_back() -> None:
            await moving_back

        schedule.at_the_end(is_back)

    await set_replicas(one, other)
    schedule.later(begin_to_move_back)


async def move_directory(schedule: Schedule, one: int, other: int) -> None:
    """Move the replica of a partition to another data directory of its broker, which the faults may interrupt.

    In the end, each broker has one folder of each replica (`checks.folders`).
    """
    del other
    world = schedule.world
    broker = world.running.get(one)
    if broker is None or not schedule.topics:
        return
    place = TopicPartition(schedule.chance.choice(schedule.topics), 0)
    for path in schedule.chance.choices(broker.config.log_dirs, k=schedule.chance.choice((1, 2))):
        with suppress(OdradekError):
            async with world.admin("mover", **CLIENTS) as admin:
                await admin.alter_replica_log_dirs(one, {place: path})
