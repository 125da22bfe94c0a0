"""Transactional appends are verified by the transaction's coordinator, on this broker or another (KIP-890)."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from odradek.broker.coordinators.machine import Producer
from odradek.broker.groups.machine.messages import FetchOffsetsRequest
from odradek.broker.handlers import produce
from odradek.broker.transactions import partition_verification
from odradek.model import ErrorCode, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.model.names import TRANSACTIONS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.produce import decode_produce_request
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import in_world, played

CONFIG: Final = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
ID: Final = "x"


class Client:
    """A transactional producer that calls each API itself, with a connection to each broker."""

    def __init__(self, world: World, clients: list[WireClient], coordinator: int) -> None:
        self.world, self.clients, self.at = world, clients, clients[coordinator]
        self.producer_id, self.epoch = -1, -1
        self.sequences = dict.fromkeys(range(len(clients)), 0)

    @property
    def _me(self) -> dict[str, Any]:
        return {"transactional_id": ID, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def init(self) -> None:
        message = {"transactional_id": ID, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        answer = await self.at.ask(ApiKey.INIT_PRODUCER_ID, message, 5)
        assert answer.error_code is ErrorCode.none
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def add(self, *partitions: int) -> None:
        topics = [{"name": "t", "partitions": list(partitions)}]
        message = {f"v3_and_below_{key}": value for key, value in {**self._me, "topics": topics}.items()}
        answer = await self.at.ask(ApiKey.ADD_PARTITIONS_TO_TXN, message, 3)
        for topic in answer.results_by_topic_v3_and_below:
            assert {each.partition_error_code for each in topic.results_by_partition} == {ErrorCode.none}

    async def write(self, partition: int, *, version: int = 11) -> ErrorCode:
        batch = self.world.batch(
            b"v",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences[partition],
            is_transactional=True,
        )
        answer = await self.clients[partition].produce(
            "t", batch, partition=partition, version=version, transactional_id=ID
        )
        if answer.error_code == ErrorCode.none:
            self.sequences[partition] += 1
        return ErrorCode(answer.error_code)

    async def commit_offset(
        self, offset: int, *, version: int, topic_id: UUID | None = None, generation: int = -1
    ) -> ErrorCode:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        named = {"name": "t", "topic_id": topic_id or self.world.broker.image.topics["t"].topic_id}
        message = {**self._me, "group_id": "g", "topics": [{**named, "partitions": [partition]}]}
        member = {"generation_id": generation, "member_id": "", "group_instance_id": None, "committed_leader_epoch": -1}
        partition.update(member)
        answer = await self.at.ask(ApiKey.TXN_OFFSET_COMMIT, {**message, **member}, version)
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    async def end(self, *, version: int = 3) -> None:
        answer = await self.at.ask(ApiKey.END_TXN, {**self._me, "committed": True}, version)
        assert answer.error_code is ErrorCode.none
        if version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = dict.fromkeys(self.sequences, 0)
        await self.world.pass_time(1)


async def started(world: World, brokers: int = 2) -> Client:
    """Return a client of brokers that lead a partition of `t` each; broker 0 or 1 coordinates its transactions."""
    for number in range(brokers):
        await world.start(number)
    clients = [await world.client(broker=number) for number in range(brokers)]
    await world.create_topic("t", brokers, 1)
    message = {"key_type": 1, "coordinator_keys": [ID]}
    answer = await clients[0].ask(ApiKey.FIND_COORDINATOR, message, 4)
    leaders = {each.leader for each in world.broker.image.topics["t"].partitions.values()}
    assert leaders == set(range(brokers))
    client = Client(world, clients, answer.coordinators[0].node_id)
    by_leader = {each.leader: clients[each.leader] for each in world.broker.image.topics["t"].partitions.values()}
    client.clients = [by_leader[world.broker.image.topics["t"].partitions[number].leader] for number in range(brokers)]
    await client.init()
    return client


def coordinator_of(world: World) -> int:
    partitions = world.broker.image.topics[TRANSACTIONS_TOPIC].partitions
    return partitions[coordinator_partition(ID, len(partitions))].leader


@pytest.mark.parametrize(("version", "error"), [(11, "transaction_abortable"), (10, "invalid_txn_state")])
@in_world(CONFIG, brokers=2, started=False)
async def test_a_partition_that_was_not_added_is_refused_until_it_is(world: World, version: int, error: str) -> None:
    """One of the partitions is on the coordinator's broker, the other one asks it."""
    client = await started(world)
    for partition in (0, 1):
        assert await client.write(partition, version=version) is ErrorCode[error]
        await client.add(partition)
        assert await client.write(partition, version=version) is ErrorCode.none
        assert await client.write(partition, version=version) is ErrorCode.none
        await client.end()
        assert await client.write(partition, version=version) is ErrorCode[error]


