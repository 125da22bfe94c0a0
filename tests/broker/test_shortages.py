"""Errors that are not the disk's, and a lack of descriptors, memory or threads: nobody waits for ever or is offline."""

import asyncio
import errno
import importlib
from typing import Any

import pytest

from odradek.broker.log.log_writer import LogWriter
from odradek.broker.replication.partition import Partition
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Play, World
from tests.world.scenes import played

LARGE = 100_000


async def produced(client: WireClient, world: World, *, partition: int = 0, size: int = 10) -> ErrorCode:
    async with asyncio.timeout(10):
        return (await client.produce("t", world.batch(b"a" * size), partition=partition)).error_code


async def values(client: WireClient, world: World, partition: int = 0) -> int:
    return len(world.values((await client.fetch("t", 0, partition=partition)).records))


@played
async def test_a_write_that_finds_no_thread_is_refused_and_the_next_one_taken(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    assert await produced(client, world) == ErrorCode.none
    world.runtime.disk.has_threads = False
    for _ in range(2):
        assert await produced(client, world, size=LARGE) == ErrorCode.kafka_storage_error
    assert await produced(client, world) == ErrorCode.none, "small writes need no thread"
    world.runtime.disk.has_threads = True
    assert await produced(client, world, size=LARGE) == ErrorCode.none
    assert await values(client, world) == 3
    assert broker.partitions.offline_count == 0


@pytest.mark.parametrize("size", [10, LARGE], ids=["on the loop", "on the writer thread"])
@played
async def test_an_unexpected_error_of_a_write_stops_its_partition_and_no_other(world: World, size: int) -> None:
    await world.start()
    client, other = await world.client(), await world.client()
    await client.create_topic("t", partitions=2)
    world.runtime.disk.fail_next("append", KeyError("oh"), path_end="t-0/00000000000000000000.log")
    codes = await asyncio.gather(produced(client, world, size=size), produced(other, world, partition=1, size=size))
    assert codes == [ErrorCode.kafka_storage_error, ErrorCode.none]
    assert await produced(client, world) == ErrorCode.kafka_storage_error
    assert await produced(other, world, partition=1) == ErrorCode.none


@played
async def test_an_error_before_a_write_stops_its_partition_and_no_other_of_that_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = LogWriter._new_write

    def fail(writer: LogWriter) -> object:
        if writer._log.directory.endswith("t-0"):
            raise KeyError("oh")
        return original(writer)

    await world.start()
    client, other = await world.client(), await world.client()
    await client.create_topic("t", partitions=2)
    monkeypatch.setattr(LogWriter, "_new_write", fail)
    codes = await asyncio.gather(produced(client, world), produced(other, world, partition=1))
    assert codes == [ErrorCode.kafka_storage_error, ErrorCode.none]


@pytest.mark.parametrize("size", [10, LARGE], ids=["on the loop", "on the writer thread"])
@played
async def test_an_appender_whose_notification_failed_is_notified_later(
    world: World, monkeypatch: pytest.MonkeyPatch, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    original, errors = Partition.written, [MemoryError()]

    def fail_once(partition: Partition, size: int) -> None:
        if partition.topic_partition.partition == 0 and errors:
            raise errors.pop()
        original(partition, size)

    await world.start()
    client, other = await world.client(), await world.client()
    await client.create_topic("t", partitions=2)
    monkeypatch.setattr(Partition, "written", fail_once)
    codes = await asyncio.gather(produced(client, world, size=size), produced(other, world, partition=1, size=size))
    assert codes == [ErrorCode.none, ErrorCode.none]
    assert not errors
    assert "Failed to notify an appender, retrying" in caplog.text


@pytest.mark.parametrize("size", [10, LARGE], ids=["on the loop", "on the writer thread"])
def test_a_fence_that_cannot_be_checked_acknowledges_nothing_until_it_can(play: Play, size: int) -> None:
    async def scene(world: World) -> None:
        broker = await world.start()
        client = await world.client()
        await client.create_topic("t")
        writer, calls = broker.partitions.write_scheduler, 0
        check = writer._check_fence

        def fail() -> None:
            nonlocal calls
            calls += 1
            raise MemoryError

        writer._check_fence = fail
        waiting = asyncio.ensure_future(produced(client, world, size=size))
        await asyncio.sleep(5)
        assert not waiting.done()
        assert 3 < calls < 10
        writer._check_fence = check
        assert await waiting == ErrorCode.none

    play(scene)


@played
async def test_a_failed_answer_to_one_client_does_not_stop_those_to_others(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    partition = broker.partitions.leader_or_none("t", 0)

    def fail(error: object) -> None:
        raise KeyError("oh")

    partition.when_reached(1, acks=-1, waiter=fail)
    assert await produced(client, world) == ErrorCode.none
    partition.when_reached(2, acks=-1, waiter=fail)
    world.runtime.disk.fail_next("append", KeyError("oh"), path_end=".log")
    assert await produced(client, world) == ErrorCode.kafka_storage_error


@played
async def test_a_sync_that_finds_no_thread_is_done_later(world: World) -> None:
    broker = await world.start(log_flush_offset_checkpoint_interval_ms=1000)
    client = await world.client()
    await client.create_topic("t", config={"segment.bytes": "2000", "retention.ms": "-1"})
    log = broker.partitions.leader_or_none("t", 0).log
    disk = world.runtime.disk
    disk.has_threads = False
    for _ in range(4):
        assert await produced(client, world, size=900) == ErrorCode.none
    await asyncio.sleep(3)
    assert log.writer.recovery_point == 0
    disk.has_threads = True
    await asyncio.sleep(3)
    assert log.writer.recovery_point == log.segments.bases[-1] > 0


@pytest.mark.parametrize(("shortage", "short", "enough"), [("has_threads", False, True), ("most_open_files", 0, None)])
@played
async def test_a_broker_that_meets_a_shortage_stops_cleanly_when_it_is_over(
    world: World, shortage: str, short: object, enough: object
) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t", config={"segment.bytes": "200000"})
    disk = world.runtime.disk
    for number in range(6):
        setattr(disk, shortage, enough if number % 2 else short)
        for size in (900, LARGE):
            await produced(client, world, size=size)
    setattr(disk, shortage, enough)
    async with asyncio.timeout(60):
        await broker.stop()
    again = await world.start()
    assert again.logs.were_closed


@played
async def test_a_directory_is_not_offline_because_it_could_not_be_looked_at(world: World) -> None:
    """A periodic look at its name finds no descriptor: nothing has failed."""
    broker = await world.start(log_flush_offset_checkpoint_interval_ms=1000)
    client = await world.client()
    await client.create_topic("t", config={"retention.ms": "-1"})
    assert await produced(client, world) == ErrorCode.none
    world.runtime.disk.most_open_files = 0
    for _ in range(5):
        await asyncio.sleep(1)
        assert await produced(client, world) == ErrorCode.none
    assert not broker.logs.directories.offline
    world.runtime.disk.most_open_files = None
    await asyncio.sleep(3)
    assert await values(client, world) == 6
    assert not broker.failed.is_set()


def test_a_handler_that_cannot_be_imported_for_lack_of_a_descriptor_is_imported_later(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [
        OSError(errno.EMFILE, "Too many open files", "list_groups.py"),
        ImportError("libz.so: cannot open shared object file: Too many open files"),
    ]
    original = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        if name.endswith(".list_groups") and errors:
            raise errors.pop()
        return original(name, package)

    async def scene(world: World) -> None:
        await world.start()
        monkeypatch.setattr(importlib, "import_module", import_module)
        for _ in range(2):
            client = await world.client()
            with pytest.raises(ConnectionResetError):
                await client.ask(ApiKey.LIST_GROUPS, {"states_filter": []}, 4)
        client = await world.client()
        assert (await client.ask(ApiKey.LIST_GROUPS, {"states_filter": []}, 4)).groups == ()

    caplog.set_level("INFO", "odradek")
    play(scene)
    assert caplog.text.count("LIST_GROUPS version 4: the process can open no more files (ulimit -n)") == 2
    assert not [record for record in caplog.records if record.exc_info]
