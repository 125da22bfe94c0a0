"""The fast path of Produce answers as the full path does, and leaves to it what it does not know."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.handlers.produce_fast_path import ProduceFastPath
from odradek.broker.log.batch_contents import InvalidRecordsError
from odradek.broker.log.validation import UncheckedBatchError
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec, compress
from odradek.protocol.batches.record_batch import HEADER_SIZE, read_header, write_header
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.world import World
from tests.world.scenes import played


def fast_path(broker: Any) -> ProduceFastPath:
    """That of the only connection."""
    ((_, session),) = broker.server._connections.items()
    assert isinstance(session.fast_path, ProduceFastPath)
    return session.fast_path


@pytest.mark.parametrize("version", range(7, 14))
@pytest.mark.parametrize("acks", [1, -1])
@played
async def test_the_fast_path_and_the_full_path_answer_with_the_same_bytes(
    world: World, version: int, acks: int
) -> None:
    broker = await world.start()
    client = await world.client()
    created = await client.create_topic("t" * 130, partitions=3)
    topic = created.topic_id if version >= 13 else "t" * 130

    async def ask(partition: int) -> bytes:
        client.send_produce(topic, world.batch(b"x" * 200), partition=partition, version=version, acks=acks)
        return await client.receive()

    long_answers = [await ask(partition) for partition in range(3)]
    known, taken = fast_path(broker), []

    def watched(frame: memoryview) -> Any:
        taken.append(known(frame))
        return taken[-1]

    ((_, session),) = broker.server._connections.items()
    session.fast_path = watched
    short_answers = [await ask(partition) for partition in range(3)]
    assert len(taken) == 3
    assert None not in taken
    for number, (long, short_answer) in enumerate(zip(long_answers, short_answers, strict=True)):
        place = long.index(bytes([0, 0, 0, number, 0, 0]) + bytes(8)) + 13
        assert (long[place], short_answer[place]) == (0, 1)
        expected = bytearray(long)
        expected[place] = 1
        assert bytes(expected[4:]) == short_answer[4:]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Stop the garbage collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@played
async def test_the_fast_path_of_a_closed_connection_leaves_nothing_to_the_garbage_collector(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    for _ in range(2):
        assert (await client.produce("t", world.batch(b"a"))).error_code == 0
    assert fast_path(broker)
    client.close()
    await asyncio.sleep(1)
    assert not any(type(each) is ProduceFastPath for each in gc.get_objects())


@pytest.mark.usefixtures("uncollected")
@played
async def test_a_refused_batch_of_many_bytes_leaves_nothing_to_the_garbage_collector(world: World) -> None:
    """A few bytes may be many when they are decompressed, and the collector counts objects."""
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    zeros = compress(Codec.ZSTD, bytes(5 << 20))
    batch = bytearray(HEADER_SIZE) + zeros
    good = read_header(encode_batch([(0, None, b"v", ())]))
    write_header(batch, good._replace(attributes=Codec.ZSTD))
    refused = await client.produce("t", batch, version=7)
    assert refused.error_code == ErrorCode.invalid_record
    await asyncio.sleep(1)
    kept = [each for each in gc.get_objects() if type(each) in (UncheckedBatchError, InvalidRecordsError)]
    assert not kept


@played
async def test_an_error_on_the_fast_path_is_answered_as_on_the_full_path(world: World) -> None:
    await world.start()
    client, admin = await world.client(), await world.client()
    await admin.create_topic("t", config={"max.message.bytes": "1000"})
    for _ in range(3):
        assert (await client.produce("t", world.batch(b"a"))).error_code == 0
    assert (await client.produce("t", world.batch(b"x" * 2000))).error_code == ErrorCode.message_too_large
    spoiled = world.batch(b"a")
    spoiled[-1] ^= 1
    assert (await client.produce("t", spoiled)).error_code == ErrorCode.corrupt_message
    assert (await client.produce("t", b"")).error_code == ErrorCode.invalid_record
    assert (await client.produce("t", None)).error_code == ErrorCode.invalid_record
    assert (await client.produce("t", world.batch(b"a"))).base_offset == 3
    await admin.ask(ApiKey.DELETE_TOPICS, {"topic_names": ["t"], "timeout": 1000}, 5)
    assert (await client.produce("t", world.batch(b"a"))).error_code == ErrorCode.unknown_topic_or_partition
    await admin.create_topic("t")
    for offset in range(3):
        assert (await client.produce("t", world.batch(b"a"))).base_offset == offset


@played
async def test_a_failed_disk_is_reported_on_the_fast_path(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    for _ in range(2):
        assert (await client.produce("t", world.batch(b"a"))).error_code == 0
    world.runtime.disk.capacity_bytes = 0
    refused = await client.produce("t", world.batch(b"a"))
    assert refused.error_code == ErrorCode.kafka_storage_error
    assert refused.error_message
    world.runtime.disk.capacity_bytes = None
    assert (await client.produce("t", world.batch(b"a"))).base_offset == 2


@played
async def test_requests_with_many_prefix_lengths_are_served_without_the_fast_path(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    names = ["t" * length for length in range(1, 8)]
    for name in names:
        await client.create_topic(name)
    for offset in range(3):
        for name in names:
            assert (await client.produce(name, world.batch(b"a"))).base_offset == offset
    assert len(fast_path(broker)._ends) <= 4


@played
async def test_responses_for_many_partitions_keep_the_order_of_requests(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=10)
    for offset in range(5):
        for partition in range(10):
            client.send_produce("t", world.batch(b"a" * (100_000 if partition == 3 else 10)), partition=partition)
        for partition in range(10):
            answer = (await client.produce_response()).topics[0].partitions[0]
            assert (answer.partition, answer.base_offset) == (partition, offset)
