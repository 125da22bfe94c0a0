"""Decodes a log's files for `odradek log dump`: one value per batch, record, entry or line.

A broker may be using the files. The last value of a damaged file is a `Damage`.
"""

import json
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from odradek.broker.log.checkpoints import checkpoint_file, leader_epoch_cache, meta_properties
from odradek.broker.log.checkpoints.checkpoint_file import decode_offset_lines, split_lines
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.errors import DamagedFileError, TruncatedFileError
from odradek.broker.log.names import (
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_folder,
    parse_offset_file,
)
from odradek.broker.log.producers.producer_snapshot import decode_snapshot
from odradek.broker.log.producers.producer_state import last_sequence
from odradek.broker.log.segments import offset_index, time_index
from odradek.broker.log.segments.batch_scan import scan_file
from odradek.broker.log.segments.transaction_index import VERSION, decode_transactions
from odradek.protocol.batches.control_records import read_marker
from odradek.protocol.batches.record_batch import CorruptBatchError, verify_crc
from odradek.protocol.batches.records import Record, decode_records
from odradek.runtime import Disk

OFFSET_CHECKPOINTS: Final = (
    checkpoint_file.RECOVERY_POINTS,
    checkpoint_file.LOG_START_OFFSETS,
    checkpoint_file.HIGH_WATERMARKS,
    checkpoint_file.CLEANER_OFFSETS,
)
_SEGMENT_FILES: Final = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
_PARTITION_FILES: Final = (leader_epoch_cache.FILE_NAME, meta_properties.PARTITION_METADATA)
_DIRECTORY_FILES: Final = (meta_properties.META_PROPERTIES, meta_properties.CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS)


class Batch(Struct, frozen=True, kw_only=True):
    """A batch's header and position; `timestamp_type` is CreateTime or LogAppendTime, times are in ms."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    compress_codec: str
    crc: int
    is_valid: bool


class LoggedRecord(Struct, frozen=True, kw_only=True):
    """A record of the preceding `Batch`. Size -1 means null; `control_type` is only for control records."""

    offset: int
    timestamp_type: str
    timestamp: int
    key_size: int
    value_size: int
    sequence: int
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None
    value: bytes | None
    control_type: str | None = None
    coordinator_epoch: int | None = None


class OffsetIndexEntry(Struct, frozen=True, kw_only=True):
    """An entry of an `.index`."""

    offset: int
    position: int


class TimeIndexEntry(Struct, frozen=True, kw_only=True):
    """An entry of a `.timeindex`: in its segment, no record up to `offset` is later than `timestamp` (ms)."""

    timestamp: int
    offset: int


class TransactionIndexEntry(Struct, frozen=True, kw_only=True):
    """An aborted transaction."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class Producer(Struct, frozen=True, kw_only=True):
    """A producer in a snapshot; `last_timestamp` in ms. Without a last batch its sequences and offset are -1."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    last_timestamp: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int


class LeaderEpoch(Struct, frozen=True, kw_only=True):
    """The first offset that a leader of `epoch` wrote."""

    epoch: int
    start_offset: int


class CheckpointEntry(Struct, frozen=True, kw_only=True):
    """A partition's offset in a checkpoint."""

    topic: str
    partition: int
    offset: int


class Property(Struct, frozen=True, kw_only=True):
    """A key and value of `meta.properties`, `partition.metadata` or `.kafka_cleanshutdown`."""

    name: str
    value: str


class Damage(Struct, frozen=True, kw_only=True):
    """The file is damaged at `byte`; `is_cut` if the file ends inside a batch or an entry."""

    byte: int
    reason: str
    is_cut: bool


Row = (
    Batch
    | LoggedRecord
    | OffsetIndexEntry
    | TimeIndexEntry
    | TransactionIndexEntry
    | Producer
    | LeaderEpoch
    | CheckpointEntry
    | Property
    | Damage
)


class Pair(NamedTuple):
    """The two numbers of an index entry, and the byte position of the entry."""

    byte: int
    first: int
    second: int


# ---- files and folders ----------------------------------------------------------------------------------------------


