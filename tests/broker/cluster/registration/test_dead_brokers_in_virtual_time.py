"""Brokers that die, or seem to, with sessions that end late, as in ZooKeeper: nothing acknowledged is lost.

A killed process refuses connections, which ends its registration at once; one that is cut off keeps it until its
session ends. A broker that lives all the same is fenced, follows the new leader, and is in sync once it is reachable.
"""

import asyncio

import pytest

from odradek.broker.cluster.registration.broker_session import BrokerSession, prepare_tree
from odradek.broker.cluster.registration.fencing import Fence
from odradek.broker.cluster.registration.registration import prepare_nothing
from odradek.broker.replication.partition import ACKS_ALL
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata import paths
from odradek.metadata.new_topic import NewTopic
from odradek.model import KafkaError
from odradek.simulation.world import SESSION_TIMEOUT_S, World, until
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Simulation
from tests.world.sampling import seeds
from tests.world.scenes import played_by
from tests.world.topics import controller, leaders

SEEDS = seeds(2)
CONFIG = {"min.insync.replicas": "2", "default.replication.factor": "3"}
LONG_BEFORE_S = SESSION_TIMEOUT_S / 6


def play(seed: int, scene) -> None:
    World(seed, CONFIG, brokers=3, noticed_at_once=False).play(scene)


async def led_by(world: World, *, is_controller: bool) -> int:
    """Create a topic of one partition with such a leader, and return it."""
    others = [number for number in world.running if number != controller(world)]
    order = (controller(world), *others) if is_controller else (*others, controller(world))
    topic = NewTopic(name="t", assignment={0: order})
    (created,) = await world.running[controller(world)].create_topics([topic])
    assert created.error is None
    await until(lambda: [len(each.isr) for each in leaders(world).values()] == [3])
    return order[0]


async def send(world: World, host: str, *values: bytes) -> None:
    async with world.producer(host, acks="all") as producer:
        for value in values:
            await (await producer.send("t", value, partition=0))


@pytest.mark.parametrize("is_controller", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_leader_is_replaced_long_before_its_session_ends(seed: int, *, is_controller: bool) -> None:
    async def scene(world: World) -> None:
        leader = await led_by(world, is_controller=is_controller)
        await send(world, "before", b"0", b"1")
        began_s = world.now_s
        await world.kill(leader)
        await send(world, "after", b"2")
        assert world.now_s - began_s < LONG_BEFORE_S
        await world.start(leader)
        await until(lambda: [len(each.isr) for each in leaders(world).values()] == [3])
        assert await world.read("t", 1) == {0: [b"0", b"1", b"2"]}

    play(seed, scene)


@pytest.mark.parametrize("is_controller", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_is_cut_off_is_not_taken_for_dead(seed: int, *, is_controller: bool) -> None:
    async def scene(world: World) -> None:
        leader = await led_by(world, is_controller=is_controller)
        epoch = world.running[leader].broker_epoch
        others = [host for host in world.hosts if host != world.hosts[leader]]
        world.simulation.network.partition([world.hosts[leader]], others)
        await asyncio.sleep(SESSION_TIMEOUT_S)
        assert list(leaders(world)) == [leader]
        world.simulation.network.heal()
        await send(world, "after", b"0")
        assert world.running[leader].broker_epoch == epoch

    play(seed, scene)


@pytest.mark.parametrize("is_controller", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_that_only_refuses_connections_is_fenced_and_follows(seed: int, *, is_controller: bool) -> None:
    async def scene(world: World) -> None:
        leader = await led_by(world, is_controller=is_controller)
        broker, partition = world.running[leader], leaders(world)[leader]
        await send(world, "before", b"0", b"1")
        epochs = broker.broker_epoch, partition.leader_epoch
        world.simulation.network.reject(world.hosts[leader])
        late: list[KafkaError | None] = []
        now_ms = world.runtime.clock.now_ms()
        info = partition.append_records(memoryview(world.batch(b"not acknowledged")), acks=ACKS_ALL, now_ms=now_ms)
        partition.when_acknowledged(info, acks=ACKS_ALL, waiter=late.append)
        await send(world, "meanwhile", b"2")
        assert leader not in leaders(world)
        assert [type(error) for error in late] == [KafkaError]
        world.simulation.network.heal()
        await until(lambda: [len(each.isr) for each in leaders(world).values()] == [3])
        (new,) = leaders(world).values()
        assert broker.broker_epoch > epochs[0]
        assert new.leader_epoch > epochs[1]
        assert await world.read("t", 1) == {0: [b"0", b"1", b"2"]}

    play(seed, scene)


@pytest.mark.parametrize("seed", SEEDS)
@played_by(play)
async def test_a_controller_that_all_others_refuse_waits_for_their_sessions(world: World) -> None:
    await led_by(world, is_controller=True)
    epochs = {number: broker.metadata_loop.broker_epoch for number, broker in world.running.items()}
    for number, host in enumerate(world.hosts):
        if number != controller(world):
            world.simulation.network.reject(host)
    await asyncio.sleep(SESSION_TIMEOUT_S)
    assert {number: broker.metadata_loop.broker_epoch for number, broker in world.running.items()} == epochs
    world.simulation.network.heal()
    await send(world, "after", b"0")
    await until(lambda: [len(each.isr) for each in leaders(world).values()] == [3])


def test_a_session_that_ends_while_a_removed_broker_waits_is_a_new_session() -> None:
    async def main() -> None:
        tree, runtime = MemoryTree(), simulation.runtime()
        store = MemoryStore(tree)
        await prepare_tree(store, runtime.entropy)
        endpoints = (ListenerAddress("PLAINTEXT", "host", 9092),)
        fence = Fence(store, runtime.clock)
        session = BrokerSession(
            store, 0, lambda: endpoints, BrokerConfig(), runtime.clock, fence=fence, wake=lambda: None
        )
        await session.join(prepare=prepare_nothing)
        assert await session.renew()
        await store.delete(paths.broker(0))
        await asyncio.sleep(0)  # the watch fires
        renewing = asyncio.ensure_future(session.renew())
        await asyncio.sleep(0.5)
        tree.expire(store.session_id)
        assert await renewing
        assert session.session == store.session_id
        assert not await session.renew()
        session.stop()
        await store.close()

    simulation = Simulation(1)
    simulation.run(main())
