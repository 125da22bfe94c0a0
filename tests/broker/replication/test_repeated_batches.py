"""Batches that an idempotent producer resends, on three brokers in virtual time (M1), are written once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import pytest

from odradek.broker.log.producers.refused_batches import RefusedBatches
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.refused_appends import RefusedAppends
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_response, encode_produce_request
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.faults.processes import kill
from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.promises import BROKERS
from odradek.simulation.setup import CONFIG, draw_setup
from odradek.simulation.virtual.clock import EPOCH_MS
from odradek.simulation.workloads.sequences import HOST, TOPIC, Numberer, Sequences
from odradek.simulation.world import World, until
from odradek.wire.client_connection import ClientConnection, open_connection
from tests.world.sampling import seeds
from tests.world.scenes import in_world
from tests.world.topics import T0, create, leader_of


async def kill_followers(world: World, leader: int) -> list[int]:
    others = [number for number in world.running if number != leader]
    for number in others:
        await world.kill(number)
    return others


async def leave_alone(world: World, leader: int, partition: Partition) -> None:
    """Kill the followers, and wait until they are out of sync."""
    await kill_followers(world, leader)
    await until(lambda: len(partition.isr) == 1)


@asynccontextmanager
async def connected(world: World, number: int, host: str = "writer") -> AsyncIterator[ClientConnection]:
    connection = await open_connection(
        world.simulation.runtime(host),
        world.hosts[number],
        9092,
        client_id=host,
        request_timeout_ms=600_000,
        setup_timeout_ms=10_000,
        max_response_bytes=1 << 20,
    )
    yield connection
    connection.close()


async def produce(
    connection: ClientConnection,
    sequence: int,
    *,
    acks: int = -1,
    timeout_ms: int = 1_000,
    producer: int = 7,
    topic_id: UUID | None = None,
) -> tuple[ErrorCode, int]:
    """Send the record with this sequence number, by the topic's id if there is one; the error and the offset."""
    version = 9 if topic_id is None else 13
    batch = encode_batch(
        [(EPOCH_MS, None, b"%d" % sequence, ())], producer_id=producer, producer_epoch=0, base_sequence=sequence
    )
    topic = ProduceTopic("t" if topic_id is None else None, topic_id, [(0, batch)])
    body = encode_produce_request(version, [topic], acks=acks, timeout_ms=timeout_ms)
    reply = await connection.exchange(ApiKey.PRODUCE, version, body)
    ((_, _, (partition,)),) = decode_produce_response(version, reply.frame, reply.offset).topics
    return ErrorCode(partition.error_code), partition.base_offset


@pytest.mark.parametrize("seed", range(3))
@in_world(brokers=3, noticed_at_once=False)
async def test_a_committed_batch_sent_again_gets_its_offset_while_too_few_replicas_are_in_sync(world: World) -> None:
    await create(world, min_insync_replicas="2")
    leader, partition = leader_of(world)
    async with connected(world, leader) as connection:
        for sequence in range(3):
            assert await produce(connection, sequence) == (ErrorCode.none, sequence)
        await leave_alone(world, leader, partition)
        assert await produce(connection, 2) == (ErrorCode.none, 2)
        assert await produce(connection, 1) == (ErrorCode.none, 1), "any of the last five"
        for sequence in (3, 4):
            code, _ = await produce(connection, sequence)
            assert code is ErrorCode.not_enough_replicas, "a new batch; also one that comes out of order"
        assert partition.log.log_end_offset == 3


