"""A broker's data directories: who may use them, what is found again, and what is done from time to time. Row M1."""

import asyncio
import errno
import os
import random
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.log.checkpoints.checkpoint_file import decode_offsets
from odradek.broker.log.directories.deleted_logs import DeletedLogs
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log_config import LogConfig
from odradek.model import StorageError, TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import SystemDisk
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log import scene
from tests.broker.log.scene import NOW, maintain, offsets, prepared_maintenance, write_batches

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC_ID = uuid.UUID(int=9)
SMALL = LogConfig(segment_bytes=200, file_delete_delay_ms=100)


new_manager = partial(scene.new_manager, config=SMALL)
opened = partial(scene.opened, config=SMALL)


def test_logs_are_found_again_after_a_clean_end_and_after_a_crash() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    write_batches(manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW), 5)
    write_batches(manager.get_or_create(T1, topic_id=TOPIC_ID, now_ms=NOW), 3)
    cluster_id = manager.directories.cluster_id
    manager.close()
    assert disk.exists("/data/.kafka_cleanshutdown")
    manager = opened(disk)
    assert not disk.exists("/data/.kafka_cleanshutdown"), "from now on a crash is a crash"
    assert {partition: offsets(log) for partition, log in manager.logs.items()} == {T0: [*range(5)], T1: [*range(3)]}
    assert manager.topic_id(T1) == TOPIC_ID
    assert manager.directories.cluster_id == cluster_id
    write_batches(manager.logs[T0], 2)
    manager.kill()
    manager = opened(disk)
    assert offsets(manager.logs[T0]) == [*range(7)]
    assert (len(manager), list(manager), manager.get(TopicPartition("other", 0))) == (2, [T0, T1], None)


def test_the_error_of_a_second_broker_names_the_process_with_the_lock(tmp_path: Path) -> None:
    """M1: a data directory has one broker."""
    manager = opened(SystemDisk(), f"{tmp_path}/data")
    program = (
        "import random, sys; from odradek.broker.log.directories.log_manager import LogManager\n"
        "from odradek.runtime import SystemDisk\n"
        "LogManager(SystemDisk(), [sys.argv[1]], broker_id=1, entropy=random.Random()).open(0)"
    )
    command = [sys.executable, "-c", program, f"{tmp_path}/data"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"the data directory {tmp_path}/data is in use by process {os.getpid()} (odradek serve)" in refused.stderr
    manager.close()
    subprocess.run(command, check=True)


def test_a_locked_directory_leaves_the_others_unlocked() -> None:
    disk = MemoryDisk()

    def of_one_cluster(*directories: str) -> LogManager:
        manager = new_manager(disk, *directories, cluster_id="c")
        manager.open(NOW)
        return manager

    first = of_one_cluster("/b")
    second = new_manager(disk, "/a", "/b")
    with pytest.raises(StorageError, match="/b is in use by process 1"):
        second.open(NOW)
    second.close()
    third = of_one_cluster("/a")
    third.kill()
    first.kill()
    of_one_cluster("/a", "/b")


def test_a_directory_of_another_broker_or_cluster_is_refused() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    cluster_id = manager.directories.cluster_id
    manager.close()
    with pytest.raises(StorageError, match="belongs to broker 1, and this is broker 2"):
        new_manager(disk, broker_id=2).open(NOW)
    with pytest.raises(StorageError, match=f"is of cluster {cluster_id}, and this is another"):
        new_manager(disk, cluster_id="another").open(NOW)
    again = new_manager(disk)
    again.directories.lock()
    assert again.directories.cluster_id == cluster_id
    again.load(NOW)


def test_a_new_log_is_created_in_the_directory_with_the_fewest() -> None:
    disk = MemoryDisk()
    manager = opened(disk, "/a", "/b")
    for number in range(5):
        manager.get_or_create(TopicPartition("t", number), topic_id=None, now_ms=NOW)
    assert [len([n for n in disk.list(d) if n.startswith("t-")]) for d in ("/a", "/b")] == [3, 2]
    manager.close()
    manager = opened(disk, "/a", "/b")
    assert len(manager) == 5


def test_a_deleted_log_is_renamed_at_once_and_removed_later() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    write_batches(manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW), 9)
    manager.delete(T0, NOW)
    manager.delete(T0, NOW)
    assert manager.get(T0) is None
    assert manager.topic_id(T0) is None
    (folder,) = [name for name in disk.list("/data") if name.startswith("t-0")]
    assert folder.startswith("t-0.")
    assert folder.endswith("-delete")
    write_batches(manager.get_or_create(T0, topic_id=uuid.UUID(int=10), now_ms=NOW))
    maintain(manager, NOW + 99)
    assert disk.exists(f"/data/{folder}")
    maintain(manager, NOW + 100)
    assert not disk.exists(f"/data/{folder}")
    assert offsets(manager.logs[T0]) == [0]
    manager.delete(T0, NOW)
    manager.kill()
    assert opened(disk).get(T0) is None
    assert not [name for name in disk.list("/data") if name.endswith("-delete")], "a start removes what is left"


