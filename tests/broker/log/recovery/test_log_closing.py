"""How a broker closes its logs: on several threads, with the mark of a clean end only where all of it is synced."""

import errno
import random
import uuid
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.log.checkpoints.checkpoint_file import RECOVERY_POINTS, decode_offsets
from odradek.broker.log.checkpoints.meta_properties import CLEAN_SHUTDOWN
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.log_config import LogConfig
from odradek.model import TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import Disk, SystemDisk
from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError
from tests.broker.log import scene
from tests.broker.log.scene import NOW, offsets

BATCHES = 5
SMALL = LogConfig(segment_bytes=200)


opened = partial(scene.opened, config=SMALL)


def t(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def written(disk: Disk, *directories: str, logs: int, max_open_files: int = 512) -> LogManager:
    """So many logs of several segments each, of which the directories have one after the other."""
    manager = opened(disk, *directories, max_open_files=max_open_files)
    for number in range(logs):
        log = manager.get_or_create(t(number), topic_id=None, now_ms=NOW)
        for _ in range(BATCHES):
            log.append_as_leader(encode_batch([(NOW, None, b"x" * 50, ())]), leader_epoch=0, now_ms=NOW)
    return manager


def marked(disk: Disk, *directories: str) -> list[bool]:
    return [disk.exists(f"{directory}/{CLEAN_SHUTDOWN}") for directory in directories]


@pytest.mark.parametrize(("threads", "max_open_files"), [(1, 512), (2, 5), (7, 60)])
def test_several_threads_close_all_logs(tmp_path: Path, threads: int, max_open_files: int) -> None:
    directories = f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/c"
    manager = written(SystemDisk(), *directories, logs=12, max_open_files=max_open_files)
    manager.close(threads=threads)
    assert manager.pool.open_files == 0
    assert marked(SystemDisk(), *directories) == [True] * 3
    manager = opened(SystemDisk(), *directories)
    assert manager.were_closed
    assert list(manager) == sorted(t(number) for number in range(12))
    assert {(len(offsets(log)), log.writer.recovery_point) for log in manager.logs.values()} == {(BATCHES, BATCHES)}
    manager.kill()


def test_a_failing_sync_leaves_its_directory_without_the_mark_and_the_others_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    manager = written(disk, "/a", "/b", logs=6)
    disk.fail_next("sync", errno.EIO, path_end=f"/a/t-2/{0:020d}.log")
    manager.close(threads=2)
    assert marked(disk, "/a", "/b") == [False, True]
    (record,) = caplog.records
    assert record.getMessage().startswith("/a will be recovered at the next start: ")
    manager = opened(disk, "/a", "/b")
    assert not manager.were_closed
    assert {len(offsets(log)) for log in manager.logs.values()} == {BATCHES}, (
        "the process has ended, and not the machine"
    )
    manager.kill()


def test_a_log_that_cannot_be_written_leaves_its_directory_without_the_mark(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    manager = written(disk, "/a", logs=3)
    told: list[None] = []
    for log in manager.logs.values():
        log.set_listeners(on_failure=told.append)
    disk.fail_next("create", errno.EIO, path_end=f"t-1/{BATCHES:020d}.snapshot")
    manager.close()
    assert "/a/t-1 will be recovered at the next start" in caplog.text
    assert marked(disk, "/a") == [False]
    assert not told, "nobody is to be told from a thread, and at the end there is nothing to be done about it"
    path = f"/a/{RECOVERY_POINTS}"
    assert decode_offsets(disk.read_file(path), path) == {t(0): BATCHES, t(1): 0, t(2): BATCHES}
    manager = opened(disk, "/a")
    assert {len(offsets(log)) for log in manager.logs.values()} == {BATCHES}
    manager.kill()


def test_a_crash_during_shutdown_leaves_no_mark_beside_lost_records() -> None:
    probe = MemoryDisk()
    manager = written(probe, "/a", "/b", logs=2)
    before = probe.operations
    manager.close(threads=2)
    outcomes = set()
    for operation in range(before + 1, probe.operations + 1):
        disk = MemoryDisk(random.Random(operation))
        manager = written(disk, "/a", "/b", logs=2)
        disk.cut_power_at(operation)
        with pytest.raises(PowerCutError):
            manager.close(threads=2)
        disk.cut_power()
        has_mark = dict(zip(("/a", "/b"), marked(disk, "/a", "/b"), strict=True))
        outcomes.add(tuple(has_mark.values()))
        manager = opened(disk, "/a", "/b")
        for directory in ("/a", "/b"):
            if has_mark[directory]:
                logs = [log for log in manager.logs.values() if log.directory.startswith(directory)]
                assert [len(offsets(log)) for log in logs] == [BATCHES], f"lost at operation {operation}"
        manager.kill()
    assert outcomes >= {(False, False), (True, False)}, "the directories are sealed one after the other"


def test_the_topic_id_survives_a_power_failure_after_a_clean_shutdown() -> None:
    disk, topic_id = MemoryDisk(), uuid.UUID(int=7)
    manager = opened(disk, "/a")
    log = manager.get_or_create(t(0), topic_id=topic_id, now_ms=NOW)
    log.append_as_leader(encode_batch([(NOW, None, b"x", ())]), leader_epoch=0, now_ms=NOW)
    manager.close()
    disk.cut_power()
    assert opened(disk, "/a").topic_id(t(0)) == topic_id
