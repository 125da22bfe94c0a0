"""Which batches a sender sends now, by which requests, and when it looks again."""

import asyncio
from math import inf

import pytest
from msgspec import Struct

from odradek.clients.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from odradek.clients.producer.ready_batches import ReadyBatches
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.producer.transaction_manager import ProducerIdAndEpoch, TransactionManager
from odradek.clients.producer.transactions.machine import TransactionEvent, TransactionMachine
from odradek.clients.settings import make_settings
from odradek.model import ErrorCode, TopicPartition
from tests.world.scenes import in_simulation

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LEADERS = {0: 1, 1: 1, 2: -1}


class Connection(Struct):
    writable: bool = True
    in_flight: int = 0


class Scene:
    """A producer whose partitions 0 and 1 are led by broker 1, and 2 by none."""

    def __init__(self, machine: TransactionMachine | None = None, **settings: object) -> None:
        made = make_settings(ProducerSettings, {"bootstrap_servers": "h:1", **settings})
        self.gathered = RecordAccumulator(batch_size=1_000, linger_ms=10, buffer_memory=100_000)
        sequences = None if machine is None else TransactionManager(is_transactional=True)
        if sequences is not None:
            sequences.set_producer_id_and_epoch(ProducerIdAndEpoch(7, 0))
        self.batches = ReadyBatches(self.gathered, made, sequences, machine)
        partitions = {
            number: PartitionMetadata(leader=leader, leader_epoch=0, replicas=(), isr=())
            for number, leader in LEADERS.items()
        }
        topic = TopicMetadata(
            name="t", topic_id=None, error_code=ErrorCode.none, is_internal=False, partitions=partitions
        )
        self.metadata = ClusterMetadata(nodes={1: Node(node_id=1, host="h", port=1)}, topics={"t": topic})

    def append(self, *partitions: TopicPartition, size: int = 10) -> None:
        for partition in partitions:
            future = asyncio.get_running_loop().create_future()
            self.gathered.append(partition, 5, None, b"x" * size, (), future, 0.0)

    def due(self, now: float, *, immediate: bool = False) -> tuple[dict[int, list[TopicPartition]], bool, float]:
        ready = self.batches.ready(now, self.metadata, immediate=immediate)
        names = {leader: [queue.partition for queue in queues] for leader, queues in ready.by_leader.items()}
        return names, ready.has_leaderless, ready.next_at

    def sent(self, link: Connection, *, most: int = 10) -> list[list[TopicPartition]]:
        """The partitions of each request, which counts as one in flight."""
        found = []
        queues = self.batches.ready(0.0, self.metadata, immediate=True).by_leader.get(1, [])
        for batches in self.batches.requests(link, queues, 0.0, immediate=True):
            link.in_flight += 1
            found.append([batch.partition for batch in batches])
            assert len(found) <= most
        return found


@in_simulation
async def test_partitions_are_due_after_linger_ms_and_grouped_by_leader() -> None:
    made = Scene()
    made.append(T0, T1, T2)
    assert made.due(0.0) == ({}, False, pytest.approx(0.01))
    assert made.due(0.01) == ({1: [T0, T1]}, True, inf)
    assert made.due(0.0, immediate=True)[0] == {1: [T0, T1]}


@in_simulation
async def test_a_request_has_one_batch_of_each_partition_and_the_next_begins_with_others() -> None:
    made = Scene()
    made.append(T0, T0, T1, size=900)
    assert made.sent(Connection()) == [[T0, T1], [T0]]
    assert list(made.gathered.queues) == [T1, T0]


@in_simulation
async def test_requests_end_at_the_limits_of_size_and_of_the_connection() -> None:
    small = Scene(max_request_size=1_000)
    small.append(T0, T1, size=900)
    assert small.sent(Connection()) == [[T0], [T1]]
    busy = Scene(max_in_flight_requests_per_connection=1)
    busy.append(T0, T0, size=900)
    link = Connection()
    assert busy.sent(link) == [[T0]]
    assert busy.sent(link) == []
    assert busy.batches.next_at(link, busy.gathered.queues.values(), 0.0, immediate=True) == inf
    assert not busy.batches.has_capacity(Connection(writable=False))


@in_simulation
async def test_a_partition_with_batches_in_flight_stays_on_its_connection() -> None:
    made = Scene()
    made.append(T0, T0, size=900)
    assert made.sent(Connection(in_flight=4), most=1) == [[T0]]
    assert made.sent(Connection()) == []


@in_simulation
async def test_the_first_batch_of_a_transaction_waits_until_its_partition_is_added() -> None:
    machine = TransactionMachine("x", 60_000)
    machine.step(TransactionEvent.INITIALIZE)
    machine.initialized(None, uses_version_2=False)
    machine.begin(0.0, uses_version_2=False)
    made = Scene(machine)
    made.append(T0)
    assert made.sent(Connection()) == []
    machine.partitions_added(machine.add_partitions())
    assert made.sent(Connection()) == [[T0]]
