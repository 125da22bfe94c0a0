"""Partitions on three brokers in virtual time (M1): acknowledged records are on all replicas and survive a leader."""

import asyncio
import errno
from collections.abc import Mapping
from typing import Any

import pytest

from odradek import clients
from odradek.broker.lifecycle import Broker
from odradek.broker.replication.follower import PartitionFetchState
from odradek.broker.replication.machine.leader import IsrChange
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.nodes import RECOVERED, RECOVERING
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.fetch_session import FetchRequest, FetchSessionHandler
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_response, encode_produce_request
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.world import World, until
from odradek.wire import client_connection
from odradek.wire.client_connection import ClientConnection, open_connection
from tests.world.scenes import in_world
from tests.world.topics import T0, controller, create, fill, leader_of, leaders


def follows(broker: Broker) -> bool:
    return T0 in broker.partitions.followers


def recovery_states(world: World) -> dict[int, int]:
    """Return the leader recovery state that each replica knows (KIP-704)."""
    images = {number: broker.image.partition(T0) for number, broker in world.running.items()}
    return {
        number: image.leader_recovery_state
        for number, image in images.items()
        if image is not None and number in image.replicas
    }


def numbers(count: int) -> dict[int, list[bytes]]:
    return {0: [b"%d" % value for value in range(count)]}


def end_offsets(world: World, key: TopicPartition = T0) -> dict[int, int]:
    return {number: broker.logs.logs[key].written_offset for number, broker in world.running.items()}


@in_world(seed=1, brokers=3)
async def test_acknowledged_records_are_on_every_replica(world: World) -> None:
    await create(world)
    await fill(world, 100)
    assert end_offsets(world) == {0: 100, 1: 100, 2: 100}
    assert await world.read("t", 1) == numbers(100)
    leader, partition = leader_of(world)
    assert partition.isr == tuple(world.running[leader].image.partition(T0).replicas)
    await until(lambda: all(each.logs.logs[T0].high_watermark == 100 for each in world.running.values()))


@pytest.mark.parametrize("seed", range(6))
@in_world(brokers=3)
async def test_acknowledged_records_survive_the_leader(world: World) -> None:
    await create(world)
    await fill(world, 100)
    leader, _ = leader_of(world)
    await world.kill(leader)
    await fill(world, 50, first=100)
    await until(lambda: bool(leaders(world)))
    assert leader_of(world)[0] != leader
    assert await world.read("t", 1) == numbers(150)
    await world.start(leader)
    await until(lambda: [len(each.isr) for each in leaders(world).values()] == [3])
    assert set(end_offsets(world).values()) == {150}


@in_world({"replica.lag.time.max.ms": "2000"}, seed=3, brokers=3)
async def test_a_follower_that_lags_leaves_the_in_sync_set_and_returns(world: World) -> None:
    await create(world)
    await fill(world, 10)
    leader, partition = leader_of(world)
    follower = next(number for number in partition.isr[1:] if not world.running[number].metadata_loop.is_controller)
    hosts = [world.hosts[number] for number in world.running if number != follower]
    world.simulation.network.partition([world.hosts[follower]], hosts)
    await fill(world, 10, first=10)
    assert follower not in partition.isr, "it was acknowledged, so that it counts no more"
    assert end_offsets(world)[follower] == 10
    assert partition.high_watermark == 20
    world.simulation.network.heal()
    await until(lambda: follower in leader_of(world)[1].isr)
    assert end_offsets(world)[follower] == 20
    assert leader_of(world)[0] == leader
    sets = world.running[leader].alter_partition_manager
    assert (sets.shrinks, sets.expansions) == (1, 1)


@in_world(seed=4, brokers=3)
async def test_below_min_insync_replicas_acks_all_is_refused_and_acks_1_accepted(world: World) -> None:
    await create(world, min_insync_replicas="2")
    await fill(world, 10)
    leader, partition = leader_of(world)
    for number in partition.isr[1:]:
        await world.kill(number)
    await until(lambda: len(partition.isr) == 1)
    async with world.producer("another", retries=0) as producer:
        with pytest.raises(KafkaError, match="in-sync replicas"):
            await (await producer.send("t", b"too few", partition=0))
    await fill(world, 5, first=10, acks=1)
    assert (partition.log.written_offset, partition.high_watermark) == (15, 10), "nothing is committed meanwhile"
    await world.start(next(number for number in range(3) if number != leader))
    await until(lambda: partition.high_watermark == 15)


