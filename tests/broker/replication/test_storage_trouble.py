"""Writes that the disk refuses are never acknowledged; the rest of the broker continues."""

import asyncio
import errno
import re

import pytest

from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import played


async def answers(client: WireClient, count: int) -> list[tuple[int, int]]:
    found = []
    for _ in range(count):
        partition = (await client.produce_response()).topics[0].partitions[0]
        found.append((partition.error_code, partition.base_offset))
    return found


@pytest.mark.parametrize("size", [10, 100_000], ids=["on the loop", "on the writer thread"])
@played
async def test_a_full_disk_refuses_and_takes_again_when_there_is_room(world: World, size: int) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    assert (await client.produce("t", world.batch(b"a" * size))).error_code == 0
    disk = world.runtime.disk
    disk.capacity_bytes = disk.used_bytes() + 5
    for _ in range(3):
        client.send_produce("t", world.batch(b"b" * size))
    refused = await answers(client, 3)
    assert {error for error, _ in refused} == {ErrorCode.kafka_storage_error}
    assert [len(value or b"") for value in world.values((await client.fetch("t", 0)).records)] == [size]
    disk.capacity_bytes = None
    assert (await client.produce("t", world.batch(b"c" * size))).base_offset == 1
    assert [(value or b"")[:1] for value in world.values((await client.fetch("t", 0)).records)] == [b"a", b"c"]


@played
async def test_a_full_disk_is_one_line_of_the_log_however_many_writes_it_refuses(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=3)
    outages, disk = broker.partitions.write_scheduler.full_disks, world.runtime.disk
    caplog.clear()
    caplog.set_level("INFO", "odradek")
    for _ in range(2):
        disk.capacity_bytes = disk.used_bytes() + 100
        for number in range(30):
            refused = await client.produce("t", world.batch(b"b" * 500), partition=number % 3)
            assert refused.error_code == ErrorCode.kafka_storage_error
            assert len(outages.sentences()) == 1
        disk.capacity_bytes = None
        assert (await client.produce("t", world.batch(b"c"))).error_code == 0
        assert outages, "so soon after a refusal it may be a small one that fits"
        await asyncio.sleep(10)
        assert (await client.produce("t", world.batch(b"c"))).error_code == 0
        assert not outages
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4, told
    assert "has no space for writes" in told[0]
    assert re.search(r"has space for writes again: [1-9]\d* writes failed in \d+ s", told[1])


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@played
async def test_a_failed_write_stops_that_partition_and_a_failed_disk_all_of_its_directory(
    world: World, number: int
) -> None:
    """The partition has no leader then, as in Kafka: a failed disk is not read from."""
    broker = await world.start(log_dirs=("/a", "/b"))
    client = await world.client()
    await client.create_topic("t", partitions=4)
    for partition in range(4):
        assert (await client.produce("t", world.batch(b"a"), partition=partition)).error_code == 0
    assert broker.logs.logs["t", 2].directory == "/a/t-2"
    world.runtime.disk.fail_next("append", number, path_end="t-0/00000000000000000000.log")
    for _ in range(2):
        refused = await client.produce("t", world.batch(b"b"))
        assert refused.error_code == ErrorCode.kafka_storage_error
        assert refused.error_message
    dead = [0] if number == errno.EACCES else [0, 2]
    topic = lambda: broker.image.topics["t"]  # noqa: E731
    await broker.metadata_loop.view.wait_until(lambda: not any(topic().partitions[each].has_leader for each in dead))
    for partition in range(4):
        fetched = await client.fetch("t", 0, partition=partition)
        written = await client.produce("t", world.batch(b"c"), partition=partition)
        expected = ErrorCode.kafka_storage_error if partition in dead else ErrorCode.none
        assert (fetched.error_code, written.error_code) == (expected, expected), partition
    told = {
        each.log_dir: each.error_code
        for each in (await client.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, 4)).results
    }
    assert told == {"/a": expected_of(number), "/b": ErrorCode.none}
    assert not broker.failed.is_set()


def expected_of(number: int) -> ErrorCode:
    """Return the log line about a directory with such a failure."""
    return ErrorCode.none if number == errno.EACCES else ErrorCode.kafka_storage_error