def test_a_log_is_put_aside_although_its_new_name_could_not_be_synced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Syncing a directory needs a descriptor. The log may be made anew all the same."""
    disk = MemoryDisk()
    failures = [OSError(errno.EMFILE, "Too many open files")]
    sync_directory = disk.sync_directory

    def fail_once(path: str) -> None:
        if failures and path == "/data":
            raise failures.pop()
        sync_directory(path)

    manager = new_manager(disk)
    manager.directories.lock()
    manager.load(NOW)
    manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW)
    monkeypatch.setattr(disk, "sync_directory", fail_once)
    manager.rename_to_stray(T0, "of another topic")
    manager.get_or_create(T0, topic_id=uuid.UUID(int=10), now_ms=NOW)
    ((aside, (partition, topic_id)),) = manager.deleted.strays.items()
    assert (partition, topic_id) == (T0, TOPIC_ID)
    assert disk.exists(aside)
    assert disk.exists("/data/t-0")
    assert "A power failure may undo" in caplog.text


@pytest.mark.parametrize("is_deleted", [True, False])
def test_the_topic_id_of_a_stray_log_survives_a_power_cut(is_deleted: bool) -> None:
    """The id was written before a crash and is not synced; without it no note applies to the folder."""
    disk = MemoryDisk()
    opened(disk).get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW)
    disk.kill()
    manager = opened(disk)
    if is_deleted:
        manager.delete(T0, NOW, is_stray=True)
        manager.deleted.sync()
    else:
        manager.rename_to_stray(T0, "of another topic")
    disk.cut_power(Survival.LOSE)
    assert list(opened(disk).deleted.strays.values()) == [(T0, TOPIC_ID)]


def test_a_clock_that_is_set_back_keeps_no_deleted_log_longer() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    write_batches(manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW))
    maintain(manager, NOW)
    manager.delete(T0, NOW)
    maintain(manager, NOW - 3_600_000)
    (folder,) = [name for name in disk.list("/data") if name.startswith("t-0")]
    maintain(manager, NOW - 3_600_000 + 100)
    assert not disk.exists(f"/data/{folder}")


def test_a_new_log_does_not_inherit_the_checkpoints_of_a_deleted_one() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    write_batches(manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW), 9)
    manager.logs[T0].flush()
    manager.logs[T0].advance_log_start_offset(6)
    manager.checkpoints.write_all()
    manager.delete(T0, NOW)
    manager.kill()
    manager = opened(disk)
    manager.accept_lost_records(T0)  # as the metadata say that it was deleted
    write_batches(manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW), 4)
    manager.kill()
    manager = opened(disk)
    assert (manager.logs[T0].writer.recovery_point, offsets(manager.logs[T0])) == (0, [0, 1, 2, 3])


def test_maintenance_retains_syncs_and_checkpoints() -> None:
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=300, retention_bytes=600, file_delete_delay_ms=100)
    manager = scene.new_manager(disk, config=config)
    manager.open(NOW)
    log = manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW)
    write_batches(log, 20)
    job = prepared_maintenance(manager, NOW)
    assert not job.is_empty
    assert manager.maintenance.begin_in_steps(NOW, high_watermark={}.get) is None, "one at a time"
    write_batches(log, 2)
    job.run()
    manager.maintenance.finish(job)
    assert log.log_start_offset > 0
    assert log.writer.recovery_point > 10
    log.advance_log_start_offset(log.log_start_offset + 1)
    deleted = [name for name in disk.list("/data/t-0") if name.endswith(".deleted")]
    assert deleted
    maintain(manager, NOW + 100)
    assert not set(deleted) & set(disk.list("/data/t-0"))
    start, point = log.log_start_offset, log.writer.recovery_point
    disk.cut_power(Survival.LOSE)
    log = opened(disk).logs[T0]
    assert log.log_start_offset == start
    assert log.writer.recovery_point >= point
    assert offsets(log) == [*range(start, log.log_end_offset)]


def test_maintenance_continues_when_logs_are_created_and_deleted() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    logs = [manager.get_or_create(TopicPartition("t", number), topic_id=None, now_ms=NOW) for number in range(4)]
    for log in logs:
        write_batches(log, 10)
    asked: list[TopicPartition] = []

    def high_watermark(partition: TopicPartition) -> int:
        asked.append(partition)
        return 10

    begun = manager.maintenance.begin_in_steps(NOW, high_watermark=high_watermark)
    assert begun is not None
    job, steps = begun
    next(steps)
    manager.delete(T0, NOW)
    manager.delete(T1, NOW)
    manager.get_or_create(T1, topic_id=None, now_ms=NOW)
    manager.get_or_create(TopicPartition("t", 9), topic_id=None, now_ms=NOW)
    assert len(list(steps)) == 3
    assert asked == [T0, TopicPartition("t", 2), TopicPartition("t", 3)], "what came meanwhile has its turn next time"
    assert [log for log, _ in job.flushes] == [logs[0], logs[2], logs[3]]
    job.run()
    assert manager.maintenance.finish(job) is not None
    assert logs[2].writer.recovery_point > 0
    manager.kill()


def test_maintenance_goes_on_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    write_batches(log, 10)

    def fail(self: DeletedLogs, now_ms: int) -> list[str]:
        raise AssertionError("as if by a mistake")

    with monkeypatch.context() as patch:
        patch.setattr(DeletedLogs, "take_due", fail)
        maintain(manager, NOW)
    assert log.writer.recovery_point > 0, "the flushes that had begun are done"
    manager.delete(T0, NOW)
    maintain(manager, NOW + 60_000)
    assert not [name for name in disk.list("/data") if name.startswith("t-0")]
    manager.kill()


def test_checkpoints_are_lowered_before_each_truncation() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    write_batches(log, 5)
    maintain(manager, NOW)
    assert log.writer.recovery_point == 4
    for offset in (3, 1):
        manager.truncate_to(T0, offset)
        written = decode_offsets(disk.read_file("/data/recovery-point-offset-checkpoint"), "x")
        assert written[T0] <= log.writer.recovery_point
        assert log.writer.recovery_point <= offset


def test_a_log_truncated_below_its_start_is_empty() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    write_batches(log, 8)
    log.advance_log_start_offset(6)
    manager.checkpoints.write_all()
    manager.truncate_to(T0, 4)
    assert log.log_start_offset == log.log_end_offset == 4
    write_batches(log, 2)
    assert offsets(log) == [4, 5]
    disk.cut_power(Survival.KEEP)
    assert offsets(opened(disk).logs[T0]) == [4, 5]


def test_maintenance_keeps_uncommitted_records() -> None:
    config = LogConfig(segment_bytes=200, retention_ms=0)
    manager = scene.new_manager(MemoryDisk(), config=config)
    manager.open(NOW)
    write_batches(manager.get_or_create(T0, topic_id=None, now_ms=NOW), 10)
    maintain(manager, NOW + 5000, high_watermarks={T0: 4})
    assert manager.logs[T0].log_start_offset == 4


def test_flush_ms_bounds_how_long_records_wait_for_a_sync() -> None:
    disk = MemoryDisk()
    config = LogConfig(flush_ms=1000)
    manager = scene.new_manager(disk, config=config)
    manager.open(NOW)
    write_batches(manager.get_or_create(T0, topic_id=None, now_ms=NOW), 3)
    maintain(manager, NOW + 999)
    assert manager.logs[T0].writer.synced_offset == 0
    maintain(manager, NOW + 1000)
    assert manager.logs[T0].writer.synced_offset == 3
    disk.cut_power(Survival.LOSE)
    assert offsets(opened(disk).logs[T0]) == [0, 1, 2]


def test_one_failing_log_does_not_stop_the_others() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    for partition in (T0, T1):
        write_batches(manager.get_or_create(partition, topic_id=None, now_ms=NOW), 5)
    disk.fail_next("sync", errno.EACCES, path_end="t-0/00000000000000000000.log")
    maintain(manager, NOW)
    assert manager.logs[T0].failure is not None
    assert manager.logs[T1].failure is None
    assert manager.logs[T1].writer.recovery_point > 0
    with pytest.raises(LogStorageError):
        write_batches(manager.logs[T0])
    write_batches(manager.logs[T1])
    maintain(manager, NOW)
    manager.close()
    assert not disk.exists("/data/.kafka_cleanshutdown"), "the next start recovers"
    manager = opened(disk)
    assert [len(offsets(manager.logs[partition])) for partition in (T0, T1)] == [5, 6]


def test_damaged_checkpoints_and_unknown_files_lose_no_records() -> None:
    disk = MemoryDisk()
    manager = opened(disk)
    write_batches(manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW), 5)
    manager.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "t-0/partition.metadata"):
        disk.replace_file(f"/data/{name}", b"nonsense")
    disk.replace_file("/data/notes.txt", b"left alone")
    disk.make_directories("/data/not-a-partition")
    manager = opened(disk)
    assert offsets(manager.logs[T0]) == [*range(5)]
    assert manager.topic_id(T0) is None
    manager.get_or_create(T0, topic_id=TOPIC_ID, now_ms=NOW)
    assert manager.topic_id(T0) == TOPIC_ID
    assert disk.read_file("/data/notes.txt") == b"left alone"


def test_a_topic_configuration_applies_to_its_logs_when_it_changes() -> None:
    configs = {"t": LogConfig(max_message_bytes=1000), "u": LogConfig()}
    manager = scene.new_manager(MemoryDisk(), config_for=configs.__getitem__)
    manager.open(NOW)
    log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    other = manager.get_or_create(TopicPartition("u", 0), topic_id=None, now_ms=NOW)
    assert log.config.max_message_bytes == 1000
    configs["t"] = LogConfig(max_message_bytes=5)
    for number in (0, 7):
        manager.update_config(TopicPartition("t", number))
    assert log.config.max_message_bytes == 5
    assert other.config is configs["u"]


def test_jobs_run_in_a_loop_while_appends_go_on() -> None:
    async def main() -> list[int]:
        disk = MemoryDisk(random.Random(4))
        disk.delay_s = (0.0, 0.002)
        manager = opened(disk)
        log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
        for number in range(30):
            log.append_as_leader(encode_batch([(NOW, None, b"x" * 50, ())]), leader_epoch=0, now_ms=NOW)
            job = log.writer.begin_write()
            if job is not None:
                done = disk.submit(job.run)
                log.append_as_leader(encode_batch([(NOW, None, b"y" * 50, ())]), leader_epoch=0, now_ms=NOW)
                await done
                log.writer.finish_write(job)
            maintenance = prepared_maintenance(manager, NOW + number)
            await disk.submit(maintenance.run, background=True)
            manager.maintenance.finish(maintenance)
        log.write()
        manager.close()
        return offsets(opened(disk).logs[T0])

    assert asyncio.run(main()) == list(range(60))


def test_many_logs_fit_into_few_descriptors(tmp_path: Path) -> None:
    disk = SystemDisk()
    manager = scene.new_manager(disk, f"{tmp_path}", max_open_files=16)
    manager.open(NOW)
    before = len(os.listdir("/proc/self/fd"))
    logs = [manager.get_or_create(TopicPartition("t", number), topic_id=TOPIC_ID, now_ms=NOW) for number in range(60)]
    for log in logs * 2:
        write_batches(log)
    assert len(os.listdir("/proc/self/fd")) <= before + 17
    manager.close()
    manager = scene.new_manager(disk, f"{tmp_path}", max_open_files=16)
    manager.open(NOW)
    assert all(offsets(log) == [0, 1] for log in manager.logs.values())
    assert len(manager) == 60
    manager.kill()
    assert len(os.listdir("/proc/self/fd")) <= before
