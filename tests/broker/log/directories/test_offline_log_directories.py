"""A data directory that the disk does not give at the start: the others go on, and nothing of it is made anew."""

import pytest

from odradek.broker.log.checkpoints.checkpoint_file import RECOVERY_POINTS, decode_offsets
from odradek.broker.log.checkpoints.meta_properties import CLEAN_SHUTDOWN
from odradek.broker.log.directories.log_status import ExpectedLogs
from odradek.broker.log.errors import LogStorageError, OfflineDirectoryError
from odradek.broker.log.log import Log
from odradek.model import StorageError, TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, maintain, new_manager, opened

BOTH = ("/a", "/b")
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def append(log: Log) -> None:
    log.append_as_leader(encode_batch([(NOW, None, b"x", ())]), leader_epoch=0, now_ms=NOW)


def closed(*directories: str) -> MemoryDisk:
    """Return the disk of a stopped broker with t-0 in the first directory and t-1 in the second, a record in each."""
    disk = MemoryDisk()
    manager = opened(disk, *(directories or BOTH))
    for partition in (T0, T1):
        append(manager.get_or_create(partition, topic_id=None, now_ms=NOW))
    manager.close()
    return disk


@pytest.mark.parametrize("broken", ["", "/.lock", "/meta.properties", f"/{RECOVERY_POINTS}"])
def test_a_directory_with_a_failed_disk_leaves_the_others_online(broken: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = closed()
    disk.broken.add("/b" + broken)
    manager = opened(disk, *BOTH)
    assert list(manager) == [T0]
    (reason,) = manager.directories.offline.values()
    assert str(reason).startswith("the data directory /b cannot be used: [Errno 5] Input/output error: '/b")
    assert f"{reason}; its logs are offline until this broker is restarted" in caplog.text
    assert not manager.were_closed, "what is not there may be lost"
    manager.close()
    disk.broken.clear()
    manager = opened(disk, *BOTH)
    assert {partition: log.log_end_offset for partition, log in manager.logs.items()} == {T0: 1, T1: 1}
    assert not manager.directories.offline
    manager.kill()


def test_an_expected_log_is_not_created_while_a_directory_is_offline() -> None:
    disk = closed()
    disk.broken.add("/b")
    manager = opened(disk, *BOTH)
    with pytest.raises(OfflineDirectoryError, match="the data directory /b cannot be used"):
        manager.get_or_create(T2, topic_id=None, now_ms=NOW)  # nobody has said that it was not here
    manager.statuses.expect(ExpectedLogs(partitions={T0, T1}))
    with pytest.raises(OfflineDirectoryError, match="the data directory /b cannot be used"):
        manager.get_or_create(T1, topic_id=None, now_ms=NOW)
    assert manager.get_or_create(T0, topic_id=None, now_ms=NOW).log_end_offset == 1
    assert manager.get_or_create(T2, topic_id=None, now_ms=NOW).directory == "/a/t-2", "what is new is made"
    manager.delete(T1, NOW)
    assert manager.get_or_create(T1, topic_id=None, now_ms=NOW).directory == "/a/t-1", "the old one is to be no more"
    manager.kill()


def test_an_expected_log_stays_expected_when_one_of_another_topic_is_renamed() -> None:
    disk = closed()
    disk.broken.add("/b")
    manager = opened(disk, *BOTH)
    manager.statuses.expect(ExpectedLogs(partitions={T0, T1}))
    manager.rename_to_stray(T0, "of another topic")
    with pytest.raises(OfflineDirectoryError, match="the data directory /b cannot be used"):
        manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    manager.kill()


def test_no_log_is_created_of_a_topic_whose_partitions_are_unknown() -> None:
    disk = closed()
    disk.broken.add("/b")
    manager = opened(disk, *BOTH)
    manager.statuses.expect(ExpectedLogs(partitions=set(), topics={"t"}))
    with pytest.raises(OfflineDirectoryError):
        manager.get_or_create(T1, topic_id=None, now_ms=NOW)
    assert manager.get_or_create(TopicPartition("u", 0), topic_id=None, now_ms=NOW).directory == "/a/u-0"
    manager.kill()


def test_with_all_directories_online_missing_logs_are_created() -> None:
    disk = closed()
    manager = opened(disk, *BOTH)
    manager.statuses.expect(ExpectedLogs(partitions={T0, T1, T2}))
    assert manager.get_or_create(T2, topic_id=None, now_ms=NOW).log_end_offset == 0
    manager.kill()


def test_nothing_is_written_into_a_directory_that_is_offline() -> None:
    disk = closed()

    def files() -> dict[str, bytes]:
        paths = [f"/b/{name}" for name in disk.list("/b")]
        return {path: disk.read_file(path) for path in paths if not disk.is_directory(path) and ".lock" not in path}

    before = files()
    assert f"/b/{CLEAN_SHUTDOWN}" in before
    disk.broken.add("/b/meta.properties")
    manager = opened(disk, *BOTH)
    append(manager.logs[T0])
    maintain(manager, NOW)
    manager.checkpoints.write_all()
    manager.close()
    disk.broken.clear()
    assert files() == before
    manager = opened(disk, *BOTH)
    assert manager.were_closed
    manager.kill()


def test_without_a_usable_directory_the_start_fails_and_unlocks_all() -> None:
    disk = closed()
    disk.broken |= {"/a", "/b/meta.properties"}
    with pytest.raises(StorageError) as refused:
        opened(disk, *BOTH)
    assert str(refused.value) == (
        "the data directory /a cannot be used: [Errno 5] Input/output error: '/a'; "
        "the data directory /b cannot be used: [Errno 5] Input/output error: '/b/meta.properties'"
    )
    disk.broken.clear()
    opened(disk, *BOTH).kill()


def test_the_start_fails_when_the_last_directory_cannot_be_listed() -> None:
    disk = closed()
    disk.broken.add("/a")
    manager = new_manager(disk, *BOTH)
    manager.directories.lock()
    disk.broken.add("/b")
    with pytest.raises(
        StorageError, match=r"the data directory /a cannot be used: .*; the data directory /b cannot be"
    ):
        manager.load(NOW)
    manager.kill()


def test_a_directory_of_another_broker_is_refused_beside_a_failed_disk() -> None:
    disk = closed()
    disk.broken.add("/a")
    with pytest.raises(StorageError, match="the data directory /b belongs to broker 1, and this is broker 2"):
        new_manager(disk, *BOTH, broker_id=2).directories.lock()
    holder = new_manager(disk, "/b")
    holder.directories.lock()
    with pytest.raises(StorageError, match="the data directory /b is in use by process"):
        new_manager(disk, *BOTH).directories.lock()
    holder.kill()


def test_a_folder_that_cannot_be_read_is_an_offline_log() -> None:
    disk = closed()
    disk.broken.add("/b/t-1")
    manager = opened(disk, *BOTH)
    assert not manager.directories.offline
    with pytest.raises(LogStorageError, match="Input/output error: '/b/t-1"):
        manager.get_or_create(T1, topic_id=None, now_ms=NOW)
    manager.checkpoints.write_all()
    path = f"/b/{RECOVERY_POINTS}"
    assert decode_offsets(disk.read_file(path), path) == {T1: 1}, "what is known of it is kept"
    manager.kill()
