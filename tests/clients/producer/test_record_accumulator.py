"""Batches per partition: when they are due, waiting for memory, the order of retries."""

import asyncio
from itertools import takewhile
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients.producer.producer_batch import ProducerBatch, RecordMetadata
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.kernels import LIBRARY, Library
from odradek.model import TopicPartition, UnavailableError
from odradek.protocol.batches import records as record_batches
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import HEADER_SIZE, read_header, verify_crc
from odradek.protocol.batches.records import NewRecord, decode_records, encode_batch
from tests.world.scenes import in_simulation

T0 = TopicPartition("t", 0)
CONTENTS = st.none() | st.binary(max_size=70) | st.integers(60, 9000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=70)), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(st.integers(0, 2**42) | st.integers(0, 9000), CONTENTS, CONTENTS, HEADERS), min_size=1)


def accumulator(*, batch_size: int = 200, linger_ms: int = 10, buffer_memory: int = 10_000) -> RecordAccumulator:
    return RecordAccumulator(batch_size=batch_size, linger_ms=linger_ms, buffer_memory=buffer_memory)


def append(gathered: RecordAccumulator, value: bytes = b"v", *, now: float = 0.0) -> ProducerBatch:
    return gathered.append(T0, 5, None, value, (), asyncio.get_running_loop().create_future(), now)


@in_simulation
async def test_a_batch_is_due_when_it_is_full_after_linger_ms_or_immediately() -> None:
    gathered = accumulator()
    append(gathered, now=1.0)
    queue = gathered.queues[T0]
    assert gathered.due_at(queue, immediate=False) == pytest.approx(1.01)
    assert gathered.due_at(queue, immediate=True) == 1.0
    append(gathered, b"x" * 300, now=1.005)
    assert gathered.due_at(queue, immediate=False) == 1.0


@in_simulation
async def test_a_record_larger_than_a_batch_is_a_batch_alone() -> None:
    gathered = accumulator()
    append(gathered, b"x" * 500)
    append(gathered)
    counts = [batch.count for batch in gathered.queues[T0].waiting]
    assert counts == [1, 1]


@in_simulation
async def test_a_record_is_not_appended_if_it_needs_a_new_batch_and_none_is_allowed() -> None:
    """KIP-480: a sticky partitioner is asked again when a new batch is due."""
    gathered = accumulator()
    first = append(gathered)
    record = 5, None, b"v", (), asyncio.get_running_loop().create_future()
    assert gathered.try_append(gathered.queues[T0], *record) is first
    assert gathered.try_append(gathered.queues[T0], 5, None, b"x" * 300, (), record[-1]) is None
    gathered.drain(gathered.queues[T0])
    assert gathered.try_append(gathered.queues[T0], *record) is None


@pytest.mark.parametrize("library", [LIBRARY, None])
@given(records=RECORDS, limit=st.integers(0, 40_000))
def test_a_batch_knows_its_size_before_it_is_encoded(
    library: Library | None, records: list[NewRecord], limit: int
) -> None:
    batch = ProducerBatch(T0, (1,), 0.0, HEADER_SIZE + limit)
    taken = list(takewhile(lambda record: batch.append(*record, None), records))
    assert taken, "the first record is accepted whatever its size"
    assert len(taken) == 1 or batch.size <= batch.limit
    with patch.object(record_batches, "LIBRARY", library):
        encoded = batch.encode(Codec.NONE)
    assert encoded == encode_batch(taken)
    assert len(encoded) == batch.size
    assert batch.append(*records[0], None) == 0, "the batch is encoded"


@in_simulation
async def test_failed_batches_are_drained_again_in_order_of_creation() -> None:
    gathered = accumulator()
    batches = []
    for _ in range(3):
        append(gathered, b"x" * 300)
        batches.append(gathered.drain(gathered.queues[T0]))
    queue = gathered.queues[T0]
    for batch in (batches[2], batches[0], batches[1]):
        queue.in_flight.remove(batch)
        queue.reenqueue(batch)
    append(gathered, now=5.0)
    taken = []
    while queue.retrying:
        assert gathered.due_at(queue, immediate=True) == 0.0
        taken.append(gathered.drain(queue))
        # One at a time: the next one waits until this one is answered.
        assert gathered.due_at(queue, immediate=True) == (float("inf") if queue.retrying else 5.0)
        queue.in_flight.clear()
    assert taken == batches


@in_simulation
async def test_memory_is_given_to_waiters_in_order() -> None:
    gathered = accumulator(batch_size=100, buffer_memory=1_000)
    for _ in range(2):
        append(gathered, b"x" * 400)
    assert not gathered.has_memory(300)
    loop = asyncio.get_running_loop()
    waiters = [loop.create_future() for _ in range(3)]
    for waiter in waiters:
        gathered.wait_for_memory(400, waiter)
    assert not gathered.has_memory(1)
    waiters[0].cancel()
    batch = gathered.drain(gathered.queues[T0])
    batch.complete(0, -1)
    gathered.deallocate(batch)
    assert [waiter.done() for waiter in waiters] == [True, True, False]
    assert gathered.used_bytes == gathered.queues[T0].waiting[0].size


@in_simulation
async def test_a_record_larger_than_the_buffer_fits_when_it_is_empty() -> None:
    gathered = accumulator(buffer_memory=100)
    assert gathered.has_memory(1_000)
    append(gathered, b"x" * 1_000)
    assert not gathered.has_memory(1)


@in_simulation
async def test_expired_batches_are_removed_from_every_queue() -> None:
    gathered = accumulator()
    queue_of = [append(gathered, b"x" * 300, now=now) for now in (0.0, 1.0, 2.0, 3.0)]
    queue = gathered.queues[T0]
    gathered.drain(queue)
    retried = gathered.drain(queue)
    queue.in_flight.remove(retried)
    queue.reenqueue(retried)
    late = gathered.expired_batches(12.0, 10.0)
    assert late == queue_of[:3]
    assert queue.in_flight == queue_of[:1]
    assert queue.retrying == []
    assert list(queue.waiting) == queue_of[3:]


@in_simulation
async def test_every_future_gets_its_records_offset() -> None:
    gathered = accumulator()
    batch = append(gathered)
    append(gathered)
    batch.complete(40, -1)
    assert [future.result() for future in batch.futures] == [
        RecordMetadata("t", 0, 40, 5),
        RecordMetadata("t", 0, 41, 5),
    ]


@in_simulation
async def test_records_get_the_brokers_timestamp_with_log_append_time() -> None:
    batch = append(accumulator())
    batch.complete(40, 99)
    assert batch.futures[0].result().timestamp == 99


@in_simulation
async def test_an_unretrieved_failure_is_not_reported_by_asyncio() -> None:
    """The sender logs it once a batch; the simulation would raise what asyncio reports."""
    batch = append(accumulator())
    batch.complete_exceptionally(UnavailableError("no"))
    assert batch.is_done


@pytest.mark.parametrize("codec", list(Codec))
@in_simulation
async def test_a_batch_with_a_new_sequence_has_a_valid_checksum(codec: Codec) -> None:
    """A retry under a new epoch changes bytes that are encoded already, checksum and all."""
    batch = append(accumulator(), b"hello")
    batch.reset_producer_state(7, 0, 12)
    batch.encode(codec)
    batch.reset_producer_state(7, 1, 0)
    encoded = batch.encode(codec)
    header = read_header(encoded)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert verify_crc(encoded, 0, header)
    assert decode_records(encoded)[0].value == b"hello"
