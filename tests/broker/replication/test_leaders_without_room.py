"""The disk of a leader has no room for a new segment after retention took all others (M1)."""

import asyncio

import pytest

from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import create, image, write

CONFIG = {
    "log.segment.bytes": "1000",
    "log.retention.ms": "5000",
    "log.retention.check.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
TIMES = 60
OUT_OF_RANGE = (ApiKey.FETCH, ErrorCode.offset_out_of_range)


@pytest.mark.parametrize("seed", range(2))
@in_world(CONFIG, brokers=2)
async def test_followers_of_a_leader_without_room_fetch_at_most_every_second_until_there_is_room(world: World) -> None:
    """It refuses the offset at which its log ends, which is in the range that it names."""
    await create(world, "t", partitions=1, replicas=2)
    leader = image(world, TopicPartition("t", 0)).leader
    await write(world, "t", 0, bytes(600), bytes(600), bytes(600))
    disk = world.simulation.disk(world.hosts[leader])
    disk.capacity_bytes = disk.used_bytes()
    log = world.running[leader].logs.logs[TopicPartition("t", 0)]
    await until(lambda: log.log_start_offset == log.log_end_offset)
    disk.capacity_bytes = 0
    async with world.producer("writer", delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        with pytest.raises((KafkaError, UnavailableError, TimeoutError)):
            await (await producer.send("t", b"no room", partition=0))
    refused = world.running[leader].counters.errors
    before = refused.get(OUT_OF_RANGE, 0)
    await asyncio.sleep(TIMES)
    assert 0 < refused.get(OUT_OF_RANGE, 0) - before <= 2 * TIMES
    disk.capacity_bytes = None
    await write(world, "t", 0, b"at last")
    assert {len(broker.logs.logs) for broker in world.running.values()} == {1}
