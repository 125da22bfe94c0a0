"""A broker that may have been taken for dead acknowledges nothing, leads nothing, and comes back by itself (M1, M9)."""

import asyncio
import logging
import math
from typing import Any

import pytest

from odradek.metadata.nodes import BrokerNode
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.world.scenes import played

SESSION_S = 18.0
OFFSETS = {"offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 1}


async def until_led(client: WireClient, world: World, topic: str) -> None:
    """Produce until it is acknowledged; virtual time ends a test that does so in vain."""
    while (await client.produce(topic, world.batch(b"probe"))).error_code:
        await asyncio.sleep(0.05)


async def commit_offset(client: WireClient, group: str, topic: str) -> int:
    partition = {
        "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""
    }  # fmt: skip
    message = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    answer = await client.ask(ApiKey.OFFSET_COMMIT, message, 8)
    return int(answer.topics[0].partitions[0].error_code)


async def has_offset_committed(client: WireClient, world: World) -> None:
    """There is a coordinator, and it takes commits."""
    message = {"key_type": 0, "coordinator_keys": ["readers"]}
    while (await client.ask(ApiKey.FIND_COORDINATOR, message, 4)).coordinators[0].error_code:
        await world.pass_time(0.1)
    while await commit_offset(client, "readers", "a"):
        await world.pass_time(0.1)


@pytest.mark.parametrize("acks", [1, -1])
@played
async def test_a_broker_that_is_cut_off_acknowledges_until_its_time_is_up_and_not_longer(world: World, acks) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    broker.store.disconnect()
    end = broker.store.alive_until
    await world.pass_time(SESSION_S - 1)
    assert (await client.produce("a", world.batch(b"1"), acks=acks)).error_code == 0
    await world.pass_time(end - broker.runtime.clock.monotonic())
    answer = await client.produce("a", world.batch(b"2"), acks=acks)
    assert answer.error_code == ErrorCode.not_leader_or_follower
    assert broker.partitions.leader_or_none("a", 0) is None
    assert broker.fence.is_closed
    await broker.stop()


@played
async def test_an_unacknowledged_produce_to_a_fenced_broker_closes_the_connection(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    broker.store.disconnect()
    await world.pass_time(SESSION_S + 1)
    client.send_produce("a", world.batch(b"1"), acks=0)
    assert await client.receive() is None
    await broker.stop()


@played
async def test_a_group_s_commits_are_refused_and_taken_again(world: World) -> None:
    broker = await world.start(**OFFSETS)
    client = await world.client()
    await client.create_topic("a")
    await has_offset_committed(client, world)
    broker.store.disconnect()
    await world.pass_time(SESSION_S + 1)
    assert await commit_offset(client, "readers", "a") == ErrorCode.not_coordinator
    broker.store.reconnect()
    await has_offset_committed(client, world)
    await broker.stop()


@played
async def test_a_controller_that_is_cut_off_creates_nothing(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    broker.store.disconnect()
    await world.pass_time(SESSION_S + 1)
    assert not broker.metadata_loop.is_controller
    topic = {"name": "b", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    answer = await client.ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout": 1000}, 7)
    assert answer.topics[0].error_code in {ErrorCode.not_controller, ErrorCode.request_timed_out}
    await broker.stop()


def test_a_broker_registers_again_and_serves_when_the_tree_is_back(play, caplog) -> None:
    async def scene(world: World) -> None:
        broker = await world.start()
        client = await world.client()
        await client.create_topic("a")
        first = await broker.store.get("/brokers/ids/0")
        broker.store.disconnect()
        await world.pass_time(5 * SESSION_S)
        assert await MemoryStore(world.tree).get("/brokers/ids/0") is None
        broker.store.reconnect()
        began = broker.runtime.clock.monotonic()
        await until_led(client, world, "a")
        assert broker.runtime.clock.monotonic() - began < 1, "a retry that sleeps is woken"
        second = await broker.store.get("/brokers/ids/0")
        assert second.owner == broker.store.session_id != first.owner
        assert BrokerNode.decode("/brokers/ids/0", second.data).endpoints == broker.endpoints
        assert broker.metadata_loop.is_controller
        assert not broker.fence.is_closed
        assert (await client.produce("a", world.batch(b"1"))).error_code == 0
        await broker.stop()

    caplog.set_level(logging.INFO, "odradek")
    play(scene)
    assert caplog.text.count("leads no partition until it has a session") == 1
    assert caplog.text.count("leads its partitions again") == 1


@played
async def test_a_connection_that_comes_back_in_time_is_not_noticed(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    partition = broker.partitions.leader_or_none("a", 0)
    for _ in range(3):
        broker.store.disconnect()
        await world.pass_time(SESSION_S - 1)
        broker.store.reconnect()
        assert (await client.produce("a", world.batch(b"1"))).error_code == 0
        await world.pass_time(SESSION_S - 1)
    assert broker.partitions.leader_or_none("a", 0) is partition
    await broker.stop()


@played
async def test_a_session_that_was_lost_at_once_closes_the_fence_until_the_broker_is_registered_again(
    world: World,
) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    states = []
    broker.fence.on_change(closed=lambda: states.append("closed"), opened=lambda: states.append("open"))
    world.tree.expire(broker.store.session_id)
    await asyncio.sleep(0)  # the store calls back in the next turn
    assert not broker.fence.check()
    await until_led(client, world, "a")
    assert states == ["closed", "open"]
    assert (await broker.store.get("/brokers/ids/0")).owner == broker.store.session_id
    await broker.stop()


@played
async def test_records_appended_before_a_process_was_stopped_are_not_acknowledged_after(world: World) -> None:
    """When it goes on, its clients' requests may come before its timers; see also `test_stopped_process`."""
    broker = await world.start()
    clients = [await world.client() for _ in range(4)]
    await clients[0].create_topic("a")
    for client in clients:  # so that each of them uses the fast path
        assert (await client.produce("a", world.batch(b"1"), acks=1)).error_code == 0
    writer, mark = broker.partitions.write_scheduler, broker.partitions.write_scheduler.mark

    def stopped_here(partition: Any) -> None:
        writer.mark = mark
        broker.store.disconnect()
        world.simulation.clock.advance(SESSION_S + 1)
        mark(partition)

    writer.mark = stopped_here
    for number, client in enumerate(clients):
        client.send_produce("a", world.batch(b"2"), acks=1 if number % 2 else -1)
    for client in clients:
        answer = await client.produce_response()
        assert answer.topics[0].partitions[0].error_code == ErrorCode.not_leader_or_follower
    broker.store.reconnect()
    await until_led(clients[0], world, "a")
    await broker.stop()


class LateStore(MemoryStore):
    """A session that is said to be alive no longer, while the tree still has it, and what is asked is answered."""

    late = False

    @property
    def alive_until(self) -> float:
        return -math.inf if self.late else super().alive_until


@played
async def test_a_session_that_was_only_late_is_the_same_one_when_it_is_back(world: World) -> None:
    world.new_store = LateStore
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    session = broker.store.session_id
    broker.store.late = True
    await world.pass_time(SESSION_S + 1)
    assert (await client.produce("a", world.batch(b"1"))).error_code == ErrorCode.not_leader_or_follower
    await world.pass_time(60)  # nothing spins meanwhile, though the tree answers
    assert (await client.produce("a", world.batch(b"1"))).error_code == ErrorCode.not_leader_or_follower
    broker.store.late = False
    await until_led(client, world, "a")
    assert broker.store.session_id == session
    assert (await broker.store.get("/brokers/ids/0")).owner == session
    assert broker.metadata_loop.is_controller
    await broker.stop()


class LateNews(MemoryStore):
    """It has another session for a while before anybody is told."""

    def session_expired(self) -> None:
        callbacks, self._lost = self._lost, []
        super().session_expired()
        self._lost = callbacks
        if self.is_connected:
            for callback in callbacks:
                asyncio.get_running_loop().call_later(1, callback)


@played
async def test_a_broker_leads_nothing_in_a_session_that_has_not_registered_it(world: World) -> None:
    """Seen in a process that was stopped: it led for a moment before it was told that it had another session."""
    world.new_store = LateNews
    broker = await world.start()
    client = await world.client()
    await client.create_topic("a")
    opened_for = []
    broker.fence.on_change(
        closed=lambda: None, opened=lambda: opened_for.append(world.tree.find("/brokers/ids/0").owner)
    )
    broker.store.disconnect()
    await world.pass_time(2 * SESSION_S)
    broker.store.reconnect()
    await until_led(client, world, "a")
    await world.pass_time(5)
    assert opened_for == [broker.store.session_id]
    await broker.stop()


def test_a_broker_that_stops_while_it_is_fenced_ends_cleanly(play, caplog) -> None:
    async def scene(world: World) -> None:
        broker = await world.start()
        client = await world.client()
        await client.create_topic("a")
        broker.store.disconnect()
        await world.pass_time(SESSION_S + 1)
        stopping = asyncio.ensure_future(broker.stop())
        broker.store.reconnect()
        await stopping
        assert broker.partitions.leader_or_none("a", 0) is None

    play(scene)
    assert "ERROR" not in caplog.text
