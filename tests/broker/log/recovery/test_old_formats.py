"""Logs with messages of before Kafka 0.11: not read, and never lost. Row M1."""

import struct
import zlib

import pytest

from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk

NOW = 1_800_000_000_000
FOLDER = "/data/t-0"
PATH = f"{FOLDER}/{0:020d}.log"


def message(magic: int, offset: int, value: bytes = b"v") -> bytes:
    """An old message without a key."""
    time = struct.pack(">q", NOW) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def disk_with(content: bytes) -> MemoryDisk:
    """A log that has these bytes."""
    disk = MemoryDisk()
    disk.make_directories(FOLDER)
    disk.open(PATH, create=True).append([content])
    return disk


def reopen(disk: MemoryDisk, *, clean: bool) -> Log:
    return Log.open(disk, FOLDER, LogConfig(), now_ms=NOW, clean=clean)


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [1, 100, 3 << 20])
def test_a_log_of_old_messages_is_not_opened_or_changed(magic: int, size: int, *, clean: bool) -> None:
    content = message(magic, 0, b"x" * size) + message(magic, 1)
    disk = disk_with(content)
    with pytest.raises(DamagedFileError, match=f"format {magic}, from before Kafka 0.11") as caught:
        reopen(disk, clean=clean)
    assert caught.value.byte == 0
    assert disk.read_file(PATH) == content


@pytest.mark.parametrize("clean", [False, True])
def test_old_messages_behind_batches_are_not_truncated(*, clean: bool) -> None:
    batch = bytes(encode_batch([(NOW, b"k", b"v", ())]))
    content = batch + message(1, 1)
    disk = disk_with(content)
    with pytest.raises(DamagedFileError) as caught:
        reopen(disk, clean=clean)
    assert caught.value.byte == len(batch)
    assert disk.read_file(PATH) == content


@pytest.mark.parametrize(
    "tail",
    [
        bytes(100),
        message(1, 1)[:-1],
        message(0, 1)[:-1] + b"w",
        message(0, -1),
        struct.pack(">qiIb", 1, 5, zlib.crc32(b"\0"), 0),
        message(1, 1)[:16],
    ],
    ids=["zeros", "cut", "a wrong checksum", "a negative offset", "shorter than a message", "cut in its head"],
)
def test_a_tail_that_resembles_an_old_message_is_truncated(tail: bytes) -> None:
    batch = bytes(encode_batch([(NOW, b"k", b"v", ())]))
    disk = disk_with(batch + tail)
    log = reopen(disk, clean=False)
    assert log.log_end_offset == 1
    assert disk.read_file(PATH) == batch
