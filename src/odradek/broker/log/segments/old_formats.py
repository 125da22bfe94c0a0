"""Recognition of messages of the formats 0 and 1, from before Kafka 0.11, which are not damage.

```
 0 offset int64 | 8 size int32, of the rest | 12 crc uint32 (CRC-32 of the rest)
16 magic int8 = 0 or 1 | 17 attributes int8 | 18 timestamp int64, in format 1 only
then, with length -1 for null:      key length int32, key | value length int32, value
```
Kafka 4 reads, but does not write them. This release does not read them; recovery refuses a log that has one.
Functions raise `OSError`.
"""

import struct
from typing import Final
from zlib import crc32

from odradek.broker.log.segments.open_files import PooledFile
from odradek.runtime import File

OLD_FORMATS: Final = (0, 1)
_HEAD: Final = struct.Struct(">qiIb")
_CRC_START: Final = 16
_LENGTH_OVERHEAD: Final = 12
_SHORTEST: Final = {0: 14, 1: 22}
"""The least value of the size field, by format."""
_CHUNK_BYTES: Final = 1 << 20


def old_message(file: File | PooledFile, position: int, size: int) -> int | None:
    """Return the format, 0 or 1, of a valid message at `position` of a file of `size` bytes, or None."""
    if position + _HEAD.size > size:
        return None
    offset, length, crc, magic = _HEAD.unpack(file.read(position, _HEAD.size))
    at, end = position + _CRC_START, position + _LENGTH_OVERHEAD + length
    if offset < 0 or magic not in _SHORTEST or length < _SHORTEST[magic] or end > size:
        return None
    found = 0
    while at < end:
        piece = file.read(at, min(_CHUNK_BYTES, end - at))
        if not piece:
            return None
        found = crc32(piece, found)
        at += len(piece)
    return int(magic) if found == crc else None
