"""Reads and writes the 61-byte header of a record batch.

```
 0 base_offset int64 | 8 batch_length int32 | 12 partition_leader_epoch int32 | 16 magic int8 = 2 | 17 crc uint32
21 attributes int16 | 23 last_offset_delta int32 | 27 base_timestamp int64 | 35 max_timestamp int64
43 producer_id int64 | 51 producer_epoch int16 | 53 base_sequence int32 | 57 record_count int32
61 records, compressed together
```
`batch_length` counts from byte 12. `crc` is the CRC-32C from byte 21 to the end, so a broker can set the offset and
the leader epoch without changing it. Attributes: bits 0–2 codec, 3 log append time, 4 transactional, 5 control, 6 the
base timestamp is a compacted batch's delete horizon (KIP-534). Times are ms since 1970.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from odradek.model import Buffer, ErrorCode, KafkaError
from odradek.protocol.batches.checksum import crc32c
from odradek.protocol.batches.compression import Codec
from odradek.protocol.errors import CorruptBatchError

HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""The bytes of a batch that `batch_length` does not count: the base offset and the length itself."""
MAGIC: Final = 2

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""The fields of `BatchHeader`, to read many headers without creating objects."""
CRC_START: Final = 21
"""The offset of the first byte that the CRC covers."""
_OFFSET: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_CRC_AND_ATTRIBUTES: Final = struct.Struct(">Ih")
_CRC_OFFSET: Final = 17
_MAX_TIMESTAMP_OFFSET: Final = 35
_LEADER_EPOCH_OFFSET: Final = 12

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_CODECS: Final = tuple(Codec)


class BatchHeader(NamedTuple):
    """The fields of a batch header, as stored in the batch."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed this record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec of the records. Raises `CorruptBatchError` for an unknown number."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptBatchError(f"the batch at offset {self.base_offset} has the unknown codec {number}")
        return _CODECS[number]

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, the time at which the leader appended the batch."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction of `producer_id`."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a control batch, such as a transaction marker, which applications do not see."""
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which compaction may remove tombstones or the marker."""
        return bool(self.attributes & DELETE_HORIZON)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position` without validation. Raises `CorruptBatchError` if fewer than 61 bytes are left."""
    try:
        return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise CorruptBatchError(f"a record batch is cut in its header: {error}") from error


def iterate_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield `(position, header)` of each complete batch, without checking the CRC.

    A truncated last batch, usual in Fetch responses, ends the iteration. Raises `CorruptBatchError` for an invalid
    length or magic, and `KafkaError` UNSUPPORTED_FOR_MESSAGE_FORMAT for the message formats 0 and 1.
    """
    end = len(buffer)
    while position + HEADER_SIZE <= end:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
        if header.magic != MAGIC:
            if header.magic in (0, 1):
                raise KafkaError(
                    ErrorCode.unsupported_for_message_format,
                    f"the message format at offset {header.base_offset} is {header.magic}; only {MAGIC} is supported",
                )
            raise CorruptBatchError(f"the batch at offset {header.base_offset} has the unknown magic {header.magic}")
        size = header.batch_length + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptBatchError(f"the batch at offset {header.base_offset} says that it has {size} bytes")
        if position + size > end:
            return
        yield position, header
        position += size


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch is complete and its CRC is correct."""
    end = position + LENGTH_OVERHEAD + header.batch_length
    if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD or end > len(buffer):
        return False
    return bool(crc32c(memoryview(buffer)[position + CRC_START : end]) == header.crc)


def assign_offset(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the base offset and the leader epoch in place; the CRC does not cover them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _LEADER_EPOCH_OFFSET, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> None:
    """Set log append time: all records of the batch get the timestamp `now_ms`, in place (KIP-32). Updates the CRC."""
    _CRC_AND_ATTRIBUTES.pack_into(buffer, position + _CRC_OFFSET, 0, header.attributes | LOG_APPEND_TIME)
    set_max_timestamp(buffer, position, header, now_ms)


def set_max_timestamp(buffer: bytearray | memoryview, position: int, header: BatchHeader, max_timestamp: int) -> None:
    """Set the maximum timestamp (ms) of the batch, in place, and update the CRC."""
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_OFFSET, max_timestamp)
    write_crc(buffer, position, position + header.size)


def write_header(buffer: bytearray | memoryview, header: BatchHeader) -> None:
    """Write `header`, with computed `batch_length` and `crc`, to the start of `buffer`, a whole batch."""
    HEADER.pack_into(buffer, 0, *header._replace(batch_length=len(buffer) - LENGTH_OVERHEAD, crc=0))
    write_crc(buffer, 0, len(buffer))


def write_crc(buffer: bytearray | memoryview, position: int, end: int) -> None:
    """Compute and write the CRC of the batch from `position` to `end`."""
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    struct.pack_into(">I", buffer, position + _CRC_OFFSET, crc)


__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "CRC_START",
    "DELETE_HORIZON",
    "HEADER",
    "HEADER_SIZE",
    "LENGTH_OVERHEAD",
    "LOG_APPEND_TIME",
    "MAGIC",
    "TRANSACTIONAL",
    "BatchHeader",
    "Codec",
    "CorruptBatchError",
    "assign_offset",
    "iterate_batches",
    "read_header",
    "set_log_append_time",
    "set_max_timestamp",
    "verify_crc",
    "write_crc",
    "write_header",
]
