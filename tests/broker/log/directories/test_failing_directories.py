"""A data directory whose disk fails while it is used: all of its logs are offline at once, and no other (KIP-112)."""

import errno
import uuid
from collections.abc import Callable, Set

import pytest

from odradek.broker.log.checkpoints.meta_properties import CLEAN_SHUTDOWN
from odradek.broker.log.errors import LogStorageError, OfflineDirectoryError
from odradek.model import StorageError, TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, maintain, opened, write_batches

OLD, NEW = uuid.UUID(int=1), uuid.UUID(int=2)
T = [TopicPartition("t", number) for number in range(6)]


class Broken:
    """A manager of two directories, with t-0, t-2, t-4 in the first, and what it said of failures."""

    def __init__(self, *directories: str) -> None:
        self.disk = MemoryDisk()
        self.stopped = 0
        self.failed: list[tuple[Set[TopicPartition], str]] = []
        self.manager = opened(
            self.disk,
            *(directories or ("/a", "/b")),
            when_log_stopped=self._stop,
            when_directory_failed=lambda keys, reason: self.failed.append((frozenset(keys), str(reason))),
        )
        for key in T[:4]:
            write_batches(self.manager.get_or_create(key, topic_id=None, now_ms=NOW))

    def _stop(self) -> None:
        self.stopped += 1


def fail_write(broken: Broken, number: int) -> None:
    broken.disk.fail_next("append", number, path_end="t-0/00000000000000000000.log")
    with pytest.raises(LogStorageError):
        write_batches(broken.manager.logs[T[0]])


def fail_sync(broken: Broken, number: int) -> None:
    broken.disk.fail_next("sync", number, path_end="t-0/00000000000000000000.log")
    with pytest.raises(LogStorageError):
        broken.manager.logs[T[0]].flush()


def fail_read(broken: Broken, number: int) -> None:
    del number
    broken.disk.broken.add("/a/t-0")
    with pytest.raises(LogStorageError):
        broken.manager.logs[T[0]].read(0, 1000)


def fail_checkpoint(broken: Broken, number: int) -> None:
    broken.disk.fail_next("rename", number, path_end="/a/replication-offset-checkpoint.tmp")
    with pytest.raises(LogStorageError):
        broken.manager.checkpoints.write_all()


def fail_creation(broken: Broken, number: int) -> None:
    broken.disk.fail_next("create", number, path_end="/a/t-4")
    assert broken.manager.get_or_create(T[4], topic_id=None, now_ms=NOW).directory == "/b/t-4", "as in Kafka"


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENODEV], ids=errno.errorcode.get)
@pytest.mark.parametrize("fail", [fail_write, fail_sync, fail_read, fail_checkpoint, fail_creation])
def test_the_first_error_of_a_disk_takes_its_directory_offline(
    fail: Callable[[Broken, int], None], number: int, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken()
    fail(broken, number)
    manager = broken.manager
    assert list(manager.directories.offline) == ["/a"]
    assert [(keys, reason.partition(": ")[0]) for keys, reason in broken.failed] == [
        ({T[0], T[2]}, "the data directory /a has failed")
    ]
    assert caplog.text.count("; its 2 logs are offline until this broker is restarted") == 1
    assert manager.directories.usable
    for key in (T[0], T[2]):
        with pytest.raises(LogStorageError, match="/a"):
            write_batches(manager.logs[key])
        with pytest.raises(OfflineDirectoryError):
            manager.get_or_create(key, topic_id=None, now_ms=NOW)
    for key in (T[1], T[3]):
        write_batches(manager.logs[key])
    assert manager.get_or_create(T[5], topic_id=None, now_ms=NOW).directory == "/b/t-5"
    maintain(manager, NOW)
    manager.close()
    assert not broken.disk.exists(f"/a/{CLEAN_SHUTDOWN}"), "nothing is written there any more"
    assert broken.disk.exists(f"/b/{CLEAN_SHUTDOWN}")


def test_a_failed_sync_is_not_repeated() -> None:
    broken = Broken()
    broken.disk.fail_next("sync", errno.EIO, path_end="t-0/00000000000000000000.log")
    log, neighbour = broken.manager.logs[T[0]], broken.manager.logs[T[2]]
    with pytest.raises(LogStorageError):
        log.flush()
    before = broken.disk.operations
    for each in (log, neighbour):
        each.flush()
        assert each.writer.synced_offset == 0
    assert broken.disk.operations == before
    assert broken.stopped == 1, "one notice for all"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE], ids=errno.errorcode.get)
def test_a_full_disk_is_not_a_failed_disk(number: int) -> None:
    broken = Broken()
    fail_write(broken, number)
    assert not broken.failed
    assert not broken.stopped
    write_batches(broken.manager.logs[T[0]])
    assert broken.manager.logs[T[0]].log_end_offset == 2


