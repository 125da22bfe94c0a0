"""Brokers that share a tree, on virtual time: who is the controller, and what becomes of topics (M1, M9, M10)."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.controller_shell import ControllerShell, prepare_tree
from odradek.config import BrokerConfig, ListenerAddress
from odradek.controller import NewTopic
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import DeleteTopicsNode, TopicNode
from odradek.metadata.reading import read_subtree
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation

CONFIG = BrokerConfig(num_partitions=2)


class World:
    """A tree, a store that no broker uses, and brokers."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.tree = MemoryTree()
        self.store = MemoryStore(self.tree)
        self.images: dict[int, list[ClusterImage]] = {}

    def broker(self, broker_id: int = 0, *, config: BrokerConfig = CONFIG, store: Any = None) -> ControllerShell:
        images = self.images.setdefault(broker_id, [])

        def on_image(old: ClusterImage, new: ClusterImage) -> None:
            assert old is not new
            assert not images or images[-1] is old or old == ClusterImage(cluster_id=old.cluster_id)
            images.append(new)

        shell = ControllerShell(
            store or MemoryStore(self.tree),
            broker_id,
            [ListenerAddress("PLAINTEXT", "localhost", 9092 + broker_id)],
            config,
            self.simulation.runtime(f"broker-{broker_id}"),
            on_image=on_image,
        )
        shell.store = shell._store
        return shell

    async def started(self, broker_id: int = 0, **more: Any) -> ControllerShell:
        shell = self.broker(broker_id, **more)
        await shell.start()
        return shell

    def kill(self, shell: ControllerShell) -> None:
        """The broker dies, and its session is found out."""
        shell.kill()
        shell.store.abandon()
        self.tree.expire(shell.store.session_id)

    async def value(self, path: str) -> Any:
        return json.loads((await self.store.get(path)).data)

    async def everything(self) -> list[str]:
        return await read_subtree(self.store, "/brokers/topics")


async def until(condition: Callable[[], object]) -> None:
    """Give the others turns until something is so; virtual time ends a test that waits in vain."""
    while not condition():
        await asyncio.sleep(0.01)


@pytest.fixture
def play(seed: int) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]:
    def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        simulation = Simulation(seed)

        async def main() -> None:
            await scenario(World(simulation))

        simulation.run(main())

    return run


def codes(results: Any) -> list[str | None]:
    return [None if each.error is None else each.error.code.name for each in results]


def test_the_first_broker_makes_the_tree_and_is_its_controller(play) -> None:
    """M9."""

    async def scenario(world: World) -> None:
        shell = await world.started(3)
        for path in paths.PERSISTENT_ROOTS:
            assert await world.store.get(path) is not None, path
        broker = await world.value("/brokers/ids/3")
        assert (broker["host"], broker["port"], broker["endpoints"]) == (
            "localhost",
            9095,
            ["PLAINTEXT://localhost:9095"],
        )
        assert (await world.value("/controller"))["brokerid"] == 3
        assert (await world.store.get("/controller_epoch")).data == b"1"
        assert (await world.store.get("/controller")).owner == (await world.store.get("/brokers/ids/3")).owner != 0
        image = shell.image
        assert (image.controller_id, image.controller_epoch, list(image.brokers)) == (3, 1, [3])
        assert image.cluster_id == (await world.value("/cluster/id"))["id"]
        assert len(image.cluster_id) == 22
        assert world.images[3][-1] is image
        await shell.stop()
        assert await world.store.get("/controller") is None
        assert await world.store.get("/brokers/ids/3") is None

    play(scenario)


def test_the_cluster_s_id_is_made_once(play) -> None:
    async def scenario(world: World) -> None:
        entropy = world.simulation.entropy("ids")
        ids = await asyncio.gather(*(prepare_tree(MemoryStore(world.tree), entropy) for _ in range(3)))
        shell = await world.started()
        assert {shell.image.cluster_id} == set(ids)
        await shell.stop()

    play(scenario)


def test_a_created_topic_is_in_the_tree_and_in_the_image_when_the_answer_comes(play) -> None:
    """M9: the nodes of a topic, and their order."""

    async def scenario(world: World) -> None:
        shell = await world.started()
        [result] = await shell.create_topics([NewTopic(name="flights", config={"retention.ms": "5"})])
        topic = shell.image.topics["flights"]
        assert result.plan.topic_id == topic.topic_id
        assert shell.image.topic_by_id(topic.topic_id) is topic
        assert world.images[0][-1] is shell.image
        assert {number: (each.leader, each.leader_epoch, each.isr) for number, each in topic.partitions.items()} == {
            0: (0, 0, (0,)),
            1: (0, 0, (0,)),
        }
        node = await world.value("/brokers/topics/flights")
        assert (node["version"], node["partitions"]) == (3, {"0": [0], "1": [0]})
        assert await world.value("/brokers/topics/flights/partitions/1/state") == {
            "controller_epoch": 1,
            "leader": 0,
            "version": 1,
            "leader_epoch": 0,
            "isr": [0],
        }
        assert await world.value("/config/topics/flights") == {"version": 1, "config": {"retention.ms": "5"}}
        await shell.stop()

    play(scenario)


