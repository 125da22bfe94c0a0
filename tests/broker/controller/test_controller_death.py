"""The controller dies before each of its writes, one run for each: the next one finishes (M10)."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from odradek.broker.controller import controller_epoch as active_controller
from odradek.broker.controller.machine.topic_creation import NewPartitions
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.reading import read_subtree
from odradek.testing import Simulation
from tests.broker.controller.command_listener import ListeningMetadataLoop
from tests.broker.controller.control_plane import ControlPlane
from tests.broker.controller.controller_deaths import LIVED, MortalStore, dies_of, lives

WANTED = NewTopic(name="a", num_partitions=5, config={"retention.ms": "5"})


class Run(ControlPlane):
    """The life of a broker that is the controller, its death, and the life after it."""

    @classmethod
    async def begin(cls, simulation: Simulation) -> tuple["Run", ListeningMetadataLoop]:
        run = cls(simulation)
        return run, await run.started(store=MortalStore(run.tree))

    async def die(self, broker: ListeningMetadataLoop, work: Awaitable[Any], writes: int) -> bool:
        """Do `work` and die before the write after `writes` more of them; False if it was done by then."""
        broker.store.writes_left = writes

        async def kill() -> None:
            self.kill(broker)
            self.history.clear()

        return await dies_of(work, is_dead=lambda: broker.store.dead, kill=kill)

    async def nodes(self) -> list[str]:
        return await read_subtree(self.store, "/brokers/topics/a")


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_controller, "STEP_OPERATIONS", 2)


def test_a_creation_that_was_begun_is_finished_by_the_next_controller(seed) -> None:
    async def scenario(simulation: Simulation, writes: int) -> str:
        run, broker = await Run.begin(simulation)
        died = await run.die(broker, broker.create_topics([WANTED]), writes)
        begun = bool(await run.nodes())
        successor = await run.started()
        assert ("a" in successor.image.topics) == begun
        [again] = await successor.create_topics([WANTED])
        assert (again.error is not None) == begun
        topic = successor.image.topics["a"]
        assert [each.leader for each in topic.partitions.values()] == [0] * 5
        assert dict(topic.config) == {"retention.ms": "5"}
        assert len(await run.nodes()) == 2 + 2 * 5
        await successor.stop()
        return ("begun" if begun else "nothing") if died else LIVED

    answers = lives(seed, scenario)
    assert answers[0] == "nothing"
    assert answers.count("begun") >= 5
    assert answers[-1] == LIVED


def test_a_requested_deletion_is_finished_by_the_next_controller(seed) -> None:
    async def scenario(simulation: Simulation, writes: int) -> str:
        run, broker = await Run.begin(simulation)
        await broker.create_topics([WANTED])
        died = await run.die(broker, broker.delete_topics(["a"]), writes)
        before = await run.nodes()
        wished = await run.store.get("/admin/delete_topics/a") is not None
        successor = await run.started()
        if died and not wished:
            assert successor.image.topics["a"].partitions[4].leader == 0
            await successor.delete_topics(["a"])
        else:
            assert all("a" not in image.topics for image in run.history)
        assert await run.nodes() == []
        assert await run.store.children("/admin/delete_topics") == []
        assert await run.store.children("/config/topics") == []
        assert [each.error for each in await successor.create_topics([WANTED])] == [None]
        await successor.stop()
        if not died:
            return LIVED
        return "nothing" if not wished else f"{len(before)} left"

    answers = lives(seed, scenario)
    assert answers[0] == "nothing"
    assert len(set(answers)) >= 7
    assert answers[-1] == LIVED


def test_an_election_is_finished_by_the_next_controller(seed) -> None:
    async def scenario(simulation: Simulation, writes: int) -> str:
        run, broker = await Run.begin(simulation)
        other = await run.started(1)
        await run.until(lambda: len(broker.image.brokers) == 2)
        await broker.create_topics([NewTopic(name="a", assignment=dict.fromkeys(range(5), (1, 0)))])

        async def other_dies() -> None:
            run.kill(other)
            while any(partition.leader != 0 for partition in broker.image.topics["a"].partitions.values()):
                await asyncio.sleep(0.001)

        died = await run.die(broker, other_dies(), writes)
        successor = await run.started()
        partitions = successor.image.topics["a"].partitions.values()
        assert [(each.leader, each.leader_epoch, each.isr) for each in partitions] == [(0, 1, (0,))] * 5
        epochs = {each.controller_epoch for each in partitions}
        await successor.stop()
        return f"by {sorted(epochs)}" if died else LIVED

    answers = lives(seed, scenario)
    assert answers == ["by [2]", "by [1, 2]", "by [1, 2]", LIVED]


def test_new_partitions_are_all_there_or_none_and_the_next_controller_gives_them_leaders(seed) -> None:
    async def scenario(simulation: Simulation, writes: int) -> str:
        run, broker = await Run.begin(simulation)
        await broker.create_topics([WANTED])
        died = await run.die(broker, broker.create_partitions([NewPartitions(topic="a", count=8)]), writes)
        successor = await run.started()
        leaders = [each.leader for each in successor.image.topics["a"].partitions.values()]
        assert leaders in ([0] * 5, [0] * 8)
        assert len(await run.nodes()) == 2 + 2 * len(leaders)
        await successor.stop()
        return ("begun" if len(leaders) == 8 else "nothing") if died else LIVED

    answers = lives(seed, scenario)
    assert answers[0] == "nothing"
    assert answers.count("begun") >= 3
