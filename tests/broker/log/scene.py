"""Logs of known content, and harm to their files, for the tests of more than one room."""

import random
import uuid
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.directories.maintenance import MaintenanceJob
from odradek.broker.log.errors import CheckpointError
from odradek.broker.log.inspection.findings import Finding
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.segments.open_files import FilePool
from odradek.broker.log.validation import AppendInfo
from odradek.model import Buffer, ErrorCode, KafkaError, TopicPartition
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.protocol.batches.record_batch import BatchHeader, iterate_batches, write_header
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import Disk
from odradek.simulation.virtual.disk import MemoryDisk

NOW = 1_800_000_000_000


def new_log(disk: MemoryDisk | FilePool | None = None, **config: object) -> Log:
    disk = disk or MemoryDisk()
    if isinstance(disk, MemoryDisk):
        disk.make_directories("/data")
        disk.sync_directory("/")
    return Log.open(disk, "/data/t-0", LogConfig(**config), now_ms=NOW)  # type: ignore[arg-type]


def batch(*times: int, size: int = 10, codec: Codec = Codec.NONE) -> bytearray:
    return encode_batch([(time_ms, None, b"x" * size, ()) for time_ms in times], codec=codec)


def numbered(
    sequence: int, *, size: int = 50, producer: int = 1, epoch: int = 0, transactional: bool = False
) -> bytearray:
    """Return a batch of one record of an idempotent producer."""
    return encode_batch(
        [(NOW, None, b"x" * size, ())],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


def refusal(log: Log, data: Buffer, *, now_ms: int = NOW, **options: bool) -> ErrorCode:
    """Append a batch that the log refuses; return the error, after which the log is as before."""
    before = (log.log_end_offset, log.writer.pending.size)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(data), leader_epoch=0, now_ms=now_ms, **options)
    assert (log.log_end_offset, log.writer.pending.size) == before, "a refused batch leaves no trace"
    return caught.value.code


def end_transaction(
    log: Log, producer: int, type_: ControlType = ControlType.ABORT, *, now_ms: int = NOW, **options: int
) -> AppendInfo:
    """Append the marker that ends a transaction."""
    options = {"producer_epoch": 0, "transaction_version": 1, "leader_epoch": 0, **options}
    marker = EndTransactionMarker(type_, options.pop("coordinator_epoch", 0))
    return log.append_marker(marker, producer_id=producer, now_ms=now_ms, **options)


def contents(log: Log) -> dict[int, bytes]:
    """Return each batch that a log serves by its base offset; offsets rise, and each can be read."""
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.written_offset:
        data = log.read(offset, 1 << 20)
        assert data, f"nothing can be read at {offset}"
        for position, header in iterate_batches(data):
            assert header.base_offset >= offset or not found, "offsets rise"
            found[header.base_offset] = bytes(data[position : position + header.size])
            offset = header.next_offset
    return found


def append(log: Log, *times: int, size: int = 10, now_ms: int = NOW) -> int:
    info = log.append_as_leader(batch(*times, size=size), leader_epoch=0, now_ms=now_ms)
    log.write()
    return info.first_offset


def new_manager(disk: Disk, *directories: str, config: LogConfig | None = None, **options: Any) -> LogManager:
    """Return a manager that is not open yet, of `/data` or these directories, whose topics have one configuration."""
    if config is not None:
        options["config_for"] = lambda topic: config
    options = {"broker_id": 1, "entropy": random.Random(f"{directories}"), **options}
    return LogManager(disk, directories or ("/data",), **options)


def opened(disk: Disk, *directories: str, **options: Any) -> LogManager:
    manager = new_manager(disk, *directories, **options)
    manager.open(NOW)
    return manager


def prepared_maintenance(
    manager: LogManager, now_ms: int, high_watermarks: Mapping[TopicPartition, int] = MappingProxyType({})
) -> MaintenanceJob:
    begun = manager.maintenance.begin_in_steps(now_ms, high_watermark=high_watermarks.get)
    assert begun is not None
    deque(begun[1], maxlen=0)
    return begun[0]


