"""A user's own code in virtual time (docs/testing.md has the whole example, and `tests/docs` runs it)."""

import asyncio

import pytest

from odradek.simulation.world import World
from odradek.testing import simulate


async def produce(world: World) -> None:
    await world.create_topic("t")
    async with world.producer("writer") as producer:
        for _ in range(10):
            await (await producer.send("t", b"x"))
            await asyncio.sleep(1)
    assert [len(values) for values in (await world.read("t", 1)).values()] == [10]


def test_the_same_seed_gives_the_same_run():
    assert simulate(produce, seed=1, faults=("kill",)) == simulate(produce, seed=1, faults=("kill",))


def test_a_failure_names_the_seed_and_the_faults():
    async def fail(world: World) -> None:
        await produce(world)
        assert world.now_s < 0

    with pytest.raises(AssertionError) as caught:
        simulate(fail, seed=2, faults=("expire",), virtual_s=5.0)
    notes = "\n".join(caught.value.__notes__)
    assert "seed 2, " in notes
    assert "the faults: 0 " in notes
    assert " expire " in notes


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match=r"unknown faults \['kil'\]; known are"):
        simulate(produce, seed=1, faults=("kil",))


def test_a_fault_of_clients_is_refused_without_clients():
    with pytest.raises(ValueError, match=r"\['disconnect_client', 'pause_client'\] need clients"):
        simulate(produce, seed=1, faults=("kill", "disconnect_client", "pause_client"))


def test_clocks_of_brokers_drift_and_jump_without_clients():
    assert simulate(produce, seed=1, faults=("drift", "jump_one_clock"), virtual_s=5.0)