@pytest.mark.parametrize("seed", range(3))
@in_world(brokers=3, noticed_at_once=False)
async def test_an_uncommitted_batch_sent_again_waits_for_its_commit(world: World) -> None:
    """Its first response was NOT_ENOUGH_REPLICAS_AFTER_APPEND: the ISR shrank before it was committed."""
    await create(world, min_insync_replicas="2")
    leader, partition = leader_of(world)
    async with connected(world, leader) as connection:
        assert await produce(connection, 0) == (ErrorCode.none, 0)
        others = await kill_followers(world, leader)
        code, _ = await produce(connection, 1, timeout_ms=100_000)
        assert code is ErrorCode.not_enough_replicas_after_append
        assert (partition.log.log_end_offset, partition.high_watermark) == (2, 1)
        assert (await produce(connection, 1, timeout_ms=500))[0] is ErrorCode.request_timed_out
        again = asyncio.create_task(produce(connection, 1, timeout_ms=100_000))
        async with connected(world, leader, "another") as other:
            assert await produce(other, 0) == (ErrorCode.none, 0), "it waits for nothing that came after it"
        assert not again.done()
        for number in others:
            await world.start(number)
        assert await again == (ErrorCode.none, 1)
        assert partition.high_watermark == 2
        assert await produce(connection, 2) == (ErrorCode.none, 2), "the producer goes on"


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("written", [0, 2])
@in_world(seed=1, brokers=3)
async def test_batches_after_one_refused_before_the_broker_led_get_the_same_error(
    world: World, written: int, by_id: bool
) -> None:
    """librdkafka would take a new epoch for OUT_OF_ORDER_SEQUENCE_NUMBER, and send what is in doubt twice."""
    await create(world, min_insync_replicas="2")
    leader, _ = leader_of(world)
    partitions = world.running[leader].partitions
    topic_id = world.running[leader].image.topics["t"].topic_id if by_id else None
    async with connected(world, leader) as connection:
        for sequence in range(written):
            assert await produce(connection, sequence, topic_id=topic_id) == (ErrorCode.none, sequence)
        partitions.fence()
        assert (await produce(connection, written, topic_id=topic_id))[0] is ErrorCode.not_leader_or_follower
        partitions.unfence()
        await until(lambda: partitions.get(T0) is not None)
        assert (await produce(connection, written + 1, topic_id=topic_id))[0] is ErrorCode.not_leader_or_follower
        for sequence in (written, written + 1, written + 2):
            assert await produce(connection, sequence, topic_id=topic_id) == (ErrorCode.none, sequence)


@in_world(seed=1, brokers=3)
async def test_a_gap_after_an_election_is_retried_in_order_and_later_it_is_out_of_order(world: World) -> None:
    """librdkafka sends the new leader a batch before the one that the former leader refused."""
    await create(world, min_insync_replicas="2")
    former, _ = leader_of(world)
    async with connected(world, former) as connection:
        assert await produce(connection, 0) == (ErrorCode.none, 0)
    await world.kill(former)
    await until(lambda: any(broker.partitions.get(T0) for broker in world.running.values()))
    leader = next(number for number, broker in world.running.items() if broker.partitions.get(T0))
    async with connected(world, leader) as connection:
        assert (await produce(connection, 2))[0] is ErrorCode.not_leader_or_follower
        for sequence in (1, 2):
            assert await produce(connection, sequence) == (ErrorCode.none, sequence)
        await asyncio.sleep(20)
        assert (await produce(connection, 9))[0] is ErrorCode.out_of_order_sequence_number


@in_world(seed=1, brokers=3)
async def test_the_first_leader_of_a_partition_refuses_a_gap_as_out_of_order(world: World) -> None:
    await create(world, min_insync_replicas="2")
    leader, _ = leader_of(world)
    async with connected(world, leader) as connection:
        assert await produce(connection, 0) == (ErrorCode.none, 0)
        assert (await produce(connection, 2))[0] is ErrorCode.out_of_order_sequence_number


@in_world(seed=1, brokers=3)
async def test_refused_batches_of_an_unknown_topic_id_are_remembered_too(world: World) -> None:
    await create(world, min_insync_replicas="2")
    leader, _ = leader_of(world)
    broker, unknown = world.running[leader], UUID(int=99)
    async with connected(world, leader) as connection:
        assert (await produce(connection, 0, topic_id=unknown))[0] is ErrorCode.unknown_topic_id
    found = RefusedBatches()
    broker.partitions.refused.move((unknown, 0), to=found)
    assert len(found) == 1