@played
async def test_a_broker_whose_last_directory_failed_reports_that_it_cannot_continue(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await world.start(log_dirs=("/a", "/b"))
    client = await world.client()
    await client.create_topic("t", partitions=2)
    for partition in range(2):
        world.runtime.disk.fail_next("append", errno.EIO, path_end=f"t-{partition}/00000000000000000000.log")
    assert (await client.produce("t", world.batch(b"a"))).error_code == ErrorCode.kafka_storage_error
    await asyncio.sleep(1)
    assert not broker.failed.is_set()
    assert (await client.produce("t", world.batch(b"a"), partition=1)).error_code == ErrorCode.kafka_storage_error
    await broker.failed.wait()
    assert len(broker.logs.directories.offline) == 2
    for directory in ("/a", "/b"):
        assert caplog.text.count(f"the data directory {directory} has failed: ") == 1


@played
async def test_without_acks_a_write_that_fails_costs_the_connection(world: World) -> None:
    await world.start()
    client = await world.client()
    await client.create_topic("t")
    world.runtime.disk.fail_next("append", errno.EIO, path_end=".log")
    client.send_produce("t", world.batch(b"a"), acks=0)
    assert await client.receive() is None


@played
async def test_a_partition_whose_log_can_not_be_made_is_offline_and_the_others_serve(world: World) -> None:
    await world.start()
    client = await world.client()
    world.runtime.disk.fail_next("create", errno.EACCES, path_end="t-0/00000000000000000000.log", count=100)
    await client.create_topic("t", partitions=2)
    assert (await client.produce("t", world.batch(b"a"))).error_code == ErrorCode.kafka_storage_error
    assert (await client.produce("t", world.batch(b"a"), partition=1)).error_code == 0


@pytest.mark.parametrize("room", range(0, 260, 20))
@played
async def test_a_partition_for_which_there_was_no_room_is_served_as_soon_as_there_is_some(
    world: World, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("before")
    assert (await client.produce("before", world.batch(b"a"))).error_code == 0
    disk = world.runtime.disk
    disk.capacity_bytes = disk.used_bytes() + room
    await client.create_topic("t", partitions=3)
    await asyncio.sleep(60)
    offline = broker.partitions.offline_count
    caplog.set_level("INFO", "odradek")
    assert sum("is offline: " in each.getMessage() for each in caplog.records) == offline, "once for each"
    disk.capacity_bytes = None
    await asyncio.sleep(10)
    assert broker.partitions.offline_count == 0
    for number in range(3):
        assert (await client.produce("t", world.batch(b"b"), partition=number)).error_code == 0
    await broker.stop()
    await world.start()
    client = await world.client()
    for number in range(3):
        assert world.values((await client.fetch("t", 0, partition=number)).records) == [b"b"]


@played
async def test_with_group_flushing_what_is_acknowledged_survives_a_power_cut(world: World) -> None:
    broker = await world.start(log_flush_mode="group")
    client = await world.client()
    await client.create_topic("t")
    acknowledged = 0
    for number in range(20):
        assert (await client.produce("t", world.batch(b"%d" % number))).error_code == 0
        acknowledged += 1
    client.send_produce("t", world.batch(b"unacknowledged"))
    broker.kill()
    broker.store.abandon()
    world.tree.expire(broker.store.session_id)
    world.runtime.disk.cut_power()
    await world.start()
    client = await world.client()
    kept = world.values((await client.fetch("t", 0)).records)
    assert kept[:acknowledged] == [b"%d" % number for number in range(acknowledged)]


@played
async def test_many_partitions_are_opened_while_clients_are_served(world: World) -> None:
    broker = await world.start()
    client, other = await world.client(), await world.client()
    await other.create_topic("t")
    creation = asyncio.create_task(client.create_topic("many", partitions=50))
    while not creation.done():
        assert (await other.produce("t", world.batch(b"a"))).error_code == 0
    assert all(broker.partitions.leader_or_none("many", number) for number in range(50))


@played
async def test_a_segment_is_synced_when_the_next_one_begins(world: World) -> None:
    """M1: not a minute later, when maintenance comes by: compaction and recovery go by what is synced."""
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t", config={"segment.bytes": "2000"})
    log = broker.partitions.leader_or_none("t", 0).log
    for _ in range(3):
        assert (await client.produce("t", world.batch(b"a" * 900))).error_code == 0
    await broker.partitions.write_scheduler.drain()
    assert log.segments.bases == [0, 2]
    assert log.writer.recovery_point == log.writer.synced_offset == 2
