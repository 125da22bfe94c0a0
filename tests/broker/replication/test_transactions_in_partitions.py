"""M1: transactions in a broker's partitions, without their coordinator: batches, markers, and who may read what."""

import asyncio
from typing import Any

import pytest

from odradek.broker.observing import catalog
from odradek.broker.observing.observation import observe
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker, encode_marker
from odradek.protocol.batches.record_batch import iterate_batches, read_header, write_header
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Play, World
from tests.world.scenes import in_world, played

NOBODY_IS_ASKED = {"transaction_partition_verification_enable": False}
COMMIT, ABORT = True, False


class Producer:
    """A transactional producer whose coordinator is this test."""

    def __init__(self, world: World, client: WireClient, producer_id: int, topic: Any = "t") -> None:
        self.world, self.client, self.producer_id, self.topic = world, client, producer_id, topic
        self.sequence = 0
        self.epoch = 0

    def batch(self, *values: bytes, **options: Any) -> bytearray:
        sequence, self.sequence = self.sequence, self.sequence + len(values)
        settings = {"is_transactional": True, "base_sequence": sequence, **options}
        batch: bytearray = self.world.batch(
            *values, producer_id=self.producer_id, producer_epoch=self.epoch, **settings
        )
        return batch

    async def write(self, *values: bytes, **options: Any) -> Any:
        return await self.client.produce(self.topic, self.batch(*values, **options), transactional_id="x")

    async def end(self, committed: bool, *, version: int = 1, **options: Any) -> ErrorCode:
        marker = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "transaction_result": committed,
            "coordinator_epoch": 0,
            "transaction_version": 0,
            "topics": [{"name": self.topic, "partition_indexes": [0]}],
            **options,
        }
        answer = await self.client.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, version)
        code: ErrorCode = answer.markers[0].topics[0].partitions[0].error_code
        return code


async def started(world: World, **config: Any) -> tuple[Any, Any]:
    broker = await world.start(**{**NOBODY_IS_ASKED, **config})
    client = await world.client()
    await client.create_topic("t")
    return broker, client


def committed_values(world: World, fetched: Any) -> list[bytes | None]:
    """Return the values of a response that a read-committed client keeps, by the protocol's rule."""
    waiting = sorted(fetched.aborted_transactions, key=lambda each: each[1])
    rolled_back: set[int] = set()
    values: list[bytes | None] = []
    data = memoryview(fetched.records)
    for position, header in iterate_batches(data):
        while waiting and waiting[0][1] <= header.last_offset:
            rolled_back.add(waiting.pop(0)[0])
        if header.is_control:
            rolled_back.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in rolled_back):
            values += world.values(data[position : position + header.size])
    return values


# ---- who may write --------------------------------------------------------------------------------------------------


@played
async def test_a_transactional_batch_needs_a_coordinator_unless_verification_is_disabled(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    producer = Producer(world, client, 5)
    answer = await producer.write(b"a")
    assert answer.error_code == ErrorCode.not_enough_replicas
    assert answer.error_message.endswith("COORDINATOR_NOT_AVAILABLE")
    change = {"name": "transaction.partition.verification.enable", "config_operation": 0, "value": "false"}
    resource = {"resource_type": 4, "resource_name": "0", "configs": [change]}
    await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False}, 1)
    await world.pass_time(1)
    producer.sequence = 0
    assert (await producer.write(b"a")).error_code == ErrorCode.none


@pytest.mark.parametrize("warm", [False, True])
def test_a_transactional_batch_without_a_transactional_id_is_refused(play: Play, *, warm: bool) -> None:
    async def scene(world: World) -> None:
        _, client = await started(world)
        for _ in range(3 if warm else 0):
            assert (await client.produce("t", world.batch(b"x"))).error_code == 0  # the short road knows this client
        answer = await client.produce("t", Producer(world, client, 5).batch(b"a"))
        assert answer.error_code == ErrorCode.invalid_txn_state
        assert (await client.fetch("t", 0)).high_watermark == (3 if warm else 0)

    play(scene)