def is_known_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    parsed = parse_offset_file(name)
    return name in _PARTITION_FILES or name in _DIRECTORY_FILES or (parsed is not None and parsed[1] in _SEGMENT_FILES)


def is_partition_directory(disk: Disk, directory: str) -> bool:
    """Return whether the folder is a partition's, by its files or, if it is empty, by its name."""
    names = disk.list(directory)
    return any(map(parse_offset_file, names)) or (not names and parse_folder(_name_of(disk, directory)) is not None)


def partition_directories(disk: Disk, directory: str) -> list[str]:
    folders = [f"{directory}/{name}" for name in disk.list(directory) if parse_folder(name) is not None]
    return [each for each in folders if disk.is_directory(each) and not meta_properties.is_data_directory(disk, each)]


def known_files(disk: Disk, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in sorted(filter(is_known_file, disk.list(directory)), key=_order)]


def _order(name: str) -> tuple[int, int, int, str]:
    parsed = parse_offset_file(name)
    return (1, 0, 0, name) if parsed is None else (0, parsed[0], _SEGMENT_FILES.index(parsed[1]), name)


def _name_of(disk: Disk, directory: str) -> str:
    return disk.absolute(directory).rstrip("/").rpartition("/")[2]


# ---- what is in a file ----------------------------------------------------------------------------------------------


def inspect(disk: Disk, path: str, *, records: bool = False) -> Iterator[Row]:
    """Yield the content of a file; with `records`, each batch is followed by its records. Raises `OSError`.

    For a damaged file the last value is a `Damage`.
    """
    try:
        yield from _inspect(disk, path, records=records)
    except DamagedFileError as error:
        yield Damage(byte=error.byte, reason=error.reason, is_cut=isinstance(error, TruncatedFileError))


def _inspect(disk: Disk, path: str, *, records: bool) -> Iterator[Row]:
    name = path.rpartition("/")[2]
    parsed = parse_offset_file(name)
    if parsed is None:
        yield from _inspect_text(disk.read_file(path), name, path)
        return
    base_offset, suffix = parsed
    if suffix == LOG:
        yield from inspect_batches(disk, path, records=records)
        return
    data = disk.read_file(path)
    if suffix == INDEX:
        for _, relative, position in read_pairs(data, path, offset_index.ENTRY):
            yield OffsetIndexEntry(offset=base_offset + relative, position=position)
    elif suffix == TIME_INDEX:
        for _, timestamp, relative in read_pairs(data, path, time_index.ENTRY):
            yield TimeIndexEntry(timestamp=timestamp, offset=base_offset + relative)
    elif suffix == TRANSACTION_INDEX:
        for _, transaction in decode_transactions(data, path):
            yield TransactionIndexEntry(version=VERSION, **transaction._asdict())
    elif suffix == SNAPSHOT:
        yield from inspect_snapshot(data, path)


def inspect_batches(disk: Disk, path: str, *, records: bool) -> Iterator[Batch | LoggedRecord]:
    """Yield a `.log` file's batches, valid ones with their `records`. Raises `DamagedFileError` and `OSError`."""
    file = disk.open(path, read_only=True)
    try:
        for position, header, data in scan_file(file, path, file.size()):
            is_valid = verify_crc(data, 0, header)
            kind = "LogAppendTime" if header.is_log_append_time else "CreateTime"
            has_sequence = header.base_sequence >= 0
            try:
                codec = header.codec.name.lower()
            except CorruptBatchError:
                codec = "unknown"
            yield Batch(
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                count=header.record_count,
                base_sequence=header.base_sequence,
                last_sequence=last_sequence(header.base_sequence, header.last_offset_delta) if has_sequence else -1,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                partition_leader_epoch=header.partition_leader_epoch,
                is_transactional=header.is_transactional,
                is_control=header.is_control,
                delete_horizon_ms=header.base_timestamp if header.attributes & _DELETE_HORIZON else None,
                position=position,
                timestamp_type=kind,
                max_timestamp=header.max_timestamp,
                size=header.size,
                magic=header.magic,
                compress_codec=codec,
                crc=header.crc,
                is_valid=is_valid,
            )
            if records and is_valid:
                for record in _records(data, path, position):
                    sequence = -1
                    if has_sequence:
                        sequence = last_sequence(header.base_sequence, record.offset - header.base_offset)
                    yield _logged(record, kind, sequence, is_control=header.is_control)
    finally:
        file.close()


