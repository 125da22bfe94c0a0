"""Logs that are in a data directory but not open, and the partitions that are therefore offline."""

from collections import Counter
from collections.abc import Iterable

from odradek.broker.log.directories.directory_loading import FoundLog, refuse_duplicates
from odradek.broker.log.names import parent_of
from odradek.model import StorageError, TopicPartition


class UnopenedLogs:
    """The unopened logs of one broker; `offline` has the error of each partition without an open log."""

    def __init__(self) -> None:
        self.offline: dict[TopicPartition, StorageError] = {}
        self._found: dict[str, FoundLog] = {}

    def set_found(self, found: Iterable[FoundLog]) -> None:
        """Set the logs found in all data directories; partitions with two logs are offline."""
        self._found = {each.folder: each for each in found}
        self.offline = dict(refuse_duplicates(self._found.values()))

    def clear(self) -> None:
        self._found.clear()
        self.offline = {}

    def discard(self, folder: str) -> None:
        """Remove a log that was opened, deleted or renamed."""
        self._found.pop(folder, None)

    def of(self, partition: TopicPartition) -> list[FoundLog]:
        return [found for found in self._found.values() if found.partition == partition]

    def in_directory(self, directory: str) -> list[FoundLog]:
        return [found for found in self._found.values() if parent_of(found.folder) == directory]

    @property
    def duplicates(self) -> set[TopicPartition]:
        """Partitions with unopened logs in two directories."""
        folders = Counter(found.partition for found in self._found.values())
        return {partition for partition, count in folders.items() if count > 1}
