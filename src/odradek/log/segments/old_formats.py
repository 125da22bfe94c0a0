"""Messages of the formats 0 and 1, which Kafka wrote before 0.11: told from damage, and never taken for it.

```
 0 offset int64 | 8 size int32, of all that follows | 12 crc uint32 (CRC-32 of all that follows)
16 magic int8 = 0 or 1 | 17 attributes int8 | 18 timestamp int64, in format 1 only
then, a length of -1 being null:    key length int32, key | value length int32, value
```
Nobody writes them any more; Kafka 4 still serves those that are in its logs. This release does not read them, but they
are somebody's records: where recovery meets one that is whole, the log is left as it is instead of being cut before it.
"""

import struct
from typing import Final
from zlib import crc32

from odradek.log.segments.open_files import PooledFile
from odradek.runtime import File

OLD_FORMATS: Final = (0, 1)
_HEAD: Final = struct.Struct(">qiIb")
_CRC_START: Final = 16
_LENGTH_OVERHEAD: Final = 12
_SHORTEST: Final = {0: 14, 1: 22}
"""What follows the size in a message with neither key nor value, by format."""
_CHUNK_BYTES: Final = 1 << 20


def old_message(file: File | PooledFile, position: int, size: int) -> int | None:
    """The format, 0 or 1, of the message that begins at `position` of a file of `size` bytes.

    None if none does that is whole and has the right checksum. Raises `OSError`.
    """
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