def maintain(manager: LogManager, now_ms: int, *, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
    """Run one pass of maintenance on this thread."""
    job = prepared_maintenance(manager, now_ms, high_watermarks or {})
    job.run()
    plan = manager.maintenance.finish(job)
    try:
        if plan is not None:
            manager.checkpoints.write(plan)
    except CheckpointError as error:
        manager.checkpoints.write_failed(error)


def write_batches(log: Log, count: int = 1) -> None:
    """Append and write so many batches of one record."""
    for _ in range(count):
        log.append_as_leader(batch(NOW, size=50), leader_epoch=0, now_ms=NOW)
    log.write()


def offsets(log: Log) -> list[int]:
    """Return the base offset of each batch that a log serves, in order."""
    return list(contents(log))


# ---- a data directory ------------------------------------------------------------------------------------------------

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=100)
FOLDER = "/data/t-0"
FIRST = f"{FOLDER}/{0:020d}"


def fill(log: Log, *, epochs: tuple[int, ...] = (0, 2)) -> None:
    """Thirty batches of one to three records, later and later, of two leaders and an idempotent producer."""
    sequence = 0
    for number in range(30):
        count = number % 3 + 1
        codec = Codec.GZIP if number % 5 == 4 else Codec.NONE
        records = [(NOW + number * 10 + each, b"k", b"v%d" % number * 10, ()) for each in range(count)]
        batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=epochs[number // 15], now_ms=NOW)
        log.write()
        sequence += count


def data_directory(*, is_closed: bool = True) -> tuple[MemoryDisk, LogManager]:
    disk = MemoryDisk()
    manager = opened(disk, config=CONFIG, cluster_id="c")
    for number in (0, 1):
        fill(manager.get_or_create(TopicPartition("t", number), topic_id=uuid.UUID(int=9), now_ms=NOW))
    manager.get_or_create(TopicPartition("empty", 0), topic_id=None, now_ms=NOW)
    if is_closed:
        manager.close()
    return disk, manager


def verify(
    disk: MemoryDisk, directory: str = "/data", *, records: bool = False, is_data: bool = False
) -> list[Finding]:
    before = disk.operations
    verification = Verification(disk, records=records)
    run = verification.data_directory if is_data or directory == "/data" else verification.partition_directory
    findings = list(run(directory))
    assert disk.operations == before, "nothing may be changed"
    assert verification.totals.damaged_files == sum(finding.is_damage for finding in findings)
    return findings


def damages(disk: MemoryDisk, directory: str = "/data", *, records: bool = False) -> list[tuple[str, int | None]]:
    return [(each.path, each.byte) for each in verify(disk, directory, records=records) if each.is_damage]


def put(disk: MemoryDisk, path: str, data: bytes | bytearray) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.append([data])


def flip(disk: MemoryDisk, path: str, byte: int, bits: int = 1) -> None:
    data = bytearray(disk.read_file(path))
    data[byte] ^= bits
    put(disk, path, data)


def batches(disk: MemoryDisk, path: str) -> list[tuple[int, BatchHeader]]:
    return list(iterate_batches(disk.read_file(path)))


def segments(disk: MemoryDisk) -> list[str]:
    """The first partition's segments, without their suffix."""
    return [f"{FOLDER}/{name[:-4]}" for name in disk.list(FOLDER) if name.endswith(".log")]


def rewrite(disk: MemoryDisk, path: str, number: int, **changes: int) -> int:
    """Give a batch other values, and a CRC that fits them; where it begins."""
    position, header = batches(disk, path)[number]
    data = bytearray(disk.read_file(path))
    batch = data[position : position + header.size]
    write_header(batch, header._replace(**changes))
    data[position : position + header.size] = batch
    put(disk, path, data)
    return position
