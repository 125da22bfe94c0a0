"""Logs that a broker had and does not find: whether an empty one may be created.

An empty log claims that nothing was ever acknowledged. If a directory is offline, or replaced, a missing log was
there:

| the directory | a missing log |
|---|---|
| offline | is not created: it would be a duplicate when the disk is back |
| lost, and other replicas have the records | is created in its place, to be copied from the leader |
| lost, and no other replica was in sync | is not created until the next start, which checks again |
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
        """Expect these partitions, and all of these topics. `lost` has the paths of lost directories by their ids.

        No other replica has the records of those that are `irreplaceable`.
        """
        self._partitions, self._topics = set(partitions), topics
        self._lost, self._irreplaceable = lost, irreplaceable

    def set_nothing_expected(self) -> None:
        """Expect nothing, unless `set` was called: a log that the running broker does not have never existed."""
        if self._partitions is None:
            self._partitions = set()

    def discard(self, partition: TopicPartition) -> None:
        """Stop expecting a log that is deleted."""
        if self._partitions is not None:
            self._partitions.discard(partition)

    def check(self, partition: TopicPartition, *, is_copied: bool, offline: Mapping[str, StorageError]) -> None:
        """Raise `OfflineDirectoryError` if no log may be created. `is_copied`: it will be copied from a leader."""
        if offline and (self._partitions is None or self._expects(partition)):
            raise OfflineDirectoryError("; ".join(map(str, offline.values())))
        if self._lost and self._expects(partition) and (not is_copied or partition in self._irreplaceable):
            where = ", ".join(f"{path} (directory.id {key})" for key, path in self._lost.items())
            raise OfflineDirectoryError(f"the log of {partition} was in the data directory {where}, which is gone")

    def directories_for(self, partition: TopicPartition, paths: Mapping[str, str]) -> list[str]:
        """Return the directories in which the partition's log may be created; `paths` has the usable ones' paths.

        A lost log is created where it was, to avoid a duplicate if the disk comes back. Other logs are not created
        there while irreplaceable ones are missing: the disk, mounted over them, would hide them.
        """
        places = [each for each, path in paths.items() if path in self._lost.values()]
        if not self._expects(partition):
            places = [each for each in paths if each not in places] if self._irreplaceable else []
        return places or list(paths)

    def _expects(self, partition: TopicPartition) -> bool:
        return partition.topic in self._topics or (self._partitions is not None and partition in self._partitions)
