"""An idempotent producer that sends acknowledged batches again while faults come and go: each is there once.

`ODRADEK_SEEDS=1000 pytest tests/broker/replication/test_repeated_batches_in_virtual_time.py` tries so many.
"""

import asyncio
from typing import Final

import pytest

from odradek.model import TopicPartition
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.faults.processes import kill
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.promises import BROKERS
from odradek.simulation.setup import CONFIG, draw_setup
from odradek.simulation.workloads.sequences import HOST, TOPIC, Numberer, Sequences
from odradek.simulation.world import World
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

PLACE: Final = TopicPartition(TOPIC, 0)


async def starve(schedule: Schedule, one: int, other: int) -> None:
    """Leave a leader alone in the ISR, and block its responses to the client in half of the cases."""
    world = schedule.world
    led = [number for number, broker in world.running.items() if broker.partitions.get(PLACE)]
    for number in [each for each in world.running if each not in led]:
        schedule.note(f"kill {number}")
        await kill(schedule, number, number)
    if led and schedule.chance.random() < 0.5:
        schedule.note(f"mute {led[0]} to {HOST}")
        world.simulation.network.block(world.hosts[led[0]], HOST)
        await asyncio.sleep(schedule.chance.random())
        world.simulation.network.heal()


def play_repetitions(seed: int) -> Numberer:
    """Return the producer of one seed, after its faults. An error has them as a note."""
    found: list[tuple[Schedule, Numberer]] = []

    async def scenario(world: World) -> None:
        schedule = Schedule(world, {**FAULTS, "starve": starve}, [*FAULTS, *["starve"] * len(FAULTS)])
        workload = Sequences(world, draw_setup(seed, {}))
        schedule.topics, schedule.clients = list(workload.topics), list(workload.clients)
        found.append((schedule, workload.numberer))
        await workload.start()
        await schedule.play()
        assert not await workload.finish()

    world = World(seed, CONFIG, brokers=BROKERS, noticed_at_once=seed % 2 == 0)
    try:
        world.play(scenario)
    except BaseException as error:
        for schedule, _ in found:
            error.add_note("the faults: " + "; ".join(schedule.done))
        raise
    return found[0][1]


@pytest.mark.parametrize("number", seeds(5))
def test_an_acknowledged_batch_sent_again_gets_its_offset_or_waits(number: int) -> None:
    """M1."""
    assert play_repetitions(number).repeated > 0


def test_some_schedules_leave_a_leader_as_the_only_in_sync_replica() -> None:
    assert sum(play_repetitions(number).repeated_below_min for number in range(5)) > 0
