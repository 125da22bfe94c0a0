"""The committed offsets of all groups of one `__consumer_offsets` partition, as its records define them.

A committed offset is the next offset to read (SPEC 7). Offsets of open transactions are kept apart until the
transaction's marker. Times are in ms since 1970.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from odradek.model import TopicPartition
from odradek.model.values import dataclass, field
from odradek.protocol.group_records import OffsetCommitValue

_NOTHING: Mapping[TopicPartition, OffsetCommitValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """A commit and the offset of its record; of two commits, the one with the later record is valid."""

    value: OffsetCommitValue
    record_offset: int


@dataclass(slots=True)
class _Transaction:
    """The pending offsets of one producer's open transaction, by group."""

    commits: dict[str, dict[TopicPartition, _Commit]] = field(default_factory=dict)


class Offsets:
    """Committed offsets by group and partition."""

    def __init__(self) -> None:
        self._values: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        self._record_offsets: dict[tuple[str, TopicPartition], int] = {}
        self._transactions: dict[int, _Transaction] = {}

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    @property
    def groups(self) -> Collection[str]:
        """Return the ids of groups with committed offsets."""
        return self._values.keys()

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """Return a group's offsets, in order of the first commits."""
        return self._values.get(group_id, _NOTHING)

    def put(self, group_id: str, partition: TopicPartition, value: OffsetCommitValue, record_offset: int) -> None:
        """Apply a commit that was recorded at `record_offset`."""
        self._values.setdefault(group_id, {})[partition] = value
        self._record_offsets[group_id, partition] = record_offset

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Apply a tombstone: remove the offset, also from open transactions."""
        values = self._values.get(group_id)
        if values is not None and values.pop(partition, None) is not None:
            del self._record_offsets[group_id, partition]
            if not values:
                del self._values[group_id]
        for transaction in self._transactions.values():
            transaction.commits.get(group_id, {}).pop(partition, None)

    # -- transactions --------------------------------------------------------------------------------------------------

    def put_transactional(
        self, producer_id: int, group_id: str, partition: TopicPartition, value: OffsetCommitValue, record_offset: int
    ) -> None:
        """Apply a commit that was recorded in an open transaction."""
        transaction = self._transactions.setdefault(producer_id, _Transaction())
        commit = _Commit(value=value, record_offset=record_offset)
        transaction.commits.setdefault(group_id, {})[partition] = commit

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply a transaction's marker. Commits outside the transaction that were recorded later take precedence."""
        transaction = self._transactions.pop(producer_id, None)
        if transaction is None or not committed:
            return
        for group_id, commits in transaction.commits.items():
            for partition, commit in commits.items():
                if commit.record_offset > self._record_offsets.get((group_id, partition), -1):
                    self.put(group_id, partition, commit.value, commit.record_offset)

    def has_pending_transactional_offsets(self, group_id: str, partition: TopicPartition) -> bool:
        """Return whether an open transaction may still change the offset (KIP-447)."""
        return any(partition in open_.commits.get(group_id, ()) for open_ in self._transactions.values())

    def has_open_transactions(self, group_id: str) -> bool:
        """Return whether an open transaction has committed offsets of the group."""
        return any(open_.commits.get(group_id) for open_ in self._transactions.values())

    # -- deletion and expiry -------------------------------------------------------------------------------------------

    def of_topics(self, topics: Collection[str]) -> Iterator[tuple[str, TopicPartition]]:
        """Yield `(group id, partition)` of every offset in one of `topics`."""
        for group_id, values in self._values.items():
            for partition in values:
                if partition.topic in topics:
                    yield group_id, partition

    def expired(
        self, group_id: str, *, idle_since_ms: int, subscribed: Collection[str], now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired (KIP-211).

        Retention starts with the commit or at `idle_since_ms`, when the last member left, whichever is later. Offsets
        of `subscribed` topics do not expire. Commits of old clients may carry an expiry time of their own.
        """
        expired = []
        for partition, value in self.of(group_id).items():
            if partition.topic in subscribed or self.has_pending_transactional_offsets(group_id, partition):
                continue
            expires_ms = value.expire_timestamp
            if expires_ms < 0:
                expires_ms = max(value.commit_timestamp, idle_since_ms) + retention_ms
            if now_ms >= expires_ms:
                expired.append(partition)
        return expired