@pytest.mark.parametrize("seed", range(4))
@in_world(brokers=3)
async def test_a_returning_leader_truncates_records_that_only_it_has(world: World) -> None:
    await create(world)
    await fill(world, 10)
    leader, partition = leader_of(world)
    others = [number for number in world.running if number != leader]
    world.simulation.network.partition([world.hosts[leader]], [world.hosts[number] for number in others])
    await fill(world, 7, first=100, acks=1)
    assert (partition.log.written_offset, partition.high_watermark) == (17, 10)
    await world.kill(leader)
    await until(lambda: bool(leaders(world)))
    world.simulation.network.heal()
    await fill(world, 3, first=10)
    await world.start(leader)
    await until(lambda: [len(each.isr) for each in leaders(world).values()] == [3])
    assert set(end_offsets(world).values()) == {13}
    assert await world.read("t", 1) == numbers(13)
    epochs = [broker.logs.logs[T0].epochs.entries for broker in world.running.values()]
    assert epochs[0] == epochs[1] == epochs[2]


@in_world(seed=6, brokers=3)
async def test_a_restarted_broker_knows_its_high_watermark(world: World) -> None:
    await create(world)
    await fill(world, 10)
    await until(lambda: all(each.logs.logs[T0].high_watermark == 10 for each in world.running.values()))
    leader, _ = leader_of(world)
    follower = (leader + 1) % 3
    await world.stop(follower)
    for number in sorted(world.running):
        await world.stop(number)
    await world.start(follower)
    assert world.running[follower].logs.logs[T0].high_watermark == 10


@pytest.mark.parametrize("seed", range(4))
@in_world(brokers=3)
async def test_followers_truncate_to_an_unclean_leader_s_log(world: World) -> None:
    await create(world, replicas=2, unclean_leader_election_enable="true")
    await fill(world, 10)
    leader, partition = leader_of(world)
    follower = partition.isr[1]
    await world.kill(follower)
    await until(lambda: partition.isr == (leader,))
    await fill(world, 10, first=10)
    await world.kill(leader)
    await world.start(follower)
    await until(lambda: bool(leaders(world)))
    assert leader_of(world)[0] == follower
    assert recovery_states(world) == {follower: RECOVERING}
    await world.start(leader)
    await until(lambda: [len(each.isr) for each in leaders(world).values()] == [2])
    await until(lambda: recovery_states(world) == dict.fromkeys((leader, follower), RECOVERED))
    assert await world.read("t", 1) == numbers(10)
    assert {world.running[number].logs.logs[T0].written_offset for number in (leader, follower)} == {10}


@in_world(seed=8, brokers=3)
async def test_a_follower_below_its_leader_s_log_start_restarts_there(world: World) -> None:
    await create(world, replicas=2)
    await fill(world, 10)
    leader, partition = leader_of(world)
    follower = partition.isr[1]
    await world.kill(follower)
    await until(lambda: partition.isr == (leader,))
    await fill(world, 10, first=10)
    partition.log.advance_log_start_offset(15)
    await world.start(follower)
    await until(lambda: len(partition.isr) == 2)
    log = world.running[follower].logs.logs[T0]
    assert (log.log_start_offset, log.written_offset, log.high_watermark) == (15, 20, 20)


@in_world(seed=9, brokers=3)
async def test_records_deleted_at_the_leader_are_deleted_at_its_followers(world: World) -> None:
    await create(world)
    await fill(world, 10)
    leader_of(world)[1].log.advance_log_start_offset(4)
    logs = [broker.logs.logs[T0] for broker in world.running.values()]
    await until(lambda: all(log.log_start_offset == 4 for log in logs))
    assert set(end_offsets(world).values()) == {10}


@in_world({"replica.lag.time.max.ms": "2000", "log.dirs": "/a,/b"}, seed=10, brokers=3)
async def test_when_a_follower_s_disk_fails_the_others_continue(world: World) -> None:
    await create(world, partitions=2)
    await fill(world, 10)
    _, partition = leader_of(world)
    follower = partition.isr[1]
    world.simulation.disk(world.hosts[follower]).fail_next("append", errno.EIO, path_end="t-0/00000000000000000000.log")
    await fill(world, 10, first=10)
    await until(lambda: follower not in partition.isr)
    assert TopicPartition("t", 1) in world.running[follower].partitions.followers or world.running[
        follower
    ].partitions.get(TopicPartition("t", 1))
    assert T0 not in world.running[follower].partitions.followers
    assert world.running[follower].partitions.offline_count == 1


async def connect(world: World, number: int) -> ClientConnection:
    return await open_connection(
        world.simulation.runtime("writer"),
        world.hosts[number],
        9092,
        client_id="writer",
        request_timeout_ms=30_000,
        setup_timeout_ms=10_000,
        max_response_bytes=1 << 20,
    )


