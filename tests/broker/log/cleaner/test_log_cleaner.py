"""Which log is compacted when, what is written down of it, and what ends it: damage, errors, cuts and deletions."""

import errno
import logging
import struct
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from odradek.broker.log.cleaner.compaction import Compaction
from odradek.broker.log.cleaner.log_cleaner import CleanerSettings, Throttle
from odradek.broker.log.segments.time_index import TimeIndex
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.compacting import COMPACT, NOW, T0, Room, begun
from tests.broker.log.scene import maintain

pytestmark = pytest.mark.usefixtures("way")


def test_a_throttle_keeps_its_rate_and_saves_nothing_up() -> None:
    throttle = Throttle()
    assert throttle.wait_s(1000, 1000, 50.0) == 1.0
    assert throttle.wait_s(500, 1000, 50.5) == 1.0, "half of the first second is over"
    assert throttle.wait_s(100, 1000, 90.0) == pytest.approx(0.1)
    assert throttle.wait_s(1 << 40, float("inf"), 100.0) == 0


def test_damage_makes_a_log_uncleanable_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    path = "/data/t-0/00000000000000000000.log"
    data = bytearray(room.disk.read_file(path))
    data[-3] ^= 1
    room.disk.replace_file(path, bytes(data))
    room.log.segments[0].close()
    with caplog.at_level(logging.ERROR):
        assert room.compact() == 1
    assert "wrong checksum, at offset 0 (byte 0)" in room.manager.cleaner.uncleanable[T0]
    assert "/data/t-0 is uncleanable" in caplog.text
    assert room.compact() == 0
    assert room.manager.cleaner.uncleanable_bytes == len(data)
    assert not [name for name in room.names() if name.endswith(".cleaned")]
    assert room.log.failure is None
    room.manager.delete(T0, NOW)
    assert room.manager.cleaner.uncleanable == {}


def test_compaction_is_retried_after_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"), ("b", "x" * 500))
    room.roll()
    room.disk.capacity_bytes = room.disk.used_bytes() + 100
    assert room.compact() == 1
    assert "will retry" in caplog.text
    assert not [name for name in room.names() if name.endswith(".cleaned")]
    assert [text[0] for text in room.texts()] == [0, 1, 2]
    room.disk.capacity_bytes = None
    assert room.compact() == 0, "not again at once"
    room.now_ms += 20_000
    assert room.compact() == 1
    assert [text[0] for text in room.texts()] == [1, 2]


class CountingDisk(MemoryDisk):
    """Counts what takes long beside tiny segments."""

    syncs = listings = 0

    def sync_all(self, paths: Sequence[str]) -> None:
        self.syncs += 1
        super().sync_all(paths)

    def list(self, path: str) -> list[str]:
        self.listings += 1
        return super().list(path)


def test_tiny_segments_are_synced_together_and_the_folder_is_not_listed_for_each() -> None:
    disk = CountingDisk()
    room = Room(replace(COMPACT, segment_bytes=200), disk)
    for number in range(80):
        room.append((f"{number}", "value"))
        room.append((f"{number // 2}", "value"))
    room.roll()
    disk.syncs = disk.listings = 0
    assert room.compact() == 1
    assert len(room.log.segments) > 40
    assert (disk.syncs, disk.listings) == (2, 1)


@pytest.mark.parametrize("kind", ["sync", "create", "append"])
def test_an_error_of_the_disk_makes_a_log_uncleanable(kind: str) -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    room.disk.fail_next(kind, errno.EIO, path_end=".cleaned")
    room.compact()
    assert T0 in room.manager.cleaner.uncleanable
    assert not [name for name in room.names() if name.endswith(".cleaned")]
    assert [text[0] for text in room.texts()] == [0, 1]


def test_an_unexpected_error_ends_the_compaction_of_one_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    with monkeypatch.context() as patch:
        patch.setattr(Compaction, "_clean_chunk", lambda *_: 1 / 0)
        assert room.compact() == 1
    assert "division by zero" in room.manager.cleaner.uncleanable[T0]
    assert any(record.exc_info for record in caplog.records)
    assert not room.manager.cleaner.is_busy_with(T0), "retention waits for nothing"
    assert not [name for name in room.names() if name.endswith(".cleaned")]
    assert room.compact() == 0
    assert [text[0] for text in room.texts()] == [0, 1]


