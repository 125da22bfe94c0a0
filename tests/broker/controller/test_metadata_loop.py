"""Brokers that share a tree: who registers, who is the controller, what happens when one is lost (M1, M9)."""

import asyncio
from typing import Any

import pytest

from odradek.broker.cluster.registration.broker_session import prepare_tree
from odradek.metadata import paths
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import TopicNode
from odradek.metadata.store import SessionExpired
from odradek.model import ConfigurationError, ErrorCode, KafkaError, UnavailableError
from odradek.stores import MemoryStore, MemoryTree
from tests.world.scenes import played


def partitions(broker: Any) -> Any:
    """Return the topics that a broker knows; the controller and the other brokers must know the same."""
    return {(name, topic.topic_id): topic.partitions for name, topic in broker.image.topics.items()}


def codes(results: Any) -> list[str | None]:
    return [None if each.error is None else each.error.code.name for each in results]


@played
async def test_the_first_broker_makes_the_tree_and_is_its_controller(world) -> None:
    """M9."""
    broker = await world.started(3)
    for path in paths.PERSISTENT_ROOTS:
        assert await world.store.get(path) is not None, path
    registration = await world.value("/brokers/ids/3")
    assert (registration["host"], registration["port"], registration["endpoints"]) == (
        "localhost",
        9095,
        ["PLAINTEXT://localhost:9095"],
    )
    assert (await world.value("/controller"))["brokerid"] == 3
    assert (await world.store.get("/controller_epoch")).data == b"1"
    assert (await world.store.get("/controller")).owner == (await world.store.get("/brokers/ids/3")).owner != 0
    image = broker.image
    assert (image.controller_id, image.controller_epoch, list(image.brokers)) == (3, 1, [3])
    assert image.cluster_id == (await world.value("/cluster/id"))["id"]
    assert len(image.cluster_id) == 22
    assert world.images[3][-1] is image
    await broker.stop()
    assert await world.store.get("/controller") is None
    assert await world.store.get("/brokers/ids/3") is None


@played
async def test_the_cluster_s_id_is_made_once(world) -> None:
    entropy = world.simulation.entropy("ids")
    ids = await asyncio.gather(*(prepare_tree(MemoryStore(world.tree), entropy) for _ in range(3)))
    broker = await world.started()
    assert {broker.image.cluster_id} == set(ids)
    await broker.stop()


@played
async def test_a_broker_id_that_is_taken_is_refused(world) -> None:
    broker = await world.started(1)
    with pytest.raises(ConfigurationError, match="id 1 is taken by the broker at localhost:9093"):
        await world.started(1, port=9999)
    await broker.stop()
    again = await world.started(1)
    await again.stop()


@played
async def test_a_broker_that_starts_again_after_a_crash_waits_for_the_end_of_its_session(world, caplog) -> None:
    """ZooKeeper finds out by time alone that a session is dead: M9."""
    broker = await world.started(1)
    broker.kill()
    broker.store.abandon()
    starting = asyncio.ensure_future(world.started(1))
    await world.pass_time(10)
    assert not starting.done()
    world.tree.expire(broker.store.session_id)
    again = await starting
    assert again.is_controller
    assert caplog.text.count("still registered") == 1
    await again.stop()


@played
async def test_a_broker_that_is_registered_at_the_same_address_for_ever_is_an_error_in_the_end(world) -> None:
    broker = await world.started(1)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ConfigurationError, match="id 1 is taken by the broker at localhost:9093"):
        await world.started(1)
    assert asyncio.get_running_loop().time() - began == pytest.approx(36, abs=1), "two session time-outs"
    await broker.stop()


class ShortLivedStore(MemoryStore):
    """Its session expires under one of its operations."""

    def __init__(self, tree: MemoryTree, *, under: int) -> None:
        super().__init__(tree)
        self.operations = 0
        self._under = under

    async def _turn(self) -> None:
        self.operations += 1
        if self.operations == self._under:
            asyncio.get_running_loop().call_soon(self.tree.expire, self.session_id)
        await super()._turn()


