"""A broker that stops moves the leadership of its partitions first, so that clients wait for no session timeout."""

import asyncio
import errno

import pytest

from odradek.broker.interfaces import Phase
from odradek.broker.lifecycle import Broker
from odradek.metadata.image import ClusterImage, PartitionImage
from odradek.metadata.new_topic import NewTopic
from odradek.model import UnavailableError
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore, MemoryTree
from tests.world.scenes import in_world
from tests.world.topics import controller_of

pytestmark = pytest.mark.long

EVERYWHERE = {number: tuple((number + place) % 3 for place in range(3)) for number in range(6)}


def partitions(image: ClusterImage) -> list[PartitionImage]:
    return list(image.topics["t"].partitions.values())


async def create(world: World, controller: Broker, assignment: dict[int, tuple[int, ...]]) -> None:
    """Create the topic `t`, and wait until all brokers know it."""
    [created] = await controller.create_topics([NewTopic(name="t", assignment=assignment)])
    assert created.error is None
    await until(lambda: all("t" in broker.image.topics for broker in world.running.values()))


async def leader_without_followers(world: World) -> int:
    """Create a partition whose only follower is dead; return its leader, which is not the controller."""
    controller = await controller_of(world)
    leader, follower = sorted({0, 1, 2} - {controller.broker_id})
    await create(world, controller, {0: (leader, follower)})
    await world.kill(follower)
    await until(lambda: partitions(controller.image)[0].isr == (leader,))
    return leader


@in_world(brokers=3)
async def test_partitions_change_leaders_before_a_broker_stops(world: World) -> None:
    """M9."""
    controller = await controller_of(world)
    await create(world, controller, EVERYWHERE)
    one = next(number for number in world.running if number != controller.broker_id)
    rest = {0, 1, 2} - {one}
    began = world.now_s
    await world.stop(one)
    assert world.now_s - began < 2
    states = partitions(controller.image)
    assert {each.leader for each in states} == rest
    assert all(set(each.isr) == rest for each in states)
    # Its partitions changed leaders before it stopped, and only once.
    assert [each.leader_epoch for each in states if each.replicas[0] == one] == [1, 1]
    await until(lambda: one not in controller.image.brokers)
    await world.start(one)
    await until(lambda: all(one in each.isr for each in partitions(controller.image)))


@in_world(brokers=3)
async def test_a_topic_created_during_a_controlled_shutdown_is_placed_on_other_brokers(world: World) -> None:
    """M9. As KRaft does, which places on it nevertheless where the others are too few."""
    controller = await controller_of(world)
    one = next(number for number in world.running if number != controller.broker_id)
    await controller.controller.shut_down(one, -1)
    [created] = await controller.create_topics([NewTopic(name="t", num_partitions=4, replication_factor=3)])
    assert created.error is None
    for each in partitions(controller.image):
        assert each.replicas[-1] == one
        assert set(each.isr) == {0, 1, 2} - {one}
        assert each.leader != one
    [created] = await controller.create_topics([NewTopic(name="small", num_partitions=4, replication_factor=2)])
    assert created.plan is not None
    assert all(one not in replicas for replicas in created.plan.replicas.values())


@in_world(brokers=3)
async def test_a_stopping_controller_hands_over_its_partitions_and_resigns(world: World) -> None:
    """M9."""
    controller = await controller_of(world)
    await create(world, controller, EVERYWHERE)
    began = world.now_s
    await world.stop(controller.broker_id)
    assert world.now_s - began < 2
    rest = set(world.running)
    for broker in world.running.values():
        await until(lambda broker=broker: broker.image.controller_epoch == 2)
        await until(lambda broker=broker: set(broker.image.brokers) == rest)
        await until(lambda broker=broker: {each.leader for each in partitions(broker.image)} == rest)


@in_world(brokers=3)
async def test_all_brokers_can_be_stopped_one_after_the_other_without_waiting(world: World) -> None:
    await create(world, await controller_of(world), EVERYWHERE)
    began = world.now_s
    for number in (0, 1, 2):
        await world.stop(number)
    assert world.now_s - began < 5


@pytest.mark.parametrize(
    ("config", "least_s", "most_s"),
    [
        ({}, 15, 20),
        ({"controlled.shutdown.retry.backoff.ms": "100"}, 0.3, 2),
        ({"controlled.shutdown.max.retries": "0"}, 0, 1),
        ({"controlled.shutdown.enable": "false"}, 0, 1),
    ],
)
def test_a_controlled_shutdown_retries_as_configured_for_partitions_without_another_leader(
    seed: int, config: dict[str, str], least_s: float, most_s: float
) -> None:
    async def scenario(world: World) -> None:
        leader = await leader_without_followers(world)
        began = world.now_s
        await world.stop(leader)
        assert least_s <= world.now_s - began <= most_s

    World(seed, config, brokers=3).play(scenario)


@in_world(brokers=3)
async def test_a_directory_that_fails_during_a_controlled_shutdown_is_taken_offline(world: World) -> None:
    leader = await leader_without_followers(world)
    broker, disk = world.running[leader], world.simulation.disk(world.hosts[leader])
    stopping = asyncio.ensure_future(world.stop(leader))
    await until(lambda: broker.phase is Phase.LEAVING)
    disk.fail_next("append", errno.EIO, path_end="t-0/00000000000000000000.log")
    async with world.producer("writer") as producer:
        sending = asyncio.ensure_future(producer.send("t", b"1", partition=0))
        await until(broker.failed.is_set)
        assert broker.partitions.offline_count == 1
        assert not stopping.done()
        sending.cancel()
    await stopping


@pytest.mark.parametrize("hangs", [False, True], ids=["calls fail", "calls hang"])
@pytest.mark.parametrize("cut_for_s", [0, 60])
@in_world(brokers=3)
async def test_a_broker_whose_tree_is_cut_off_stops_within_seconds(world: World, cut_for_s: int, hangs: bool) -> None:
    controller = await controller_of(world)
    await create(world, controller, EVERYWHERE)
    for number in (0, 1, 2):
        store = world.store(number)
        store.disconnect()
        if hangs:
            store._turn = asyncio.Event().wait
    await asyncio.sleep(cut_for_s)
    for number in (controller.broker_id, *({0, 1, 2} - {controller.broker_id})):
        began = world.now_s
        await world.stop(number)
        assert world.now_s - began < 5


@pytest.mark.parametrize("timeout_ms", [None, "5000"])
def test_a_broker_that_starts_waits_for_the_tree(
    seed: int, timeout_ms: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    def disconnected(tree: MemoryTree) -> MemoryStore:
        store = MemoryStore(tree)
        store.disconnect()
        stores.append(store)
        return store

    async def scenario(world: World) -> None:
        await world.stop()
        world.new_store = disconnected
        starting = asyncio.ensure_future(world.start())
        if timeout_ms is not None:
            with pytest.raises(UnavailableError, match="out of reach"):
                await starting
            world.new_store = MemoryStore
            await world.start()
            return
        await asyncio.sleep(200)
        assert not starting.done()
        assert caplog.text.count("the metadata tree is out of reach; broker 0 waits for it") == 4
        stores[0].reconnect()
        await starting

    stores: list[MemoryStore] = []
    config = {} if timeout_ms is None else {"zookeeper.connection.timeout.ms": timeout_ms}
    World(seed, config).play(scenario)
