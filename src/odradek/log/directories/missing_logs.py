"""Logs that the metadata assigns to this broker and no directory contains.

An empty log there would hide a loss of records.
"""

from collections.abc import Iterable, Mapping, Set

from odradek.log.errors import OfflineDirectoryError
from odradek.model import StorageError, TopicPartition


class MissingLogs:
    """The expected logs of one broker. Until they are set, any log may be in a directory that is offline."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget what is expected."""
        self._partitions: set[TopicPartition] | None = None
        self._topics: Set[str] = frozenset()
        self._reason = ""
        self._paths: Set[str] = frozenset()

    def set(self, partitions: Iterable[TopicPartition], topics: Set[str], *, reason: str, paths: Set[str]) -> None:
        """Expect these partitions, and all of these topics. With a `reason`, none of them is created.

        `paths` are those of the directories that had them.
        """
        self._partitions, self._topics, self._reason, self._paths = set(partitions), topics, reason, paths

    def set_nothing_expected(self) -> None:
        """Expect nothing, unless `set` was called: a log that the running broker does not have never existed."""
        if self._partitions is None:
            self._partitions = set()

    def discard(self, partition: TopicPartition) -> None:
        """Stop expecting a log that is deleted."""
        if self._partitions is not None:
            self._partitions.discard(partition)

    def check(self, partition: TopicPartition, offline: Mapping[str, StorageError]) -> None:
        """Raise `OfflineDirectoryError` if no log may be created, as it may be in a directory that is not there."""
        if self._expects(partition) and (self._reason or offline):
            raise OfflineDirectoryError(self._reason or "; ".join(map(str, offline.values())))

    def directories_for(self, partition: TopicPartition, paths: Mapping[str, str]) -> list[str]:
        """Return the directories in which the log may be created; `paths` has the usable ones' absolute paths.

        A replaced directory's log is created where it was, to avoid a duplicate if the disk comes back.
        """
        places = [each for each, path in paths.items() if path in self._paths] if self._expects(partition) else []
        return places or list(paths)

    def _expects(self, partition: TopicPartition) -> bool:
        return self._partitions is None or partition in self._partitions or partition.topic in self._topics
