"""The controller dies before each of its writes, one run for each: the next one finishes (M10)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from command_listener import ListeningMetadataLoop

from odradek.broker.controlling import controller_epoch as active_controller
from odradek.config import BrokerConfig, ListenerAddress
from odradek.controller import NewPartitions, NewTopic
from odradek.metadata.image import ClusterImage
from odradek.metadata.reading import read_subtree
from odradek.metadata.store import Operation, Result
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation

WANTED = NewTopic(name="a", num_partitions=5, config={"retention.ms": "5"})
MOST_WRITES = 50


class Mortal(MemoryStore):
    """A session whose process dies instead of doing its `writes_left`-th transaction, once `writes_left` is set."""

    writes_left: int | None = None
    dead = False

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        if self.writes_left is not None:
            if self.writes_left == 0:
                self.dead = True
                await asyncio.get_running_loop().create_future()
            self.writes_left -= 1
        return await super().multi(operations)


class Run:
    """One life and death, and the life after it."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.tree = MemoryTree()
        self.store = Mortal(self.tree)
        self.reader = MemoryStore(self.tree)
        self.images: list[ClusterImage] = []

    def broker(self, store: MemoryStore) -> ListeningMetadataLoop:
        def on_image(_: ClusterImage, new: ClusterImage) -> None:
            self.images.append(new)

        endpoint = ListenerAddress("PLAINTEXT", "localhost", 9092)
        return ListeningMetadataLoop(store, 0, endpoint, BrokerConfig(), self.simulation.runtime(), on_image=on_image)

    async def die(self, broker: ListeningMetadataLoop, work: Any, writes: int) -> bool:
        """Do `work` and die before the write after `writes` more of them; False if it was done by then."""
        self.store.writes_left = writes
        task = asyncio.create_task(work)
        while not (self.store.dead or task.done()):
            await asyncio.sleep(0.001)
        broker.kill()
        self.store.abandon()
        self.tree.expire(self.store.session_id)
        task.cancel()
        await asyncio.wait([task])
        self.images.clear()
        return self.store.dead

    async def nodes(self) -> list[str]:
        return await read_subtree(self.reader, "/brokers/topics/a")


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_controller, "STEP_OPERATIONS", 2)


def lives(seed: int, scenario: Callable[[Run, int], Any]) -> list[Any]:
    """`scenario`'s answers for a death before each write, until nobody dies any more."""
    answers = []
    for writes in range(MOST_WRITES):
        simulation = Simulation(seed)

        async def main(simulation: Simulation = simulation, writes: int = writes) -> Any:
            return await scenario(Run(simulation), writes)

        answers.append(simulation.run(main()))
        if answers[-1] == "lived":
            return answers
    raise AssertionError("somebody always dies")


def test_a_creation_that_was_begun_is_finished_by_the_next_controller(seed) -> None:
    async def scenario(run: Run, writes: int) -> str:
        broker = run.broker(run.store)
        await broker.start()
        died = await run.die(broker, broker.create_topics([WANTED]), writes)
        begun = bool(await run.nodes())
        successor = run.broker(MemoryStore(run.tree))
        await successor.start()
        assert ("a" in successor.image.topics) == begun
        [again] = await successor.create_topics([WANTED])
        assert (again.error is not None) == begun
        topic = successor.image.topics["a"]
        assert [each.leader for each in topic.partitions.values()] == [0] * 5
        assert dict(topic.config) == {"retention.ms": "5"}
        assert len(await run.nodes()) == 2 + 2 * 5
        await successor.stop()
        return ("begun" if begun else "nothing") if died else "lived"

    answers = lives(seed, scenario)
    assert answers[0] == "nothing"
    assert answers.count("begun") >= 5
    assert answers[-1] == "lived"


def test_a_requested_deletion_is_finished_by_the_next_controller(seed) -> None:
    async def scenario(run: Run, writes: int) -> str:
        broker = run.broker(run.store)
        await broker.start()
        await broker.create_topics([WANTED])
        died = await run.die(broker, broker.delete_topics(["a"]), writes)
        before = await run.nodes()
        wished = await run.reader.get("/admin/delete_topics/a") is not None
        successor = run.broker(MemoryStore(run.tree))
        await successor.start()
        if died and not wished:
            assert successor.image.topics["a"].partitions[4].leader == 0
            await successor.delete_topics(["a"])
        else:
            assert all("a" not in image.topics for image in run.images)
        assert await run.nodes() == []
        assert await run.reader.children("/admin/delete_topics") == []
        assert await run.reader.children("/config/topics") == []
        assert [each.error for each in await successor.create_topics([WANTED])] == [None]
        await successor.stop()
        if not died:
            return "lived"
        return "nothing" if not wished else f"{len(before)} left"

    answers = lives(seed, scenario)
    assert answers[0] == "nothing"
    assert len(set(answers)) >= 7
    assert answers[-1] == "lived"


def test_an_election_is_finished_by_the_next_controller(seed) -> None:
    async def scenario(run: Run, writes: int) -> str:
        broker = run.broker(run.store)
        other_store = MemoryStore(run.tree)
        other = ListeningMetadataLoop(
            other_store,
            1,
            ListenerAddress("PLAINTEXT", "localhost", 9093),
            BrokerConfig(),
            run.simulation.runtime("other"),
            on_image=lambda old, new: None,
        )
        await broker.start()
        await other.start()
        while len(broker.image.brokers) < 2:
            await asyncio.sleep(0.001)
        await broker.create_topics([NewTopic(name="a", assignment=dict.fromkeys(range(5), (1, 0)))])

        async def other_dies() -> None:
            other.kill()
            other_store.abandon()
            run.tree.expire(other_store.session_id)
            while any(partition.leader != 0 for partition in broker.image.topics["a"].partitions.values()):
                await asyncio.sleep(0.001)

        died = await run.die(broker, other_dies(), writes)
        successor = run.broker(MemoryStore(run.tree))
        await successor.start()
        partitions = successor.image.topics["a"].partitions.values()
        assert [(each.leader, each.leader_epoch, each.isr) for each in partitions] == [(0, 1, (0,))] * 5
        epochs = {each.controller_epoch for each in partitions}
        await successor.stop()
        return f"by {sorted(epochs)}" if died else "lived"

    answers = lives(seed, scenario)
    assert answers == ["by [2]", "by [1, 2]", "by [1, 2]", "lived"]


def test_new_partitions_are_all_there_or_none_and_the_next_controller_gives_them_leaders(seed) -> None:
    async def scenario(run: Run, writes: int) -> str:
        broker = run.broker(run.store)
        await broker.start()
        await broker.create_topics([WANTED])
        died = await run.die(broker, broker.create_partitions([NewPartitions(topic="a", count=8)]), writes)
        successor = run.broker(MemoryStore(run.tree))
        await successor.start()
        leaders = [each.leader for each in successor.image.topics["a"].partitions.values()]
        assert leaders in ([0] * 5, [0] * 8)
        assert len(await run.nodes()) == 2 + 2 * len(leaders)
        await successor.stop()
        return ("begun" if len(leaders) == 8 else "nothing") if died else "lived"

    answers = lives(seed, scenario)
    assert answers[0] == "nothing"
    assert answers.count("begun") >= 3
