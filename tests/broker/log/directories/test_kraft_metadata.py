"""The files of Kafka's controller beside the logs: configurations and producer ids, in a snapshot and a log."""

import contextlib
import struct
import uuid

import pytest

from odradek.broker.log.directories.kraft_metadata import FOLDER, KraftMetadata, read_kraft_metadata
from odradek.broker.log.errors import DamagedFileError
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.primitives import encode_string
from odradek.simulation.virtual.disk import MemoryDisk

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
TAGS = b"\x00"


def text(value: str | None) -> bytes:
    return encode_string(value, flexible=True)


def topic(name: str, topic_id: uuid.UUID) -> bytes:
    return bytes([1, 2, 0]) + text(name) + topic_id.bytes + TAGS


def removed(topic_id: uuid.UUID) -> bytes:
    return bytes([1, 9, 0]) + topic_id.bytes + TAGS


def config(name: str, key: str, value: str | None, *, kind: int = 2) -> bytes:
    return bytes([1, 4, 0, kind]) + text(name) + text(key) + text(value) + TAGS


def producer_ids(following: int) -> bytes:
    return bytes([1, 15, 0]) + struct.pack(">iqq", 0, 7, following) + TAGS


def batch(*values: bytes, base_offset: int = 0, is_control: bool = False) -> bytes:
    records = [(1, None, value, ()) for value in values]
    return bytes(encode_batch(records, base_offset=base_offset, is_control=is_control))


def disk_with(**files: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories(f"/data/{FOLDER}")
    for name, data in files.items():
        disk.replace_file(f"/data/{FOLDER}/{name}", data)
    return disk


def test_the_newest_snapshot_holds_and_what_came_after_it() -> None:
    disk = disk_with(
        **{
            "00000000000000000000-0000000000.checkpoint": batch(config("t", "a", "old")),
            "00000000000000000003-0000000001.checkpoint": batch(b"header", is_control=True)
            + batch(
                topic("t", ONE), topic("u", OTHER), config("t", "a", "1"), config("u", "a", "1"), producer_ids(1000)
            ),
            "00000000000000000000.log": batch(config("t", "b", "before"), config("t", "a", "before"), producer_ids(1)),
            "00000000000000000003.log": batch(
                config("t", "a", "2"), config("t", "c", "3"), config("t", "c", None), removed(OTHER), base_offset=3
            )
            + batch(config("t", "t", "a broker's", kind=4), bytes([1, 27, 0, 99]), producer_ids(3000), base_offset=7),
        }
    )
    found = read_kraft_metadata(disk, "/data")
    assert (found.topic_configs, found.next_producer_id) == ({"t": {"a": "2"}}, 3000)


def test_a_directory_without_kraft_metadata_is_empty() -> None:
    disk = MemoryDisk()
    disk.make_directories("/data")
    assert read_kraft_metadata(disk, "/data") == KraftMetadata()


def test_an_incomplete_last_batch_is_ignored() -> None:
    whole, cut = batch(config("t", "a", "1")), batch(config("t", "a", "2"), base_offset=1)[:-3]
    found = read_kraft_metadata(disk_with(**{"00000000000000000000.log": whole + cut}), "/data")
    assert found.topic_configs == {"t": {"a": "1"}}


@pytest.mark.parametrize(
    "data",
    [
        batch(b"x" * 80)[:70] + b"y" + batch(b"x" * 80)[71:],
        batch(b"\x01\x04\x00\x02\x90"),
        batch(bytes([1, 4, 1]) + b"of a version to come"),
    ],
    ids=["checksum", "cut", "version"],
)
def test_unreadable_metadata_is_an_error(data: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"00000000000000000000\.log"):
        read_kraft_metadata(disk_with(**{"00000000000000000000.log": data}), "/data")


@pytest.mark.parametrize("end", range(len(config("topic", "key", "value")) - 1))
def test_a_truncated_record_is_malformed_or_has_fewer_fields(end: int) -> None:
    metadata = KraftMetadata()
    with contextlib.suppress(MalformedMessageError):
        metadata.apply(memoryview(config("topic", "key", "value")[:end]))
    assert metadata.topic_configs in ({}, {"topic": {}}, {"topic": {"key": "value"}})