@pytest.mark.parametrize("room", range(0, 43, 7))
def test_a_full_disk_leaves_no_partial_topic_id(room: int) -> None:
    """Which would be damage to whoever looks at the files; the log gets its id when there is room."""
    broken = Broken()
    broken.disk.capacity_bytes = broken.disk.used_bytes() + room
    with pytest.raises(LogStorageError, match=r"Failed to write /\w/t-4/partition\.metadata"):
        broken.manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW)
    assert not broken.disk.exists("/a/t-4/partition.metadata")
    broken.disk.capacity_bytes = None
    log = broken.manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW)
    assert broken.disk.exists(f"{log.directory}/partition.metadata")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ENOENT], ids=errno.errorcode.get)
def test_a_sync_that_fails_without_a_disk_failure_stops_one_log(number: int) -> None:
    broken = Broken()
    fail_sync(broken, number)
    assert broken.stopped == 1
    assert not broken.failed
    with pytest.raises(LogStorageError):
        write_batches(broken.manager.logs[T[0]])
    write_batches(broken.manager.logs[T[2]])


def test_pending_batches_are_lost_with_a_failed_disk_and_written_ones_are_not() -> None:
    broken = Broken()
    log = broken.manager.logs[T[2]]
    log.append_as_leader(encode_batch([(NOW, None, b"y", ())]), leader_epoch=0, now_ms=NOW)
    job = log.writer.begin_write()
    log.append_as_leader(encode_batch([(NOW, None, b"z", ())]), leader_epoch=0, now_ms=NOW)
    fail_write(broken, errno.EIO)
    job.run()
    log.writer.finish_write(job)
    assert (log.written_offset, log.log_end_offset, log.writer.pending.size) == (2, 2, 0)
    assert log.writer.begin_write() is None


def test_without_a_usable_directory_no_log_can_be_created() -> None:
    broken = Broken("/a")
    fail_write(broken, errno.EIO)
    assert not broken.manager.directories.usable
    with pytest.raises(OfflineDirectoryError, match="the data directory /a has failed"):
        broken.manager.get_or_create(T[5], topic_id=None, now_ms=NOW)
    maintain(broken.manager, NOW)
    broken.manager.close()


def twins(*, ids: tuple[uuid.UUID | None, uuid.UUID | None] = (OLD, NEW)) -> MemoryDisk:
    """Return the logs of t-4, which was deleted while its first directory had failed, and created again in the
    second."""
    broken = Broken()
    manager = broken.manager
    write_batches(manager.get_or_create(T[4], topic_id=ids[0], now_ms=NOW))
    fail_write(broken, errno.EIO)
    manager.delete(T[4], NOW)
    log = manager.get_or_create(T[4], topic_id=ids[1], now_ms=NOW)
    assert log.directory == "/b/t-4"
    write_batches(log)
    write_batches(log)
    manager.close()
    return broken.disk


@pytest.mark.parametrize("file", ["", "/00000000000000000000.log"])
def test_an_empty_log_of_a_failed_disk_is_not_a_duplicate(file: str) -> None:
    broken = Broken()
    broken.disk.fail_next("create", errno.EIO, path_end=f"/a/t-4{file}")
    log = broken.manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW)
    assert log.directory == "/b/t-4"
    write_batches(log)
    broken.manager.close()
    manager = opened(broken.disk, "/a", "/b")
    assert not manager.statuses.duplicates
    assert manager.logs[T[4]].directory == "/b/t-4"
    assert manager.logs[T[4]].log_end_offset == 1
    assert not broken.disk.exists("/a/t-4")
    manager.kill()


def test_an_empty_log_whose_records_were_deleted_is_a_duplicate() -> None:
    broken = Broken()
    write_batches(log := broken.manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW))
    fail_write(broken, errno.EIO)
    broken.disk._faults.clear()
    broken.disk.make_directories("/b/t-4")
    broken.disk.replace_file("/b/t-4/00000000000000000007.log", b"")
    assert log.directory == "/a/t-4"
    broken.manager.close()
    manager = opened(broken.disk, "/a", "/b")
    assert manager.statuses.duplicates == {T[4]}
    manager.kill()