@in_world(CONFIG, brokers=1, started=False)
async def test_a_request_is_decoded_once_if_its_verification_waits_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[object] = []

    def decode(*args: Any, **options: Any) -> Any:
        decoded.append(None)
        return decode_produce_request(*args, **options)

    client = await started(world, 1)
    await client.add(0)
    for module in (partition_verification, produce):
        monkeypatch.setattr(module, "decode_produce_request", decode)
    for times in (2, 1):
        decoded.clear()
        assert await client.write(0) is ErrorCode.none
        assert len(decoded) == times


@in_world(CONFIG, brokers=2, started=False)
async def test_produce_of_transaction_version_2_adds_its_partitions(world: World) -> None:
    client = await started(world)
    for _ in range(2):
        for partition in (0, 1, 0):
            assert await client.write(partition, version=12) is ErrorCode.none
        former = client.epoch
        await client.end(version=5)
        assert client.epoch == former + 1
        for broker in world.running.values():
            for led in [each for number in (0, 1) if (each := broker.partitions.leader_or_none("t", number))]:
                assert led.log.producers.first_unstable_offset is None, "the marker has come"
    client.epoch -= 1
    assert await client.write(0, version=12) is ErrorCode.invalid_producer_epoch


@played
async def test_a_transaction_of_version_2_begins_with_sequence_0_where_its_producer_is_unknown(world: World) -> None:
    client = await started(world, 1)
    client.sequences[0] = 5
    assert await client.write(0, version=12) is ErrorCode.out_of_order_sequence_number
    client.sequences[0] = 0
    assert await client.write(0, version=12) is ErrorCode.none


@pytest.mark.parametrize("version", [3, 4, 5, 6])
@played
async def test_offsets_belong_to_the_transaction(world: World, version: int) -> None:
    """KIP-447: before version 5 the client adds the group's partition first."""
    client = await started(world, 1)
    find = {"key_type": 0, "coordinator_keys": ["g"]}
    await client.at.ask(ApiKey.FIND_COORDINATOR, find, 4)
    await world.pass_time(1)
    if version < 5:
        wanted = ErrorCode.transaction_abortable if version == 4 else ErrorCode.invalid_txn_state
        assert await client.commit_offset(5, version=version) is wanted
        me = {"producer_id": client.producer_id, "producer_epoch": client.epoch, "group_id": "g"}
        added = await client.at.ask(ApiKey.ADD_OFFSETS_TO_TXN, {"transactional_id": ID, **me}, 3)
        assert added.error_code is ErrorCode.none
    assert await client.commit_offset(5, version=version) is ErrorCode.none
    key = TopicPartition("t", 0)
    pending = await world.broker.groups.submit("g", FetchOffsetsRequest(partitions=(key,), require_stable=True))
    assert pending.unstable == {key}
    await client.end(version=5 if version >= 5 else 3)
    committed = await world.broker.groups.submit("g", FetchOffsetsRequest(partitions=(key,), require_stable=True))
    assert committed.values[key].offset == 5


@pytest.mark.parametrize(("version", "missing"), [(5, ErrorCode.illegal_generation), (6, ErrorCode.group_id_not_found)])
@played
async def test_offsets_of_a_topic_or_group_that_is_not_there_are_refused(
    world: World, version: int, missing: ErrorCode
) -> None:
    """KIP-1319"""
    client = await started(world, 1)
    await client.at.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    await world.pass_time(1)
    assert await client.commit_offset(5, version=version, generation=7) is missing
    unknown = await client.commit_offset(5, version=version, topic_id=UUID(int=5))
    assert unknown is (ErrorCode.unknown_topic_id if version >= 6 else ErrorCode.none)


