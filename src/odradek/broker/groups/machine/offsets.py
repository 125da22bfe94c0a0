"""The committed offsets of all groups of one `__consumer_offsets` partition.

A committed offset is the next offset to read (SPEC 7). Offsets of an open transaction are pending until its marker.
Times are in ms since 1970. Callers validate requests. There may be very many offsets, so the garbage collector must
skip them: keys are plain tuples, values structs without gc, and dicts replace sets.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from odradek.model import TopicPartition
from odradek.protocol.internal_records.group_records import OffsetCommitValue

_Key = tuple[str, int]


class CommittedOffset(Struct, frozen=True, gc=False):
    """The fields of an `OffsetCommitValue` that are needed later."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int


MOST_PENDING: Final = 65_536
"""Limit of the offsets in one transaction, whose end applies them all at once: for that many, 0.06 s."""
_NOTHING: Mapping[_Key, CommittedOffset] = MappingProxyType({})


class _Commit(Struct, frozen=True, gc=False):
    """A pending commit and the offset of its record; the commit with the latest record wins."""

    value: CommittedOffset
    record_offset: int


class Offsets:
    """Committed offsets by group and partition."""

    def __init__(self) -> None:
        self._values: dict[str, dict[_Key, CommittedOffset]] = {}
        self._record_offsets: dict[str, dict[_Key, int]] = {}
        """Record offsets of commits outside transactions; only of groups with offsets in an open transaction."""
        self._count_by_topic: Counter[str] = Counter()
        self._transactions: dict[int, dict[str, dict[_Key, _Commit]]] = {}
        """The pending offsets of open transactions, by producer and group."""
        self._pending: dict[str, dict[_Key, dict[int, None]]] = {}
        """By group and partition, the producers whose open transactions have an offset of it."""

    def __len__(self) -> int:
        return sum(map(len, self._values.values()))

    def of(self, group_id: str) -> Mapping[_Key, CommittedOffset]:
        """Return a group's committed offsets, without pending ones, in the order of first commits."""
        return self._values.get(group_id, _NOTHING)

    def put(self, group_id: str, partition: TopicPartition, value: OffsetCommitValue, record_offset: int) -> None:
        """Apply a commit outside transactions, whose record is at `record_offset`."""
        self._put(group_id, (*partition,), _kept(value), record_offset)

    def _put(self, group_id: str, key: _Key, value: CommittedOffset, record_offset: int) -> None:
        values = self._values.setdefault(group_id, {})
        if key not in values:
            self._count_by_topic[key[0]] += 1
        values[key] = value
        if group_id in self._pending:
            self._record_offsets.setdefault(group_id, {})[key] = record_offset

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """Apply a tombstone: remove the offset, also from open transactions."""
        values = self._values.get(group_id)
        if values is not None and values.pop(partition, None) is not None:
            self._count_by_topic[partition.topic] -= 1
            if not self._count_by_topic[partition.topic]:
                del self._count_by_topic[partition.topic]
            if not values:
                del self._values[group_id]
        for producer_id in tuple(self._pending.get(group_id, {}).get(partition, ())):
            self._forget_pending(producer_id, group_id, partition)
            commits = self._transactions[producer_id][group_id]
            del commits[partition]
            if not commits:
                self._drop_pending(producer_id, group_id)

    # -- transactions --------------------------------------------------------------------------------------------------

    def put_transactional(
        self, producer_id: int, group_id: str, partition: TopicPartition, value: OffsetCommitValue, record_offset: int
    ) -> None:
        """Apply a commit of an open transaction, whose record is at `record_offset`."""
        commits = self._transactions.setdefault(producer_id, {}).setdefault(group_id, {})
        key = (*partition,)
        commits[key] = _Commit(_kept(value), record_offset)
        self._pending.setdefault(group_id, {}).setdefault(key, {})[producer_id] = None

    def pending_of(self, producer_id: int) -> int:
        """Return the number of offsets in a producer's open transaction."""
        return sum(map(len, self._transactions.get(producer_id, {}).values()))

    def end_transaction(self, producer_id: int, *, committed: bool) -> Collection[str]:
        """Commit or drop a transaction's offsets, and return the ids of their groups.

        Commits outside the transaction take precedence if their records are later.
        """
        transaction = dict(self._transactions.get(producer_id, ()))
        for group_id, commits in transaction.items():
            later = self._record_offsets.get(group_id, {})
            for key, commit in commits.items() if committed else ():
                if commit.record_offset > later.get(key, -1):
                    self._put(group_id, key, commit.value, commit.record_offset)
            self._drop_pending(producer_id, group_id)
        return transaction.keys()

    def _drop_pending(self, producer_id: int, group_id: str) -> None:
        transaction = self._transactions[producer_id]
        for key in transaction.pop(group_id):
            self._forget_pending(producer_id, group_id, key)
        if not transaction:
            del self._transactions[producer_id]
        if not self._pending[group_id]:
            del self._pending[group_id]
            self._record_offsets.pop(group_id, None)

    def _forget_pending(self, producer_id: int, group_id: str, key: _Key) -> None:
        partitions = self._pending[group_id]
        del partitions[key][producer_id]
        if not partitions[key]:
            del partitions[key]

    def pending(self, group_id: str) -> Collection[_Key]:
        """Return the partitions whose offsets an open transaction may still change (KIP-447)."""
        return self._pending.get(group_id, {}).keys()

    def has_open_transactions(self, group_id: str) -> bool:
        """Return whether an open transaction has committed offsets of the group."""
        return group_id in self._pending

    # -- deletion and expiry -------------------------------------------------------------------------------------------

    def partitions(self, group_id: str, most: int | None = None) -> list[TopicPartition]:
        """Return the partitions that have an offset of the group, pending ones included; at most `most`, if given."""
        known = self.of(group_id)
        pending = (key for key in self.pending(group_id) if key not in known)
        return [TopicPartition(*key) for key in islice(chain(known, pending), most)]

    @property
    def topics(self) -> Collection[str]:
        """Return the topics that have an offset of any group, pending ones included."""
        pending = (topic for partitions in self._pending.values() for topic, _ in partitions)
        return self._count_by_topic.keys() | set(pending)

    @property
    def groups(self) -> Collection[str]:
        """Return the ids of the groups that have an offset, pending ones included."""
        return dict.fromkeys((*self._values, *self._pending))

    def of_topics(self, group_id: str, topics: Collection[str]) -> list[TopicPartition]:
        """Return the group's partitions of `topics` that have an offset, pending ones included."""
        return [partition for partition in self.partitions(group_id) if partition.topic in topics]

    def expired(
        self,
        group_id: str,
        *,
        idle_since_ms: int,
        subscribed: Collection[str],
        now_ms: int,
        retention_ms: int,
        most: int,
    ) -> list[TopicPartition]:
        """Return up to `most` partitions whose offsets have expired (KIP-211).

        Retention starts at the commit or, if later, at `idle_since_ms`, when the last member left. Offsets of
        `subscribed` topics and pending ones do not expire. Commits of old clients may have their own expiry time.
        """
        expired, pending = [], self.pending(group_id)
        for key, value in self.of(group_id).items():
            if key[0] in subscribed or key in pending:
                continue
            expires_ms = value.expire_timestamp
            if expires_ms < 0:
                expires_ms = max(value.commit_timestamp, idle_since_ms) + retention_ms
            if now_ms >= expires_ms:
                expired.append(TopicPartition(*key))
                if len(expired) == most:
                    break
        return expired


def _kept(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
    )
