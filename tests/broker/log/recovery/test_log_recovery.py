"""A log after a crash: torn tails at every byte, damage, holes, lost side files. Row M1, SPEC 12."""

import logging
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.recovery import segment_recovery
from odradek.broker.turns import at_once
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import HEADER_SIZE, assign_offset, iterate_batches
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.runtime import SystemDisk
from odradek.simulation.virtual.disk import MemoryDisk, Survival
from tests.broker.log.scene import FOLDER, NOW, contents, damages, put

SMALL = LogConfig(segment_bytes=500, index_interval_bytes=150)
FAR = 3_000_000_000


def batch(number: int, size: int = 30) -> bytearray:
    records = [(NOW + number, b"k%d" % number, b"x" * size, ()), (NOW + number, None, b"%d" % number, ())]
    return encode_batch(records, producer_id=6, producer_epoch=0, base_sequence=2 * number)


def filled(disk: MemoryDisk, count: int, config: LogConfig = SMALL) -> Log:
    """A log of `count` batches of two records, all written; a new leader every four batches."""
    log = Log.open(disk, FOLDER, config, now_ms=NOW)
    for number in range(count):
        log.append_as_leader(batch(number), leader_epoch=number // 4, now_ms=NOW)
        log.write()
    return log


def reopen(disk: MemoryDisk, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
    return Log.open(
        disk,
        FOLDER,
        SMALL,
        now_ms=NOW,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def numbers(log: Log) -> list[int]:
    """Which of `filled`'s batches the log has; checks that each is whole."""
    result = []
    for offset, data in contents(log).items():
        records = decode_records(data)
        assert [record.offset for record in records] == [offset, offset + 1]
        result.append(int(records[1].value or b""))
    return result


def path(base: int, suffix: str = ".log") -> str:
    return f"{FOLDER}/{base:020d}{suffix}"


def copied(disk: MemoryDisk) -> MemoryDisk:
    """The same files on another disk."""
    other = MemoryDisk()
    other.make_directories(FOLDER)
    for name in disk.list(FOLDER):
        other.open(f"{FOLDER}/{name}", create=True).append([disk.read_file(f"{FOLDER}/{name}")])
    return other


def resize(disk: MemoryDisk, file: str, size: int) -> None:
    disk.open(file).truncate(size)


def test_a_truncated_tail_is_truncated_to_whole_batches() -> None:
    """M1: a kill -9 may end a write after any of its bytes."""
    disk = MemoryDisk()
    log = filled(disk, 9)
    base = log.segments.bases[-1]
    size, one = disk.size(path(base)), len(batch(8))
    held = size // one
    first = 9 - held
    for end in range(size + 1):
        torn = copied(disk)
        resize(torn, path(base), end)
        recovered = reopen(torn)
        expected = first + end // one
        assert numbers(recovered) == list(range(expected))
        assert recovered.log_end_offset == 2 * expected
        assert torn.size(path(recovered.segments.bases[-1])) % one == 0
        again = recovered.append_as_leader(batch(expected), leader_epoch=9, now_ms=NOW)
        assert (again.first_offset, again.duplicate) == (2 * expected, False)
        assert recovered.append_as_leader(batch(expected - 1), leader_epoch=9, now_ms=NOW).duplicate
        recovered.write()
        assert numbers(recovered) == list(range(expected + 1))


def test_a_tail_of_zeros_or_garbage_is_truncated() -> None:
    disk = MemoryDisk()
    log = filled(disk, 9)
    base = log.segments.bases[-1]
    for rubbish in (b"\0", b"\0" * 1000, b"\xff" * 70, os.urandom(300), bytes(batch(9))[:-1], bytes(batch(0))):
        torn = copied(disk)
        torn.open(path(base)).append([rubbish])
        assert numbers(reopen(torn)) == list(range(9)), rubbish


def test_a_damaged_byte_anywhere_in_the_last_batches_ends_the_log_before_it() -> None:
    disk = MemoryDisk()
    log = filled(disk, 9)
    base = log.segments.bases[-1]
    content, one = disk.read_file(path(base)), len(batch(8))
    first = 9 - len(content) // one
    uncovered = {*range(8), *range(12, 16)}  # the base offset and the leader epoch, which the checksum leaves out
    for position in range(len(content)):
        if position % one in uncovered:
            continue
        damaged = copied(disk)
        changed = bytearray(content)
        changed[position] ^= 0x80
        put(damaged, path(base), bytes(changed))
        assert numbers(reopen(damaged)) == list(range(first + position // one))


def test_an_unsynced_segment_is_truncated_at_damage() -> None:
    disk = MemoryDisk()
    log = filled(disk, 12)
    bases = log.segments.bases
    assert len(bases) > 2
    resize(disk, path(bases[1]), disk.size(path(bases[1])) - 1)
    recovered = reopen(disk)
    assert numbers(recovered) == list(range(bases[2] // 2 - 1))
    assert recovered.segments.bases == bases[:2]
    assert not disk.exists(path(bases[2]))
    assert not disk.exists(path(bases[2], ".snapshot"))


def test_a_gap_between_unsynced_segments_ends_the_log() -> None:
    """A power cut may lose the whole end of one segment and none of the next."""
    disk = MemoryDisk()
    log = filled(disk, 12)
    bases = log.segments.bases
    resize(disk, path(bases[1]), disk.size(path(bases[1])) - len(batch(0)))
    recovered = reopen(disk)
    assert numbers(recovered) == list(range(bases[2] // 2 - 1))
    disk.remove(path(bases[0]))
    assert reopen(disk).log_start_offset == bases[1]


def test_a_gap_before_the_log_start_offset_loses_nothing() -> None:
    disk = MemoryDisk()
    log = filled(disk, 12)
    bases = log.segments.bases
    resize(disk, path(bases[0]), 0)
    assert numbers(reopen(copied(disk))) == []
    kept = reopen(disk, log_start_offset=bases[1])
    assert numbers(kept) == list(range(bases[1] // 2, 12))


def copied_from_far(disk: MemoryDisk, *offsets: int) -> Log:
    """A follower's log with batches at `offsets`, which compaction has left of its leader's log."""
    log = Log.open(disk, FOLDER, SMALL, now_ms=NOW)
    for number, offset in enumerate(offsets):
        data = batch(number)
        assign_offset(data, 0, offset, 0)
        log.append_as_follower(data, now_ms=NOW)
    log.flush()
    return log


@pytest.mark.parametrize(("first", "bases"), [(FAR, [0, FAR]), (0, [0, 2, FAR])])
def test_a_follower_begins_a_segment_for_an_offset_that_its_last_one_cannot_index(first: int, bases: list[int]) -> None:
    """A segment has room for 2**31 offsets. One that is left empty before a longer gap has lost nothing."""
    disk = MemoryDisk()
    offsets = sorted({first, FAR, FAR + 10, FAR + 12})
    log = copied_from_far(disk, *offsets)
    assert log.segments.bases[: len(bases)] == bases
    assert list(contents(log)) == offsets
    log.abandon()
    assert damages(disk, FOLDER) == []
    for _ in range(2):
        recovered = reopen(disk)
        assert list(contents(recovered)) == offsets
        assert recovered.truncated.size == 0


def test_a_segment_that_lost_its_records_before_a_long_gap_ends_the_log() -> None:
    disk = MemoryDisk()
    copied_from_far(disk, 0, FAR).abandon()
    resize(disk, path(0), 0)
    recovered = reopen(disk)
    assert (recovered.segments.bases, recovered.log_end_offset) == ([0], 0)


def test_a_batch_of_an_older_leader_ends_the_log() -> None:
    """An unsynced truncation leaves such a batch."""
    disk = MemoryDisk()
    log = filled(disk, 9)
    stale = batch(9)
    struct.pack_into(">q", stale, 0, log.log_end_offset)
    struct.pack_into(">i", stale, 12, 1)
    disk.open(path(log.segments.bases[-1])).append([stale])
    assert numbers(reopen(disk)) == list(range(9))


def test_recovery_begins_at_the_recovery_point() -> None:
    disk = MemoryDisk()
    log = filled(disk, 12)
    bases = log.segments.bases
    log.flush()
    log.abandon()
    damaged = bytearray(disk.read_file(path(bases[0])))
    damaged[HEADER_SIZE] ^= 1
    put(disk, path(bases[0]), bytes(damaged))
    synced = reopen(copied(disk), recovery_point=bases[1])
    assert synced.log_end_offset == 24, "what is synced is not read again"
    assert reopen(copied(disk), recovery_point=bases[1] - 1).log_end_offset == 0


def test_a_log_truncated_by_recovery_stays_truncated_after_a_power_failure() -> None:
    disk = MemoryDisk()
    log = filled(disk, 9)
    base = log.segments.bases[-1]
    whole = disk.size(path(base))
    handle = disk.open(path(base))
    handle.append([b"\0" * 30, bytes(batch(9))])
    handle.sync()
    for directory in ("/", "/data", FOLDER):
        disk.sync_directory(directory)
    reopen(disk)
    disk.cut_power(Survival.LOSE)
    assert disk.size(path(base)) == whole


def test_the_segment_that_was_recovered_is_recovered_again_until_it_is_flushed() -> None:
    disk = MemoryDisk()
    log = filled(disk, 9)
    log.close()
    end = log.log_end_offset
    log = reopen(disk, clean=True)
    log.append_as_leader(batch(9), leader_epoch=3, now_ms=NOW)
    log.write()
    recovered = reopen(disk, recovery_point=end)
    assert recovered.writer.recovery_point == recovered.segments.bases[-1], "its index is not on the disk"
    assert recovered.writer.synced_offset == end


def test_a_log_that_ends_at_its_recovery_point_is_not_read() -> None:
    """Nothing was written to it since it was closed; after `kill -9` that holds for most logs of a broker."""
    disk = MemoryDisk()
    log = filled(disk, 12)
    log.close()
    end, newest = log.log_end_offset, path(log.segments.bases[-1])
    content = bytearray(disk.read_file(newest))
    content[HEADER_SIZE] ^= 1
    put(disk, newest, bytes(content))
    untouched = reopen(copied(disk), recovery_point=end)
    assert (untouched.log_end_offset, untouched.writer.recovery_point) == (end, end)
    assert untouched.append_as_leader(batch(11), leader_epoch=3, now_ms=NOW).duplicate
    assert reopen(copied(disk), recovery_point=end - 1).log_end_offset < end, "it is read when it is not synced"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("rubbish", [b"\0" * 24, b"\xff" * 24, b"\1"])
def test_a_log_that_ends_at_its_recovery_point_is_read_if_an_index_has_more(suffix: str, rubbish: bytes) -> None:
    """Appends that a power cut lost may have left index entries."""
    disk = MemoryDisk()
    log = filled(disk, 13, replace(SMALL, segment_bytes=5000))
    log.close()
    disk.open(path(0, suffix)).append([rubbish])
    content = bytearray(disk.read_file(path(0)))
    content[HEADER_SIZE] ^= 1
    put(disk, path(0), bytes(content))
    assert reopen(disk, recovery_point=log.log_end_offset).log_end_offset == 0


def test_recovery_is_the_same_when_it_is_repeated() -> None:
    disk = MemoryDisk()
    log = filled(disk, 12)
    resize(disk, path(log.segments.bases[-1]), 5)
    first = reopen(disk)
    expected = (numbers(first), first.segments.bases, first.epochs.entries)
    for _ in range(3):
        disk.kill()
        again = reopen(disk)
        assert (numbers(again), again.segments.bases, again.epochs.entries) == expected


def test_recovery_rebuilds_the_same_indexes() -> None:
    disk = MemoryDisk()
    log = filled(disk, 30)
    log.close()
    names = [name for name in disk.list(FOLDER) if name.endswith(("index",))]
    before = {name: disk.read_file(f"{FOLDER}/{name}") for name in names}
    assert sum(map(len, before.values())) > 200
    for name in names:
        put(disk, f"{FOLDER}/{name}", os.urandom(40))
    reopen(disk).close()
    assert {name: disk.read_file(f"{FOLDER}/{name}") for name in names} == before


def test_a_finished_segment_gets_back_an_index_that_is_missing_or_wrong() -> None:
    disk = MemoryDisk()
    log = filled(disk, 30)
    log.close()
    bases = log.segments.bases
    before = {base: disk.read_file(path(base, ".timeindex")) for base in bases}
    disk.remove(path(bases[0], ".index"))
    disk.remove(path(bases[1], ".timeindex"))
    put(disk, path(bases[2], ".timeindex"), b"")
    disk.open(path(bases[3], ".index")).append([b"1"])
    reopened = reopen(disk, clean=True)
    assert {base: disk.read_file(path(base, ".timeindex")) for base in bases} == before
    assert numbers(reopened) == list(range(30))
    for number in range(30):
        found = at_once(reopened.find_offset(NOW + number))
        assert found.offset == 2 * number


def test_damage_in_a_synced_segment_leaves_the_other_batches_readable(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    log = filled(disk, 30)
    log.close()
    first, second = log.segments.bases[:2]
    damaged = bytearray(disk.read_file(path(first)))
    damaged[len(batch(0)) + 16] = 77
    put(disk, path(first), bytes(damaged))
    disk.remove(path(first, ".index"))
    with caplog.at_level(logging.ERROR, "odradek.log"):
        reopened = reopen(disk, clean=True)
    assert "is not indexed" in caplog.text
    assert disk.read_file(path(first)) == bytes(damaged), "nothing is cut that was synced"
    assert reopened.log_end_offset == 60
    assert next(iterate_batches(reopened.read(second, 1)))[1].base_offset == second


def test_a_segment_that_was_flushed_whole_still_gets_the_last_entry_of_its_time_index() -> None:
    """The roll comes after the flush, and with it the entry that retention goes by."""
    disk = MemoryDisk()
    log = filled(disk, 4)
    assert log.segments.bases == [0]
    log.flush()
    log.append_as_leader(batch(4), leader_epoch=1, now_ms=NOW)
    log.write()
    assert log.segments.bases == [0, 8]
    disk.kill()
    recovered = reopen(disk, recovery_point=log.writer.recovery_point)
    found = at_once(recovered.find_offset(NOW + 3))
    assert found.offset == 6
    recovered.close()
    assert struct.unpack(">qI", disk.read_file(path(0, ".timeindex"))[-12:]) == (NOW + 3, 7)


def test_epochs_are_rebuilt_from_the_batches() -> None:
    disk = MemoryDisk()
    log = filled(disk, 12)
    expected = [(0, 0), (1, 8), (2, 16)]
    assert log.epochs.entries == expected
    log.abandon()
    assert not disk.exists(f"{FOLDER}/leader-epoch-checkpoint")
    assert reopen(disk).epochs.entries == expected
    reopened = reopen(disk)
    reopened.close()
    assert disk.read_file(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n3\n0 0\n1 8\n2 16\n"
    put(disk, f"{FOLDER}/leader-epoch-checkpoint", b"0\n9\nnonsense")
    assert reopen(disk, clean=True).epochs.entries == expected


def test_producers_are_rebuilt_from_a_snapshot_and_what_follows() -> None:
    disk = MemoryDisk()
    filled(disk, 12).abandon()
    for damage in (None, b"", b"rubbish that is no snapshot", b"\0" * 100):
        other = copied(disk)
        if damage is not None:
            for name in other.list(FOLDER):
                if name.endswith(".snapshot"):
                    put(other, f"{FOLDER}/{name}", damage)
        log = reopen(other)
        for number in range(7, 12):
            assert log.append_as_leader(batch(number), leader_epoch=2, now_ms=NOW).duplicate
        with pytest.raises(KafkaError) as caught:
            log.append_as_leader(batch(13), leader_epoch=2, now_ms=NOW)
        assert caught.value.code == ErrorCode.out_of_order_sequence_number
        assert log.append_as_leader(batch(12), leader_epoch=2, now_ms=NOW).first_offset == 24


@pytest.mark.parametrize("segment_bytes", [1000, 1 << 20])
def test_after_a_clean_close_each_of_the_last_five_batches_may_be_sent_again(segment_bytes: int) -> None:
    """A snapshot has the last one only; whoever had no answer when the broker stopped has five on their way."""
    disk = MemoryDisk()
    config = replace(SMALL, segment_bytes=segment_bytes)
    filled(disk, 12, config).close()
    log = Log.open(disk, FOLDER, config, now_ms=NOW, clean=True, recovery_point=24)
    for number in range(7, 12):
        repeated = log.append_as_leader(batch(number), leader_epoch=2, now_ms=NOW)
        assert (repeated.duplicate, repeated.first_offset) == (True, 2 * number)
    assert log.append_as_leader(batch(12), leader_epoch=2, now_ms=NOW).first_offset == 24


def test_a_truncation_within_a_segment_removes_the_snapshot_of_a_clean_shutdown() -> None:
    """It would describe other records once the log has grown again, and is truncated a second time."""
    disk, config = MemoryDisk(), replace(SMALL, segment_bytes=1 << 20)
    filled(disk, 12, config).close()
    assert disk.exists(path(24, ".snapshot"))
    log = Log.open(disk, FOLDER, config, now_ms=NOW, clean=True, recovery_point=24)
    log.truncate_to(20)
    assert not disk.exists(path(24, ".snapshot"))


def test_a_snapshot_beyond_the_end_is_ignored() -> None:
    disk = MemoryDisk()
    log = filled(disk, 12)
    last = log.segments.bases[-1]
    log.abandon()
    disk.remove(path(last))
    recovered = reopen(disk)
    assert not disk.exists(path(last + 1, ".snapshot"))
    assert recovered.append_as_leader(batch(last // 2), leader_epoch=3, now_ms=NOW).duplicate is False
    recovered.write()
    assert numbers(recovered) == list(range(last // 2 + 1))


def test_after_a_clean_close_nothing_is_read_but_the_end() -> None:
    disk = MemoryDisk()
    log = filled(disk, 30)
    log.close()
    bases = log.segments.bases
    size = disk.size(path(bases[0]))
    put(disk, path(bases[0]), b"\0" * size)
    reopened = reopen(disk, clean=True)
    assert reopened.log_end_offset == 60
    assert (reopened.writer.recovery_point, reopened.written_offset) == (60, 60)
    assert reopened.epochs.latest == 7
    assert reopened.append_as_leader(batch(30), leader_epoch=7, now_ms=NOW).first_offset == 60


def test_a_wrong_clean_mark_is_detected_at_the_end_of_the_log() -> None:
    disk = MemoryDisk()
    log = filled(disk, 9)
    log.close()
    base = log.segments.bases[-1]
    resize(disk, path(base), disk.size(path(base)) - 3)
    assert numbers(reopen(disk, clean=True)) == list(range(8))


def test_files_of_interrupted_deletions_and_compactions_are_removed() -> None:
    disk = MemoryDisk()
    filled(disk, 9).close()
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.cleaned", "x.tmp", "notes.txt"):
        put(disk, f"{FOLDER}/{name}", b"x")
    put(disk, path(99, ".index"), b"x")
    assert numbers(reopen(disk, clean=True)) == list(range(9))
    names = disk.list(FOLDER)
    assert "notes.txt" in names
    assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".tmp"))]
    assert not disk.exists(path(99, ".index"))


def test_a_log_without_records_after_its_start_offset_starts_there() -> None:
    disk = MemoryDisk()
    filled(disk, 3).abandon()
    log = reopen(disk, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert log.append_as_leader(batch(0), leader_epoch=8, now_ms=NOW).first_offset == 50
    log.write()
    assert reopen(disk, log_start_offset=50).log_end_offset == 52


def test_an_empty_folder_is_an_empty_log() -> None:
    disk = MemoryDisk()
    disk.make_directories(FOLDER)
    assert reopen(disk).log_end_offset == 0
    disk.cut_power(Survival.KEEP)
    assert reopen(disk, clean=True).log_end_offset == 0


def test_batches_that_cross_a_read_buffer_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the pieces are: smaller than a batch, than a header almost, or the size of a batch to the byte."""
    disk = MemoryDisk()
    log = filled(disk, 9)
    base, one = log.segments.bases[-1], len(batch(8))
    damaged = copied(disk)
    content = bytearray(disk.read_file(path(base)))
    content[-1] ^= 1
    put(damaged, path(base), bytes(content))
    whole = reopen(copied(disk))
    for size in (HEADER_SIZE, HEADER_SIZE + 1, one - 1, one, one + 1, one + HEADER_SIZE, 2 * one + 30):
        monkeypatch.setattr(segment_recovery, "_CHUNK_BYTES", size)
        recovered = reopen(copied(disk))
        assert numbers(recovered) == list(range(9)), size
        assert recovered.epochs.entries == whole.epochs.entries
        assert at_once(recovered.find_max_timestamp()) == at_once(whole.find_max_timestamp())
        assert recovered.append_as_leader(batch(8), leader_epoch=9, now_ms=NOW).duplicate
        assert numbers(reopen(copied(damaged))) == list(range(8)), size


WRITER = """
import sys
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import SystemDisk

log = Log.open(SystemDisk(), sys.argv[1], LogConfig(segment_bytes=200_000), now_ms=0)
number = 0
while True:
    for _ in range(3):
        value = b"%d " % number * 300
        log.append_as_leader(encode_batch([(number, None, value, ())]), leader_epoch=0, now_ms=0)
        number += 1
    log.write()
    sys.stdout.write(f"{log.written_offset}\\n")
    sys.stdout.flush()
"""


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    """M1: kill -9 of a process that writes as fast as it can."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, f"{tmp_path}/t-0"], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        acknowledged = 0
        while acknowledged < 1500:
            acknowledged = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        lines = writer.stdout.read().split("\n")
        whole = [int(line) for line in lines[:-1]]
    acknowledged = max([acknowledged, *whole])
    log = Log.open(SystemDisk(), f"{tmp_path}/t-0", LogConfig(), now_ms=0)
    assert log.log_end_offset >= acknowledged
    offset = 0
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20)
        for position, header in iterate_batches(data):
            (record,) = decode_records(memoryview(data)[position : position + header.size])
            assert record.value == b"%d " % offset * 300
            offset = header.next_offset
    log.abandon()
