"""Every file format to the byte, as Kafka has it, and what each refuses. Row M1."""

import struct
import uuid

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.log.checkpoints import meta_properties
from odradek.broker.log.checkpoints.checkpoint_file import decode_lines, decode_offsets, encode_offsets
from odradek.broker.log.checkpoints.leader_epoch_cache import EpochStart, LeaderEpochs
from odradek.broker.log.names import deleted_folder, is_deleted_folder, offset_file, parse_folder, parse_offset_file
from odradek.broker.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from odradek.broker.log.producers.producer_state import AppendedBatch, ProducerEntry, ProducerState
from odradek.broker.log.segments.index_file import PAGE_ENTRIES
from odradek.broker.log.segments.offset_index import OffsetIndex
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.segments.time_index import TimeIndex
from odradek.model import StorageError, TopicPartition
from odradek.simulation.virtual.disk import MemoryDisk


def new_pool() -> tuple[MemoryDisk, FilePool]:
    disk = MemoryDisk()
    disk.make_directories("/d")
    return disk, FilePool(disk)


def test_an_offset_index_has_eight_bytes_an_entry() -> None:
    disk, pool = new_pool()
    index = OffsetIndex(pool.file("/d/i.index"), 1000, max_bytes=800)
    index.append(1007, 4200)
    index.append(1019, 8500)
    index.entries.flush()
    assert disk.read_file("/d/i.index") == bytes.fromhex("00000007 00001068 00000013 00002134")


def test_a_time_index_has_twelve_bytes_an_entry() -> None:
    disk, pool = new_pool()
    index = TimeIndex(pool.file("/d/i.timeindex"), 1000, max_bytes=1200)
    index.append(1_700_000_000_000, 1007)
    index.append(1_700_000_000_000, 1010)
    index.append(1_700_000_000_005, 1019)
    index.entries.flush()
    assert disk.read_file("/d/i.timeindex") == struct.pack(">qIqI", 1_700_000_000_000, 7, 1_700_000_000_005, 19)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.sampled_from([0, 1, PAGE_ENTRIES - 1, PAGE_ENTRIES, 3 * PAGE_ENTRIES + 7]),
    st.integers(0, 60),
)
def test_an_index_finds_the_same_in_memory_and_on_the_disk(steps: list[int], before: int, stored: int) -> None:
    _, pool = new_pool()
    index = OffsetIndex(pool.file("/d/i.index"), 5, max_bytes=1 << 20)
    offset, entries = 5, []
    for number in range(before + len(steps)):
        offset += steps[number % len(steps)]
        entries.append((offset, number * 10 + 1))
        index.append(*entries[-1])
        if number == before + stored:
            index.entries.flush()
    for wanted in {
        5,
        entries[0][0],
        entries[-1][0] + 1,
        *(entry[0] + step for entry in entries[::37] for step in (-1, 0, 1)),
    }:
        expected = max((position for last, position in entries if last <= wanted), default=0)
        assert index.position_below(wanted) == expected
    assert index.entries.last == (entries[-1][0] - 5, entries[-1][1])
    assert [index.entries[number] for number in range(len(entries))] == [(o - 5, p) for o, p in entries]


def test_an_index_forgets_what_is_beyond_a_truncation() -> None:
    disk, pool = new_pool()
    index = OffsetIndex(pool.file("/d/i.index"), 0, max_bytes=1 << 20)
    for number in range(1, 11):
        index.append(number * 10, number * 100)
        if number == 6:
            index.entries.flush()
    index.truncate(801)
    assert len(index.entries) == 8
    index.truncate(300)
    assert index.entries.last == (20, 200)
    assert disk.size("/d/i.index") == 16
    index.append(25, 280)
    assert index.position_below(26) == 280


def test_an_index_repairs_a_write_that_found_no_room() -> None:
    disk, pool = new_pool()
    index = OffsetIndex(pool.file("/d/i.index"), 0, max_bytes=1 << 20)
    for number in range(1, 5):
        index.append(number, number)
    disk.capacity_bytes = 11
    with pytest.raises(OSError, match="No space"):
        index.entries.flush()
    disk.capacity_bytes = None
    assert index.position_below(3) == 3
    index.entries.flush()
    assert disk.read_file("/d/i.index") == struct.pack(">8I", 1, 1, 2, 2, 3, 3, 4, 4)


def test_an_index_is_valid_by_its_own_rules_only() -> None:
    disk, pool = new_pool()
    file = disk.open("/d/i.index", create=True)
    file.append([struct.pack(">4I", 1, 10, 2, 20)])
    index = OffsetIndex(pool.file("/d/i.index"), 0, max_bytes=100, stored_bytes=16)
    assert index.is_valid(16, 21)
    assert not index.is_valid(16, 20), "the last position is outside the segment"
    assert not index.is_valid(17, 21), "not a multiple of 8"


def test_a_full_index_says_so() -> None:
    _, pool = new_pool()
    index = OffsetIndex(pool.file("/d/i.index"), 0, max_bytes=25)
    times = TimeIndex(pool.file("/d/i.timeindex"), 0, max_bytes=37)
    for number in range(1, 10):
        index.append(number, number)
        times.append(number, number)
    assert (len(index.entries), index.is_full) == (3, True)
    assert (len(times.entries), times.is_full) == (2, True)
    times.append(50, 9, at_end=True)
    assert times.last_entry() == (50, 9)


