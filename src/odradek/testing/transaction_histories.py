"""A history of transactions, and the check that brokers isolate them and make them atomic.

A history has the transactions of producers with what they wrote, read and committed as offsets, what consumers polled,
and finally an audit: each partition's committed log, and the offsets of the groups. The definitions are Adya's, as
Jepsen applies them to Kafka-like logs:

    aborted read        G1a: a read_committed consumer polled, or the committed log has, a record of an aborted
                        transaction
    intermediate read   G1b: a read_committed consumer polled a record before its transaction was being committed
    circular flow       G1c: transactions have each read a record of the next one
    write cycle         G0: two transactions wrote to partitions in opposite orders; Kafka allows that
    torn                some records of a transaction are in the committed logs, and others are not
    lost                a record of a committed transaction is not in the committed log
    unseen              a read_committed consumer polled past a committed record
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

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    CIRCULAR_FLOW = "circular flow"
    WRITE_CYCLE = "write cycle"
    TORN = "torn"
    LOST = "lost"
    UNSEEN = "unseen"
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
    outcome: Outcome = Outcome.ABORTED
    ended_at: float = _NEVER
    """When the producer asked for the commit, in seconds of any clock."""
    writes: dict[bytes, TopicPartition] = field(default_factory=dict)
    reads: list[RecordRead] = field(default_factory=list)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)

    def write(self, partition: TopicPartition, value: bytes) -> None:
        """Record that the transaction sends a record."""
        self.writes[value] = partition

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """Record that the transaction consumes a record."""
        self.reads.append(RecordRead(partition, offset, value))

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

    def begin(self, producer: str) -> RecordedTransaction:
        """Record that `producer` begins a transaction, and return it."""
        transaction = RecordedTransaction(name=f"{producer}#{len(self.transactions)}")
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
        """Record a group's final offset of a partition; 0 if it has none."""
        self.final_offsets[group, partition] = offset


def findings(history: TransactionHistory, *, with_write_cycles: bool = False) -> Iterator[Finding]:
    """Yield the anomalies of a history; write cycles only on demand, because Kafka allows them."""
    case = _Case(history)
    yield from case.of_transactions()
    yield from case.of_logs()
    for reading, polls in history.polls.items():
        yield from case.of_reading(reading, polls)
    yield from case.of_offsets()
    yield from _cycles(Anomaly.CIRCULAR_FLOW, case.reads_from())
    if with_write_cycles:
        yield from _cycles(Anomaly.WRITE_CYCLE, case.writes_before())


class _Case:
    """A history with its indexes."""

    def __init__(self, history: TransactionHistory) -> None:
        self._history = history
        self._writers = {value: each for each in history.transactions for value in each.writes}
        self._committed = {value for log in history.logs.values() for _, value in log}
        self._effective = [each for each in history.transactions if self._is_effective(each)]
        """The transactions that are committed, also if their producer does not know it."""

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

    def of_reading(self, reading: str, polls: Sequence[tuple[RecordRead, float]]) -> Iterator[Finding]:
        by_partition: dict[TopicPartition, list[int]] = defaultdict(list)
        for (partition, offset, value), now in polls:
            by_partition[partition].append(offset)
            writer, place = self._writers.get(value), f"{value!r} at {partition}, offset {offset}"
            if writer is None or writer.outcome is Outcome.ABORTED:
                yield Finding(Anomaly.ABORTED_READ, f"{reading} read {place}, of {_name(writer)}")
            elif now < writer.ended_at:
                yield Finding(Anomaly.INTERMEDIATE_READ, f"{reading} read {place}, before {writer.name} was committed")
        for partition, offsets in by_partition.items():
            seen, first, last = set(offsets), min(offsets), max(offsets)
            for offset, value in self._history.logs.get(partition, ()):
                if first < offset < last and offset not in seen:
                    where = f"{value!r} of {_name(self._writers.get(value))} at {partition}, offset {offset}"
                    yield Finding(Anomaly.UNSEEN, f"{reading} did not read {where}, and read offset {last}")

    def of_offsets(self) -> Iterator[Finding]:
        consumers: dict[RecordRead, list[str]] = defaultdict(list)
        for each in self._effective:
            for record in each.reads:
                consumers[record].append(each.name)
        for record, names in consumers.items():
            if len(names) > 1:
                yield Finding(Anomaly.DOUBLED, f"{record.value!r} of {record.partition} is consumed by {names}")
        for group, partition, offset, now in self._history.group_offsets:
            if offset and not self._may_be_committed(group, partition, offset, now):
                yield Finding(Anomaly.EARLY_OFFSET, f"{group} had offset {offset} of {partition}, committed by nobody")
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

    def _may_be_committed(self, group: str, partition: TopicPartition, offset: int, now: float) -> bool:
        return any(
            each.offsets.get((group, partition)) == offset and each.ended_at <= now and each.outcome != Outcome.ABORTED
            for each in self._history.transactions
        )

    def reads_from(self) -> dict[str, set[str]]:
        """Return for each committed transaction those whose records it has read."""
        writers = ((each.name, self._writers.get(read.value)) for each in self._effective for read in each.reads)
        return _edges((name, writer.name) for name, writer in writers if writer is not None)

    def writes_before(self) -> dict[str, set[str]]:
        """Return for each transaction those whose records follow its own in a partition's log."""
        named = (
            [self._writers[value].name for _, value in log if value in self._writers]
            for log in self._history.logs.values()
        )
        return _edges(pair for names in named for pair in pairwise(names))


def _name(transaction: RecordedTransaction | None) -> str:
    return "no transaction" if transaction is None else f"{transaction.name} ({transaction.outcome})"


def _edges(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    for source, target in pairs:
        if source != target:
            edges[source].add(target)
    return edges


def _cycles(anomaly: Anomaly, edges: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Yield one finding for the transactions that are on a cycle, or lead to one."""
    left = {name: set(targets) for name, targets in edges.items()}
    while done := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in done:
            del left[name]
    if left:
        yield Finding(anomaly, f"among {sorted(left)}")
