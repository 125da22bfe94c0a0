"""Control batches: the marker that ends a producer's transaction in a partition (KIP-98).

```
key      version int16 = 0 | type int16: 0 ABORT, 1 COMMIT                    big-endian
value    version int16 = 0 | coordinator_epoch int32
```
A marker is a transactional control batch of one record, with the producer's id and epoch and without a sequence number.
Later versions may append fields. Control records of other types are ignored.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.model import Buffer
from odradek.protocol.batches.records import Record, decode_records, encode_batch
from odradek.protocol.errors import CorruptBatchError

_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type of a transaction marker."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The end of a transaction; `coordinator_epoch` is the epoch of the transaction coordinator that ended it."""

    type: ControlType
    coordinator_epoch: int


def encode_marker(marker: EndTransactionMarker, *, producer_id: int, producer_epoch: int, now_ms: int) -> bytearray:
    """Return a batch with the marker; the caller sets its offset."""
    record = (
        now_ms,
        _KEY.pack(_VERSION, marker.type),
        _VALUE.pack(_VERSION, marker.coordinator_epoch),
        (),
    )
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True
    )


def read_marker(record: Record) -> EndTransactionMarker | None:
    """Decode a control record; return None if it is no transaction marker or is truncated."""
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    number = _KEY.unpack_from(key)[1]
    if number not in ControlType._value2member_map_:
        return None
    return EndTransactionMarker(ControlType(number), _VALUE.unpack_from(value)[1])


def decode_marker(batch: Buffer) -> EndTransactionMarker | None:
    """Return the marker of a control batch; None if the batch is corrupt or empty (after compaction)."""
    try:
        records = decode_records(batch)
    except CorruptBatchError:
        return None
    return read_marker(records[0]) if records else None


__all__ = ["ControlType", "EndTransactionMarker", "decode_marker", "encode_marker", "read_marker"]
