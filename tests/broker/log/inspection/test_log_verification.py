"""Each kind of damage is found, and named at its byte; what is no damage is said, and nothing is touched. Row M1."""

import struct
from collections.abc import Callable

import pytest

from odradek.broker.log.inspection.verification import Verification
from odradek.model import TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import write_header
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import (
    FIRST,
    FOLDER,
    NOW,
    batches,
    damages,
    data_directory,
    flip,
    put,
    rewrite,
    segments,
    verify,
)

Harm = Callable[[MemoryDisk, str], int]
"""Functions that damage a segment and return the damaged byte, which the finding must name."""


def test_a_cleanly_closed_directory_has_no_findings() -> None:
    disk, _ = data_directory()
    told: list[int] = []
    verification = Verification(disk, records=True, advance=told.append)
    assert list(verification.data_directory("/data")) == []
    totals = verification.totals
    assert (totals.logs, totals.batches, totals.records) == (3, 60, 120)
    assert totals.segments == 7
    assert sum(told) == totals.bytes > 0
    assert len(segments(disk)) == 3
    assert list(Verification(disk).partition_directory(FOLDER)) == []


# ---- a .log file ----------------------------------------------------------------------------------------------------


def test_every_bit_that_the_checksum_covers_is_noticed_and_its_batch_named() -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.log"
    for position, header in batches(disk, path):
        for byte in [*range(position + 16, position + 61), position + header.size - 1]:
            flip(disk, path, byte)
            assert (path, position) in damages(disk, FOLDER), byte
            flip(disk, path, byte)
    assert damages(disk) == []


def test_every_bit_that_no_checksum_covers_is_noticed_where_other_files_or_batches_show_it() -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.log"
    for position, _ in batches(disk, path)[1:-1]:
        for byte in range(position, position + 16):
            flip(disk, path, byte)
            assert damages(disk, FOLDER), byte
            flip(disk, path, byte)


def cut_in_a_header(disk: MemoryDisk, path: str) -> int:
    position, _ = batches(disk, path)[-1]
    put(disk, path, disk.read_file(path)[: position + 20])
    return position


def cut_in_records(disk: MemoryDisk, path: str) -> int:
    position, _ = batches(disk, path)[-1]
    put(disk, path, disk.read_file(path)[:-1])
    return position


def zeros(disk: MemoryDisk, path: str) -> int:
    position, header = batches(disk, path)[2]
    data = disk.read_file(path)
    put(disk, path, data[:position] + bytes(header.size) + data[position + header.size :])
    return position


def of_magic(magic: int) -> Harm:
    def harm(disk: MemoryDisk, path: str) -> int:
        position, _ = batches(disk, path)[3]
        flip(disk, path, position + 16, 2 ^ magic)
        return position

    return harm


def too_short(disk: MemoryDisk, path: str) -> int:
    position, header = batches(disk, path)[3]
    data = bytearray(disk.read_file(path))
    struct.pack_into(">i", data, position + 8, 40)
    assert header.batch_length != 40
    put(disk, path, data)
    return position


def twice(disk: MemoryDisk, path: str) -> int:
    data = disk.read_file(path)
    position, header = batches(disk, path)[-1]
    put(disk, path, data + data[position:])
    return position + header.size


def with_changes(number: int, **changes: int) -> Harm:
    return lambda disk, path: rewrite(disk, path, number, **changes)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(cut_in_a_header, "ends with 20 bytes of a batch", id="cut in a header"),
        pytest.param(cut_in_records, "bytes of a batch that declares", id="cut in its records"),
        pytest.param(zeros, "zeros where a batch should begin", id="zeros"),
        pytest.param(of_magic(1), "message format 1", id="magic 1"),
        pytest.param(of_magic(9), "unknown magic 9", id="magic 9"),
        pytest.param(too_short, "declares 52 bytes", id="a length that cannot be"),
        pytest.param(twice, ", not from ", id="a batch twice"),
        pytest.param(with_changes(4, base_offset=1), "the offsets 1 to ", id="an offset that falls"),
        pytest.param(with_changes(4, last_offset_delta=-2), ", not from ", id="a negative delta"),
        pytest.param(with_changes(4, record_count=9), "a count of 9 records", id="too many records"),
        pytest.param(with_changes(4, attributes=6), "unknown codec 6", id="no codec"),
    ],
)
def test_a_damaged_segment_is_named_with_the_batch_that_is_wrong(harm: Harm, words: str) -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.log"
    byte = harm(disk, path)
    found = {finding.path: finding for finding in verify(disk) if finding.is_damage}
    assert found[path].byte == byte
    assert words in found[path].reason
    assert all(other.startswith(FOLDER) for other in found), "the other partition is not to blame"


