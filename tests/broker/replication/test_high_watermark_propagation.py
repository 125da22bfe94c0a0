"""A leader sends each high watermark once in a session, and followers take it from any response (KIP-227)."""

import asyncio

from odradek.broker.log.checkpoints.checkpoint_file import LOG_START_OFFSETS
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.simulation.world import World, until
from tests.world.scenes import in_world
from tests.world.topics import T0, fill


@in_world(seed=1, brokers=2)
async def test_a_follower_whose_log_start_moves_during_a_fetch_accepts_the_response(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=1, replication_factor=2)
    await until(lambda: any(T0 in broker.partitions.followers for broker in world.running.values()))
    await fill(world, 10)
    (log,) = [broker.logs.logs[T0] for broker in world.running.values() if T0 in broker.partitions.followers]
    await until(lambda: log.high_watermark == 10)
    await fill(world, 1)
    assert (log.written_offset, log.high_watermark) == (11, 10)
    log.advance_log_start_offset(5)  # as its own retention does
    await until(lambda: log.high_watermark == 11)


@in_world(seed=1, brokers=2)
async def test_a_high_watermark_is_taken_from_a_response_with_known_records(world: World) -> None:
    """A fetch that overtakes another one may be answered with the same records, and with more of them committed."""
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=1, replication_factor=2)
    await until(lambda: any(T0 in broker.partitions.followers for broker in world.running.values()))
    await fill(world, 10)
    (follower,) = [each for broker in world.running.values() for each in broker.partitions.followers.values()]
    await until(lambda: follower.log.high_watermark == 10)
    asked = follower.position._replace(offset=10)
    await fill(world, 1)
    assert (follower.log.written_offset, follower.log.high_watermark) == (11, 10)
    answer = FetchedPartition(0, high_watermark=11, log_start_offset=3)
    follower.update_high_watermark(asked._replace(leader_epoch=asked.leader_epoch - 1), answer)
    assert follower.log.high_watermark == 10, "another leader may have said that"
    follower.update_high_watermark(asked, answer)
    assert (follower.log.high_watermark, follower.log.log_start_offset) == (11, 3)
    follower.update_high_watermark(asked, answer._replace(high_watermark=10, log_start_offset=0))
    assert (follower.log.high_watermark, follower.log.log_start_offset) == (11, 3)


@in_world(seed=1, brokers=2)
async def test_a_log_start_offset_is_on_the_disk_before_the_next_fetch_reports_it(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t", partitions=1, replication_factor=2)
    await until(lambda: any(T0 in broker.partitions.followers for broker in world.running.values()))
    await fill(world, 10)
    (broker,) = [each for each in world.running.values() if T0 in each.partitions.followers]
    follower = broker.partitions.followers[T0]
    await until(lambda: follower.log.high_watermark == 10)
    follower.append_fetched(FetchedPartition(0, high_watermark=10, log_start_offset=3), 0)
    await follower.settle()
    assert b"\nt 0 3\n" in broker.runtime.disk.read_file(f"{broker.config.log_dirs[0]}/{LOG_START_OFFSETS}")


@in_world(seed=1, brokers=2)
async def test_list_offsets_waits_until_a_new_leader_knows_the_high_watermark(world: World) -> None:
    """The leader is alone, and two members must have a record to commit it.

    The last leader's high watermark may be higher (KIP-207).
    """
    async with world.admin() as admin:
        settings = {"min.insync.replicas": "2"}
        await admin.create_topic("t", partitions=1, replication_factor=2, configs=settings)
        await until(lambda: any(T0 in broker.partitions.followers for broker in world.running.values()))
        await fill(world, 10)
        (leader,) = [number for number, broker in world.running.items() if broker.partitions.get(T0)]
        other = 1 - leader
        log = world.running[other].logs.logs[T0]
        await until(lambda: log.high_watermark == 10)
        await fill(world, 1)
        assert log.high_watermark == 10
        await world.kill(leader)
        await until(lambda: world.running[other].partitions.get(T0) is not None)
    async with world.consumer("reader") as reader:
        asking = asyncio.ensure_future(reader.end_offsets([T0]))
        await asyncio.sleep(5)
        assert not asking.done(), "all that it knows to be committed is less than somebody may have read"
        await world.start(leader)
        assert await asking == {T0: 11}
