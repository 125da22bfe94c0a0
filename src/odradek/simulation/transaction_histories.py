"""A history of transactions, and the check that brokers isolate them and make them atomic.

A history has the transactions of producers with what they wrote, read and committed as offsets, what consumers polled,
and finally an audit: each partition's committed log, and the offsets of the groups. The definitions are Adya's, as
Jepsen applies them to Kafka-like logs:

    aborted read        G1a: a read_committed consumer polled, or the committed log has, a record of an aborted
                        transaction
    intermediate read   G1b: a read_committed consumer polled a record before its transaction was being committed
    torn                some records of a transaction are in the committed logs, and others are not
    lost                a record of a committed transaction is not in the committed log
    unseen              a read_committed consumer polled past a committed record
    repeated            a read_committed consumer, or a transaction, polled the same or a lower offset again
    misplaced           the log has another record at an offset than was polled, or another offset than acknowledged
    reordered           records of one transactional id are in a log in another order than they were sent in
    doubled             a record is in the committed log twice, or two transactions have consumed one record
    lost offset         a group's offset is lower than that of a committed transaction, or a record before it was
                        consumed by no transaction
    early offset        a group had an offset that no transaction had committed, or was committing, at the time

```python
history = TransactionHistory()
transaction = history.begin("a")
transaction.write(T0, b"1")
transaction.ending(now=1.0); transaction.outcome = Outcome.COMMITTED
history.poll("reader", T0, 0, b"1", now=2.0)
history.audit(T0, [(0, b"1")])
assert not list(findings(history))
```
Values are unique in a history. A transaction whose outcome is unknown must be visible as a whole or not at all.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct, field

from odradek.model import TopicPartition

_NEVER: Final = float("inf")


class Outcome(StrEnum):
    """The end of a transaction, as its producer knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Anomaly(StrEnum):
    """The kinds of findings, which the module explains."""

    ABORTED_READ = "aborted read"
    INTERMEDIATE_READ = "intermediate read"
    TORN = "torn"
    LOST = "lost"
    UNSEEN = "unseen"
    REPEATED = "repeated"
    MISPLACED = "misplaced"
    REORDERED = "reordered"
    DOUBLED = "doubled"
    LOST_OFFSET = "lost offset"
    EARLY_OFFSET = "early offset"


class Finding(NamedTuple):
    """One anomaly; `what` names its records and transactions."""

    anomaly: Anomaly
    what: str

    def __str__(self) -> str:
        return f"{self.anomaly}: {self.what}"


class RecordRead(NamedTuple):
    """A record that a consumer or a transaction has read."""

    partition: TopicPartition
    offset: int
    value: bytes


class RecordedTransaction(Struct, eq=False, kw_only=True):
    """One transaction. Its outcome is ABORTED while its producer has not asked for a commit, then UNKNOWN."""

    name: str
    transactional_id: str
    outcome: Outcome = Outcome.ABORTED
    ended_at: float = _NEVER
    """When the producer asked for the commit, in seconds of any clock."""
    writes: dict[bytes, TopicPartition] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """The offsets of acknowledged records."""
    reads: list[tuple[RecordRead, float]] = field(default_factory=list)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)

    def write(self, partition: TopicPartition, value: bytes) -> None:
        self.writes[value] = partition

    def acknowledge(self, value: bytes, offset: int) -> None:
        """Record that a record which the transaction sent was acknowledged at `offset`."""
        self.acknowledged[value] = offset

    def read(self, partition: TopicPartition, offset: int, value: bytes, *, now: float) -> None:
        self.reads.append((RecordRead(partition, offset, value), now))

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Record the offsets of a group that are committed with the transaction."""
        self.offsets.update({(group, partition): offset for partition, offset in offsets.items()})

    def ending(self, *, now: float) -> None:
        """Record that the producer asks for the commit: from now on, the outcome is unknown until it is set."""
        self.outcome, self.ended_at = Outcome.UNKNOWN, now


class TransactionHistory:
    """The transactions, polls, group offsets and final logs of one test."""

    def __init__(self) -> None:
        self.transactions: list[RecordedTransaction] = []
        self.polls: dict[str, list[tuple[RecordRead, float]]] = defaultdict(list)
        self.group_offsets: list[tuple[str, TopicPartition, int, float]] = []
        self.final_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.logs: dict[TopicPartition, Sequence[tuple[int, bytes]]] = {}

    def begin(self, producer: str, transactional_id: str = "") -> RecordedTransaction:
        """Record that `producer` begins a transaction, and return it. `transactional_id` defaults to `producer`.

        Transactions of one transactional id begin in the order of their producers' epochs.
        """
        name = f"{producer}#{len(self.transactions)}"
        transaction = RecordedTransaction(name=name, transactional_id=transactional_id or producer)
        self.transactions.append(transaction)
        return transaction

    def poll(self, reading: str, partition: TopicPartition, offset: int, value: bytes, *, now: float) -> None:
        """Record that a read_committed consumer polled a record; `reading` names one run of increasing offsets."""
        self.polls[reading].append((RecordRead(partition, offset, value), now))

    def saw_offset(self, group: str, partition: TopicPartition, offset: int, *, now: float) -> None:
        """Record a group's committed offset that a client has fetched."""
        self.group_offsets.append((group, partition, offset, now))

    def audit(self, partition: TopicPartition, log: Sequence[tuple[int, bytes]]) -> None:
        """Record a partition's final log as read_committed consumers see it: `(offset, value)` pairs in order."""
        self.logs[partition] = log

    def audit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        self.final_offsets[group, partition] = offset