def test_a_leader_epoch_that_falls_is_named() -> None:
    disk, _ = data_directory()
    path = next(f"{each}.log" for each in segments(disk) if batches(disk, f"{each}.log")[0][1].base_offset > 30)
    position = rewrite(disk, path, 1, partition_leader_epoch=1)
    found = {finding.path: finding for finding in verify(disk) if finding.is_damage}
    assert (found[path].byte, "leader epoch 1, after 2" in found[path].reason) == (position, True)


def test_an_unreadable_record_is_found_when_records_are_requested() -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.log"
    position, header = batches(disk, path)[4]
    assert header.codec is Codec.GZIP
    data = bytearray(disk.read_file(path))
    data[position + 80] ^= 0xFF
    batch = data[position : position + header.size]
    write_header(batch, header)
    data[position : position + header.size] = batch
    put(disk, path, data)
    assert damages(disk) == [], "the checksum is right"
    assert damages(disk, records=True) == [(path, position)]


def test_only_the_first_damage_of_a_file_is_named_and_the_others_are_counted() -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.log"
    for number in (5, 2, 4):
        flip(disk, path, batches(disk, path)[number][0] + 70)
    (finding,) = verify(disk)
    assert (finding.path, finding.byte) == (path, batches(disk, path)[2][0])
    assert finding.reason.endswith("; 2 more things in it are wrong")


def test_a_segments_last_batch_that_is_damaged_is_not_taken_for_a_gap_too() -> None:
    disk, _ = data_directory()
    position, header = batches(disk, f"{FIRST}.log")[-1]
    assert header.next_offset == int(segments(disk)[1][-20:])
    flip(disk, f"{FIRST}.log", position + 70)
    assert damages(disk) == [(f"{FIRST}.log", position)]


def test_a_segment_that_is_gone_leaves_a_gap_unless_compaction_explains_it() -> None:
    disk, _ = data_directory()
    _, second, third = (int(each[-20:]) for each in segments(disk))
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        disk.remove(f"{FOLDER}/{second:020d}{suffix}")
    (finding,) = verify(disk)
    assert (finding.path, finding.byte) == (f"{FOLDER}/{third:020d}.log", 0)
    assert f"offsets {second} to {third - 1} are in no file" in finding.reason
    put(disk, "/data/cleaner-offset-checkpoint", f"0\n1\nt 0 {third}\n".encode())
    assert verify(disk) == []
    assert verify(disk, FOLDER) == []


def test_a_segment_that_begins_too_early_is_named() -> None:
    disk, _ = data_directory()
    second = int(segments(disk)[1][-20:])
    disk.rename(f"{FOLDER}/{second:020d}.log", f"{FOLDER}/{second - 1:020d}.log")
    found = [finding for finding in verify(disk) if finding.path.endswith(f"{second - 1:020d}.log")]
    assert [(finding.byte, "the segment before it ends at" in finding.reason) for finding in found] == [(0, True)]


def test_missing_offsets_inside_a_segment_are_a_note() -> None:
    """A replica copies a compacted log with its gaps, so that nobody can tell from the file alone."""
    disk, _ = data_directory()
    path = f"{FIRST}.log"
    position, header = batches(disk, path)[3]
    data = disk.read_file(path)
    put(disk, path, data[:position] + data[position + header.size :])
    for suffix in (".index", ".timeindex"):
        disk.remove(FIRST + suffix)
    notes = [finding for finding in verify(disk) if finding.path == path]
    assert [(note.is_damage, note.byte) for note in notes] == [(False, position)]
    assert f"offsets {header.base_offset} to {header.last_offset}" in notes[0].reason


# ---- indexes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "width"), [(".index", 8), (".timeindex", 12)])
def test_every_wrong_index_entry_is_named(suffix: str, width: int) -> None:
    disk, _ = data_directory()
    path = FIRST + suffix
    size = disk.size(path)
    assert size >= 5 * width
    for byte in range(size):
        for bits in (1, 4, 0x80):
            flip(disk, path, byte, bits)
            said = [(finding.path, finding.byte) for finding in verify(disk, FOLDER)]
            harmless = suffix == ".timeindex" and byte % width >= 8 and bits == 1  # another record of the same batch
            assert said == [(path, byte - byte % width)] or (harmless and not said), (byte, bits)
            flip(disk, path, byte, bits)


