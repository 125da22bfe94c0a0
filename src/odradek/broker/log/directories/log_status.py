"""One table of the logs of a broker that cannot be used as they are, and the reasons.

| status | the log | its partition |
|---|---|---|
| `unopened` | is in a data directory, but not open | is offline with the error in `offline` |
| `lost` | ends before its checkpoints: its followers would truncate good copies | is not used here |
| expected | was here before the start, and is in no directory | is not created while a directory is away |

They last until the next start, or a deletion; `lost` also until the replica is outside the ISR and copies the leader's
log, or an operator accepts the loss. Checkpoints keep the entries of the first two, so that the next start finds
the same.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.log.directories.directory_loading import FoundLog, LostRecords, refuse_duplicates
from odradek.broker.log.errors import LogStorageError, OfflineDirectoryError
from odradek.broker.log.names import parent_of
from odradek.model import StorageError, TopicPartition


class ExpectedLogs(Struct, frozen=True, kw_only=True):
    """The logs that a broker had before its start: `partitions`, and all partitions of `topics`.

    With a `reason` none of them is created. `paths` are the absolute paths of their directories.
    """

    partitions: Set[TopicPartition]
    topics: Set[str] = frozenset()
    reason: str = ""
    paths: Set[str] = frozenset()


class LogStatuses:
    """The logs of one broker that cannot be used. Until `expect`, every log counts as expected."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Return to the state before the logs were loaded."""
        self.unopened: dict[str, FoundLog] = {}
        """By folder."""
        self.offline: dict[TopicPartition, StorageError] = {}
        self.lost: dict[TopicPartition, LostRecords] = {}
        self._expected: ExpectedLogs | None = None

    def set_found(self, found: Iterable[FoundLog]) -> None:
        """Set the logs found in all data directories; partitions with two logs are offline."""
        self.unopened = {each.folder: each for each in found}
        self.offline = refuse_duplicates(self.unopened.values())

    def unopened_of(self, partition: TopicPartition) -> list[FoundLog]:
        return [found for found in self.unopened.values() if found.partition == partition]

    def unopened_in(self, directory: str) -> list[FoundLog]:
        return [found for found in self.unopened.values() if parent_of(found.folder) == directory]

    @property
    def duplicates(self) -> set[TopicPartition]:
        folders = Counter(found.partition for found in self.unopened.values())
        return {partition for partition, count in folders.items() if count > 1}

    def add_lost(self, lost: LostRecords) -> None:
        """Add lost records; of two for one partition, keep those with the higher expected offset."""
        known = self.lost.get(lost.partition)
        if known is None or known.expected_offset < lost.expected_offset:
            self.lost[lost.partition] = lost

    def advise(self, partition: TopicPartition, advice: str) -> None:
        self.lost[partition] = replace(self.lost[partition], advice=advice)

    def expect(self, expected: ExpectedLogs) -> None:
        self._expected = expected

    def expect_nothing(self) -> None:
        """Expect no log, unless `expect` was called: all logs are open, so missing ones never existed."""
        if self._expected is None:
            self._expected = ExpectedLogs(partitions=frozenset())

    def forget(self, partition: TopicPartition) -> None:
        """Remove a partition whose log is deleted, except for its unopened logs."""
        self.offline.pop(partition, None)
        self.lost.pop(partition, None)
        if self._expected is not None:
            self._expected = replace(self._expected, partitions=self._expected.partitions - {partition})

    def _expects(self, partition: TopicPartition) -> bool:
        expected = self._expected
        return expected is None or partition in expected.partitions or partition.topic in expected.topics

    def check_may_create(self, partition: TopicPartition, offline: Mapping[str, StorageError]) -> None:
        """Raise `StorageError` if a log without an open `Log` exists, or may, in a missing or `offline` directory."""
        if partition in self.offline:
            raise self.offline[partition]
        reason = "" if self._expected is None else self._expected.reason
        if self._expects(partition) and (reason or offline):
            raise OfflineDirectoryError(reason or "; ".join(map(str, offline.values())))

    def check_whole(self, partition: TopicPartition) -> None:
        if (lost := self.lost.get(partition)) is not None:
            raise LogStorageError(f"{lost}{lost.advice and f'; {lost.advice}'}")

    def directories_for(self, partition: TopicPartition, paths: Mapping[str, str]) -> list[str]:
        """Return the directories in which the log may be created; `paths` maps usable directories to absolute paths.

        An expected log is created in its `ExpectedLogs.paths`, if usable: elsewhere it could become a duplicate.
        """
        if self._expected is None or not self._expects(partition):
            return list(paths)
        return [each for each, path in paths.items() if path in self._expected.paths] or list(paths)
