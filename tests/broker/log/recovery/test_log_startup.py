"""How a broker opens its logs: several at a time, with lines that say how far it is, and despite what is damaged."""

import logging
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from odradek.broker.log.checkpoints.checkpoint_file import decode_offsets
from odradek.broker.log.directories.loading_progress import LoadingStoppedError
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.model import StorageError, TopicPartition
from odradek.protocol.batches.record_batch import HEADER_SIZE
from odradek.runtime import Disk, SystemDisk
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log import scene
from tests.broker.log.scene import NOW, maintain, offsets, write_batches

TOPIC_ID = uuid.UUID(int=9)
SMALL = LogConfig(segment_bytes=400)


new_manager = partial(scene.new_manager, config=SMALL)


def t(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def killed(disk: Disk, *directories: str, logs: int, batches: int = 5) -> None:
    """A broker that wrote so many logs, and was killed."""
    manager = new_manager(disk, *directories)
    manager.open(NOW)
    for number in range(logs):
        write_batches(manager.get_or_create(t(number), topic_id=TOPIC_ID, now_ms=NOW), batches)
    manager.kill()


class Ticks:
    """A clock that goes on by so much whenever somebody looks, and calls back once at a moment."""

    def __init__(self, step_s: float, *, at_s: float = 1e9, callback: Callable[[], None] = lambda: None) -> None:
        self._now = 0.0
        self._step_s = step_s
        self._at_s = at_s
        self._callback = callback

    def __call__(self) -> float:
        self._now += self._step_s
        if self._now >= self._at_s:
            self._at_s = 1e9
            self._callback()
        return self._now


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("max_open_files", [5, 16, 512])
def test_several_threads_load_the_same_logs(tmp_path: Path, threads: int, max_open_files: int) -> None:
    """M1: whatever runs at once, and however few files may be open."""
    directories = f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/c"
    killed(SystemDisk(), *directories, logs=60, batches=20)
    manager = new_manager(SystemDisk(), *directories, max_open_files=max_open_files)
    manager.directories.lock()
    manager.load(NOW, threads=threads)
    assert list(manager) == sorted(t(number) for number in range(60))
    assert {len(offsets(log)) for log in manager.logs.values()} == {20}
    assert {manager.topic_id(each) for each in manager} == {TOPIC_ID}
    assert manager.pool.open_files <= max_open_files
    manager.close()
    manager = new_manager(SystemDisk(), *directories)
    manager.directories.lock()
    manager.load(NOW, threads=threads)
    assert manager.pool.open_files == 0, "a log that nobody reads has no file open"
    assert {log.writer.recovery_point for log in manager.logs.values()} == {20}
    manager.kill()


def test_a_long_start_logs_its_progress_and_what_was_truncated(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    killed(disk, logs=20, batches=3)
    disk.open(f"/data/t-7/{0:020d}.log").append([b"torn"])
    manager = new_manager(disk)
    manager.directories.lock()
    with caplog.at_level(logging.INFO, "odradek.log"):
        manager.load(NOW, monotonic=Ticks(0.5))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "/data had an unclean shutdown: recovering its 20 logs, up to 0 MiB to check"
    assert next(line for line in lines if " of 20 logs are open" in line).startswith(
        "Loading logs: 5 of 20 logs are open; 0 of 0 MiB checked in 5 s"
    )
    assert len(lines) == 7
    assert lines[-1] == (
        "Loaded logs: 20 logs are open after 20.5 s: 20 recovered, 0 MiB checked; 1 truncated by 4 bytes and 0 segments"
    )


def test_a_clean_start_logs_only_its_duration(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    manager = new_manager(disk)
    manager.open(NOW)
    write_batches(manager.get_or_create(t(0), topic_id=TOPIC_ID, now_ms=NOW), 3)
    manager.close()
    manager = new_manager(disk)
    manager.directories.lock()
    with caplog.at_level(logging.INFO, "odradek.log"):
        manager.load(NOW, monotonic=Ticks(0.1))
    assert [record.getMessage() for record in caplog.records] == ["Loaded logs: 1 logs are open after 0.2 s"]


def test_a_start_that_is_stopped_keeps_what_it_recovered() -> None:
    """M1: an operator who loses patience does not begin from nothing again."""
    disk = MemoryDisk()
    killed(disk, logs=20)
    manager = new_manager(disk)
    manager.directories.lock()
    with pytest.raises(LoadingStoppedError):
        manager.load(NOW, monotonic=Ticks(1.0, at_s=16.0, callback=manager.stop_loading))
    done = len(manager)
    assert 4 < done < 16
    manager.close()
    assert not disk.exists("/data/.kafka_cleanshutdown"), "the others are not whole yet"
    points = decode_offsets(disk.read_file("/data/recovery-point-offset-checkpoint"), "")
    assert sorted(points.values()) == [0] * (20 - done) + [5] * done
    manager = new_manager(disk)
    manager.directories.lock()
    manager.load(NOW)
    assert [len(offsets(log)) for log in manager.logs.values()] == [5] * 20
    assert sum(log.writer.recovery_point == 5 for log in manager.logs.values()) == done, "these were not read again"
    manager.close()
    assert disk.exists("/data/.kafka_cleanshutdown")


def test_a_start_that_is_stopped_before_it_begins_opens_nothing() -> None:
    disk = MemoryDisk()
    killed(disk, logs=3)
    manager = new_manager(disk)
    manager.directories.lock()
    manager.stop_loading()
    with pytest.raises(LoadingStoppedError):
        manager.load(NOW)
    assert not len(manager)
    manager.close()


def test_a_start_that_is_stopped_forgets_no_deleted_records() -> None:
    disk = MemoryDisk()
    manager = new_manager(disk)
    manager.open(NOW)
    for number in range(4):
        write_batches(manager.get_or_create(t(number), topic_id=TOPIC_ID, now_ms=NOW), 5)
        manager.logs[t(number)].advance_log_start_offset(2)
    manager.close()
    manager = new_manager(disk)
    manager.directories.lock()
    with pytest.raises(LoadingStoppedError):
        manager.load(NOW, monotonic=Ticks(1.0, at_s=3.0, callback=manager.stop_loading))
    manager.close()
    manager = new_manager(disk)
    manager.open(NOW)
    assert [log.log_start_offset for log in manager.logs.values()] == [2] * 4


def test_high_watermarks_survive_a_restart() -> None:
    """M1: `replication-offset-checkpoint`, as Kafka's brokers write and read it; never beyond what is there."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    manager.open(NOW)
    for number, committed in enumerate((5, 3, 9)):
        log = manager.get_or_create(t(number), topic_id=TOPIC_ID, now_ms=NOW)
        write_batches(log, 5)
        log.producers.committed(committed)
    maintain(manager, NOW)
    path = "/data/replication-offset-checkpoint"
    assert disk.read_file(path) == b"0\n3\nt 0 5\nt 1 3\nt 2 5\n"
    manager.logs[t(1)].producers.committed(4)
    manager.close()
    assert disk.read_file(path) == b"0\n3\nt 0 5\nt 1 4\nt 2 5\n"
    file = disk.open(path)
    file.truncate(0)
    file.append([b"0\n2\nt 0 5\nt 1 400\n"])
    manager = new_manager(disk)
    manager.open(NOW)
    assert [log.high_watermark for log in manager.logs.values()] == [5, 5, 0]


def test_a_plan_of_checkpoints_never_replaces_a_newer_one() -> None:
    """It is written on another thread; meanwhile a log may be cut, which must not wait and must not be undone."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    manager.open(NOW)
    log = manager.get_or_create(t(0), topic_id=TOPIC_ID, now_ms=NOW)
    write_batches(log, 20)
    maintain(manager, NOW)
    late = manager.checkpoints.plan()
    before = log.writer.recovery_point
    manager.truncate_to(t(0), 3)
    manager.checkpoints.write(late)
    path = "/data/recovery-point-offset-checkpoint"
    assert decode_offsets(disk.read_file(path), "")[t(0)] < before
    write_batches(log, 20)
    last = manager.checkpoints.plan()
    manager.kill()
    content = disk.read_file(path)
    manager.checkpoints.write(last)
    assert disk.read_file(path) == content, "a broker that is gone writes nothing"


def test_a_directory_that_was_copied_into_another_is_refused() -> None:
    disk = MemoryDisk()
    manager = new_manager(disk, "/a", "/b")
    manager.open(NOW)
    manager.close()
    ids = [disk.read_file(f"{each}/meta.properties") for each in ("/a", "/b")]
    assert ids[0] != ids[1]
    file = disk.open("/b/meta.properties")
    file.truncate(0)
    file.append([ids[0]])
    with pytest.raises(StorageError, match=r"/a and /b have the same directory\.id: one is a copy of the other"):
        new_manager(disk, "/a", "/b").open(NOW)


# ---- what is damaged costs its partition -----------------------------------------------------------------------------


def with_trouble(cause: Callable[[Disk], object], caplog: pytest.LogCaptureFixture) -> tuple[LogManager, str]:
    """Three logs, the middle one of which something is done to; the manager after the start, and what it said."""
    disk = MemoryDisk()
    manager = new_manager(disk, "/data", "/more")
    manager.open(NOW)
    for number in range(3):
        write_batches(manager.get_or_create(t(number), topic_id=TOPIC_ID, now_ms=NOW), 5)
    manager.logs[t(1)].advance_log_start_offset(2)
    manager.close()
    cause(disk)
    manager = new_manager(disk, "/data", "/more")
    manager.open(NOW)
    (error,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    return manager, error


def replaced_by_folder(disk: Disk) -> None:
    disk.remove(f"/more/t-1/{0:020d}.log")
    disk.make_directories(f"/more/t-1/{0:020d}.log")


def copied_to_the_other_directory(disk: Disk) -> None:
    disk.make_directories("/data/t-1")
    disk.replace_file(f"/data/t-1/{0:020d}.log", disk.read_file(f"/more/t-1/{0:020d}.log"))


def damaged_in_the_middle(disk: Disk) -> None:
    """Damage that recovery would repair, in a log that was shut down cleanly."""
    path = f"/more/t-1/{0:020d}.log"
    content = bytearray(disk.read_file(path))
    content[8:12] = b"\0\0\0\0"
    file = disk.open(path)
    file.truncate(0)
    file.append([content])
    for name in disk.list("/more/t-1"):
        if name.endswith(".snapshot"):
            disk.remove(f"/more/t-1/{name}")


@pytest.mark.parametrize("cause", [replaced_by_folder, copied_to_the_other_directory, damaged_in_the_middle])
def test_a_log_that_cannot_be_opened_takes_only_its_partition_offline(
    cause: Callable[[Disk], object], caplog: pytest.LogCaptureFixture
) -> None:
    manager, error = with_trouble(cause, caplog)
    assert "/more/t-1" in error
    assert error.endswith("; the partition is offline")
    assert list(manager) == [t(0), t(2)]
    with pytest.raises(LogStorageError, match="/more/t-1"):
        manager.get_or_create(t(1), topic_id=TOPIC_ID, now_ms=NOW)
    write_batches(manager.logs[t(2)], 1)
    maintain(manager, NOW)
    disk = manager.pool.disk
    for name, offset in (("recovery-point", 5), ("log-start", 2)):
        points = decode_offsets(disk.read_file(f"/more/{name}-offset-checkpoint"), "")
        assert points[t(1)] == offset, "who repairs it by hand finds what was known"
    manager.close()
    assert disk.exists("/more/t-1")
    assert not disk.exists("/more/.kafka_cleanshutdown")


def test_a_log_that_cannot_be_opened_can_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    manager, _ = with_trouble(copied_to_the_other_directory, caplog)
    manager.delete(t(1), NOW)
    assert manager.get_or_create(t(1), topic_id=TOPIC_ID, now_ms=NOW).log_end_offset == 0
    maintain(manager, NOW + 60_000)
    disk = manager.pool.disk
    assert [name for each in ("/data", "/more") for name in disk.list(each) if name.startswith("t-1")] == ["t-1"]


def test_a_folder_that_is_not_a_logs_is_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    killed(disk, logs=2)
    strange, stray = ["backup", "t-01", "lost+found"], f"t-0.{'a' * 32}-stray"
    future = f"t-0.{'b' * 32}-future"
    for name in [*strange, stray, future, "remote-log-index-cache"]:
        disk.make_directories(f"/data/{name}")
    disk.open("/data/t-5", create=True).append([b"a file"])
    manager = new_manager(disk)
    manager.open(NOW)
    assert list(manager) == [t(0), t(1)]
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "ignoring it" in line] == [
        f"/data/{name} is not a log's folder, ignoring it" for name in sorted(strange)
    ]
    assert f"Loaded stray log: /data/{stray}" in lines
    assert manager.deleted.strays == {f"/data/{stray}": (t(0), None)}
    assert all(disk.exists(f"/data/{name}") for name in [*strange, stray, "remote-log-index-cache", "t-5"])
    assert not disk.exists(f"/data/{future}"), "the copy of a log that is here"


def test_a_crash_while_a_log_is_recovered_is_no_damage() -> None:
    """Recovery is interrupted by its watcher in the middle of a log; what is there afterwards is as good as before."""
    disk = MemoryDisk()
    log = Log.open(disk, "/data/t-0", SMALL, now_ms=NOW)
    write_batches(log, 20)
    files = sum(name.endswith(".log") for name in disk.list("/data/t-0"))
    assert files > 3
    for stop_at in range(1, files + 1):
        pieces = 0

        def watch(size: int, stop_at: int = stop_at) -> None:
            nonlocal pieces
            assert size >= HEADER_SIZE
            pieces += 1
            if pieces == stop_at:
                raise LoadingStoppedError

        with pytest.raises(LoadingStoppedError):
            Log.open(disk, "/data/t-0", SMALL, now_ms=NOW, watch=watch)
        disk.kill()
    assert len(offsets(Log.open(disk, "/data/t-0", SMALL, now_ms=NOW))) == 20