@pytest.mark.parametrize(("suffix", "width"), [(".index", 8), (".timeindex", 12)])
def test_a_truncated_index_is_named_with_its_last_entry(suffix: str, width: int) -> None:
    disk, _ = data_directory()
    path = FIRST + suffix
    data = disk.read_file(path)
    put(disk, path, data[:-3])
    found = [finding for finding in verify(disk) if finding.path == path]
    assert (len(found), found[0].byte) == (1, len(data) - width)
    assert f"ends with {width - 3} bytes of an entry that has {width}" in found[0].reason


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_preallocated_index_of_kafka_ends_where_its_zeros_begin(suffix: str) -> None:
    disk, _ = data_directory()
    put(disk, FIRST + suffix, disk.read_file(FIRST + suffix) + bytes(1200))
    assert verify(disk) == []


def test_a_time_index_without_its_last_entry_is_named() -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.timeindex"
    size = disk.size(path)
    put(disk, path, disk.read_file(path)[:-12])
    (finding,) = verify(disk)
    assert (finding.path, finding.byte) == (path, size - 12)
    assert "largest timestamp" in finding.reason


def test_an_index_entry_for_several_batches_as_kafkas_followers_write_them_is_said() -> None:
    disk, _ = data_directory()
    path = f"{FIRST}.index"
    entries = [struct.unpack_from(">II", disk.read_file(path), byte) for byte in range(0, disk.size(path), 8)]
    lasts = [header.last_offset for _, header in batches(disk, f"{FIRST}.log")]
    later = next(last for last in lasts if entries[1][0] < last < entries[2][0])
    put(
        disk, path, b"".join(struct.pack(">II", *entry) for entry in [entries[0], (later, entries[1][1]), *entries[2:]])
    )
    (note,) = verify(disk)
    assert (note.path, note.byte, note.is_damage) == (path, 8, False)


def test_a_missing_index_is_wrong_only_where_the_broker_had_closed_it() -> None:
    disk, _ = data_directory()
    disk.remove(f"{FIRST}.index")
    (finding,) = verify(disk)
    assert (finding.path, finding.reason) == (f"{FIRST}.index", "is missing")
    disk.remove("/data/.kafka_cleanshutdown")
    assert [each.reason for each in verify(disk)] == ["was not closed by its broker; the next start recovers it"]


def test_an_index_whose_segment_is_gone_is_named() -> None:
    disk, _ = data_directory()
    last = segments(disk)[-1]
    disk.remove(f"{last}.log")
    assert {(f"{last}.index", None), (f"{last}.timeindex", None)} <= set(damages(disk))


# ---- the other files ------------------------------------------------------------------------------------------------


def test_a_damaged_snapshot_is_named() -> None:
    disk, _ = data_directory()
    path = next(f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(".snapshot"))
    flip(disk, path, 20)
    assert damages(disk) == [(path, 0)]


def test_a_snapshot_that_knows_more_than_its_offset_is_named() -> None:
    disk, _ = data_directory()
    *_, last = (f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(".snapshot"))
    put(disk, f"{FOLDER}/{5:020d}.snapshot", disk.read_file(last))
    assert damages(disk) == [(f"{FOLDER}/{5:020d}.snapshot", 0)]


@pytest.mark.parametrize(
    ("data", "byte", "words"),
    [
        (b"7\n2\n0 0\n2 30\n", 0, "not a checkpoint of version 0"),
        (b"0\n3\n0 0\n2 30\n", 2, "declares '3' lines"),
        (b"0\n2\n0 0\n2 x\n", 8, "not an epoch and offset"),
        (b"0\n2\n2 0\n0 30\n", 8, "do not rise"),
        (b"0\n2\n0 0\n2 27\n", 8, "says that offset 27 is of leader epoch 2, and its batch is of 0"),
        (b"0\n2\n0 0\n2 28\n", 8, "begins inside a batch"),
        (b"0\n2\n0 0\n1 30\n", 13, "lacks leader epoch 2"),
        (b"0\n2\n0 0\n3 30\n", 8, "of leader epoch 3, and its batch is of 2"),
        (b"0\n1\n0 0\n", 8, "lacks leader epoch 2, which wrote offset 30"),
    ],
)
def test_wrong_leader_epochs_are_named(data: bytes, byte: int, words: str) -> None:
    disk, _ = data_directory()
    path = f"{FOLDER}/leader-epoch-checkpoint"
    assert disk.read_file(path) == b"0\n2\n0 0\n2 30\n"
    put(disk, path, data)
    (finding,) = verify(disk)
    assert (finding.path, finding.byte) == (path, byte)
    assert words in finding.reason