def test_a_snapshot_has_forty_six_bytes_a_producer() -> None:
    entry = ProducerEntry(3, (AppendedBatch(5, 9, 100, 104, 777),), last_timestamp=777)
    data = encode_snapshot(ProducerState({42: entry}))
    body = struct.pack(">iqhiqiqiq", 1, 42, 3, 9, 104, 4, 777, -1, -1)
    assert data == struct.pack(">hI", 1, crc32c(body)) + body
    (found,) = decode_snapshot(data, "x").entries.values()
    assert list(found.batches) == [AppendedBatch(5, 9, 100, 104, 777)]
    assert (found.epoch, found.last_timestamp, found.transaction_start) == (3, 777, -1)


def test_a_snapshot_remembers_a_producer_that_only_has_an_epoch() -> None:
    state = ProducerState({7: ProducerEntry(2, last_timestamp=5)})
    (entry,) = decode_snapshot(encode_snapshot(state), "x").entries.values()
    assert (entry.epoch, entry.last_sequence, list(entry.batches)) == (2, -1, [])


def test_a_snapshot_that_is_damaged_anywhere_is_refused() -> None:
    data = encode_snapshot(ProducerState({42: ProducerEntry(3, (AppendedBatch(5, 9, 100, 104, 777),))}))
    for position in range(len(data)):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(StorageError, match=r"^00\.snapshot"):
            decode_snapshot(bytes(broken), "00.snapshot")
        with pytest.raises(StorageError):
            decode_snapshot(data[:position], "00.snapshot")


def test_an_offset_checkpoint_is_kafkas_text() -> None:
    offsets = {TopicPartition("b", 10): 5, TopicPartition("a", 2): 2**40}
    data = encode_offsets(offsets)
    assert data == b"0\n2\na 2 1099511627776\nb 10 5\n"
    assert decode_offsets(data, "x") == offsets
    assert decode_offsets(b"0\n0\n", "x") == {}
    assert decode_offsets(b"", "x") == {}, "Kafka's brokers begin with an empty file"


@pytest.mark.parametrize(
    "data", [b"\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"0\n", b"0\nx\n"]
)
def test_an_offset_checkpoint_that_is_broken_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError, match="some/path"):
        decode_offsets(data, "some/path")


def test_a_leader_epoch_checkpoint_is_kafkas_text() -> None:
    epochs = LeaderEpochs()
    epochs.assign(0, 0)
    epochs.assign(3, 1500)
    assert epochs.encode() == b"0\n2\n0 0\n3 1500\n"
    assert LeaderEpochs.decode(epochs.encode(), "x").entries == [EpochStart(0, 0), EpochStart(3, 1500)]
    assert decode_lines(epochs.encode(), "x") == [(4, "0 0"), (8, "3 1500")]
    for broken in (b"0\n2\n3 0\n1 5\n", b"0\n2\n1 9\n2 5\n", b"0\n1\n1\n"):
        with pytest.raises(StorageError):
            LeaderEpochs.decode(broken, "x")


def test_meta_properties_are_kafkas() -> None:
    """KIP-858's form is written; that of brokers with ZooKeeper, and the one before it, are read."""
    data = meta_properties.encode_meta_properties(3, "mEgkBPdUTcyZ9uBFk7hDJQ", "cTs6hwuyTyWRqwTXQvbmwA")
    assert data.decode().splitlines() == [
        "version=1",
        "node.id=3",
        "cluster.id=mEgkBPdUTcyZ9uBFk7hDJQ",
        "directory.id=cTs6hwuyTyWRqwTXQvbmwA",
    ]
    expected = meta_properties.DirectoryIdentity(
        broker_id=3, cluster_id="mEgkBPdUTcyZ9uBFk7hDJQ", directory_id="cTs6hwuyTyWRqwTXQvbmwA"
    )
    assert meta_properties.decode_meta_properties(b"#\n#Sat Nov 21\n" + data, "x") == expected
    zookeeper = meta_properties.decode_meta_properties(b"version=0\nbroker.id=4\ncluster.id=c\n", "x")
    assert zookeeper == meta_properties.DirectoryIdentity(broker_id=4, cluster_id="c")
    oldest = meta_properties.decode_meta_properties(b"broker.id=5\n", "x")
    assert oldest == meta_properties.DirectoryIdentity(broker_id=5, cluster_id=None)
    for broken in (b"version=7\nbroker.id=1\n", b"broker.id=one\n", b"\xff"):
        with pytest.raises(StorageError, match="here"):
            meta_properties.decode_meta_properties(broken, "here")


def test_partition_metadata_are_kafkas() -> None:
    topic_id = uuid.UUID("eefe5c9e-4532-4a2a-8472-cd943d4a5d52")
    data = meta_properties.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: 7v5cnkUySiqEcs2UPUpdUg"
    assert meta_properties.decode_partition_metadata(data, "x") == topic_id
    for broken in (b"", b"version: 0\n", b"version: 0\ntopic_id: short\n", data.replace(b"0", b"3", 1)):
        with pytest.raises(StorageError, match="here"):
            meta_properties.decode_partition_metadata(broken, "here")


def test_files_and_folders_are_called_as_kafka_calls_them() -> None:
    assert offset_file("t-0", 42, ".log") == "t-0/00000000000000000042.log"
    assert parse_offset_file("00000000000000000042.snapshot") == (42, ".snapshot")
    assert parse_offset_file("42.log") is None
    assert parse_offset_file("00000000000000000042.log.deleted") is None
    assert parse_folder("my-topic-12") == TopicPartition("my-topic", 12)
    for other in ("meta.properties", "t", "t-", "-1", "t-01", "t-x", "t!-1", "t-²"):
        assert parse_folder(other) is None
    name = deleted_folder(TopicPartition("x" * 249, 5), "0" * 32)
    assert len(name) == 255
    assert is_deleted_folder(name)
    assert parse_folder(name) is None
    assert not is_deleted_folder("x-delete")