@pytest.mark.parametrize(("topic_id", "count"), [(OLD, 1), (NEW, 2)], ids=["the first", "the second"])
def test_of_two_logs_the_one_with_the_topic_id_is_opened(
    topic_id: uuid.UUID, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = twins()
    manager = opened(disk, "/a", "/b")
    assert manager.statuses.duplicates == {T[4]}
    assert manager.get(T[4]) is None
    manager.resolve_duplicates({"t": topic_id}, NOW)
    assert not manager.statuses.duplicates
    assert manager.logs[T[4]].log_end_offset == count
    assert manager.topic_id(T[4]) == topic_id
    names = [name for directory in ("/a", "/b") for name in disk.list(directory) if name.startswith("t-4.")]
    assert len(names) == 1
    assert names[0].endswith("-stray")
    assert caplog.text.count(f"is of another topic of the same name; renaming it to {names[0]}") == 1
    write_batches(manager.get_or_create(T[4], topic_id=topic_id, now_ms=NOW))
    manager.close()
    manager = opened(disk, "/a", "/b")
    assert not manager.statuses.duplicates
    assert manager.logs[T[4]].log_end_offset == count + 1
    manager.kill()


@pytest.mark.parametrize(
    ("ids", "known"),
    [((OLD, NEW), {}), ((OLD, OLD), {"t": OLD}), ((None, NEW), {"t": NEW}), ((OLD, OLD), {"t": NEW})],
    ids=["the topic is unknown", "both are its", "one does not say", "neither is"],
)
def test_duplicate_logs_without_deciding_ids_stay_offline(
    ids: tuple[uuid.UUID | None, uuid.UUID | None], known: dict[str, uuid.UUID]
) -> None:
    disk = twins(ids=ids)
    manager = opened(disk, "/a", "/b")
    manager.resolve_duplicates(known, NOW)
    assert manager.statuses.duplicates == {T[4]}
    with pytest.raises(StorageError, match="are logs of the same partition"):
        manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW)
    assert disk.exists("/a/t-4")
    assert disk.exists("/b/t-4")
    manager.kill()


def test_a_duplicate_that_cannot_be_renamed_leaves_the_partition_offline(caplog: pytest.LogCaptureFixture) -> None:
    disk = twins()
    manager = opened(disk, "/a", "/b")
    disk.fail_next("rename", errno.EACCES, path_end="/a/t-4")
    manager.resolve_duplicates({"t": NEW}, NOW)
    assert "Failed to rename /a/t-4 to t-4." in caplog.text
    with pytest.raises(StorageError, match="are logs of the same partition"):
        manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW)
    manager.kill()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_new_topic_does_not_get_records_of_one_whose_deletion_failed(number: int) -> None:
    broken = Broken("/a")
    broken.disk.fail_next("rename", number, path_end="/a/t-0")
    with pytest.raises(LogStorageError):
        broken.manager.delete(T[0], NOW)
    with pytest.raises(StorageError):
        broken.manager.get_or_create(T[0], topic_id=NEW, now_ms=NOW)
    broken.manager.delete(T[0], NOW)
    assert broken.manager.get_or_create(T[0], topic_id=NEW, now_ms=NOW).log_end_offset == 0


def test_duplicate_logs_are_deleted_though_the_first_rename_failed() -> None:
    disk = twins()
    manager = opened(disk, "/a", "/b")
    disk.fail_next("rename", errno.ENOSPC, path_end="/a/t-4")
    with pytest.raises(LogStorageError):
        manager.delete(T[4], NOW)
    manager.delete(T[4], NOW)
    assert not disk.exists("/a/t-4")
    assert not disk.exists("/b/t-4")
    assert manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW).log_end_offset == 0
    manager.kill()


def test_a_log_is_not_created_before_checkpoints_lack_its_predecessor() -> None:
    """Its records would be taken for deleted ones after a crash: the checkpoint says that the log began after them."""
    broken = Broken("/a")
    log = broken.manager.get_or_create(T[4], topic_id=OLD, now_ms=NOW)
    for _ in range(20):
        write_batches(log)
    log.advance_log_start_offset(15, high_watermark=20)
    maintain(broken.manager, NOW)
    broken.manager.checkpoints.write_all()
    broken.manager.delete(T[4], NOW)
    for _ in range(2):
        broken.disk.fail_next("rename", errno.ENOSPC, path_end="checkpoint.tmp")
        with pytest.raises(LogStorageError):
            broken.manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW)
    write_batches(broken.manager.get_or_create(T[4], topic_id=NEW, now_ms=NOW))
    assert b"t 4 15" not in broken.disk.read_file("/a/log-start-offset-checkpoint")


def remount(broken: Broken) -> None:
    """Another disk of the broker's is in the place of the first directory."""
    broken.disk.rename("/a", "/under")
    broken.disk.make_directories("/a")
    text = broken.disk.read_file("/b/meta.properties").replace(b"directory.id=", b"directory.id=other")
    broken.disk.replace_file("/a/meta.properties", text)


@pytest.mark.parametrize("mount", [remount, lambda broken: broken.disk.rename("/a", "/gone")], ids=["another", "none"])
@pytest.mark.parametrize("is_closed_first", [False, True])
def test_no_checkpoint_is_written_to_a_disk_mounted_over_a_directory(
    mount: Callable[[Broken], None], is_closed_first: bool
) -> None:
    broken = Broken()
    broken.manager.checkpoints.write_all()
    mount(broken)
    if not is_closed_first:
        maintain(broken.manager, NOW)
        assert list(broken.manager.directories.offline) == ["/a"]
        assert "another disk is there now" in broken.failed[0][1]
    broken.manager.close()
    assert not broken.disk.exists(f"/a/{CLEAN_SHUTDOWN}")
    assert not broken.disk.exists("/a/recovery-point-offset-checkpoint")
    assert broken.disk.exists(f"/b/{CLEAN_SHUTDOWN}")
