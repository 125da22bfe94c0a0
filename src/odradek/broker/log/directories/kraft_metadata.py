"""Reading topics, their configurations and the next producer id from the metadata log of Kafka's KRaft controller.

```
__cluster_metadata-0/    00000000000000000612-0000000003.checkpoint    all records before offset 612
                         00000000000000000000.log …                    the records from there on
record's value           frame version varint = 1 | type varint | version varint | fields, flexible | tags
   2 TopicRecord           name string | topic_id uuid
   4 ConfigRecord          resource_type int8 (2: topic) | resource_name string | name string | value string?
   9 RemoveTopicRecord     topic_id uuid
  15 ProducerIdsRecord     broker_id int32 | broker_epoch int64 | next_producer_id int64
```
All records have version 0. Both kinds of file contain record batches; the last batch of a log may be incomplete.
"""

import re
import struct
import uuid
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from odradek.broker.log.errors import DamagedFileError, TruncatedFileError
from odradek.broker.log.names import LOG, parse_offset_file
from odradek.broker.log.segments.batch_scan import scan_file
from odradek.protocol.batches.record_batch import CorruptBatchError, verify_crc
from odradek.protocol.batches.records import decode_records
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.primitives import DECODE_ERRORS, read_string, read_text, read_uuid
from odradek.protocol.varint import read_unsigned_varint
from odradek.runtime import Disk

FOLDER: Final = "__cluster_metadata-0"
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_FRAME_VERSION: Final = 1
_TOPIC, _CONFIG, _REMOVE_TOPIC, _PRODUCER_IDS = 2, 4, 9, 15
_TOPIC_RESOURCE: Final = 2
_PRODUCER_IDS_FIELDS: Final = struct.Struct(">iqq")


class KraftMetadata(Struct, kw_only=True):
    """Topics and their configurations by name, and the next producer id."""

    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    _topics: dict[uuid.UUID | None, str] = field(default_factory=dict)

    @property
    def topic_ids(self) -> dict[str, uuid.UUID]:
        return {name: topic_id for topic_id, name in self._topics.items() if topic_id is not None}

    def apply(self, value: memoryview) -> None:
        """Apply a record's value. Raises `MalformedMessageError`."""
        try:
            frame, offset = read_unsigned_varint(value, 0)
            kind, offset = read_unsigned_varint(value, offset)
            version, offset = read_unsigned_varint(value, offset)
            if kind not in {_TOPIC, _CONFIG, _REMOVE_TOPIC, _PRODUCER_IDS}:
                return
            if (frame, version) != (_FRAME_VERSION, 0):
                raise MalformedMessageError(f"a metadata record of type {kind} has the unknown version {version}")
            self._apply(kind, value, offset)
        except DECODE_ERRORS as error:
            raise MalformedMessageError(f"malformed metadata record: {error}") from error

    def _apply(self, kind: int, value: memoryview, offset: int) -> None:
        if kind == _TOPIC:
            name, offset = read_text(value, offset, flexible=True)
            self._topics[read_uuid(value, offset)[0]] = name
        elif kind == _REMOVE_TOPIC:
            self.topic_configs.pop(self._topics.pop(read_uuid(value, offset)[0], ""), None)
        elif kind == _PRODUCER_IDS:
            self.next_producer_id = _PRODUCER_IDS_FIELDS.unpack_from(value, offset)[2]
        elif value[offset] == _TOPIC_RESOURCE:
            topic, offset = read_text(value, offset + 1, flexible=True)
            key, offset = read_text(value, offset, flexible=True)
            text, _ = read_string(value, offset, flexible=True)
            config = self.topic_configs.setdefault(topic, {})
            config.pop(key, None)
            if text is not None:
                config[key] = text


def read_kraft_metadata(disk: Disk, directory: str) -> KraftMetadata:
    """Return the KRaft metadata in a data directory, empty if there is none. Raises `DamagedFileError`, `OSError`."""
    metadata = KraftMetadata()
    folder = f"{directory}/{FOLDER}"
    if not disk.is_directory(folder):
        return metadata
    snapshots = [(int(match[1]), match[0]) for name in disk.list(folder) if (match := _SNAPSHOT.fullmatch(name))]
    since, snapshot = max(snapshots, default=(0, None))
    if snapshot is not None:
        for _, value in _records(disk, f"{folder}/{snapshot}"):
            _apply(metadata, value, f"{folder}/{snapshot}")
    for name in sorted(name for name in disk.list(folder) if (parse_offset_file(name) or (0, ""))[1] == LOG):
        for offset, value in _records(disk, f"{folder}/{name}"):
            if offset >= since:
                _apply(metadata, value, f"{folder}/{name}")
    return metadata


def _apply(metadata: KraftMetadata, value: bytes, path: str) -> None:
    try:
        metadata.apply(memoryview(value))
    except MalformedMessageError as error:
        raise DamagedFileError(path, 0, f"cannot be read: {error}") from error


def _records(disk: Disk, path: str) -> Iterator[tuple[int, bytes]]:
    file = disk.open(path, read_only=True)
    try:
        for position, header, batch in scan_file(file, path, file.size()):
            if not verify_crc(batch, 0, header):
                raise DamagedFileError(path, position, "has a batch that is damaged")
            if not header.is_control:
                for record in decode_records(batch):
                    if record.value is not None:
                        yield record.offset, record.value
    except TruncatedFileError:
        return  # Kafka was killed during the last write
    except CorruptBatchError as error:
        raise DamagedFileError(path, 0, f"cannot be read: {error}") from error
    finally:
        file.close()
