"""Brokers wait for a controller that hangs only while it is the controller (M9)."""

import asyncio

import pytest
from msgspec.structs import replace

from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.cluster.requests.controller_requests import ControllerRequests
from odradek.broker.lifecycle import Broker
from odradek.broker.metadata_cache import MetadataCache
from odradek.config.broker import BrokerConfig
from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import BrokerImage, ClusterImage, MetadataDelta
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.simulation.world import SESSION_TIMEOUT_S, World, until
from odradek.testing import Simulation
from tests.world.scenes import in_world
from tests.world.topics import controller_of

pytestmark = pytest.mark.long

BROKERS = 4
SOON_S = 5.0
"""Far less than what brokers wait for each other's answers."""

CONFIG = {"replica.lag.time.max.ms": "1000"}


async def create_led_by_each(controller: Broker, world: World) -> dict[int, TopicPartition]:
    """A partition led by each broker but the controller, with all others in sync; by leader."""
    leaders = sorted(set(world.running) - {controller.broker_id})
    replicas = {
        number: (leader, *(each for each in world.running if each != leader)) for number, leader in enumerate(leaders)
    }
    [created] = await controller.create_topics([NewTopic(name="t", assignment=replicas)])
    assert created.error is None
    await until(lambda: all(len(list(world.running[leader].partitions)) == 1 for leader in leaders))
    return {leader: TopicPartition("t", number) for number, leader in enumerate(leaders)}


def isr(leader: Broker) -> set[int]:
    """The in-sync set of the one partition that a broker leads."""
    [partition] = leader.partitions
    return set(partition.isr)


def fall_silent(world: World, broker: Broker) -> None:
    """Lose all that the controller sends; its session expires only after its timeout."""
    host, store = world.hosts[broker.broker_id], world.store(broker.broker_id)
    world.simulation.network.partition([host], [each for each in world.hosts if each != host])
    store.disconnect()
    asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, world.tree.expire, store.session_id)


async def recover(world: World, broker: Broker) -> None:
    world.simulation.network.heal()
    world.store(broker.broker_id).reconnect()
    await controller_of(world)


@pytest.mark.parametrize("seed", range(3))
@in_world(CONFIG, brokers=BROKERS)
async def test_a_leader_that_waits_for_a_silent_controller_retries_with_the_next_one(world: World) -> None:
    silent = await controller_of(world)
    places = await create_led_by_each(silent, world)
    fall_silent(world, silent)
    # Their leaders ask for smaller in-sync sets before the session is over.
    await until(lambda: any(world.running[each].metadata_loop.is_controller for each in places))
    new = next(each for each in places if world.running[each].metadata_loop.is_controller)
    leader, lost = (each for each in places if each != new)

    await until(lambda: isr(world.running[leader]) == set(places), within_s=SOON_S)
    world.simulation.network.partition([world.hosts[leader]], [world.hosts[lost]])
    async with world.producer("writer", enable_idempotence=False) as producer, asyncio.timeout(SOON_S):
        await (await producer.send("t", b"not held up", partition=places[leader].partition))
    assert isr(world.running[leader]) == {leader, new}
    await recover(world, silent)


@pytest.mark.parametrize("seed", range(3))
@in_world(CONFIG, brokers=BROKERS)
async def test_a_topic_that_is_created_late_is_unknown_and_holds_up_its_connection_for_a_second(world: World) -> None:
    """Kafka answers UNKNOWN_TOPIC_OR_PARTITION at once."""
    silent = await controller_of(world)
    asking = (silent.broker_id + 1) % BROKERS
    client = await world.client("tool", broker=asking)
    fall_silent(world, silent)
    began = world.now_s
    request = {
        "topics": [{"name": f"new-{number}"} for number in range(10)],
        "allow_auto_topic_creation": True,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    answer = await client.ask(ApiKey.METADATA, request, 9)
    assert {each.error_code for each in answer.topics} == {ErrorCode.unknown_topic_or_partition}
    assert began + 0.9 < world.now_s < began + 1.2
    await recover(world, silent)
    await until(lambda: world.running[asking].image.controller_id not in (-1, silent.broker_id))
    answer = await client.ask(ApiKey.METADATA, request, 9)
    assert {each.error_code for each in answer.topics} == {ErrorCode.none}


@pytest.mark.parametrize("seed", range(3))
@in_world(CONFIG, brokers=BROKERS)
async def test_a_client_waiting_for_a_silent_controller_to_create_a_topic_can_retry(world: World) -> None:
    silent = await controller_of(world)
    asking = world.running[(silent.broker_id + 1) % BROKERS]
    fall_silent(world, silent)
    began = world.now_s
    with pytest.raises(UnavailableError):
        await asking.auto_topic_creation_manager.ensure(NewTopic(name="new"))
    assert world.now_s < began + SESSION_TIMEOUT_S + 1
    await until(lambda: asking.image.controller_id not in (-1, silent.broker_id), within_s=SOON_S)
    async with asyncio.timeout(SOON_S):
        await asking.auto_topic_creation_manager.ensure(NewTopic(name="new"))
    await recover(world, silent)


@pytest.mark.parametrize("seed", range(3))
@in_world(CONFIG, brokers=BROKERS)
async def test_a_stopping_broker_does_not_wait_for_the_former_controller(world: World) -> None:
    silent = await controller_of(world)
    stopping = (silent.broker_id + 1) % BROKERS
    fall_silent(world, silent)
    began = world.now_s
    await world.stop(stopping)
    assert world.now_s < began + SESSION_TIMEOUT_S + 1
    await recover(world, silent)


def test_waiters_for_an_abandoned_connection_get_an_error(seed: int) -> None:
    """The waiters are not cancelled with it: they may retry with another broker."""
    simulation = Simulation(seed)
    runtime = simulation.runtime("one")

    async def main() -> None:
        listener = await simulation.runtime("silent").network.listen(asyncio.Protocol, "silent", 9092)
        connections = BrokerConnections(runtime, "broker-1")
        silent = BrokerImage(broker_id=2, endpoints=(ListenerAddress(name="PLAINTEXT", host="silent", port=9092),))
        asking = asyncio.create_task(connections.request({2: silent}, 2, ApiKey.ALTER_PARTITION, {}, purpose="a"))
        await asyncio.sleep(1)
        connections.close_purpose(2, "a")
        with pytest.raises(UnavailableError):
            await asking
        listener.close()

    simulation.run(main())


def test_a_backoff_before_a_retry_ends_when_the_controller_changes(seed: int) -> None:
    simulation = Simulation(seed)

    async def main() -> None:
        connections = BrokerConnections(simulation.runtime("one"), "broker-1")
        requests = ControllerRequests(MetadataCache(BrokerConfig()), connections, local_controller=lambda: None)
        pausing = asyncio.create_task(requests.back_off(60))
        await asyncio.sleep(1)
        one = ClusterImage(controller_id=2, controller_epoch=1)
        requests.image_changed(MetadataDelta.between(one, replace(one, cluster_id="another image")))
        await asyncio.sleep(1)
        assert not pausing.done()
        requests.image_changed(MetadataDelta.between(one, replace(one, controller_id=3, controller_epoch=2)))
        await asyncio.sleep(1)
        assert pausing.done()

    simulation.run(main())
