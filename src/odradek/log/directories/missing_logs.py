"""Which logs should be in a broker's directories, so that one that is not is missed and not begun anew.

An empty log says that nothing was ever acknowledged. Where a directory is offline, or another one is in its place (an
empty mount point, a new disk), what should be here and is nowhere was in that one:

| the directory | a log that is nowhere |
|---|---|
| offline | is not made: elsewhere it would be the other one's twin when the disk is back |
| lost, and others have the records | is made in its place, when a leader has all of it to copy |
| lost, and nobody else was in sync | is not made until the next start, which looks anew |
"""

from collections.abc import Iterable, Mapping, Set

from odradek.log.errors import OfflineDirectoryError
from odradek.model import StorageError, TopicPartition


class Expectations:
    """One broker's. Until something is expected, whatever is missing may be in a directory that is offline."""

    def __init__(self) -> None:
        self._partitions: set[TopicPartition] | None = None
        self._topics: Set[str] = frozenset()
        self._lost: Mapping[str, str] = {}
        self._irreplaceable: Set[TopicPartition] = frozenset()

    def set(
        self,
        partitions: Iterable[TopicPartition],
        topics: Set[str],
        *,
        lost: Mapping[str, str],
        irreplaceable: Set[TopicPartition],
    ) -> None:
        """Expect these partitions, and all of these topics. `lost` has directories by their ids: where they were.

        Nobody else has what was in those that are `irreplaceable`.
        """
        self._partitions, self._topics = set(partitions), topics
        self._lost, self._irreplaceable = lost, irreplaceable

    def expect_nothing_more(self) -> None:
        """What is not here by now never was, unless it is said to be expected: the broker has run for a while."""
        if self._partitions is None:
            self._partitions = set()

    def drop(self, partition: TopicPartition) -> None:
        """It is deleted: a new one of that name may be made."""
        if self._partitions is not None:
            self._partitions.discard(partition)

    def check(self, partition: TopicPartition, *, is_copied: bool, offline: Mapping[str, StorageError]) -> None:
        """Raise `OfflineDirectoryError` if no log may be made. `is_copied`: all of it will come from a leader."""
        if offline and (self._partitions is None or self._expects(partition)):
            raise OfflineDirectoryError("; ".join(map(str, offline.values())))
        if self._lost and self._expects(partition) and (not is_copied or partition in self._irreplaceable):
            where = ", ".join(f"{path} (directory.id {key})" for key, path in self._lost.items())
            raise OfflineDirectoryError(f"the log of {partition} was in the data directory {where}, which is gone")

    def places(self, partition: TopicPartition, paths: Mapping[str, str]) -> list[str]:
        """Of directories that can be used, by name, with their paths: those in which its log may be made.

        One that was lost is made where it was: elsewhere it would be a twin if that came back. Others keep away from
        there while a disk is waited for: mounted over them, it would hide them.
        """
        places = [each for each, path in paths.items() if path in self._lost.values()]
        if not self._expects(partition):
            places = [each for each in paths if each not in places] if self._irreplaceable else []
        return places or list(paths)

    def _expects(self, partition: TopicPartition) -> bool:
        return partition.topic in self._topics or (self._partitions is not None and partition in self._partitions)