def test_leader_epochs_may_be_outdated_after_a_crash() -> None:
    disk, _ = data_directory()
    put(disk, f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    disk.remove("/data/.kafka_cleanshutdown")
    assert damages(disk) == []


def test_a_log_without_records_and_epochs_has_no_findings() -> None:
    disk, manager = data_directory(is_closed=False)
    partition = TopicPartition("t", 0)
    log = manager.logs[partition]
    start = next(header.base_offset for _, header in batches(disk, f"{FIRST}.log")[3:])
    log.advance_log_start_offset(start)
    manager.truncate_to(partition, start)
    manager.close()
    assert disk.read_file(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n0\n"
    assert verify(disk) == []
    assert verify(disk, FOLDER) == []
    disk.remove("/data/log-start-offset-checkpoint")
    assert damages(disk) == [(f"{FOLDER}/leader-epoch-checkpoint", 4)]


@pytest.mark.parametrize(
    ("name", "data", "byte"),
    [
        ("t-0/partition.metadata", b"version: 0\ntopic_id: zz\n", 11),
        ("t-0/partition.metadata", b"version: 4\ntopic_id: 7v5cnkUySiqEcs2UPUpdUg\n", 0),
        ("meta.properties", b"version=0\nbroker.id=one\n", 10),
        ("meta.properties", b"#x\nversion=9\n", 3),
        ("meta.properties", b"version=0\ncluster.id=\xff\n", 10),
        ("recovery-point-offset-checkpoint", b"0\n2\nt 0 60\nt 1\n", 11),
        ("recovery-point-offset-checkpoint", b"0\n2\nt 0 60\nt 1 61\n", 11),
        ("log-start-offset-checkpoint", b"0\n1\nt 0 100\n", 4),
        ("replication-offset-checkpoint", b"0\n1\n", 2),
        ("cleaner-offset-checkpoint", b"1\n0\n", 0),
    ],
)
def test_a_wrong_small_file_is_named_with_its_line(name: str, data: bytes, byte: int) -> None:
    disk, _ = data_directory()
    put(disk, f"/data/{name}", data)
    assert damages(disk) == [(f"/data/{name}", byte)]


# ---- a broker that runs, and one that died --------------------------------------------------------------------------


def test_an_incomplete_end_beside_a_running_broker_is_a_note() -> None:
    disk, _ = data_directory(is_closed=False)
    last = segments(disk)[-1]
    position = cut_in_records(disk, f"{last}.log")
    put(disk, f"{last}.index", struct.pack(">II", 2**20, 2**20) + b"\0\0\0")
    findings = verify(disk)
    assert [(each.path, each.byte) for each in findings] == [
        ("/data", None),
        (f"{last}.log", position),
        (f"{last}.index", 8),
    ]
    assert not any(each.is_damage for each in findings)
    assert "is in use by process 1" in findings[0].reason
    assert "it is being written" in findings[1].reason
    assert [each.is_damage for each in verify(disk, FOLDER)] == [False, False, False]


def test_beside_a_running_broker_damage_is_damage() -> None:
    disk, _ = data_directory(is_closed=False)
    position, _ = batches(disk, f"{FIRST}.log")[2]
    flip(disk, f"{FIRST}.log", position + 70)
    second = segments(disk)[1]
    put(disk, f"{second}.log", disk.read_file(f"{second}.log")[:-1])
    assert (f"{FIRST}.log", position) in damages(disk)
    assert f"{second}.log" in [path for path, _ in damages(disk)], "only the last segment is written to"


def test_after_a_crash_a_truncated_batch_is_damage_until_recovery() -> None:
    disk, manager = data_directory(is_closed=False)
    manager.kill()
    assert [each.reason for each in verify(disk)] == ["was not closed by its broker; the next start recovers it"]
    last = f"{segments(disk)[-1]}.log"
    position = cut_in_records(disk, last)
    assert damages(disk) == [(last, position)]
    manager.open(NOW)
    manager.close()
    assert verify(disk) == []


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, _ = data_directory()
    read = disk.read_file

    def fail(path: str) -> bytes:
        if path == f"{FIRST}.index":
            raise OSError(5, "Input/output error", path)
        return read(path)

    monkeypatch.setattr(disk, "read_file", fail)
    found = [finding for finding in verify(disk) if finding.path == f"{FIRST}.index"]
    assert [finding.reason for finding in found] == ["cannot be read: Input/output error"]