@played
async def test_clients_write_no_markers(world: World) -> None:
    _, client = await started(world)
    producer = Producer(world, client, 5)
    await producer.write(b"a")
    marker = encode_marker(
        EndTransactionMarker(ControlType.COMMIT, 0), producer_id=5, producer_epoch=0, now_ms=1_700_000_000_000
    )
    for transactional_id in (None, "x"):
        answer = await client.produce("t", marker, transactional_id=transactional_id)
        assert answer.error_code == ErrorCode.invalid_record
    assert (await client.fetch("t", 0, isolation_level=1)).last_stable_offset == 0


@played
async def test_duplicates_gaps_and_batches_outside_of_the_transaction(world: World) -> None:
    _, client = await started(world)
    producer = Producer(world, client, 5)
    for _ in range(2):
        producer.sequence = 0
        answer = await producer.write(b"a", b"b")
        assert (answer.error_code, answer.base_offset) == (0, 0)
    producer.sequence = 3
    assert (await producer.write(b"d")).error_code == ErrorCode.out_of_order_sequence_number
    producer.sequence = 2
    assert (await producer.write(b"c", is_transactional=False)).error_code == ErrorCode.invalid_txn_state
    producer.sequence = 2
    assert (await producer.write(b"c")).base_offset == 2
    assert await producer.end(COMMIT) == ErrorCode.none
    producer.sequence = 2
    answer = await producer.write(b"c")
    assert (answer.error_code, answer.base_offset) == (0, 2), "a duplicate, though the transaction is over"
    fetched = await client.fetch("t", 0, isolation_level=1)
    assert (fetched.last_stable_offset, committed_values(world, fetched)) == (4, [b"a", b"b", b"c"])


@pytest.mark.parametrize("acks", [0, 1, -1])
@played
async def test_a_transaction_is_written_with_any_acks(world: World, acks: int) -> None:
    _, client = await started(world)
    producer = Producer(world, client, 5)
    client.send_produce("t", producer.batch(b"a"), acks=acks, transactional_id="x")
    if acks:
        assert (await client.produce_response()).topics[0].partitions[0].error_code == 0
    assert await producer.end(ABORT) == ErrorCode.none
    fetched = await client.fetch("t", 0, isolation_level=1)
    assert (fetched.last_stable_offset, list(fetched.aborted_transactions)) == (2, [(5, 0)])


# ---- markers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@in_world({"min.insync.replicas": "2"}, brokers=2, started=False)
async def test_markers_are_answered_partition_by_partition(world: World, version: int) -> None:
    broker, client = await started(world)
    await world.start(1)
    await world.kill(1)
    await world.create_topic("u", 2, 2)
    one, two = Producer(world, client, 1), Producer(world, client, 2)
    await one.write(b"a")
    await two.write(b"b")
    await two.end(COMMIT, coordinator_epoch=7)
    await two.write(b"c")

    def marker(producer_id: int, partitions: dict[str, list[int]], **options: Any) -> dict[str, Any]:
        topics = [{"name": name, "partition_indexes": numbers} for name, numbers in partitions.items()]
        settings = {"producer_epoch": 0, "transaction_result": ABORT, "coordinator_epoch": 3, **options}
        return {"producer_id": producer_id, "topics": topics, **settings}

    markers = [
        marker(1, {"t": [0, 9], "nothing": [0]}),
        marker(2, {"t": [0]}),
        marker(3, {"u": [0, 1]}),
        marker(-4, {"t": [0]}),
        marker(1, {"u": [1]}),
    ]
    answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": markers}, version)
    found = {
        (each.producer_id, topic.name, partition.partition_index): partition.error_code
        for each in answer.markers
        for topic in each.topics
        for partition in topic.partitions
    }
    assert [each.producer_id for each in answer.markers] == [1, 2, 3, -4]
    assert found == {
        (1, "t", 0): ErrorCode.none,
        (1, "t", 9): ErrorCode.unknown_topic_or_partition,
        (1, "nothing", 0): ErrorCode.unknown_topic_or_partition,
        (1, "u", 1): ErrorCode.not_enough_replicas,
        (2, "t", 0): ErrorCode.transaction_coordinator_fenced,
        (3, "u", 0): ErrorCode.not_enough_replicas,
        (3, "u", 1): ErrorCode.not_enough_replicas,
        (-4, "t", 0): ErrorCode.invalid_request,
    }
    assert broker.partitions.leader_or_none("t", 0).log.log_end_offset == 5


