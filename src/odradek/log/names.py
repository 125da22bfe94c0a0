"""What files and folders of a log are called, as Kafka calls them.

```
{topic}-{partition}/                       one log
    00000000000000000042.log               batches from offset 42 on
    00000000000000000042.index             offset → position       (offset_index)
    00000000000000000042.timeindex         time → offset           (time_index)
    00000000000000000042.txnindex          transactions that were aborted (transaction_index)
    00000000000000000042.snapshot          producers as of offset 42, exclusive (producer_snapshot)
    *.deleted                              retention or compaction took it; removed after file.delete.delay.ms
    *.cleaned, *.swap                      a compacted segment on its way in (swapping)
    leader-epoch-checkpoint, partition.metadata
{topic}-{partition}.{32 hex digits}-delete/    a deleted log on its way out
{topic}-{partition}.{32 hex digits}-stray/     one that is not the partition's any more, on its way out
```
A number in a file's name is an offset in 20 digits. Files of other names are left alone.
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
"""Behind the name of a file that a compaction writes."""
SWAP: Final = ".swap"
"""Behind the name of a file that is whole, and is to take the place of those it was made of."""
TEMPORARY: Final = ".tmp"

_OFFSET_FILE: Final = re.compile(r"(\d{20})(\.[a-z]+)")
_DELETED_FOLDER: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-delete|.+\.[0-9a-f]{32}-delete")
_STRAY_FOLDER: Final = re.compile(r"(.+-\d+)\.[0-9a-f]{32}-stray")
_LONGEST_FOLDER: Final = 255


def offset_file(directory: str, offset: int, suffix: str) -> str:
    """The path of the file of that kind that begins at `offset`."""
    return f"{directory}/{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """`(offset, suffix)` of such a file's name, or None for any other name."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def parse_folder(name: str) -> TopicPartition | None:
    """The topic-partition whose log is in a folder of that name, or None for any other name."""
    topic, dash, number = name.rpartition("-")
    if not dash or not number.isascii() or not number.isdigit() or str(int(number)) != number:
        return None
    try:
        return TopicPartition(validate_topic_name(topic), int(number))
    except InvalidTopicError:
        return None


def deleted_folder(partition: TopicPartition, token: str) -> str:
    """Where a deleted log is moved: unlike any log's, and unlike any other's. `token` is 32 hex digits."""
    return _marked(partition, f"{token}-delete")


def stray_folder(partition: TopicPartition, token: str) -> str:
    """Where a log is moved that nobody uses any more, though nobody told this broker to delete it."""
    return _marked(partition, f"{token}-stray")


def _marked(partition: TopicPartition, mark: str) -> str:
    suffix = f"-{partition.partition}.{mark}"
    return partition.topic[: _LONGEST_FOLDER - len(suffix)] + suffix


def is_deleted_folder(name: str) -> bool:
    """Whether a deleted log is in a folder of that name."""
    return _DELETED_FOLDER.fullmatch(name) is not None


def parse_stray_folder(name: str) -> TopicPartition | None:
    """Return the topic-partition whose stray log is in a folder of that name, None for any other name."""
    match = _STRAY_FOLDER.fullmatch(name)
    return parse_folder(match[1]) if match else None


def parent_of(path: str) -> str:
    """The folder that a path is in."""
    return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
