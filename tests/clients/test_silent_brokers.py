"""A broker that neither answers nor closes its connections holds clients up no longer than the cluster (M9).

Their `request.timeout.ms`, half a minute, is for brokers that are late and still there.
"""

import asyncio
from typing import Any

import pytest

from odradek.broker.lifecycle import Broker
from odradek.clients.admin.reassignments import ElectionType
from odradek.clients.cluster import ConnectionPurpose, open_cluster
from odradek.model import TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.world import SESSION_TIMEOUT_S, World, until
from tests.world.scenes import in_world
from tests.world.topics import create, leader_of

CLIENTS = ["writer", "reader", "looker"]
SOON_S = 4.0
"""The time that clients may take beyond the cluster's own; far less than their request time-out."""


def cut_off(world: World, silent: int) -> None:
    """Let nothing come from a broker any more, nor go there."""
    host = world.hosts[silent]
    world.simulation.network.partition([host], [*(each for each in world.hosts if each != host), *CLIENTS])


def fall_silent(world: World, silent: int) -> None:
    """Silence a broker until its session in the metadata store expires."""
    cut_off(world, silent)
    store = world.store(silent)
    store.disconnect()
    asyncio.get_running_loop().call_later(SESSION_TIMEOUT_S, world.tree.expire, store.session_id)


@pytest.mark.parametrize("seed", range(5))
@in_world(brokers=3)
async def test_clients_recover_from_a_silent_broker_as_soon_as_the_cluster(world: World) -> None:
    await create(world)
    leader = world.running[leader_of(world)[0]]
    async with world.producer("writer") as producer, world.consumer("reader") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await (await producer.send("t", b"before"))
        assert [record.value for record in await consumer.poll(5_000)] == [b"before"]
        fall_silent(world, leader.broker_id)
        async with asyncio.timeout(SESSION_TIMEOUT_S + SOON_S):
            await (await producer.send("t", b"after"))
            got = []
            while not got:
                got = [record.value for record in await consumer.poll(1_000)]
        assert got == [b"after"]
        world.simulation.network.heal()
        world.store(leader.broker_id).reconnect()


@pytest.mark.parametrize("seed", range(5))
@in_world(brokers=3)
async def test_metadata_is_requested_from_another_broker_when_one_is_late(world: World) -> None:
    await create(world)
    async with open_cluster(world.servers, runtime=world.simulation.runtime("looker")) as cluster:
        asked = (await cluster.connections.least_loaded()).address
        cut_off(world, next(number for number, host in enumerate(world.hosts) if asked == f"{host}:9092"))
        async with asyncio.timeout(SOON_S):
            await cluster.refresh()
        assert (await cluster.connections.least_loaded()).address != asked
        world.simulation.network.heal()


@pytest.mark.parametrize("silent", range(3))
@in_world(brokers=3)
async def test_a_client_starts_and_lists_topics_beside_a_broker_that_accepts_no_connection(
    world: World, silent: int
) -> None:
    await create(world)
    cut_off(world, silent)
    async with asyncio.timeout(SOON_S), world.admin("looker") as admin:
        assert [each.name for each in await admin.list_topics()] == ["t"]
    world.simulation.network.heal()


@in_world(brokers=3)
async def test_metadata_is_requested_from_a_third_broker_when_one_is_gone_and_one_is_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(world)
    async with open_cluster(world.servers, runtime=world.simulation.runtime("looker")) as cluster:
        await cluster.refresh()
        gone, silent = list(world.running)[:2]
        first = [await cluster.connections.to_broker(number, ConnectionPurpose.FETCH) for number in (gone, silent)]
        cut_off(world, silent)
        await world.kill(gone)
        usual = cluster.connections.least_loaded

        async def unlucky(**options: Any) -> Any:
            return first.pop(0) if first else await usual(**options)

        monkeypatch.setattr(cluster.connections, "least_loaded", unlucky)
        async with asyncio.timeout(SOON_S):
            await cluster.refresh()
        assert not first
        world.simulation.network.heal()


@pytest.mark.parametrize("seed", range(5))
@in_world(brokers=3)
async def test_a_broker_that_is_late_and_still_there_is_waited_for(world: World) -> None:
    await create(world)
    leader, _ = leader_of(world)
    flags = ("allow_auto_topic_creation", "include_cluster_authorized_operations")
    message = {"topics": [], **dict.fromkeys((*flags, "include_topic_authorized_operations"), False)}
    async with open_cluster(world.servers, runtime=world.simulation.runtime("looker")) as cluster:
        connection = await cluster.connections.to_broker(leader, ConnectionPurpose.FETCH)
        cut_off(world, leader)
        asking = asyncio.create_task(connection.request(ApiKey.METADATA, message))
        await asyncio.sleep(SOON_S)
        assert connection.is_late
        world.simulation.network.heal()
        async with asyncio.timeout(SOON_S):
            assert len((await asking).brokers) == 3
        assert not connection.is_late
        assert cluster.connections.existing(leader, ConnectionPurpose.FETCH) is connection


async def hand_over(world: World, old: Broker) -> None:
    """Elect another replica, by its position."""
    key = TopicPartition("t", 0)
    replicas = [number for number in world.running if number != old.broker_id]
    async with world.admin() as admin:
        await admin.alter_partition_reassignments({key: [*replicas, old.broker_id]})
        await admin.elect_leaders(ElectionType.PREFERRED, [key])
    await until(lambda: not list(old.partitions))


@pytest.mark.parametrize("seed", range(3))
@in_world({"auto.leader.rebalance.enable": "false"}, brokers=3)
async def test_batches_wait_for_those_sent_to_the_old_leader_without_response(world: World) -> None:
    """The new leader has them, and would not know them for duplicates any more when they are sent again."""
    values = [b"%d" % number for number in range(12)]
    await create(world)
    old = world.running[leader_of(world)[0]]
    async with world.producer("writer", linger_ms=0, request_timeout_ms=10_000) as producer:
        await (await producer.send("t", b"before"))
        world.simulation.network.block(world.hosts[old.broker_id], "writer")
        deliveries = [await producer.send("t", values[0])]
        await asyncio.sleep(1)
        await hand_over(world, old)
        for value in values[1:]:
            deliveries.append(await producer.send("t", value))
            await asyncio.sleep(0.1)
        async with asyncio.timeout(20):
            await asyncio.gather(*deliveries)
        world.simulation.network.heal()
    assert await world.read("t", 1) == {0: [b"before", *values]}