def test_each_topic_of_a_request_is_created_or_says_why_not(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await shell.create_topics([NewTopic(name="old.one")])
        wanted = [
            NewTopic(name="good"),
            NewTopic(name="old.one"),
            NewTopic(name="old_one"),
            NewTopic(name="b@d"),
            NewTopic(name="wide", replication_factor=2),
            NewTopic(name="odd", config={"no.such": "key"}),
        ]
        expected = [
            None,
            "topic_already_exists",
            "invalid_topic_exception",
            "invalid_topic_exception",
            "invalid_replication_factor",
            "invalid_config",
        ]
        assert codes(await shell.create_topics(wanted, validate_only=True)) == expected
        assert sorted(shell.image.topics) == ["old.one"]
        assert codes(await shell.create_topics(wanted)) == expected
        assert sorted(shell.image.topics) == ["good", "old.one"]
        await shell.stop()

    play(scenario)


def test_of_two_who_create_one_topic_at_once_one_is_told_that_it_exists(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        [one], [two] = await asyncio.gather(*(shell.create_topics([NewTopic(name="a")]) for _ in range(2)))
        assert sorted(codes([one, two]), key=str) == [None, "topic_already_exists"]
        await shell.stop()

    play(scenario)


def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(play) -> None:
    """M10."""

    async def scenario(world: World) -> None:
        shell = await world.started()
        await shell.create_topics([NewTopic(name="a"), NewTopic(name="b", config={"retention.ms": "5"})])
        first = shell.image.topics["a"].topic_id
        wanted = ["a", shell.image.topics["b"].topic_id, "c", UUID(int=5)]
        results = await shell.delete_topics(wanted)
        assert codes(results) == [None, None, "unknown_topic_or_partition", "unknown_topic_id"]
        assert [each.name for each in results] == ["a", "b", "c", None]
        assert (dict(shell.image.topics), shell.image.deleting) == ({}, frozenset())
        assert await world.everything() == ["/brokers/topics"]
        assert await world.store.children("/admin/delete_topics") == []
        assert await world.store.children("/config/topics") == []
        assert codes(await shell.create_topics([NewTopic(name="a")])) == [None]
        assert shell.image.topics["a"].topic_id != first
        await shell.stop()

    play(scenario)


def test_replicas_are_told_to_go_before_the_nodes_of_a_topic_are_removed(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await shell.create_topics([NewTopic(name="a")])
        await shell.delete_topics(["a"])
        hidden = [image for image in world.images[0] if "a" in image.deleting]
        assert hidden
        assert all("a" not in image.topics for image in hidden)
        await shell.stop()

    play(scenario)


def test_deletion_may_be_forbidden(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started(config=BrokerConfig(delete_topic_enable=False))
        await shell.create_topics([NewTopic(name="a")])
        assert codes(await shell.delete_topics(["a"])) == ["topic_deletion_disabled"]
        await world.store.create("/admin/delete_topics/a")
        while await world.store.children("/admin/delete_topics"):
            await asyncio.sleep(0.01)
        assert list(shell.image.topics) == ["a"]
        await shell.stop()

    play(scenario)


def test_writing_the_nodes_does_what_asking_does(play) -> None:
    """M10: an operator's tool creates a topic, adds a partition, and deletes in both of Kafka's forms."""

    async def scenario(world: World) -> None:
        shell = await world.started()
        store = world.store
        await store.create("/brokers/topics/a", b'{"version":1,"partitions":{"0":[0]}}')
        await until(lambda: "a" in shell.image.topics and shell.image.topics["a"].partitions[0].has_leader)
        topic = shell.image.topics["a"]
        assert shell.image.topic_by_id(topic.topic_id) is topic
        node = await store.get("/brokers/topics/a")
        decoded = TopicNode.decode("", node.data)
        assert decoded.topic_id == topic.topic_id
        more = TopicNode(replicas={0: (0,), 1: (0,)}, topic_id=topic.topic_id)
        await store.set("/brokers/topics/a", more.encode(), node.version)
        await until(lambda: len(shell.image.topics["a"].partitions) == 2)
        await until(lambda: shell.image.topics["a"].partitions[1].has_leader)
        await store.create("/config/topics/a", b'{"version":1,"config":{"retention.ms":"7"}}')
        await until(lambda: dict(shell.image.topics["a"].config) == {"retention.ms": "7"})
        await store.create("/admin/delete_topics/a")
        await until(lambda: "a" not in shell.image.topics and not shell.image.deleting)
        assert await world.everything() == ["/brokers/topics"]
        await shell.create_topics([NewTopic(name="b"), NewTopic(name="c")])
        await store.set("/admin/delete_topics", DeleteTopicsNode(topics=("b", "unknown")).encode())
        await until(lambda: list(shell.image.topics) == ["c"] and not shell.image.deleting)
        assert (await store.get("/admin/delete_topics")).data == b""
        assert await store.children("/admin/delete_topics") == []
        await shell.stop()

    play(scenario)


def test_a_wish_to_delete_what_never_was_is_removed(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await world.store.create("/admin/delete_topics/never")
        while await world.store.children("/admin/delete_topics"):
            await asyncio.sleep(0.01)
        assert shell.is_controller
        await shell.stop()

    play(scenario)


def test_a_broker_id_that_is_taken_is_refused(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started(1)
        with pytest.raises(ConfigurationError, match="id 1 is taken by the broker at localhost:9093"):
            await world.started(1)
        await shell.stop()
        again = await world.started(1)
        await again.stop()

    play(scenario)


def test_only_the_controller_creates_and_every_broker_sees_it(play) -> None:
    """M1."""

    async def scenario(world: World) -> None:
        one, two = await world.started(1), await world.started(2)
        assert (one.is_controller, two.is_controller) == (True, False)
        for work in (two.create_topics([NewTopic(name="a")]), two.delete_topics(["a"])):
            with pytest.raises(KafkaError) as error:
                await work
            assert error.value.code is ErrorCode.not_controller
        await until(lambda: len(one.image.brokers) == 2)
        await one.create_topics([NewTopic(name="a", num_partitions=4, replication_factor=2)])
        await until(lambda: "a" in two.image.topics and all(map(has_leader, two.image.topics["a"].partitions.values())))
        assert two.image == one.image
        assert sorted(each.leader for each in two.image.topics["a"].partitions.values()) == [1, 1, 2, 2]
        await one.stop()
        await two.stop()

    def has_leader(partition) -> bool:
        return partition.has_leader

    play(scenario)


def test_when_the_controller_dies_another_is_elected_and_partitions_change_hands(play) -> None:
    """M1: `controller_epoch` rises by 1, leader epochs too; a partition without a live replica has no leader."""

    async def scenario(world: World) -> None:
        one, two = await world.started(1), await world.started(2)
        await until(lambda: len(one.image.brokers) == 2)
        await one.create_topics(
            [NewTopic(name="a", assignment={0: (1, 2), 1: (2, 1)}), NewTopic(name="single", assignment={0: (1,)})]
        )
        world.kill(one)
        await until(lambda: two.is_controller and two.image.topics["a"].partitions[0].leader == 2)
        await until(lambda: not two.image.topics["single"].partitions[0].has_leader)
        assert (two.image.controller_id, two.image.controller_epoch) == (2, 2)
        moved, stayed = two.image.topics["a"].partitions.values()
        assert (moved.leader, moved.leader_epoch, moved.isr) == (2, 1, (2,))
        assert (stayed.leader, stayed.leader_epoch, stayed.isr) == (2, 1, (2,))
        back = await world.started(1)
        await until(lambda: back.image.topics["single"].partitions[0].leader == 1)
        single = back.image.topics["single"].partitions[0]
        assert (single.leader_epoch, single.isr) == (2, (1,))
        assert not back.is_controller
        state = await world.value("/brokers/topics/single/partitions/0/state")
        assert state["controller_epoch"] == 2
        await two.stop()
        await back.stop()

    play(scenario)


def test_a_broker_that_starts_again_finds_its_topics_unchanged(play) -> None:
    async def scenario(world: World) -> None:
        one = await world.started()
        await one.create_topics([NewTopic(name="a")])
        world.kill(one)
        again = await world.started()
        assert again.image.topics == one.image.topics
        assert (again.image.cluster_id, again.image.controller_epoch) == (one.image.cluster_id, 2)
        assert again.image.brokers[0].epoch > one.image.brokers[0].epoch
        await again.stop()

    play(scenario)


def test_a_lost_session_is_begun_anew_with_registration_and_election(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await shell.create_topics([NewTopic(name="a")])
        world.tree.expire(shell.store.session_id)
        await until(lambda: shell.image.controller_epoch == 2)
        assert list(shell.image.brokers) == [0]
        assert (await world.store.get("/brokers/ids/0")).owner == shell.store.session_id
        assert shell.image.topics["a"].partitions[0].leader == 0
        assert codes(await shell.create_topics([NewTopic(name="b")])) == [None]
        await shell.stop()

    play(scenario)


def test_a_session_lost_in_the_middle_of_a_request_is_told_and_survived(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        request = asyncio.create_task(shell.create_topics([NewTopic(name="a")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        world.tree.expire(shell.store.session_id)
        [outcome] = await asyncio.gather(request, return_exceptions=True)
        assert isinstance(outcome, list) or outcome.retriable
        await until(lambda: shell.image.controller_epoch == 2)
        await shell.create_topics([NewTopic(name="a")])
        assert shell.image.topics["a"].partitions[1].leader == 0
        await shell.stop()

    play(scenario)


def test_a_registration_that_somebody_removed_is_made_again(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await shell.create_topics([NewTopic(name="a")])
        first = shell.image.brokers[0].epoch
        await world.store.delete("/brokers/ids/0")
        await until(lambda: shell.image.brokers[0].epoch > first)
        assert shell.image.topics["a"].partitions[0].leader_epoch == 0
        await shell.stop()

    play(scenario)


def test_removing_the_controller_s_node_forces_an_election(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await world.store.delete("/controller")
        await until(lambda: shell.image.controller_epoch == 2)
        assert codes(await shell.create_topics([NewTopic(name="a")])) == [None]
        assert (await world.value("/brokers/topics/a/partitions/0/state"))["controller_epoch"] == 2
        await shell.stop()

    play(scenario)


def test_a_deposed_controller_writes_nothing(play) -> None:
    """M1: a controller of an older epoch is refused."""

    async def scenario(world: World) -> None:
        shell = await world.started()
        await world.store.set("/controller_epoch", b"9")
        with pytest.raises(KafkaError) as error:
            await shell.create_topics([NewTopic(name="a")])
        assert error.value.code is ErrorCode.not_controller
        assert await world.everything() == ["/brokers/topics"]
        await until(lambda: shell.image.controller_epoch == 10)
        assert codes(await shell.create_topics([NewTopic(name="a")])) == [None]
        await shell.stop()

    play(scenario)


def test_a_broken_state_is_left_alone(play, caplog) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        await shell.create_topics([NewTopic(name="a")])
        path = paths.partition_state(TopicPartition("a", 0))
        await world.store.set(path, b"{")
        world.kill(shell)
        again = await world.started()
        assert not again.image.topics["a"].partitions[0].has_leader
        assert again.image.topics["a"].partitions[1].has_leader
        assert (await world.store.get(path)).data == b"{"
        assert f"node {path} is broken" in caplog.text
        await again.stop()

    play(scenario)


class Unreachable:
    """A store that fails while it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down and name in {"get", "get_many", "children", "multi", "create", "set", "delete"}:
            return self._refuse
        return getattr(self._store, name)

    async def _refuse(self, *_: Any, **__: Any) -> None:
        raise UnavailableError("the tree is out of reach")


def test_a_tree_out_of_reach_is_an_answer_now_and_work_for_later(play, caplog) -> None:
    async def scenario(world: World) -> None:
        store = Unreachable(MemoryStore(world.tree))
        shell = await world.started(store=store)
        store.down = True
        await world.store.create("/brokers/topics/a", TopicNode(replicas={0: (0,)}).encode())
        with pytest.raises(KafkaError) as error:
            await shell.create_topics([NewTopic(name="b")])
        assert error.value.code is ErrorCode.request_timed_out
        await asyncio.sleep(60)
        assert "out of reach; trying again in 5.00 s" in caplog.text
        store.down = False
        await until(lambda: "a" in shell.image.topics and shell.image.topics["a"].partitions[0].has_leader)
        await shell.stop()

    play(scenario)


def test_blocks_of_producer_ids_are_different_for_all_brokers(play) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.started(1), await world.started(2)
        blocks = await asyncio.gather(*(shell.allocate_producer_ids() for shell in (one, two, one, two)))
        taken = [producer_id for block in blocks for producer_id in block]
        assert len(taken) == len(set(taken)) == 4000
        assert (await world.value("/latest_producer_id_block"))["block_end"] == str(max(taken))
        await one.stop()
        await two.stop()

    play(scenario)


def test_whoever_waits_when_a_broker_stops_is_told_to_ask_another(play) -> None:
    async def scenario(world: World) -> None:
        shell = await world.started()
        requests = [asyncio.create_task(shell.create_topics([NewTopic(name=name)])) for name in "abc"]
        await asyncio.sleep(0)
        await shell.stop()
        for result in await asyncio.gather(*requests, return_exceptions=True):
            assert isinstance(result, list) or result.code is ErrorCode.not_controller
        with pytest.raises(KafkaError):
            await shell.create_topics([NewTopic(name="d")])

    play(scenario)
