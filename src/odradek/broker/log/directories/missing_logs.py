"""Decides whether a log may be created that the metadata assigns to this broker but no directory contains.

A new, empty log would hide a loss of records.
"""

from collections.abc import Iterable, Mapping, Set

from odradek.broker.log.errors import OfflineDirectoryError
from odradek.model import StorageError, TopicPartition


class MissingLogs:
    """The logs that this broker had before its start. Until `set`, every log counts as expected."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Return to the state before `set`."""
        self._partitions: set[TopicPartition] | None = None
        self._topics: Set[str] = frozenset()
        self._reason = ""
        self._paths: Set[str] = frozenset()

    def set(self, partitions: Iterable[TopicPartition], topics: Set[str], *, reason: str, paths: Set[str]) -> None:
        """Expect `partitions` and all partitions of `topics`; with a `reason`, none of them is created.

        `paths` are the absolute paths of their directories.
        """
        self._partitions, self._topics, self._reason, self._paths = set(partitions), topics, reason, paths

    def set_nothing_expected(self) -> None:
        """Expect no log, unless `set` was called: all logs are open, so missing ones never existed."""
        if self._partitions is None:
            self._partitions = set()

    def discard(self, partition: TopicPartition) -> None:
        """Stop expecting a log that is deleted."""
        if self._partitions is not None:
            self._partitions.discard(partition)

    def check(self, partition: TopicPartition, offline: Mapping[str, StorageError]) -> None:
        """Raise `OfflineDirectoryError` if the log is expected and may be in an offline or missing directory."""
        if self._expects(partition) and (self._reason or offline):
            raise OfflineDirectoryError(self._reason or "; ".join(map(str, offline.values())))

    def directories_for(self, partition: TopicPartition, paths: Mapping[str, str]) -> list[str]:
        """Return the directories in which the log may be created; `paths` maps usable directories to absolute paths.

        An expected log is created in the `paths` of `set`, if usable: elsewhere it could become a duplicate.
        """
        places = [each for each, path in paths.items() if path in self._paths] if self._expects(partition) else []
        return places or list(paths)

    def _expects(self, partition: TopicPartition) -> bool:
        return self._partitions is None or partition in self._partitions or partition.topic in self._topics