def findings(history: TransactionHistory) -> Iterator[Finding]:
    case = _Case(history)
    yield from case.of_transactions()
    yield from case.of_logs()
    for reading, polls in history.polls.items():
        yield from case.of_reading(reading, polls)
    for transaction in history.transactions:
        yield from case.of_reading(transaction.name, transaction.reads)
    yield from case.of_seen_offsets()
    yield from case.of_offsets()


class _Case:
    """A history with its indexes."""

    def __init__(self, history: TransactionHistory) -> None:
        self._history = history
        self._writers = {value: each for each in history.transactions for value in each.writes}
        self._logs = {partition: dict(log) for partition, log in history.logs.items()}
        self._committed = {value for log in history.logs.values() for _, value in log}
        self._effective = [each for each in history.transactions if self._is_effective(each)]
        """The transactions that are committed, also if their producer does not know it."""
        self._numbers = {value: number for number, value in enumerate(self._writers)}
        """Numbers of records, which increase with each transaction, and with each record within it."""
        self._offsets = {partition: [offset for offset, _ in log] for partition, log in history.logs.items()}

    def _is_effective(self, transaction: RecordedTransaction) -> bool:
        is_unknown = transaction.outcome is Outcome.UNKNOWN
        return transaction.outcome is Outcome.COMMITTED or (
            is_unknown and any(value in self._committed for value in transaction.writes)
        )

    def of_transactions(self) -> Iterator[Finding]:
        for each in self._history.transactions:
            audited = [value for value, partition in each.writes.items() if partition in self._history.logs]
            missing = [value for value in audited if value not in self._committed]
            if missing and each.outcome is Outcome.COMMITTED:
                yield Finding(Anomaly.LOST, f"{missing} of {each.name}, which is committed")
            if 0 < len(missing) < len(audited):
                seen = [value for value in audited if value in self._committed]
                yield Finding(Anomaly.TORN, f"{each.name} ({each.outcome}): {seen} are visible, {missing} are not")

    def of_logs(self) -> Iterator[Finding]:
        for partition, log in self._history.logs.items():
            for value, count in Counter(value for _, value in log).items():
                writer = self._writers.get(value)
                if writer is None or writer.outcome is Outcome.ABORTED:
                    yield Finding(Anomaly.ABORTED_READ, f"{partition} has {value!r} of {_name(writer)}")
                if count > 1:
                    yield Finding(Anomaly.DOUBLED, f"{partition} has {value!r} of {_name(writer)} {count} times")
            yield from _going_back("the audit", partition, self._offsets[partition])
            yield from self._of_order(partition, log)
        for each in self._effective:
            for value, offset in each.acknowledged.items():
                known = self._logs.get(each.writes[value], {})
                if value in self._committed and known.get(offset) != value:
                    where = f"offset {offset} of {each.writes[value]}, where {_has(known, offset)}"
                    yield Finding(Anomaly.MISPLACED, f"{value!r} of {each.name} was acknowledged at {where}")

    def _of_order(self, partition: TopicPartition, log: Sequence[tuple[int, bytes]]) -> Iterator[Finding]:
        last: dict[str, bytes] = {}
        for offset, value in log:
            if (writer := self._writers.get(value)) is not None:
                before = last.get(writer.transactional_id, value)
                if self._numbers[value] < self._numbers[before]:
                    order = f"{value!r} of {writer.name} was sent before {before!r} of {self._writers[before].name}"
                    yield Finding(Anomaly.REORDERED, f"{order}, and is after it in {partition}, at offset {offset}")
                last[writer.transactional_id] = value

    def of_reading(self, reading: str, polls: Sequence[tuple[RecordRead, float]]) -> Iterator[Finding]:
        by_partition: dict[TopicPartition, list[int]] = defaultdict(list)
        for (partition, offset, value), now in polls:
            by_partition[partition].append(offset)
            writer, place = self._writers.get(value), f"{value!r} at {partition}, offset {offset}"
            if writer is None or writer.outcome is Outcome.ABORTED:
                yield Finding(Anomaly.ABORTED_READ, f"{reading} read {place}, of {_name(writer)}")
            elif now < writer.ended_at:
                yield Finding(Anomaly.INTERMEDIATE_READ, f"{reading} read {place}, before {writer.name} was committed")
            elif (log := self._logs.get(partition)) is not None and log.get(offset) != value:
                yield Finding(Anomaly.MISPLACED, f"{reading} read {place}, where {_has(log, offset)}")
        for partition, offsets in by_partition.items():
            yield from _going_back(reading, partition, offsets)
            seen, first, last = set(offsets), min(offsets), max(offsets)
            known = self._offsets.get(partition, ())
            for offset in known[bisect_right(known, first) : bisect_left(known, last)]:
                if offset not in seen:
                    value = self._logs[partition][offset]
                    where = f"{value!r} of {_name(self._writers.get(value))} at {partition}, offset {offset}"
                    yield Finding(Anomaly.UNSEEN, f"{reading} did not read {where}, and read offset {last}")

    def of_offsets(self) -> Iterator[Finding]:
        consumers: dict[RecordRead, list[str]] = defaultdict(list)
        for each in self._effective:
            for record, _ in each.reads:
                consumers[record].append(each.name)
        for record, names in consumers.items():
            if len(names) > 1:
                yield Finding(Anomaly.DOUBLED, f"{record.value!r} of {record.partition} is consumed by {names}")
        for (group, partition), final in self._history.final_offsets.items():
            key = group, partition
            last = max((each.offsets[key] for each in self._effective if key in each.offsets), default=0)
            if final < last:
                yield Finding(Anomaly.LOST_OFFSET, f"{group} is at {final} of {partition}, and {last} was committed")
            elif final > last:
                yield Finding(Anomaly.EARLY_OFFSET, f"{group} is at {final} of {partition}, and only {last} committed")
            for offset, value in self._history.logs.get(partition, ()):
                if offset < final and RecordRead(partition, offset, value) not in consumers:
                    where = f"{value!r} of {partition}, offset {offset}"
                    yield Finding(Anomaly.LOST_OFFSET, f"{group} is at {final} and has not consumed {where}")

    def of_seen_offsets(self) -> Iterator[Finding]:
        committed_at: dict[tuple[str, TopicPartition, int], float] = {}
        for each in self._history.transactions:
            if each.outcome is not Outcome.ABORTED:
                for (group, partition), offset in each.offsets.items():
                    key = group, partition, offset
                    committed_at[key] = min(each.ended_at, committed_at.get(key, _NEVER))
        for group, partition, offset, now in self._history.group_offsets:
            if offset and committed_at.get((group, partition, offset), _NEVER) > now:
                yield Finding(
                    Anomaly.EARLY_OFFSET, f"{group} had offset {offset} of {partition} before it was committed"
                )


def _going_back(reading: str, partition: TopicPartition, offsets: Sequence[int]) -> Iterator[Finding]:
    for one, following in pairwise(offsets):
        if following <= one:
            yield Finding(Anomaly.REPEATED, f"{reading} read offset {following} of {partition} after {one}")


def _has(log: Mapping[int, bytes], offset: int) -> str:
    return f"the log has {log[offset]!r}" if offset in log else "the log has no committed record"


def _name(transaction: RecordedTransaction | None) -> str:
    return "no transaction" if transaction is None else f"{transaction.name} ({transaction.outcome})"
