"""The controller's image has what it wrote to the tree, as if it had read it (M9, M10)."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from odradek.broker.cluster.registration.unclean_registration import leave_isrs
from odradek.broker.controller.machine.elections import ElectionType
from odradek.broker.controller.machine.topic_creation import NewPartitions
from odradek.config.broker import BrokerConfig
from odradek.metadata import paths
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import TopicNode
from odradek.metadata.store import Node, Operation, Result
from odradek.model import OdradekError, TopicPartition, UnavailableError
from odradek.testing import Simulation
from tests.broker.controller.administered import ELECT, REASSIGN, Brokers
from tests.broker.controller.controller_deaths import MortalStore

CONFIG = BrokerConfig(auto_leader_rebalance_enable=False, unclean_leader_election_enable=True)
CONTROLLER, OTHERS = 0, (1, 2, 3)
NAME, BROKER, REPLICAS = st.sampled_from("tu"), st.sampled_from(OTHERS), st.permutations([CONTROLLER, *OTHERS])
STEPS = st.one_of(
    st.tuples(st.just("create"), NAME, st.lists(REPLICAS, min_size=1, max_size=3)),
    st.tuples(st.just("elect"), NAME, st.sampled_from([*ElectionType, None])),
    st.tuples(st.just("reassign"), NAME, REPLICAS, st.booleans()),
    st.tuples(st.just("lose the answer"), NAME, st.booleans()),
    st.tuples(st.just("pass"), NAME, st.sampled_from([0.001, 0.3, 20.0])),
    st.tuples(st.sampled_from(["grow", "delete", "lose the id"]), NAME),
    st.tuples(st.sampled_from(["kill", "start", "shut down", "leave"]), NAME, BROKER),
)


class DoubtfulStore(MortalStore):
    """A session that notes what it reads; once `is_done` is set, its next transaction is done or not, and fails."""

    is_done: bool | None = None
    reads: tuple[str, ...] = ()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        is_done, self.is_done = self.is_done, None
        results = [] if is_done is False else await super().multi(operations)
        if is_done is None:
            return results
        raise UnavailableError("the answer is lost")

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        wanted = tuple(paths)
        self.reads += wanted
        return await super().get_many(wanted)


class Play(Brokers):
    """Brokers, of which one is the controller until the end."""

    async def begin(self) -> None:
        self.doubtful = DoubtfulStore(self.tree)
        self.brokers[CONTROLLER] = await self.started(CONTROLLER, config=self.config, store=self.doubtful)
        await self.start(*OTHERS)

    async def step(self, what: str, name: str, detail: Any = None) -> None:
        loop, key = self.brokers[CONTROLLER], TopicPartition(name, 0)
        match what:
            case "create":
                replicas = {number: tuple(each[:3]) for number, each in enumerate(detail)}
                await loop.create_topics([NewTopic(name=name, assignment=replicas)])
            case "grow":
                known = loop.image.topics.get(name)
                count = 1 + len(known.partitions if known else ())
                await loop.create_partitions([NewPartitions(topic=name, count=count)])
            case "delete":
                await loop.delete_topics([name])
            case "elect":
                await (self.request(ELECT, key) if detail is None else self.elect(None, detail))
            case "reassign":
                target, is_node = tuple(detail[0][:2]), detail[1]
                await (self.request(REASSIGN, (*key, target)) if is_node else self.reassign({key: target}))
            case "kill" if detail in self.brokers:
                self.kill_broker(detail)
            case "start" if detail not in self.brokers:
                await self.start(detail)
            case "shut down":
                await loop.shut_down(detail, -1)
            case "leave":
                await leave_isrs(self.store, detail, [key], timeout_s=0.01)
            case "lose the id":
                node = await self.store.get(paths.topic(name))
                if node is not None:
                    topic = replace(TopicNode.decode(paths.topic(name), node.data), topic_id=None)
                    await self.store.set(paths.topic(name), topic.encode())
            case "lose the answer":
                self.doubtful.is_done = detail
            case "pass":
                await asyncio.sleep(detail)


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(STEPS, min_size=4, max_size=25))
def test_the_image_is_what_the_tree_holds(steps):
    async def scenario() -> None:
        world = Play(simulation, CONFIG)
        await world.begin()
        await world.step("create", "t", [[1, 2, 3], [2, 0, 1]])
        for what, name, *details in steps:
            with suppress(OdradekError):
                await world.step(what, name, details[0] if len(details) == 1 else details)
        await asyncio.sleep(60)
        image, found = world.brokers[CONTROLLER].image, await world.tree_image()
        assert world.brokers[CONTROLLER].is_controller
        assert (image.topics, image.topic_names, image.deleting) == (found.topics, found.topic_names, found.deleting)
        await world.stop()

    simulation = Simulation(0)
    simulation.run(scenario())


def test_an_election_reads_no_topic(seed):
    async def scenario() -> None:
        world = Play(simulation, CONFIG)
        await world.begin()
        await world.step("create", "t", [[1, 2, 3], [1, 3, 0]])
        world.doubtful.reads = ()
        world.kill_broker(1)
        await world.until(lambda: world.now and world.now.leader == 2)
        assert world.brokers[CONTROLLER].image.topics == (await world.tree_image()).topics
        assert [path for path in world.doubtful.reads if paths.topic_of(path)] == []
        await world.stop()

    simulation = Simulation(seed)
    simulation.run(scenario())