def test_an_error_while_segments_are_swapped_stops_the_log_and_recovery_completes_it() -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    room.disk.fail_next("rename", errno.EIO, path_end=".log")
    room.compact()
    assert room.log.failure is not None
    room.restart(clean=False)
    assert room.texts() == [(1, "a", "2")]
    assert room.append(("a", "3")) == 2


def test_a_compacted_segment_that_cannot_be_read_stops_the_log_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a stop, the log would be compacted again and again, and nobody would hear of the disk."""
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    last_entry = TimeIndex.last_entry

    def fail(index: TimeIndex) -> tuple[int, int]:
        if index.entries.file.path.endswith(".cleaned"):
            raise OSError(errno.EIO, "Input/output error")
        return last_entry(index)

    with monkeypatch.context() as patched:
        patched.setattr(TimeIndex, "last_entry", fail)
        room.compact()
    assert "Input/output error" in str(room.log.failure)
    room.restart(clean=False)
    assert [text[0] for text in room.texts()] == [0, 1]


@pytest.mark.parametrize(
    ("number", "at_once"), [(errno.ENOMEM, 0), (errno.EMFILE, 0), (errno.ENOENT, 1)], ids=["memory", "files", "absent"]
)
def test_a_compacted_segment_that_cannot_be_read_for_now_is_compacted_again(
    monkeypatch: pytest.MonkeyPatch, number: int, at_once: int
) -> None:
    """Later if resources are short; at once if another compaction of the log has removed the file."""
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    last_entry = TimeIndex.last_entry
    failures = iter([OSError(number, "not now")])

    def fail_once(index: TimeIndex) -> tuple[int, int]:
        if index.entries.file.path.endswith(".cleaned") and (failure := next(failures, None)) is not None:
            raise failure
        return last_entry(index)

    monkeypatch.setattr(TimeIndex, "last_entry", fail_once)
    room.compact()
    assert room.log.failure is None
    assert len(room.texts()) == 2 - at_once
    room.now_ms += 600_000
    room.compact()
    assert len(room.texts()) == 1


def test_truncation_ends_a_compaction_and_lowers_the_checkpoint() -> None:
    room = Room()
    for value in range(6):
        room.append(("a", f"{value}"))
        room.roll()
    room.compact()
    assert room.checkpoint() == "0\n1\nt 0 6\n"
    room.append(("a", "6"), ("a", "7"))
    room.roll()
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 8})
    job.run()
    assert job.cleaned is not None
    room.manager.truncate_to(T0, 3)
    assert not room.manager.cleaner.finish_slice(job, NOW)
    assert room.checkpoint() == "0\n1\nt 0 3\n"
    assert not [name for name in room.names() if name.endswith((".cleaned", ".swap"))]
    assert not room.manager.cleaner.is_busy_with(T0)


def test_segments_that_have_changed_since_they_were_read_are_not_replaced() -> None:
    room = Room()
    for value in range(4):
        room.append(("a", f"{value}"))
        room.roll()
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 4})
    job.run()
    assert job.cleaned is not None
    room.log.truncate_to(3)
    for value in range(3, 6):
        room.append(("b", f"{value}"), ("c", f"{value}"))
        room.roll()
    before = room.texts()
    assert not room.log.replace_segments(job.cleaned, NOW)
    assert room.texts() == before


def test_the_log_is_measured_again_before_it_is_compacted() -> None:
    room = Room()
    other = TopicPartition("u", 0)
    for partition in (T0, other):
        room.manager.get_or_create(partition, topic_id=None, now_ms=NOW)
    for _ in range(3):
        room.append(("a", "1"), ("a", "2"))
        room.roll()
    stable = {T0: 6, other: 0}
    steps = room.manager.cleaner.begin_in_steps(NOW, room.settings, stable_offset=stable.get)
    next(steps)
    room.manager.truncate_to(T0, 2)
    stable[T0] = 2
    room.roll()
    (job,) = (each for each in steps if each is not None)
    assert job.partition == T0
    assert job.compaction.plan.sources[-1].next_offset == 2, "what was cut is not read"
    job.is_cancelled = True
    room.manager.cleaner.finish_slice(job, NOW)
    steps = room.manager.cleaner.begin_in_steps(NOW, room.settings, stable_offset=stable.get)
    next(steps)
    room.manager.delete(T0, NOW)
    assert not [each for each in steps if each is not None]


def test_a_deleted_log_leaves_nothing_for_a_new_one_of_its_name() -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    room.append(("b", "1"))
    room.compact()
    assert room.checkpoint() == "0\n1\nt 0 2\n"
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 3})
    assert job is None
    room.manager.delete(T0, NOW)
    room.manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    assert room.checkpoint() == "0\n0\n"
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    assert room.compact() == 1
    assert room.texts() == [(1, "a", "2")]


def test_a_log_may_be_deleted_during_its_compaction() -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 2})
    room.manager.delete(T0, NOW)
    room.manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    room.append(("z", "1"))
    job.run()
    assert not room.manager.cleaner.finish_slice(job, NOW)
    assert room.texts() == [(0, "z", "1")]
    assert not [name for name in room.names() if name.endswith(".cleaned")]


def test_the_checkpoint_survives_a_restart_and_ends_with_the_policy() -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    assert room.checkpoint() == "", "nothing to say, no file"
    room.compact()
    room.restart()
    assert room.disk.read_file("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 2\n"
    assert room.manager.cleaner.offsets == {T0: 2}
    room.reconfigure(replace(COMPACT, cleanup_policy=()))
    room.compact()
    assert room.checkpoint() == "0\n1\nt 0 2\n", "the policy is unknown, as while the topic's node is unreadable"
    room.reconfigure(replace(COMPACT, cleanup_policy=("delete",)))
    assert room.checkpoint() == "0\n0\n"
    room.compact()
    room.reconfigure(COMPACT)
    assert room.checkpoint() == "0\n0\n", "what came meanwhile was not compacted"


def test_a_checkpoint_beyond_the_log_is_ignored() -> None:
    room = Room()
    room.append(("a", "1"), ("a", "2"))
    room.roll()
    room.manager.cleaner.offsets[T0] = 50
    assert room.compact() == 1
    assert room.texts() == [(1, "a", "2")]


def test_retention_waits_for_a_compaction() -> None:
    room = Room(replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=1000))
    room.append(("a", "1"), ("b", "2"))
    room.roll()
    room.append(("c", "1"))
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 2})
    maintain(room.manager, NOW + 5000)
    assert room.log.first_base_offset == 0
    job.run()
    while room.manager.cleaner.finish_slice(job, NOW):
        job.run()
    maintain(room.manager, NOW + 5000)
    assert room.log.first_base_offset > 0


def test_the_dirtiest_log_is_first_and_figures_are_kept() -> None:
    disk = MemoryDisk()
    room = Room(replace(COMPACT, min_cleanable_dirty_ratio=0.0), disk)
    other = T0._replace(partition=1)
    log = room.manager.get_or_create(other, topic_id=None, now_ms=NOW)
    for value in range(4):
        room.append(("a", f"{value}"))
    room.roll()
    room.compact()
    room.append(("a", "4"))
    for value in range(4):
        log.append_as_leader(encode_batch([(NOW, b"a", b"%d" % value, ())]), leader_epoch=0, now_ms=NOW)
    log.write()
    log.roll(NOW)
    room.roll()
    job = begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 5, other: 4})
    assert job.partition == other
    assert begun(room.manager.cleaner, NOW, room.settings, stable_offsets={T0: 5}) is None, "one at a time"
    second = begun(room.manager.cleaner, NOW, CleanerSettings(threads=2), stable_offsets={T0: 5, other: 4})
    assert second.partition == T0
    assert room.manager.cleaner.stats.max_dirty_ratio == 0.5
    for each in (job, second):
        each.run()
        while room.manager.cleaner.finish_slice(each, NOW + 70):
            each.run()
    stats = room.manager.cleaner.stats
    assert (stats.clean_ms, stats.last_run_ms) == (70, NOW)
    assert stats.total_removed_records == 3 + 3 + 1
    assert stats.total_read_bytes > stats.total_written_bytes > 0


@pytest.mark.parametrize("cleaned_offset", [3, 0])
def test_gaps_between_segments_from_kafkas_compaction_are_valid(cleaned_offset: int) -> None:
    room = Room()
    room.append(("a", "1"), ("b", "1"))
    room.append(("b", "2"))
    room.roll()
    room.append(("a", "2"))
    room.log.flush()
    room.manager.cleaner.offsets[T0] = cleaned_offset
    room.manager.checkpoints.write_all()
    room.manager.kill()
    path = "/data/t-0/00000000000000000000.log"
    data = room.disk.read_file(path)
    room.disk.replace_file(path, data[: 12 + int.from_bytes(data[8:12], "big")])
    room.disk.remove("/data/recovery-point-offset-checkpoint")
    room.restart(clean=False)
    assert [text[0] for text in room.texts()] == ([0, 1, 3] if cleaned_offset else [0, 1])
    assert room.log.log_end_offset == (4 if cleaned_offset else 2)


def compacted_by_kafka() -> Room:
    """A room with two compacted segments, whose ends are gaps, and a dirty one; no checkpoint names the compaction."""
    room = Room()
    for first in ("a", "b"):
        for key in (first, "x", "x", first, "x"):
            room.append((key, key))
        room.roll()
    room.append(("x", "last"))
    room.log.flush()
    room.manager.checkpoints.write_all()
    room.manager.kill()
    for base in (0, 5):
        path = f"/data/t-0/{base:020d}.log"
        data = room.disk.read_file(path)
        batches = [data[position : position + header.size] for position, header in iterate_batches(data)]
        room.disk.replace_file(path, batches[0] + batches[3])
        room.disk.replace_file(path.replace(".log", ".index"), b"")
    room.disk.remove("/data/recovery-point-offset-checkpoint")
    return room


@pytest.mark.parametrize("policy", [("compact",), ()], ids=["compact", "not known yet"])
def test_records_after_a_gap_that_compaction_explains_are_kept_without_its_checkpoint(policy: tuple[str, ...]) -> None:
    room = compacted_by_kafka()
    room.config = replace(COMPACT, cleanup_policy=policy)
    room.restart(clean=False)
    room.reconfigure(COMPACT)
    assert [text[0] for text in room.texts()] == [0, 3, 5, 8, 10]
    room.restart(clean=False)
    assert [text[0] for text in room.texts()] == [0, 3, 5, 8, 10], "the next crash changes nothing"
    room.roll()
    assert room.compact() == 1
    assert [text[0] for text in room.texts()] == [3, 8, 10]
    room.restart(clean=False)
    assert [text[0] for text in room.texts()] == [3, 8, 10]


@pytest.mark.parametrize("lost", ["topic is not compacted", "indexes", "end"])
def test_a_gap_after_a_segment_that_may_have_lost_its_end_ends_the_log(lost: str) -> None:
    """A power cut may lose the end of a segment that was copied with its gaps."""
    room = compacted_by_kafka()
    if lost == "indexes":
        room.disk.remove(f"/data/t-0/{0:020d}.timeindex")
    elif lost == "end":
        overwrite_last_time(room.disk, f"/data/t-0/{0:020d}.timeindex")
    else:
        room.config = replace(COMPACT, cleanup_policy=("delete",))
    room.restart(clean=False)
    assert [text[0] for text in room.texts()] == [0, 3]
    assert room.log.log_end_offset == 4


def overwrite_last_time(disk: MemoryDisk, path: str) -> None:
    """Let the index know a later record than the segment has."""
    disk.replace_file(path, struct.pack(">qI", NOW + 1, 4))