async def produce(connection: ClientConnection, value: bytes, timeout_ms: int = 700) -> ErrorCode:
    batch = encode_batch([(EPOCH_MS, None, value, ())])
    body = encode_produce_request(9, [ProduceTopic("t", None, [(0, batch)])], acks=-1, timeout_ms=timeout_ms)
    reply = await connection.exchange(ApiKey.PRODUCE, 9, body)
    ((_, _, (partition,)),) = decode_produce_response(9, reply.frame, reply.offset).topics
    return ErrorCode(partition.error_code)


@pytest.mark.parametrize("seed", range(3))
@in_world(brokers=3)
async def test_a_producer_waiting_for_a_disconnected_replica_gets_an_error_in_time(world: World) -> None:
    await create(world)
    leader, partition = leader_of(world)
    connection = await connect(world, leader)
    for value in range(2):
        assert await produce(connection, b"%d" % value) is ErrorCode.none
    follower = world.hosts[partition.isr[1]]
    world.simulation.network.partition([follower], [host for host in world.hosts if host != follower])
    assert await produce(connection, b"2") is ErrorCode.request_timed_out
    assert await produce(connection, b"3", timeout_ms=0) is ErrorCode.request_timed_out
    assert world.running[leader].counters.errors[ApiKey.PRODUCE, ErrorCode.request_timed_out] == 2
    assert world.running[leader].partitions.traffic["t"].failed_produces == 2
    connection.close()
    world.simulation.network.heal()
    await until(lambda: partition.high_watermark == 4)
    assert set(end_offsets(world).values()) == {4}, "told, but not taken back"


@pytest.mark.parametrize("seed", range(3))
@in_world(brokers=3)
async def test_a_timeout_acknowledges_no_records_that_are_not_written(world: World) -> None:
    """The other partition of the request has one replica, and a batch so large that the writer thread writes it."""
    await create(world)
    leader, _ = leader_of(world)
    async with world.admin() as admin:
        await admin.create_topics([clients.NewTopic(name="alone", assignments={0: [leader]})])
    alone = world.running[leader].partitions.leader("alone", 0).log
    world.simulation.disk(world.hosts[leader]).delay_s = (0.5, 0.5)
    connection = await connect(world, leader)
    small, large = (encode_batch([(EPOCH_MS, None, b"." * size, ())]) for size in (10, 200_000))
    topics = [ProduceTopic("t", None, [(0, small)]), ProduceTopic("alone", None, [(0, large)])]
    reply = await connection.exchange(ApiKey.PRODUCE, 9, encode_produce_request(9, topics, acks=-1, timeout_ms=0))
    response = decode_produce_response(9, reply.frame, reply.offset)
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert alone.written_offset == 0
    assert errors == dict.fromkeys(("t", "alone"), ErrorCode.request_timed_out)
    traffic = world.running[leader].partitions.traffic
    assert [traffic[topic].failed_produces for topic in ("t", "alone")] == [1, 1]
    await until(lambda: alone.written_offset == 1)
    connection.close()


@pytest.mark.parametrize("seed", range(3))
@in_world({"replica.fetch.wait.max.ms": "20000", "replica.lag.time.max.ms": "60000"}, brokers=2)
async def test_a_partition_that_is_new_to_a_follower_does_not_wait_for_records_of_others(world: World) -> None:
    await create(world, replicas=2)
    await fill(world, 1)
    async with world.admin() as admin:
        await admin.create_topic("u", partitions=4, replication_factor=2)
    began_s = world.now_s
    async with world.producer("writer") as producer:
        for number in range(4):
            await (await producer.send("u", b"soon", partition=number))
    assert world.now_s - began_s < 10.0, "the fetches that wait for t would have waited for 20 s"


@pytest.mark.parametrize("seed", range(4))
@in_world(brokers=3)
async def test_a_follower_joining_the_isr_when_the_fence_closed_may_have_joined(world: World) -> None:
    """The controller may have written it, and elect who joined; its answer and its command are not here yet."""
    await create(world)
    await fill(world, 10)
    number, partition = leader_of(world)
    elected = controller(world)
    joining = next(each for each in range(3) if each not in (number, elected))
    await world.kill(joining)
    await until(lambda: joining not in partition.isr)
    broker, heard = world.running[number], asyncio.Event()
    send = broker.alter_partition_manager._requests.send

    async def late(changes: dict[Any, IsrChange]) -> Any:
        await heard.wait()
        return await send(changes)

    broker.alter_partition_manager._requests.send = late  # type: ignore[method-assign,assignment]
    await world.start(joining)
    await until(lambda: joining in partition.replication.maximal_isr)
    members = []
    broker.partitions.on_leadership(
        lambda _, led: None if led is None or led is partition else members.append(led.replication.maximal_isr)
    )
    broker.fence.close()
    await until(lambda: bool(members))
    assert joining in members[0]
    heard.set()
    await until(lambda: len(leader_of(world)[1].isr) == 3)
    assert leader_of(world)[0] == number
    image = broker.image.partition(T0)
    assert image is not None
    assert joining in image.isr


