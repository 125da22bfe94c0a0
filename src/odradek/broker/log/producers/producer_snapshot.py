"""`.snapshot` files: the producers of a log as of the offset in the file's name, so that opening reads less.

```
 0 version int16 = 1 | 2 crc uint32 (CRC-32C of the rest) | 6 count int32 | 10 entries, 46 bytes each
entry    producer_id int64 | epoch int16 | last_sequence int32 | last_offset int64 | offset_delta int32
         timestamp int64 | coordinator_epoch int32 | current_txn_first_offset int64
```
Big-endian. Only the last batch of each producer is stored: `last_offset` -1 means none, `offset_delta` is its last
offset less its first. `coordinator_epoch` is that of the last marker, `current_txn_first_offset` is -1 without an open
transaction. A file with a wrong version, CRC or length is removed, and an older one, if any, used. Files are written at
each roll and at clean shutdown.
"""

import struct
from typing import Final

from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.producers.producer_state import (
    NO_SEQUENCE,
    AppendedBatch,
    ProducerEntry,
    ProducerState,
    first_sequence,
)
from odradek.protocol.batches.checksum import crc32c

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_NO_OFFSET: Final = -1


def encode_snapshot(state: ProducerState) -> bytes:
    body = bytearray(_COUNT.pack(len(state.entries)))
    for producer_id, entry in state.entries.items():
        last = entry.batches[-1] if entry.batches else AppendedBatch(0, NO_SEQUENCE, _NO_OFFSET, _NO_OFFSET, -1)
        body += _ENTRY.pack(
            producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.last_offset - last.first_offset,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> ProducerState:
    """Return the producers. Raises `DamagedFileError` if the file is not valid."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise DamagedFileError(path, 0, "is truncated")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise DamagedFileError(path, 0, f"has version {version}; this release reads {VERSION}")
    body = memoryview(data)[_HEAD.size :]
    if crc32c(body) != crc:
        raise DamagedFileError(path, 0, "has a wrong checksum")
    (count,) = _COUNT.unpack_from(body)
    if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
        raise DamagedFileError(path, 0, f"declares {count} producers, and has {len(data)} bytes")
    entries: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last, last_offset, delta, timestamp, coordinator_epoch, transaction_start = fields
        batches: tuple[AppendedBatch, ...] = ()
        if last_offset != _NO_OFFSET:
            first = NO_SEQUENCE if last == NO_SEQUENCE else first_sequence(last, delta)
            batches = (AppendedBatch(first, last, last_offset - delta, last_offset, timestamp),)
        entries[producer_id] = ProducerEntry(
            epoch,
            batches,
            last_timestamp=timestamp,
            coordinator_epoch=coordinator_epoch,
            transaction_start=transaction_start,
        )
    return ProducerState(entries)
