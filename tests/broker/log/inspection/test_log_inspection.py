"""The values read from each of a log's files, and where reading ends. Row M1."""

import struct
import uuid

from msgspec.structs import asdict

from odradek.broker.log.inspection.file_contents import (
    Batch,
    CheckpointEntry,
    Damage,
    LeaderEpoch,
    LoggedRecord,
    OffsetIndexEntry,
    Producer,
    Property,
    Row,
    TimeIndexEntry,
    TransactionIndexEntry,
    inspect,
    is_partition_directory,
    known_files,
    partition_directories,
)
from odradek.broker.log.log_config import LogConfig
from odradek.model import TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import read_header, write_header
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, opened, put

FIRST = "/data/t-0/00000000000000000000"


def data_directory() -> MemoryDisk:
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=400, index_interval_bytes=1)
    manager = opened(disk, config=config, cluster_id="c")
    log = manager.get_or_create(TopicPartition("t", 0), topic_id=uuid.UUID(int=9), now_ms=NOW)
    for number in range(6):
        records = [(NOW + number, b"k", None, (("h", b"x"), ("n", None))), (NOW + 5 + number, None, b"v" * 30, ())]
        batch = encode_batch(records, codec=Codec.ZSTD, producer_id=7, producer_epoch=1, base_sequence=2 * number)
        log.append_as_leader(batch, leader_epoch=3, now_ms=NOW)
        log.write()
    manager.close()
    return disk


def rows(disk: MemoryDisk, path: str, *, records: bool = False) -> list[Row]:
    before = disk.operations
    found = list(inspect(disk, path, records=records))
    assert disk.operations == before
    return found


def test_a_batch_is_shown_with_its_header() -> None:
    disk = data_directory()
    header = read_header(disk.read_file(f"{FIRST}.log"))
    first, second, *_ = rows(disk, f"{FIRST}.log")
    assert isinstance(first, Batch)
    assert isinstance(second, Batch)
    assert asdict(first) == {
        "base_offset": 0,
        "last_offset": 1,
        "count": 2,
        "base_sequence": 0,
        "last_sequence": 1,
        "producer_id": 7,
        "producer_epoch": 1,
        "partition_leader_epoch": 3,
        "is_transactional": False,
        "is_control": False,
        "delete_horizon_ms": None,
        "position": 0,
        "timestamp_type": "CreateTime",
        "max_timestamp": NOW + 5,
        "size": header.size,
        "magic": 2,
        "compress_codec": "zstd",
        "crc": header.crc,
        "is_valid": True,
    }
    assert (second.position, second.base_sequence) == (first.size, 2)


def test_requested_records_follow_their_batch() -> None:
    disk = data_directory()
    batch, first, second, *_ = rows(disk, f"{FIRST}.log", records=True)
    assert isinstance(batch, Batch)
    assert first == LoggedRecord(
        offset=0,
        timestamp_type="CreateTime",
        timestamp=NOW,
        key_size=1,
        value_size=-1,
        sequence=0,
        headers=(("h", b"x"), ("n", None)),
        key=b"k",
        value=None,
    )
    assert isinstance(second, LoggedRecord)
    assert (second.offset, second.key_size, second.value, second.sequence) == (1, -1, b"v" * 30, 1)


def test_a_transaction_marker_is_shown() -> None:
    disk = MemoryDisk()
    marker = encode_batch(
        [(NOW, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 12), ())],
        producer_id=7,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
    )
    put(disk, f"/{0:020d}.log", marker)
    batch, record = rows(disk, f"/{0:020d}.log", records=True)
    assert isinstance(batch, Batch)
    assert isinstance(record, LoggedRecord)
    assert (batch.is_control, batch.is_transactional) == (True, True)
    assert (record.control_type, record.coordinator_epoch, record.sequence) == ("COMMIT", 12, -1)


def test_a_compacted_batch_has_a_delete_horizon() -> None:
    disk = MemoryDisk()
    batch = encode_batch([(NOW, b"k", None, ())])
    write_header(batch, read_header(batch)._replace(attributes=0x40))
    put(disk, f"/{0:020d}.log", batch)
    (row,) = rows(disk, f"/{0:020d}.log")
    assert isinstance(row, Batch)
    assert row.delete_horizon_ms == NOW


