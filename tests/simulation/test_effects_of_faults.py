"""The effects of faults on a cluster, which is whole again after their end."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.model import TopicPartition
from odradek.model.probes import collecting
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.promises import PATIENCE_S
from odradek.simulation.setup import CONFIG, MOST_CONNECTIONS, draw_setup
from odradek.simulation.workloads.retained import Retained
from odradek.simulation.workloads.workload import create_topic
from odradek.simulation.world import World, until
from tests.world.scenes import played_by

pytestmark = pytest.mark.long


def play(scene: Callable[[World, Schedule], Awaitable[None]], **config: str) -> None:
    """Play a scene in a cluster with topic `t`; then all faults end, and the cluster must be whole."""

    async def main(world: World) -> None:
        await world.create_topic("t", 3, 3)
        schedule = Schedule(world, FAULTS)
        schedule.topics, schedule.clients = ["t"], ["client"]
        await until(schedule.is_whole)
        await scene(world, schedule)
        await schedule.end_faults()
        await until(schedule.is_whole, within_s=PATIENCE_S)

    World(1, CONFIG | {key.replace("_", "."): value for key, value in config.items()}, brokers=3).play(main)


async def write(world: World, broker: int, name: str = "writer") -> None:
    """Write a record to every partition of `t` that the broker leads."""
    client = await world.client(name, broker=broker)
    for place in [each.topic_partition for each in world.running[broker].partitions]:
        await client.produce("t", World.batch(b"v"), partition=place.partition)
    client.close()


@pytest.mark.parametrize("name", ["fail_syncs", "lose_directory"])
@played_by(play)
async def test_a_broker_without_a_data_directory_ends(world: World, schedule: Schedule, *, name: str) -> None:
    await FAULTS[name](schedule, 0, 1)
    await until(lambda: len(world.running) < 3)
    assert 0 not in world.running


@pytest.mark.parametrize("name", ["fail_syncs", "lose_directory"])
@played_by(play, log_dirs="/data-1,/data-2")
async def test_a_broker_with_another_data_directory_goes_on(world: World, schedule: Schedule, *, name: str) -> None:
    broker = world.running[0]
    await FAULTS[name](schedule, 0, 1)
    await until(lambda: bool(broker.logs.directories.offline))
    await until(lambda: not schedule.is_whole())
    await world.pass_time(10)
    assert world.running[0] is broker
    assert not broker.failed.is_set()


@played_by(play)
async def test_a_broker_without_sockets_answers_no_new_client_and_then_answers_those_that_wait(
    world: World, schedule: Schedule
) -> None:
    await FAULTS["take_sockets"](schedule, 0, 1)
    asking = asyncio.create_task(write(world, 0))
    await world.pass_time(20)
    assert not asking.done()
    with pytest.raises(OSError, match="too many open files"):
        await world.simulation.runtime(world.hosts[0]).network.connect(asyncio.Protocol, world.hosts[1], 9092)
    await schedule.end_faults()
    await asyncio.wait_for(asking, 10)


@played_by(play)
async def test_a_broker_with_all_its_connections_refuses_more(world: World, schedule: Schedule) -> None:
    await FAULTS["crowd"](schedule, 0, 1)
    await world.pass_time(1)
    assert sum(world.running[0].server.connections_by_listener.values()) == MOST_CONNECTIONS
    with pytest.raises(OSError, match="connection"):
        await write(world, 0)
    await schedule.end_faults()
    await world.pass_time(1)
    await write(world, 0)


@played_by(play)
async def test_a_broker_whose_memory_is_hoarded_closes_a_connection_without_progress(
    world: World, schedule: Schedule
) -> None:
    pressure = world.running[0].server.memory_pressure
    await FAULTS["hoard"](schedule, 0, 1)
    await until(lambda: pressure._timer is not None, within_s=5)
    await world.pass_time(30)
    assert pressure._timer is None
    await write(world, 0)


@played_by(play)
async def test_a_broker_is_killed_while_it_recovers_its_logs_and_then_serves(world: World, schedule: Schedule) -> None:
    await write(world, 0)
    for _ in range(12):
        await FAULTS["kill_in_recovery"](schedule, 0, 1)
        await schedule.end_faults()
        await until(schedule.is_whole, within_s=PATIENCE_S)
    assert "broker 0 does not start: PowerCutError" in schedule.done
    await write(world, 0)


@played_by(play)
async def test_a_broker_whose_small_files_are_damaged_rebuilds_them(world: World, schedule: Schedule) -> None:
    with collecting() as counts:
        for number in range(12):
            await write(world, number % 3, f"writer-{number}")
            await FAULTS["damage_files"](schedule, number % 3, 1)
            await schedule.end_faults()
            await until(schedule.is_whole, within_s=PATIENCE_S)
    reached = {name.partition(": ")[2] for name in counts.probes}
    assert {"the file of leader epochs is damaged", "an index of the active segment is empty"} <= reached


@pytest.mark.parametrize("name", ["shorten_retention", "delete_records"])
@played_by(play, **Retained.config)
async def test_segments_are_deleted_while_they_are_read_and_replicated(
    world: World, schedule: Schedule, *, name: str
) -> None:
    workload = Retained(world, draw_setup(1, {}))
    await workload.start()
    schedule.workloads = [workload]
    await world.pass_time(5)
    await FAULTS[name](schedule, 0, 1)
    place = TopicPartition("retained", 0)
    logs = [log for broker in world.running.values() if (log := broker.logs.get(place)) is not None]
    await until(lambda: all(log.log_start_offset > 0 for log in logs), within_s=10)
    await schedule.end_faults()
    await schedule.finish()
    workload.may_be_deleted = False
    (finding,) = await workload.finish()
    assert "and nothing was deleted" in finding, "a deletion without a fault is a finding"


@played_by(play)
async def test_a_fault_of_compaction_changes_the_configuration_until_it_ends(world: World, schedule: Schedule) -> None:
    await create_topic(world, "table", 1, **{"cleanup.policy": "compact"})
    await FAULTS["force_cleaner"](schedule, 0, 1)
    image = world.running[0].metadata
    await world.pass_time(10)
    assert image.image.topics["table"].config.get("segment.ms") == "1000"
    await schedule.end_faults()
    await schedule.finish()
    await until(lambda: image.image.topics["table"].config.get("segment.ms") == "5000", within_s=10)
