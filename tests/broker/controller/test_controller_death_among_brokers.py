"""The controller of three brokers dies after each of its commands (M1, M9): the next one finishes what it began.

All brokers know the same then. `test_controller_death.py` has its death before each of its writes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.broker.controller import controller_epoch as active_controller
from odradek.metadata.new_topic import NewTopic
from odradek.testing import Simulation
from tests.broker.controller.control_plane import ControlPlane
from tests.broker.controller.controller_deaths import LIVED, dies_of, lives

TOPIC = NewTopic(name="t", assignment={number: ((number + 1) % 3, (number + 2) % 3) for number in range(3)})


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_controller, "STEP_OPERATIONS", 3)


class Trio:
    """Brokers 0, the controller, 1 and 2 in a `World`."""

    def __init__(self, world: ControlPlane) -> None:
        self.world = world
        self.brokers: list[Any] = []

    async def start(self) -> None:
        self.brokers = [await self.world.started(number) for number in range(3)]
        await self.world.until(lambda: all(len(broker.image.brokers) == 3 for broker in self.brokers))

    @property
    def heard(self) -> int:
        return sum(len(broker.listener.received) for broker in self.brokers[1:])

    async def die(self, work: Awaitable[Any], step: int) -> bool:
        """Do `work`; whether the controller died within it, after this many commands."""
        first = self.brokers[0]
        begun = self.heard

        async def kill() -> None:
            self.world.kill(first)

        return await dies_of(work, is_dead=lambda: self.heard - begun > step, kill=kill)

    async def successors(self) -> list[Any]:
        """The two that are left, when one of them is the controller and both know the same."""
        rest = self.brokers[1:]
        await self.world.until(lambda: any(broker.is_controller for broker in rest))
        await self.world.until(lambda: all(set(broker.image.brokers) == {1, 2} for broker in rest))
        await self.world.until(lambda: _known(rest[0]) == _known(rest[1]))
        await self.world.pass_time(1)
        assert _known(rest[0]) == _known(rest[1])
        return sorted(rest, key=lambda broker: not broker.is_controller)


def _known(broker: Any) -> Any:
    return {(name, topic.topic_id): topic.partitions for name, topic in broker.image.topics.items()}


def deaths(seed: int, scenario: Callable[[Trio, int], Awaitable[bool]]) -> int:
    """Play `scenario`, which returns whether the controller died, with a death at each step; how many there were."""

    async def life(simulation: Simulation, step: int) -> str:
        trio = Trio(ControlPlane(simulation))
        await trio.start()
        died = await scenario(trio, step)
        for broker in reversed(trio.brokers[1:]):
            await broker.stop()
        return "died" if died else LIVED

    return len(lives(seed, life)) - 1


def test_a_creation_is_finished_or_was_never_begun(seed: int) -> None:
    async def scenario(trio: Trio, step: int) -> bool:
        died = await trio.die(trio.brokers[0].create_topics([TOPIC]), step)
        controller, _ = await trio.successors()
        topic = controller.image.topics.get("t")
        if topic is None:
            assert await trio.world.everything() == ["/brokers/topics"]
        else:
            assert {each.leader for each in topic.partitions.values()} <= {1, 2}
            assert len(topic.partitions) == 3
        return died

    assert deaths(seed, scenario) >= 2


def test_a_deletion_is_finished_or_was_never_requested(seed: int) -> None:
    async def scenario(trio: Trio, step: int) -> bool:
        await trio.brokers[0].create_topics([TOPIC])
        died = await trio.die(trio.brokers[0].delete_topics(["t"]), step)
        wished = await trio.world.store.get("/admin/delete_topics/t") is not None
        controller, _ = await trio.successors()
        if wished or not died:
            await trio.world.until(lambda: not controller.image.deleting)
            await trio.world.until_childless("/admin/delete_topics")
        if "t" not in controller.image.topics:
            assert await trio.world.everything() == ["/brokers/topics"]
            for broker in trio.brokers[1:]:
                own = {number for number, replicas in TOPIC.assignment.items() if broker.broker_id in replicas}
                assert {key.partition for key, delete in broker.replicas.stopped if delete} == own
        return died

    assert deaths(seed, scenario) >= 2


def test_an_election_is_finished(seed: int) -> None:
    async def scenario(trio: Trio, step: int) -> bool:
        controller = trio.brokers[0]
        await controller.create_topics([NewTopic(name="t", assignment=dict.fromkeys(range(8), (2, 1)))])
        world, dead = trio.world, trio.brokers[2]

        async def two_dies() -> None:
            world.kill(dead)
            states = controller.image.topics["t"].partitions
            while any(each.leader != 1 for each in states.values()):
                await asyncio.sleep(0.0001)
                states = controller.image.topics["t"].partitions
            await controller.controller().epoch.channels.all_acknowledged()

        trio.brokers.remove(dead)
        died = await trio.die(two_dies(), step)
        [last] = trio.brokers[1:]
        await world.until(lambda: last.is_controller and set(last.image.brokers) == {1})
        await world.until(lambda: all(each.leader == 1 for each in last.image.topics["t"].partitions.values()))
        assert {each.leader_epoch for each in last.image.topics["t"].partitions.values()} == {1}
        return died

    assert deaths(seed, scenario) >= 1