class Coordinator:
    """A coordinator that answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[ErrorCode]] = []

    async def add_or_verify(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition], *, adds: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append(asyncio.get_running_loop().create_future())
        error = await self.asked[-1]
        return dict.fromkeys(partitions, error)

    def stop(self) -> None: ...


def replace_coordinator(world: World) -> Coordinator:
    coordinator = Coordinator()
    world.broker.add_partitions_to_txn_manager = coordinator  # type: ignore[assignment]
    return coordinator


@pytest.mark.parametrize(("version", "error"), [(11, "invalid_txn_state"), (12, "none")])
@played
async def test_a_verification_holds_its_connection_alone_and_a_marker_meanwhile_voids_it(
    world: World, version: int, error: str
) -> None:
    """An addition, whose last transaction's marker it may be, is repeated at once: the coordinator has added it."""
    client = await started(world, 1)
    coordinator = replace_coordinator(world)
    metadata = world.broker.metadata
    metadata.config = replace(metadata.config, add_partitions_to_txn_retry_backoff_ms=90)
    other = await world.client("other")
    writing = asyncio.ensure_future(client.write(0, version=version))
    await asyncio.sleep(0.02)
    assert len(coordinator.asked) == 1
    assert (await other.produce("t", world.batch(b"a"))).error_code == ErrorCode.none
    assert not writing.done()
    marker = {
        "producer_id": client.producer_id,
        "producer_epoch": client.epoch,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    await other.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, 1)
    coordinator.asked[0].set_result(ErrorCode.none)
    if version == 12:
        await asyncio.sleep(0.001)
        assert len(coordinator.asked) == 2
        coordinator.asked[1].set_result(ErrorCode.none)
    assert await writing is ErrorCode[error]


@pytest.mark.parametrize(
    ("answer", "version", "error"),
    [
        ("none", 11, "none"),
        ("invalid_txn_state", 11, "invalid_txn_state"),
        ("network_exception", 11, "not_enough_replicas"),
        ("not_coordinator", 12, "not_enough_replicas"),
        ("coordinator_load_in_progress", 12, "not_enough_replicas"),
        ("concurrent_transactions", 11, "not_enough_replicas"),
        ("concurrent_transactions", 12, "concurrent_transactions"),
        ("producer_fenced", 11, "invalid_producer_epoch"),
        ("transaction_abortable", 12, "transaction_abortable"),
        ("transaction_abortable", 10, "invalid_txn_state"),
    ],
)
@played
async def test_the_coordinators_error_is_one_that_producers_know(
    world: World, answer: str, version: int, error: str
) -> None:
    client = await started(world, 1)
    coordinator = replace_coordinator(world)
    writing = asyncio.ensure_future(client.write(0, version=version))
    while not writing.done():
        await asyncio.sleep(0.001)
        for each in coordinator.asked:
            if not each.done():
                each.set_result(ErrorCode[answer])
    assert writing.result() is ErrorCode[error]
    is_repeated = answer == "concurrent_transactions" and version >= 12
    assert (len(coordinator.asked) > 3) == is_repeated, "an addition is repeated for 100 ms"


@in_world(CONFIG, brokers=2, started=False)
async def test_a_broker_that_has_stopped_sends_no_request_to_another_coordinator(world: World) -> None:
    client = await started(world)
    manager = world.running[1 - coordinator_of(world)].add_partitions_to_txn_manager
    manager.stop()
    key, producer = TopicPartition("t", 0), Producer(producer_id=client.producer_id, epoch=client.epoch)
    assert await manager.add_or_verify(ID, producer, [key], adds=True) == {key: ErrorCode.network_exception}


@in_world(CONFIG, brokers=2, started=False)
async def test_a_coordinator_that_cannot_be_reached_is_a_retriable_error(world: World) -> None:
    client = await started(world)
    coordinator = coordinator_of(world)
    other = next(key for key, each in world.broker.image.topics["t"].partitions.items() if each.leader != coordinator)
    await world.stop(coordinator)
    assert await client.write(other) is ErrorCode.not_enough_replicas