@played
async def test_a_broker_starts_whichever_of_its_operations_meets_an_expired_session(world) -> None:
    under, operations = 1, 1
    while under <= operations:
        store = ShortLivedStore(world.tree, under=under)
        broker = await world.started(1, store=store)
        await world.until(lambda broker=broker: list(broker.image.brokers) == [1] and broker.is_controller)
        node = await world.store.get("/brokers/ids/1")
        assert node.owner == store.session_id
        await broker.stop()
        under, operations = under + 1, store.operations
    assert under > 10


@played
async def test_a_tree_in_which_no_session_lasts_is_an_error_that_says_so(world) -> None:
    class HopelessStore(MemoryStore):
        async def _turn(self) -> None:
            asyncio.get_running_loop().call_soon(self.tree.expire, self.session_id)
            await super()._turn()

    with pytest.raises(SessionExpired):
        await world.started(1, store=HopelessStore(world.tree))


@played
async def test_only_the_controller_creates_topics_and_every_broker_has_them(world) -> None:
    """M1."""
    one, two = await world.started(1), await world.started(2)
    assert (one.is_controller, two.is_controller) == (True, False)
    for work in (two.create_topics([NewTopic(name="a")]), two.delete_topics(["a"])):
        with pytest.raises(KafkaError) as error:
            await work
        assert error.value.code is ErrorCode.not_controller
    await world.until(lambda: len(one.image.brokers) == 2)
    await one.create_topics([NewTopic(name="a", num_partitions=4, replication_factor=2)])
    await world.until(lambda: partitions(two) == partitions(one))
    assert sorted(each.leader for each in two.image.topics["a"].partitions.values()) == [1, 1, 2, 2]
    await one.stop()
    await two.stop()


@played
async def test_when_the_controller_dies_another_is_elected_and_partitions_change_hands(world) -> None:
    """M1: `controller_epoch` rises by 1, leader epochs too; a partition without a live replica has no leader."""
    one, two = await world.started(1), await world.started(2)
    await world.until(lambda: len(one.image.brokers) == 2)
    await one.create_topics(
        [NewTopic(name="a", assignment={0: (1, 2), 1: (2, 1)}), NewTopic(name="single", assignment={0: (1,)})]
    )
    world.kill(one)
    await world.until(lambda: two.is_controller and two.image.topics["a"].partitions[0].leader == 2)
    await world.until(lambda: not two.image.topics["single"].partitions[0].has_leader)
    assert (two.image.controller_id, two.image.controller_epoch) == (2, 2)
    moved, stayed = two.image.topics["a"].partitions.values()
    assert (moved.leader, moved.leader_epoch, moved.isr) == (2, 1, (2,))
    assert (stayed.leader, stayed.leader_epoch, stayed.isr) == (2, 1, (2,))
    back = await world.started(1)
    await world.until(lambda: back.image.topics["single"].partitions[0].leader == 1)
    single = back.image.topics["single"].partitions[0]
    assert (single.leader_epoch, single.isr) == (2, (1,))
    assert not back.is_controller
    state = await world.value("/brokers/topics/single/partitions/0/state")
    assert state["controller_epoch"] == 2
    await two.stop()
    await back.stop()


@played
async def test_a_broker_that_starts_again_finds_its_topics_unchanged(world) -> None:
    one = await world.started()
    await one.create_topics([NewTopic(name="a")])
    world.kill(one)
    again = await world.started()
    assert again.image.topics == one.image.topics
    assert (again.image.cluster_id, again.image.controller_epoch) == (one.image.cluster_id, 2)
    assert again.image.brokers[0].epoch > one.image.brokers[0].epoch
    await again.stop()


@played
async def test_a_lost_session_is_begun_anew_with_registration_and_election(world) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="a")])
    world.tree.expire(broker.store.session_id)
    await world.until(lambda: broker.image.controller_epoch == 2)
    assert list(broker.image.brokers) == [0]
    assert (await world.store.get("/brokers/ids/0")).owner == broker.store.session_id
    assert broker.image.topics["a"].partitions[0].leader == 0
    assert codes(await broker.create_topics([NewTopic(name="b")])) == [None]
    await broker.stop()