@played
async def test_no_markers_have_an_empty_answer(world: World) -> None:
    _, client = await started(world)
    assert (await client.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": []}, 1)).markers == ()


@played
async def test_transactions_of_version_2_have_an_epoch_each(world: World) -> None:
    broker, client = await started(world)
    producer = Producer(world, client, 5)
    await producer.write(b"a")

    async def end(epoch: int) -> ErrorCode:
        return await producer.end(ABORT, version=2, transaction_version=2, producer_epoch=epoch)

    assert await end(0) == ErrorCode.invalid_producer_epoch
    assert await end(1) == ErrorCode.none
    assert broker.partitions.leader_or_none("t", 0).log.log_end_offset == 2
    assert await end(1) == ErrorCode.none, "said again, it is not written again"
    assert broker.partitions.leader_or_none("t", 0).log.log_end_offset == 2
    assert (await producer.write(b"late")).error_code == ErrorCode.invalid_producer_epoch
    producer.epoch, producer.sequence = 1, 0
    assert (await producer.write(b"next")).error_code == ErrorCode.none
    assert await producer.end(COMMIT) == ErrorCode.none, "a coordinator that does not say so is an old one"


@played
async def test_a_hanging_transaction_is_seen_and_ended_by_an_administrator(world: World) -> None:
    _, client = await started(world)
    await client.produce("t", world.batch(b"x"))
    producer = Producer(world, client, 5)
    producer.epoch = 3
    await producer.write(b"a")

    async def state() -> tuple[int, int, int]:
        topics = [{"name": "t", "partition_indexes": [0]}]
        answer = await client.ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": topics}, 0)
        (found,) = answer.topics[0].partitions[0].active_producers
        return found.producer_epoch, found.coordinator_epoch, found.current_txn_start_offset

    assert await state() == (3, -1, 1)
    assert await producer.end(ABORT, coordinator_epoch=4) == ErrorCode.none
    assert await state() == (3, 4, -1)


# ---- who may read ---------------------------------------------------------------------------------------------------


@played
async def test_readers_of_what_is_committed_stop_at_the_first_open_transaction(world: World) -> None:
    _, client = await started(world)
    one, two = Producer(world, client, 1), Producer(world, client, 2)
    await client.produce("t", world.batch(b"0"))
    await one.write(b"1")
    await two.write(b"2")
    await client.produce("t", world.batch(b"3"))
    fetched = await client.fetch("t", 0, isolation_level=1)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (4, 1)
    assert committed_values(world, fetched) == [b"0"]
    uncommitted = await client.fetch("t", 0)
    assert world.values(uncommitted.records) == [b"0", b"1", b"2", b"3"]
    assert (uncommitted.last_stable_offset, uncommitted.aborted_transactions) == (1, None)
    assert await two.end(ABORT) == ErrorCode.none
    assert (await client.fetch("t", 0, isolation_level=1)).last_stable_offset == 1
    assert await one.end(COMMIT) == ErrorCode.none
    fetched = await client.fetch("t", 0, isolation_level=1)
    assert (fetched.high_watermark, fetched.last_stable_offset) == (6, 6)
    assert list(fetched.aborted_transactions) == [(2, 2)]
    assert committed_values(world, fetched) == [b"0", b"1", b"3"]


@played
async def test_an_answer_names_the_aborted_transactions_of_its_own_records_only(world: World) -> None:
    _, client = await started(world, log_segment_bytes=300)
    producers = [Producer(world, client, number) for number in range(1, 6)]
    long_lived = Producer(world, client, 9)
    await long_lived.write(b"long")
    for producer in producers:
        await producer.write(b"v" * 20)
        await producer.end(ABORT)
    await long_lived.end(ABORT)
    assert (await client.fetch("t", 0, isolation_level=1)).last_stable_offset == 12
    first = await client.fetch("t", 0, isolation_level=1, partition_max_bytes=1)
    assert list(first.aborted_transactions) == [(9, 0)]
    second = await client.fetch("t", 1, isolation_level=1, partition_max_bytes=1)
    assert sorted(second.aborted_transactions) == [(1, 1), (9, 0)]
    marker = await client.fetch("t", 2, isolation_level=1, partition_max_bytes=1)
    assert sorted(marker.aborted_transactions) == [(1, 1), (9, 0)]
    last = await client.fetch("t", 11, isolation_level=1)
    assert list(last.aborted_transactions) == [(9, 0)]
    end = await client.fetch("t", 12, isolation_level=1)
    assert (end.records or b"", list(end.aborted_transactions)) == (b"", [])


@played
async def test_a_waiting_reader_of_what_is_committed_wakes_with_the_end_of_the_transaction(world: World) -> None:
    _, client = await started(world)
    producer = Producer(world, client, 5)
    await producer.write(b"a")
    reader, other = await world.client(), await world.client()
    reader.send_fetch([("t", 0, 0)], isolation_level=1, max_wait_ms=60_000)
    other.send_fetch([("t", 0, 1)], max_wait_ms=60_000)
    waiting = asyncio.ensure_future(reader.fetch_response())
    await world.pass_time(1)
    await producer.write(b"b")
    assert world.values((await other.fetch_response()).topics[0].partitions[0].records) == [b"b"]
    await world.pass_time(1)
    assert not waiting.done(), "more of an open transaction is nothing to it"
    began = asyncio.get_running_loop().time()
    await producer.end(COMMIT)
    fetched = (await waiting).topics[0].partitions[0]
    assert committed_values(world, fetched) == [b"a", b"b"]
    assert asyncio.get_running_loop().time() - began < 1


@played
async def test_min_bytes_counts_what_the_reader_may_have(world: World) -> None:
    _, client = await started(world)
    one, two = Producer(world, client, 1), Producer(world, client, 2)
    await one.write(b"1" * 1000)
    await two.write(b"2" * 1000)
    reader = await world.client()
    reader.send_fetch([("t", 0, 0)], isolation_level=1, max_wait_ms=60_000, min_bytes=2000)
    waiting = asyncio.ensure_future(reader.fetch_response())
    await client.produce("t", world.batch(b"x" * 5000))
    await world.pass_time(1)
    assert not waiting.done()
    await one.end(ABORT)
    await world.pass_time(1)
    assert not waiting.done(), "the first transaction alone is 1,000 bytes"
    await two.end(COMMIT)
    await world.pass_time(1)
    fetched = (await waiting).topics[0].partitions[0]
    assert committed_values(world, fetched) == [b"2" * 1000, b"x" * 5000]


@played
async def test_a_fetch_session_returns_aborted_transactions_too(world: World) -> None:
    _, client = await started(world)
    producer = Producer(world, client, 5)
    await producer.write(b"a")

    async def fetch(session: tuple[int, int], wanted: Any) -> Any:
        client.send_fetch(wanted, session=session, isolation_level=1)
        return await client.fetch_response()

    opened = await fetch((0, 0), [("t", 0, 0)])
    assert opened.topics[0].partitions[0].last_stable_offset == 0
    silent = await fetch((opened.session_id, 1), [])
    assert list(silent.topics) == []
    await producer.end(ABORT)
    answer = (await fetch((opened.session_id, 2), [])).topics[0].partitions[0]
    assert (answer.last_stable_offset, list(answer.aborted_transactions)) == (2, [(5, 0)])


@played
async def test_offsets_are_looked_up_before_the_last_stable_one(world: World) -> None:
    _, client = await started(world)
    await client.produce("t", world.batch(b"0", b"1"))
    producer = Producer(world, client, 5)
    await producer.write(b"2")
    await client.produce("t", world.batch(b"3", b"4", b"5"))

    async def look_up(timestamp: int, isolation_level: int) -> int:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        topics = [{"name": "t", "partitions": [partition]}]
        message = {"replica_id": -1, "isolation_level": isolation_level, "topics": topics, "timeout": 1000}
        answer = (await client.ask(ApiKey.LIST_OFFSETS, message, 9)).topics[0].partitions[0]
        assert answer.error_code == 0
        offset: int = answer.offset
        return offset

    base = 1_700_000_000_000
    assert [await look_up(-1, level) for level in (0, 1)] == [6, 2]
    assert [await look_up(-2, level) for level in (0, 1)] == [0, 0]
    assert [await look_up(base + 1, level) for level in (0, 1)] == [1, 1]
    assert [await look_up(base + 2, level) for level in (0, 1)] == [5, -1]
    assert [await look_up(-3, level) for level in (0, 1)] == [5, -1]
    await producer.end(ABORT)
    assert [await look_up(-1, level) for level in (0, 1)] == [7, 7]
    assert [await look_up(base + 2, level) for level in (0, 1)] == [5, 5]


@played
async def test_an_open_transaction_is_counted_once_it_is_late(world: World) -> None:
    broker, client = await started(world, transaction_max_timeout_ms=60_000)

    def numbers() -> tuple[float, float]:
        families = {family.metric: dict(family.samples) for family in observe(broker)}
        late = families[catalog.LATE_TRANSACTIONS][()]
        lag = families[catalog.STABLE_OFFSET_LAG]["t", "0"]
        return float(late), float(lag)

    now_ms = world.runtime.clock.now_ms()
    producer = Producer(world, client, 5)
    batch = producer.batch(b"a", b"b")
    assert numbers() == (0, 0)
    partition = broker.partitions.leader_or_none("t", 0)
    partition.append_records(memoryview(_at(batch, now_ms)), acks=1, now_ms=now_ms, transactional=True)
    await world.pass_time(360)
    assert numbers() == (0, 2)
    await world.pass_time(1)
    assert numbers() == (1, 2)
    await producer.end(ABORT)
    assert numbers() == (0, 0)


def _at(batch: bytearray, now_ms: int) -> bytearray:
    """The batch with `now_ms` as its largest timestamp."""
    write_header(batch, read_header(batch)._replace(max_timestamp=now_ms, base_timestamp=now_ms))
    return batch


# ---- again ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [True, False])
def test_a_broker_that_starts_again_knows_what_is_open_and_what_was_aborted(play: Play, *, killed: bool) -> None:
    async def scene(world: World) -> None:
        broker, client = await started(world, log_segment_bytes=400)
        one, two = Producer(world, client, 1), Producer(world, client, 2)
        await one.write(b"lost" * 30)
        await one.end(ABORT)
        await two.write(b"kept" * 30)
        await one.write(b"open")
        await two.end(COMMIT)
        if killed:
            broker.kill()
            broker.store.abandon()
            world.tree.expire(broker.store.session_id)
        else:
            await broker.stop()
            await broker.store.close()
            await world.pass_time(1)
        await world.start(**NOBODY_IS_ASKED, log_segment_bytes=400)
        client = one.client = await world.client()
        fetched = await client.fetch("t", 0, isolation_level=1)
        assert fetched.last_stable_offset == 3
        values, offset = [], 0
        while offset < 3:
            fetched = await client.fetch("t", offset, isolation_level=1)
            values += committed_values(world, fetched)
            offset = [header.next_offset for _, header in iterate_batches(fetched.records)][-1]
        assert values == [b"kept" * 30]
        assert (await one.write(b"more")).error_code == 0
        assert await one.end(ABORT) == ErrorCode.none
        assert (await client.fetch("t", 3, isolation_level=1)).last_stable_offset == 7

    play(scene)