_DELETE_HORIZON: Final = 0x40


def _records(data: memoryview, path: str, position: int) -> list[Record]:
    try:
        return decode_records(data)
    except CorruptBatchError as error:
        raise DamagedFileError(path, position, f"has a batch whose records cannot be read: {error}") from error


def _logged(record: Record, timestamp_type: str, sequence: int, *, is_control: bool) -> LoggedRecord:
    offset, timestamp, key, value, headers = record
    control_type = coordinator_epoch = None
    if is_control:
        marker = read_marker(record)
        control_type = "UNKNOWN" if marker is None else marker.type.name
        coordinator_epoch = None if marker is None else marker.coordinator_epoch
    return LoggedRecord(
        offset=offset,
        timestamp_type=timestamp_type,
        timestamp=timestamp,
        key_size=-1 if key is None else len(key),
        value_size=-1 if value is None else len(value),
        sequence=sequence,
        headers=headers,
        key=key,
        value=value,
        control_type=control_type,
        coordinator_epoch=coordinator_epoch,
    )


def read_pairs(data: bytes, path: str, layout: struct.Struct) -> Iterator[Pair]:
    """Yield the entries of an `.index` or `.timeindex`. Raises `TruncatedFileError` if the last one is incomplete.

    Zeros at the end are skipped: Kafka preallocates the file.
    """
    width = layout.size
    end = len(data) - len(data) % width
    used = len(data.rstrip(b"\0"))
    used = min(end, -(-used // width) * width)
    for byte in range(0, used, width):
        yield Pair(byte, *layout.unpack_from(data, byte))
    if used == end < len(data):
        raise TruncatedFileError(path, end, f"ends with {len(data) - end} bytes of an entry that has {width}")


def inspect_snapshot(data: bytes, path: str) -> Iterator[Producer]:
    """Yield the producers of a `.snapshot`. Raises `DamagedFileError`."""
    for producer_id, entry in decode_snapshot(data, path).entries.items():
        last = entry.batches[-1] if entry.batches else None
        yield Producer(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_first_offset=None if entry.transaction_start < 0 else entry.transaction_start,
            last_timestamp=entry.last_timestamp,
            first_sequence=-1 if last is None else last.first_sequence,
            last_sequence=entry.last_sequence,
            last_offset=-1 if last is None else last.last_offset,
            offset_delta=0 if last is None else last.last_offset - last.first_offset,
        )


def _inspect_text(data: bytes, name: str, path: str) -> Iterator[Row]:
    if name == leader_epoch_cache.FILE_NAME:
        for epoch, start_offset in LeaderEpochs.decode(data, path).entries:
            yield LeaderEpoch(epoch=epoch, start_offset=start_offset)
    elif name in OFFSET_CHECKPOINTS:
        for _, (topic, partition), offset in decode_offset_lines(data, path):
            yield CheckpointEntry(topic=topic, partition=partition, offset=offset)
    elif name == meta_properties.META_PROPERTIES:
        meta_properties.decode_meta_properties(data, path)
        yield from _properties(data, "=")
    elif name == meta_properties.PARTITION_METADATA:
        meta_properties.decode_partition_metadata(data, path)
        yield from _properties(data, ":")
    elif name == meta_properties.CLEAN_SHUTDOWN:
        try:
            found = json.loads(data) if data else {}
        except ValueError:
            found = None
        if isinstance(found, dict):  # Kafka before 3.7 wrote it empty; its content is not used
            yield from (Property(name=str(key), value=str(value)) for key, value in found.items())


def _properties(data: bytes, separator: str) -> Iterator[Property]:
    for _, line in split_lines(data):
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            name, _, value = line.partition(separator)
            yield Property(name=name.strip(), value=value.strip())
