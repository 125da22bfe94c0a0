"""The format of checkpoints: text files in each data directory that map partitions to offsets.

```
0                     version
2                     number of lines that follow
topic 0 1500          topic, partition, offset

recovery-point-offset-checkpoint   recovery points: all below are synced, and recovery starts here
log-start-offset-checkpoint        log start offsets: records below are deleted, even if their segment exists
replication-offset-checkpoint      high watermarks
cleaner-offset-checkpoint          ends of the compacted parts
```
A file is valid if the version is 0, the count is right and every line parses. It is replaced atomically and synced. An
invalid file is ignored like a missing or empty one, and recovery reads more. Decoders raise `DamagedFileError`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.broker.log.errors import DamagedFileError
from odradek.model import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
_VERSION: Final = "0"
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


class Line(NamedTuple):
    """A line of a file, and the byte at which it begins."""

    byte: int
    text: str


def encode_lines(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_lines(data: bytes, path: str) -> list[Line]:
    """Return the lines after version and count, if both are valid."""
    lines = list(split_lines(data))
    if not lines or lines[0].text.strip() != _VERSION:
        raise DamagedFileError(path, 0, f"is not a checkpoint of version {_VERSION}")
    if len(lines) < 2:
        raise DamagedFileError(path, len(data), "is truncated after its version")
    count, content = lines[1], [line for line in lines[2:] if line.text.strip()]
    if count.text.strip() != str(len(content)):
        raise DamagedFileError(path, count.byte, f"declares {count.text.strip()!r} lines, and has {len(content)}")
    return content


def split_lines(data: bytes) -> Iterator[Line]:
    """Yield the lines of a text, each with its position in `data`."""
    byte = 0
    for line in data.splitlines(keepends=True):
        yield Line(byte, line.decode(errors="replace").rstrip("\r\n"))
        byte += len(line)


def parse_number(text: str, bits: int = 64) -> int:
    """Parse a decimal number that fits into a signed integer of `bits` bits. Raises `ValueError`."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    number = int(text)
    if not -1 << (bits - 1) <= number < 1 << (bits - 1):
        raise ValueError(f"{text} has more than {bits} bits")
    return number


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_lines([f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())])


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    return {partition: offset for _, partition, offset in decode_offset_lines(data, path)}


def decode_offset_lines(data: bytes, path: str) -> list[tuple[int, TopicPartition, int]]:
    found = []
    for byte, line in decode_lines(data, path) if data else ():
        try:
            topic, partition, offset = line.split()
            found.append((byte, TopicPartition(topic, parse_number(partition, 32)), parse_number(offset)))
        except ValueError:
            raise DamagedFileError(path, byte, f"has a line that is not topic, partition, offset: {line!r}") from None
    return found
