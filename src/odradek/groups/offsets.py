"""Committed offsets of all groups of one `__consumer_offsets` partition: nothing but what its records say.

An offset is the next one to read (SPEC 7). What a transaction commits is kept apart until its marker comes. Times are
ms since 1970.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from odradek.model import TopicPartition
from odradek.model.values import dataclass, field
from odradek.protocol.group_records import OffsetCommitValue

_NOTHING: Mapping[TopicPartition, OffsetCommitValue] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commit:
    """A commit and the offset of its record: of two, the later record counts."""

    value: OffsetCommitValue
    record_offset: int


@dataclass(slots=True)
class _Transaction:
    """What one producer committed in its open transaction, by group."""

    commits: dict[str, dict[TopicPartition, _Commit]] = field(default_factory=dict)


class Offsets:
    """The offsets, by group and partition."""

    def __init__(self) -> None:
        self._values: dict[str, dict[TopicPartition, OffsetCommitValue]] = {}
        self._record_offsets: dict[tuple[str, TopicPartition], int] = {}
        self._transactions: dict[int, _Transaction] = {}

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    @property
    def groups(self) -> Collection[str]:
        """Every group that has an offset."""
        return self._values.keys()

    def of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitValue]:
        """A group's offsets, in the order in which partitions were first committed."""
        return self._values.get(group_id, _NOTHING)

    def put(self, group_id: str, partition: TopicPartition, value: OffsetCommitValue, record_offset: int) -> None:
        """A commit was recorded at `record_offset`."""
        self._values.setdefault(group_id, {})[partition] = value
        self._record_offsets[group_id, partition] = record_offset

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """A tombstone was recorded: the offset is gone, also what open transactions say of it."""
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
        """A commit was recorded in an open transaction."""
        transaction = self._transactions.setdefault(producer_id, _Transaction())
        commit = _Commit(value=value, record_offset=record_offset)
        transaction.commits.setdefault(group_id, {})[partition] = commit

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The transaction's marker was recorded. A commit outside it, later than its own, stays."""
        transaction = self._transactions.pop(producer_id, None)
        if transaction is None or not committed:
            return
        for group_id, commits in transaction.commits.items():
            for partition, commit in commits.items():
                if commit.record_offset > self._record_offsets.get((group_id, partition), -1):
                    self.put(group_id, partition, commit.value, commit.record_offset)

    def has_pending_transactional_offsets(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an open transaction may still change the offset (KIP-447)."""
        return any(partition in open_.commits.get(group_id, ()) for open_ in self._transactions.values())

    def has_open_transactions(self, group_id: str) -> bool:
        """Whether an open transaction has committed anything for the group."""
        return any(open_.commits.get(group_id) for open_ in self._transactions.values())

    # -- what is to be forgotten ---------------------------------------------------------------------------------------

    def of_topics(self, topics: Collection[str]) -> Iterator[tuple[str, TopicPartition]]:
        """`(group id, partition)` of every offset in one of `topics`, which were deleted."""
        for group_id, values in self._values.items():
            for partition in values:
                if partition.topic in topics:
                    yield group_id, partition

    def expired(
        self, group_id: str, *, idle_since_ms: int, subscribed: Collection[str], now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """The group's offsets that nobody needs any longer (KIP-211).

        Retention begins with the commit, or with `idle_since_ms`, when the last member left, if that was later: an
        offset is kept that long after both. Offsets of `subscribed` topics are never too old. A commit of an old
        client may have brought a time of its own.
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