@played
async def test_a_session_lost_in_the_middle_of_a_request_is_reported_and_survived(world) -> None:
    broker = await world.started()
    request = asyncio.create_task(broker.create_topics([NewTopic(name="a")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.tree.expire(broker.store.session_id)
    [outcome] = await asyncio.gather(request, return_exceptions=True)
    assert isinstance(outcome, list) or outcome.retriable
    await world.until(lambda: broker.image.controller_epoch == 2)
    await broker.create_topics([NewTopic(name="a")])
    assert broker.image.topics["a"].partitions[1].leader == 0
    await broker.stop()


@played
async def test_a_removed_registration_is_made_again(world) -> None:
    broker = await world.started()
    await broker.create_topics([NewTopic(name="a")])
    first = broker.image.brokers[0].epoch
    await world.store.delete("/brokers/ids/0")
    await world.until(lambda: broker.image.brokers[0].epoch > first)
    assert broker.image.topics["a"].partitions[0].leader_epoch == 0
    await broker.stop()


@played
async def test_removing_the_controller_s_node_forces_an_election(world) -> None:
    broker = await world.started()
    await world.store.delete("/controller")
    await world.until(lambda: broker.image.controller_epoch == 2)
    assert codes(await broker.create_topics([NewTopic(name="a")])) == [None]
    assert (await world.value("/brokers/topics/a/partitions/0/state"))["controller_epoch"] == 2
    await broker.stop()


@played
async def test_a_deposed_controller_writes_nothing(world) -> None:
    """M1: a controller of an older epoch is refused."""
    broker = await world.started()
    await world.store.set("/controller_epoch", b"9")
    with pytest.raises(KafkaError) as error:
        await broker.create_topics([NewTopic(name="a")])
    assert error.value.code is ErrorCode.not_controller
    assert await world.everything() == ["/brokers/topics"]
    await world.until(lambda: broker.image.controller_epoch == 10)
    assert codes(await broker.create_topics([NewTopic(name="a")])) == [None]
    await broker.stop()


class Unreachable:
    """A store that fails while it is told to."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.refused = frozenset[str]()
        """The names of the methods that fail."""

    def __getattr__(self, name: str) -> Any:
        if name in self.refused:
            return self._refuse
        return getattr(self._store, name)

    async def _refuse(self, *_: Any, **__: Any) -> None:
        raise UnavailableError("the tree is out of reach")


@played
async def test_a_tree_out_of_reach_is_an_answer_now_and_work_for_later(world, caplog) -> None:
    store = Unreachable(MemoryStore(world.tree))
    broker = await world.started(store=store)
    store.refused = frozenset({"get", "get_many", "children", "multi", "create", "set", "delete"})
    await world.store.create("/brokers/topics/a", TopicNode(replicas={0: (0,)}).encode())
    with pytest.raises(KafkaError) as error:
        await broker.create_topics([NewTopic(name="b")])
    assert error.value.code is ErrorCode.request_timed_out
    await world.pass_time(60)
    assert "out of reach; trying again in 5.00 s" in caplog.text
    store.refused = frozenset()
    await world.until(lambda: "a" in broker.image.topics and broker.image.topics["a"].partitions[0].has_leader)
    await broker.stop()


@played
async def test_an_election_that_cannot_be_written_is_repeated(world) -> None:
    store = Unreachable(MemoryStore(world.tree))
    one, two = await world.started(1, store=store), await world.started(2)
    await one.create_topics([NewTopic(name="a", assignment={0: (2, 1)})])
    await world.until(lambda: "a" in two.image.topics)
    store.refused = frozenset({"multi"})
    world.kill(two)
    await world.until(lambda: 2 not in one.image.brokers)
    await world.pass_time(1)
    store.refused = frozenset()
    await world.until(lambda: one.image.topics["a"].partitions[0].leader != 2)
    assert one.image.topics["a"].partitions[0].leader == 1
    await one.stop()


@played
async def test_waiting_requests_fail_with_not_controller_when_the_broker_stops(world) -> None:
    broker = await world.started()
    requests = [asyncio.create_task(broker.create_topics([NewTopic(name=name)])) for name in "abc"]
    await asyncio.sleep(0)
    await broker.stop()
    for result in await asyncio.gather(*requests, return_exceptions=True):
        assert isinstance(result, list) or result.code is ErrorCode.not_controller
    with pytest.raises(KafkaError):
        await broker.create_topics([NewTopic(name="d")])