@in_world(seed=5, brokers=3)
async def test_waiting_producers_get_an_error_at_once_when_a_death_leaves_too_few_in_sync(world: World) -> None:
    """The controller takes the dead out of the in-sync set, in another leader epoch."""
    await create(world, min_insync_replicas="3")
    leader, partition = leader_of(world)
    connection = await open_connection(
        world.simulation.runtime("writer"),
        world.hosts[leader],
        9092,
        client_id="writer",
        request_timeout_ms=600_000,
        setup_timeout_ms=10_000,
        max_response_bytes=1 << 20,
    )
    epoch, dies = partition.leader_epoch, partition.isr[1]
    world.simulation.network.partition([world.hosts[dies]], [each for each in world.hosts if each != world.hosts[dies]])
    producing = asyncio.create_task(produce(connection, b"1", timeout_ms=500_000))
    await until(lambda: partition.log.written_offset == 1)
    await world.kill(dies)
    await until(lambda: partition.leader_epoch > epoch)
    began_s = world.now_s
    assert await producing is ErrorCode.not_enough_replicas_after_append
    assert world.now_s - began_s < 1
    connection.close()


def test_new_partitions_of_a_fetcher_are_fetched_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are many: each fetch costs a look at all of the session's, and creating thousands took minutes."""
    sizes: list[int] = []
    build = FetchSessionHandler[PartitionFetchState].build

    def counted(
        self: FetchSessionHandler[PartitionFetchState], wanted: Mapping[TopicPartition, PartitionFetchState]
    ) -> FetchRequest[PartitionFetchState]:
        sizes.append(len(wanted))
        return build(self, wanted)

    async def scene(world: World) -> None:
        await create(world, replicas=2, partitions=400)
        await fill(world, 1)
        sizes.clear()
        async with world.admin() as admin:
            for number in range(100):
                await admin.create_topic(f"u{number}", partitions=2, replication_factor=2)
        async with world.producer("writer") as producer:
            await (await producer.send("u99", b"soon", partition=0))
            await (await producer.send("u99", b"soon", partition=1))
        assert max(sizes) == 300, "of one broker's fetches: 200 and 100 are led by the other"
        assert len(sizes) < 150, "there were 286 when each that came was asked for at once"

    monkeypatch.setattr(FetchSessionHandler, "build", counted)
    World(1, brokers=2).play(scene)


@in_world(seed=1, brokers=2)
async def test_a_follower_whose_fetches_fail_has_one_session_at_the_leader(world: World) -> None:
    await create(world, replicas=2)
    leader = leader_of(world)[0]
    sessions = world.running[leader].fetch_sessions
    for delay_s in [0.1] * 10 + [2] * 10:  # the connection ends before and after the response that names the session
        await until(lambda: len(sessions) > 0)
        world.running[1 - leader].broker_connections.close_purpose(leader, "fetcher-0")
        await world.pass_time(delay_s)
    assert (len(sessions), sessions.partition_count) == (1, 1)
    await fill(world, 1)
    await until(lambda: end_offsets(world) == {0: 1, 1: 1})


def test_an_isr_expands_although_its_request_could_not_be_imported_at_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The codec of a request is imported when the first one is sent: the process may have no descriptor left then."""
    errors: list[Exception] = [
        OSError(errno.EMFILE, "Too many open files", "schemas.py"),
        ImportError("libz.so: cannot open shared object file: Too many open files"),
    ]
    encode = client_connection.encode_request

    def encode_request(api_key: ApiKey, version: int, message: Mapping[str, Any]) -> bytes:
        if api_key is ApiKey.ALTER_PARTITION and errors:
            raise errors.pop()
        return encode(api_key, version, message)

    async def scene(world: World) -> None:
        elected = controller(world)
        leader, follower = (each for each in world.running if each != elected)
        topic = NewTopic(name="t", assignment={0: (leader, follower)})
        await world.running[elected].controller.create_topics([topic])
        await until(lambda: world.running[leader].partitions.get(T0) is not None)
        await world.kill(follower)
        partition = world.running[leader].partitions.get(T0)
        assert partition is not None
        await until(lambda: partition.isr == (leader,))
        await world.start(follower)
        await until(lambda: len(partition.isr) == 2)
        assert not errors

    monkeypatch.setattr(client_connection, "encode_request", encode_request)
    World(1, brokers=3).play(scene)
    assert not [record for record in caplog.records if record.exc_info]
