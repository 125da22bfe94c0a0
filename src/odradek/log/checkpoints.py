"""Small text files that map partitions to offsets, one set in each data directory.

```
0                     version
2                     number of lines that follow
topic 0 1500          topic, partition, offset
```
`recovery-point-offset-checkpoint`   below it everything is synced: recovery begins there
`log-start-offset-checkpoint`        records below it are deleted, though their segment may still be there

A file is valid if the version is 0, the count is right and every line parses. It is replaced whole and synced. One
that is not there has no entries; one that is not valid is reported, and recovery does without it: it then reads more.
"""

from collections.abc import Mapping
from typing import Final

from odradek.model import StorageError, TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
_VERSION: Final = "0"


def encode_lines(lines: list[str]) -> bytes:
    """Version, count and lines: the frame of all of Kafka's checkpoints."""
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_lines(data: bytes, path: str) -> list[str]:
    """The lines inside that frame. Raises `StorageError` naming `path` if it is broken."""
    lines = data.decode(errors="replace").splitlines()
    if not lines or lines[0].strip() != _VERSION:
        raise StorageError(f"{path} is no checkpoint of version {_VERSION}")
    content = [line for line in lines[2:] if line.strip()]
    if len(lines) < 2 or not lines[1].strip().isdigit() or int(lines[1]) != len(content):
        raise StorageError(f"{path} is cut: it has {len(content)} lines and says otherwise")
    return content


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The file of an offset checkpoint, sorted by partition."""
    return encode_lines([f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())])


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """The offsets in the file. Raises `StorageError` naming `path` if it is not valid."""
    offsets: dict[TopicPartition, int] = {}
    for line in decode_lines(data, path):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise StorageError(f"{path} has a line that is no topic, partition and offset: {line!r}") from None
    return offsets