def test_indexes_are_shown_with_absolute_offsets() -> None:
    disk = data_directory()
    path = next(name for name in known_files(disk, "/data/t-0") if name.endswith(".index") and name != f"{FIRST}.index")
    base = int(path[-26:-6])
    batches = [row for row in rows(disk, path.replace(".index", ".log")) if isinstance(row, Batch)]
    assert rows(disk, path) == [
        OffsetIndexEntry(offset=each.last_offset, position=each.position) for each in batches[1:]
    ]
    assert rows(disk, path.replace(".index", ".timeindex")) == [
        TimeIndexEntry(timestamp=each.max_timestamp, offset=each.last_offset) for each in batches[1:]
    ]
    assert base > 0


def test_other_files_are_shown_line_by_line() -> None:
    disk = data_directory()
    put(disk, f"{FIRST}.txnindex", struct.pack(">hqqqq", 0, 7, 1, 2, 3))
    put(disk, "/data/cleaner-offset-checkpoint", b"0\n1\nt 0 5\n")
    snapshot = known_files(disk, "/data/t-0")[-3]
    assert rows(disk, f"{FIRST}.txnindex") == [
        TransactionIndexEntry(version=0, producer_id=7, first_offset=1, last_offset=2, last_stable_offset=3)
    ]
    assert rows(disk, snapshot) == [
        Producer(
            producer_id=7,
            producer_epoch=1,
            coordinator_epoch=-1,
            current_txn_first_offset=None,
            last_timestamp=NOW + 10,
            first_sequence=10,
            last_sequence=11,
            last_offset=11,
            offset_delta=1,
        )
    ]
    assert rows(disk, "/data/t-0/leader-epoch-checkpoint") == [LeaderEpoch(epoch=3, start_offset=0)]
    assert rows(disk, "/data/cleaner-offset-checkpoint") == [CheckpointEntry(topic="t", partition=0, offset=5)]
    assert rows(disk, "/data/meta.properties")[:3] == [
        Property(name="version", value="1"),
        Property(name="node.id", value="1"),
        Property(name="cluster.id", value="c"),
    ]
    assert rows(disk, "/data/t-0/partition.metadata")[1] == Property(name="topic_id", value="AAAAAAAAAAAAAAAAAAAACQ")
    assert rows(disk, "/data/.kafka_cleanshutdown")[0] == Property(name="version", value="0")


def test_reading_ends_with_the_damage() -> None:
    disk = data_directory()
    path = f"{FIRST}.log"
    data = disk.read_file(path)
    size = read_header(data).size
    put(disk, path, data[: size + 30])
    *before, last = rows(disk, path)
    assert len(before) == 1
    assert last == Damage(byte=size, reason="ends with 30 bytes of a batch", is_cut=True)
    put(disk, path, data[:size] + bytes(100))
    assert rows(disk, path)[-1] == Damage(byte=size, reason="has zeros where a batch should begin", is_cut=False)


def test_a_batch_with_damaged_records_is_skipped() -> None:
    disk = data_directory()
    path = f"{FIRST}.log"
    data = bytearray(disk.read_file(path))
    data[65] ^= 1
    put(disk, path, data)
    found = rows(disk, path, records=True)
    first, second = [row for row in found if isinstance(row, Batch)][:2]
    assert (first.is_valid, second.is_valid) == (False, True)
    assert found[1] == second, "its records are not shown"


def test_partition_folders_are_recognized_by_their_files() -> None:
    disk = data_directory()
    disk.make_directories("/data/new-3")
    disk.make_directories("/data/t-1.0123456789abcdef0123456789abcdef-delete")
    assert is_partition_directory(disk, "/data/t-0")
    assert is_partition_directory(disk, "/data/new-3")
    assert not is_partition_directory(disk, "/data")
    assert partition_directories(disk, "/data") == ["/data/new-3", "/data/t-0"]
    names = [path.rpartition("/")[2] for path in known_files(disk, "/data/t-0")]
    assert names[:3] == [f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"]
    assert names[-2:] == ["leader-epoch-checkpoint", "partition.metadata"]
