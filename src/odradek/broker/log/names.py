"""The names of a log's files and folders, as in Kafka.

```
{topic}-{partition}/                       one log
    00000000000000000042.log               batches from offset 42 on
    00000000000000000042.index             offset → position       (offset_index)
    00000000000000000042.timeindex         time → offset           (time_index)
    00000000000000000042.txnindex          aborted transactions    (transaction_index)
    00000000000000000042.snapshot          producers as of offset 42, exclusive (producer_snapshot)
    *.deleted                              deleted segment; removed after file.delete.delay.ms
    *.cleaned, *.swap                      compacted segment before it replaces others (segment_swap)
    leader-epoch-checkpoint, partition.metadata
{topic}-{partition}.{32 hex digits}-delete/    deleted log; removed after file.delete.delay.ms
{topic}-{partition}.{32 hex digits}-stray/     log of a partition that this broker no longer has
{topic}-{partition}.{32 hex digits}-future/    copy of a log that moves here from another data directory
{topic}-{partition}.{32 hex digits}-moved/     log that is being replaced by the copy of the same digits
```
A number in a file's name is an offset in 20 digits. Other files are ignored.
"""

import re
from typing import Final

from odradek.model import InvalidTopicError, TopicPartition, validate_topic_name

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
"""Suffix of a file that the log cleaner is writing."""
SWAP: Final = ".swap"
"""Suffix of a complete compacted file that will replace others."""
TEMPORARY: Final = ".tmp"

_OFFSET_FILE: Final = re.compile(r"(\d{20})(\.[a-z]+)")
_DELETED_FOLDER: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-delete|.+\.[0-9a-f]{32}-delete")
_STRAY_FOLDER: Final = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-stray")
_FUTURE_FOLDER: Final = re.compile(r"(.+-\d+)\.([0-9a-f]{32})-(future|moved)")
_LONGEST_FOLDER: Final = 255


def offset_file(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """Return `(offset, suffix)` of a segment file's name, None for any other name."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_folder(name: str) -> TopicPartition | None:
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    try:
        return TopicPartition(validate_topic_name(topic), int(number))
    except InvalidTopicError:
        return None


def deleted_folder(partition: TopicPartition, token: str) -> str:
    """Return the folder name for a deleted log; `token`, 32 hex digits, makes it unique."""
    return _marked(partition, f"{token}-delete")


def stray_folder(partition: TopicPartition, token: str) -> str:
    """Return the folder name for a stray log; `token`, 32 hex digits, makes it unique."""
    return _marked(partition, f"{token}-stray")


def future_folder(partition: TopicPartition, token: str) -> str:
    """Return the folder name for a copy of a log. Raises `InvalidTopicError` if the topic's name is too long for it."""
    name = f"{partition}.{token}-future"
    if len(name) > _LONGEST_FOLDER:
        raise InvalidTopicError(f"the name of topic {partition.topic} is too long to move its replicas")
    return name


def moved_folder(future: str) -> str:
    """Return the folder name for the log that a copy with the folder name `future` replaces."""
    return f"{future.removesuffix('-future')}-moved"


def parse_future_folder(name: str) -> tuple[TopicPartition, str] | None:
    """Return the partition and the token of a `-future` or `-moved` folder, None for any other name."""
    match = _FUTURE_FOLDER.fullmatch(name)
    partition = parse_folder(match[1]) if match else None
    return (partition, match[2]) if match and partition is not None else None


def _marked(partition: TopicPartition, mark: str) -> str:
    suffix = f"-{partition.partition}.{mark}"
    return partition.topic[: _LONGEST_FOLDER - len(suffix)] + suffix


def is_deleted_folder(name: str) -> bool:
    return _DELETED_FOLDER.fullmatch(name) is not None


def parse_stray_folder(name: str) -> TopicPartition | None:
    match = _STRAY_FOLDER.fullmatch(name)
    return parse_folder(match[1]) if match else None


def parent_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
