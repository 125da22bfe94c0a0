"""The controller dies before each of its writes for a reassignment or an election: the next one finishes (M10)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.broker.controller.machine.reassignment import reassignments
from odradek.metadata.image import ClusterImage
from odradek.testing import Simulation
from tests.broker.controller.administered import ELECT, KEY, REASSIGN, Brokers
from tests.broker.controller.controller_deaths import LIVED, dies_of, lives

CONTROLLER = 0


DieOf = Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, bool]]


def played(scenario: Callable[[Brokers, DieOf], Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, str]]:
    """Return a life of brokers whose controller may die of a work, as `lives` takes it.

    `scenario` is given the brokers, and what does a work: True if the controller died of it. Its answer may be a
    function of the tree that the dead one left.
    """

    async def life(simulation: Simulation, writes: int) -> str:
        world = Brokers(simulation)
        await world.start(CONTROLLER, 1, 2, 3)
        left: list[ClusterImage] = []

        async def die_of(work: Coroutine[Any, Any, Any]) -> bool:
            mortal = world.stores[CONTROLLER]
            mortal.writes_left = writes

            async def kill() -> None:
                if mortal.dead:
                    left.append(await world.tree_image())
                    world.kill_broker(CONTROLLER)

            died = await dies_of(work, is_dead=lambda: mortal.dead, kill=kill)
            mortal.writes_left = None
            return died

        answer = await scenario(world, die_of)
        await world.stop()
        return LIVED if not left else answer(left[0]) if callable(answer) else str(answer)

    return life


def phase(image: ClusterImage) -> str:
    """How far the reassignment of `KEY` is."""
    now = image.partition(KEY)
    assignment = reassignments(image).get(KEY)
    if assignment is None:
        return f"has {sorted(now.replicas)}"
    if set(now.isr) == set(assignment.target):
        return "moved"
    return "in sync" if set(assignment.target) <= set(now.isr) else "copies"


@pytest.mark.parametrize("way", ["node", "request"])
def test_a_reassignment_is_finished_by_the_next_controller(seed, way):
    """M9, M10."""

    async def scenario(world: Brokers, die_of: DieOf) -> str:
        await world.create((CONTROLLER, 1))

        async def reassign() -> None:
            if way == "node":
                await world.request(REASSIGN, ("t", 0, (2, 3)))
            else:
                await world.reassign({KEY: (2, 3)})
            await world.until_reassigned(2, 3)
            await world.until_gone(REASSIGN)

        died = await die_of(reassign())
        await world.until(lambda: world.controller)
        if died and way == "request" and not begun(await world.tree_image()):
            return phase  # nobody was told that it was begun
        await world.until_reassigned(2, 3)
        await world.until_gone(REASSIGN)
        assert reassignments(world.controller.image) == {}
        return phase

    def begun(image: ClusterImage) -> bool:
        return bool(reassignments(image)) or image.partition(KEY).replicas == (2, 3)

    answers = lives(seed, played(scenario))
    assert answers[0] == "has [0, 1]"
    assert {"copies", "in sync", "moved", LIVED} <= set(answers)
    assert ("has [2, 3]" in answers) == (way == "node"), "the entry goes last"


def test_a_reassignment_that_is_given_up_stays_given_up_with_the_next_controller(seed):
    """M10."""

    async def scenario(world: Brokers, die_of: DieOf) -> str:
        await world.create((1, 2))
        world.lagging = {3}
        await world.request(REASSIGN, ("t", 0, (CONTROLLER, 3)))
        await world.until(lambda: reassignments(world.controller.image))

        async def give_up() -> None:
            await world.reassign({KEY: None})
            await world.until(lambda: reassignments(world.controller.image) == {})

        await die_of(give_up())
        await world.until(lambda: world.controller)
        wished = await world.node(REASSIGN) is not None
        [assignment] = reassignments(world.controller.image).values() or [None]
        is_given_up = assignment is None or set(assignment.target) == {1, 2}
        world.lagging = set()
        if not is_given_up:
            # The asker was told nothing, and asks the next one.
            await world.reassign({KEY: None})
        await world.until(lambda: reassignments(world.controller.image) == {})
        await asyncio.sleep(5)
        assert set(world.now.replicas) == {1, 2}
        assert await world.node(REASSIGN) is None
        return f"{wished} {is_given_up}"

    answers = lives(seed, played(scenario))
    assert answers[0] == "True False"
    assert answers[1] == "False False", "the request goes first, else it would be granted again"
    assert "False True" in answers


def test_elections_of_a_node_are_finished_by_the_next_controller(seed, monkeypatch):
    """M9, M10."""
    monkeypatch.setattr("odradek.broker.controller.controller_epoch.STEP_OPERATIONS", 1)

    async def scenario(world: Brokers, die_of: DieOf) -> str:
        await world.create((1, 2), (1, 3), (1, 2))
        partitions = world.controller.image.topics["t"].partitions
        world.kill_broker(1)
        await world.until(lambda: all(each.leader != 1 for each in leaders(world)))
        await world.start(1)
        await world.until(lambda: all(1 in each.isr for each in leaders(world)))

        async def elect() -> None:
            await world.request(ELECT, *(("t", number) for number in partitions))
            await world.until_gone(ELECT)

        await die_of(elect())
        elected = sum(each.leader == 1 for each in leaders(world))
        await world.until(lambda: world.controller and all(each.leader == 1 for each in leaders(world)))
        await world.until_gone(ELECT)
        return f"{elected} elected"

    def leaders(world: Brokers) -> Any:
        image = world.controller.image if world.controller else world.history[-1]
        return image.topics["t"].partitions.values()

    answers = lives(seed, played(scenario))
    assert answers[-1] == LIVED
    assert len(answers) == 5, "three elections, and the end of the node"