def test_a_limited_number_of_refused_batches_is_remembered() -> None:
    """Clients may ask the wrong broker for ever, for topics and with ids that they make up."""
    refused, error = RefusedAppends(), KafkaError(ErrorCode.not_leader_or_follower)
    for number in range(1_200):
        batch = encode_batch([(EPOCH_MS, None, b"", ())], producer_id=number, producer_epoch=0, base_sequence=0)
        refused.note(("t", number), batch, error, EPOCH_MS)
        refused.note(("t", 1_199), batch, error, EPOCH_MS)
        refused.note((f"junk-{number}", 0), b"no batch", error, EPOCH_MS)
    counts = []
    for number in range(1_200):
        found = RefusedBatches()
        refused.move(("t", number), to=found)
        counts.append(len(found))
    assert counts[:199] == [0] * 199
    assert counts[201:1_199] == [1] * 998
    assert counts[1_199] == 32


@in_world(seed=1, brokers=3)
async def test_a_damaged_batch_that_looks_like_a_duplicate_is_not_acknowledged(world: World) -> None:
    await create(world, min_insync_replicas="2")
    leader, partition = leader_of(world)
    async with connected(world, leader) as connection:
        assert await produce(connection, 0) == (ErrorCode.none, 0)
        await leave_alone(world, leader, partition)
        batch = encode_batch([(EPOCH_MS, None, b"0", ())], producer_id=7, producer_epoch=0, base_sequence=0)
        batch[-2] ^= 1
        body = encode_produce_request(9, [ProduceTopic("t", None, [(0, batch)])], acks=-1, timeout_ms=500)
        reply = await connection.exchange(ApiKey.PRODUCE, 9, body)
        ((_, _, (answer,)),) = decode_produce_response(9, reply.frame, reply.offset).topics
        assert answer.error_code == ErrorCode.not_enough_replicas


# ---- While faults come and go ----------------------------------------------------------------------------------------

PLACE: Final = TopicPartition(TOPIC, 0)


async def starve(schedule: Schedule, one: int, other: int) -> None:
    """Leave a leader alone in the ISR, and block its responses to the client in half of the cases."""
    world = schedule.world
    led = [number for number, broker in world.running.items() if broker.partitions.get(PLACE)]
    for number in [each for each in world.running if each not in led]:
        schedule.note(f"kill {number}")
        await kill(schedule, number, number)
    if led and schedule.chance.random() < 0.5:
        schedule.note(f"mute {led[0]} to {HOST}")
        world.simulation.network.block(world.hosts[led[0]], HOST)
        await asyncio.sleep(schedule.chance.random())
        world.simulation.network.heal()


def play_repetitions(seed: int) -> Numberer:
    """Return the producer of one seed, after its faults. An error has them as a note."""
    found: list[tuple[Schedule, Numberer]] = []

    async def scenario(world: World) -> None:
        schedule = Schedule(world, {**FAULTS, "starve": starve}, [*FAULTS, *["starve"] * len(FAULTS)])
        workload = Sequences(world, draw_setup(seed, {}))
        schedule.topics, schedule.clients = list(workload.topics), list(workload.clients)
        found.append((schedule, workload.numberer))
        await workload.start()
        await schedule.play()
        assert not await workload.finish()

    world = World(seed, CONFIG, brokers=BROKERS, noticed_at_once=seed % 2 == 0)
    try:
        world.play(scenario)
    except BaseException as error:
        for schedule, _ in found:
            error.add_note("the faults: " + "; ".join(schedule.done))
        raise
    return found[0][1]


@pytest.mark.long
@pytest.mark.parametrize("number", seeds(5))
def test_an_acknowledged_batch_sent_again_gets_its_offset_or_waits(number: int) -> None:
    """M1."""
    assert play_repetitions(number).repeated > 0


@pytest.mark.long
def test_some_schedules_leave_a_leader_as_the_only_in_sync_replica() -> None:
    assert sum(play_repetitions(number).repeated_below_min for number in range(5)) > 0
