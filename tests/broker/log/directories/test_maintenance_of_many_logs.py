"""Periodic work on all logs of a broker yields to other tasks."""

import asyncio
import errno
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.log.checkpoints.meta_properties import CLEAN_SHUTDOWN
from odradek.broker.log.directories.log_manager import LogManager
from odradek.simulation.virtual.disk import Survival
from odradek.simulation.world import World
from tests.world.scenes import played

LOGS = 30
QUICK = {"log_retention_check_interval_ms": 500, "log_cleaner_backoff_ms": 500}


class Turns:
    """Counts the loop's turns, and notes in which of them steps are taken."""

    def __init__(self) -> None:
        self.number = 0
        self.of_steps: list[int] = []
        self.begun = asyncio.Event()

    def _tick(self) -> None:
        self.number += 1
        if len(self.of_steps) < LOGS:
            asyncio.get_running_loop().call_soon(self._tick)

    def noted(self, steps: Iterator[Any]) -> Iterator[Any]:
        self.begun.set()
        self._tick()
        for step in steps:
            self.of_steps.append(self.number)
            yield step


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn is over as soon as anything is done in it."""
    for module in ("turns", "replication.replica_manager"):
        monkeypatch.setattr(f"odradek.broker.{module}.TURN_S", -1.0)


async def begun_maintenance(world: World, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Turns]:
    """A broker with a record in each of its logs, that has just begun to look after them."""
    broker = await world.start(**QUICK)
    client = await world.client()
    await client.create_topic("t", partitions=LOGS, config={"retention.ms": "-1", "flush.ms": "100"})
    for number in range(LOGS):
        assert (await client.produce("t", world.batch(b"a"), partition=number)).error_code == 0
    turns, begin = Turns(), broker.logs.maintenance.begin_in_steps

    def noted(*arguments: Any, **options: Any) -> Any:
        job, steps = begin(*arguments, **options)
        return job, turns.noted(steps)

    monkeypatch.setattr(broker.logs.maintenance, "begin_in_steps", noted)
    await turns.begun.wait()
    return broker, turns


@pytest.mark.usefixtures("short_turns")
@played
async def test_maintenance_of_many_logs_yields_to_other_tasks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, turns = await begun_maintenance(world, monkeypatch)
    while len(turns.of_steps) < LOGS:
        await asyncio.sleep(0)
    assert len(set(turns.of_steps)) > LOGS // 2
    await broker.stop()


@pytest.mark.usefixtures("short_turns")
@played
async def test_a_broker_that_stops_in_the_middle_leaves_its_logs_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, turns = await begun_maintenance(world, monkeypatch)
    disk, epochs = world.runtime.disk, {log.directory: log.epochs.encode() for log in broker.logs.logs.values()}
    await broker.partitions.stop()
    assert 0 < len(turns.of_steps) < LOGS
    broker.logs.close()
    disk.cut_power(Survival.LOSE)
    assert {path: disk.read_file(f"{path}/leader-epoch-checkpoint") for path in epochs} == epochs
    manager = LogManager(disk, ["/data"], broker_id=0, entropy=world.runtime.entropy)
    manager.directories.lock()
    manager.load(world.runtime.clock.now_ms())
    assert manager.were_closed
    assert len(manager) == LOGS
    assert {log.log_end_offset for log in manager.logs.values()} == {1}
    manager.kill()


@pytest.mark.usefixtures("short_turns")
@played
async def test_a_log_directory_with_a_failed_last_sync_has_no_clean_shutdown_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, turns = await begun_maintenance(world, monkeypatch)
    disk = world.runtime.disk
    while not turns.of_steps:
        await asyncio.sleep(0)
    disk.fail_next("sync", errno.EACCES, path_end=".log")
    await broker.partitions.stop()
    assert len([log for log in broker.logs.logs.values() if log.failure is not None]) == 1
    broker.logs.close()
    assert not disk.exists(f"/data/{CLEAN_SHUTDOWN}")


@pytest.mark.usefixtures("short_turns")
@played
async def test_logs_are_measured_for_compaction_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await world.start(**QUICK)
    client = await world.client()
    await client.create_topic("t", partitions=LOGS)
    turns, begin = Turns(), broker.logs.cleaner.begin_in_steps
    monkeypatch.setattr(
        broker.logs.cleaner,
        "begin_in_steps",
        lambda *arguments, **options: turns.noted(begin(*arguments, **options)),
    )
    await turns.begun.wait()
    while len(turns.of_steps) < LOGS:
        await asyncio.sleep(0)
    assert len(set(turns.of_steps)) > LOGS // 2
    await broker.stop()
