"""The checker of transactions finds each anomaly in a minimal history, and none in the correct one beside it."""

from collections.abc import Sequence

import pytest

from odradek.model import TopicPartition
from odradek.testing.transaction_histories import (
    Anomaly,
    Outcome,
    RecordedTransaction,
    TransactionHistory,
    findings,
)

T0, T1, OUT = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("out", 0)


def written(
    history: TransactionHistory, *records: tuple[TopicPartition, bytes], outcome: Outcome = Outcome.COMMITTED
) -> RecordedTransaction:
    """Add a transaction with these records; a commit was asked for at 1 s."""
    transaction = history.begin("a")
    for partition, value in records:
        transaction.write(partition, value)
    if outcome is not Outcome.ABORTED:
        transaction.ending(now=1.0)
    transaction.outcome = outcome
    return transaction


def consumed(history: TransactionHistory, *values: bytes, first: int = 0, offset: int | None = None) -> None:
    """Add a committed transaction that reads these records of T0 from `first` on, and writes one of each to OUT."""
    transaction = written(history, *((OUT, b"of " + value) for value in values))
    for number, value in enumerate(values, first):
        transaction.read(T0, number, value)
    transaction.send_offsets("g", {T0: first + len(values) if offset is None else offset})


def anomalies(history: TransactionHistory, *, with_write_cycles: bool = False) -> set[Anomaly]:
    return {each.anomaly for each in findings(history, with_write_cycles=with_write_cycles)}


def log(*values: bytes) -> Sequence[tuple[int, bytes]]:
    return list(enumerate(values))


@pytest.mark.parametrize(
    ("outcome", "visible", "found"),
    [
        (Outcome.COMMITTED, b"12", set()),
        (Outcome.UNKNOWN, b"12", set()),
        (Outcome.UNKNOWN, b"", set()),
        (Outcome.ABORTED, b"", set()),
        (Outcome.COMMITTED, b"", {Anomaly.LOST}),
        (Outcome.COMMITTED, b"2", {Anomaly.LOST, Anomaly.TORN}),
        (Outcome.UNKNOWN, b"1", {Anomaly.TORN}),
        (Outcome.ABORTED, b"12", {Anomaly.ABORTED_READ}),
        (Outcome.ABORTED, b"1", {Anomaly.ABORTED_READ, Anomaly.TORN}),
        (Outcome.COMMITTED, b"122", {Anomaly.DOUBLED}),
        (Outcome.COMMITTED, b"123", {Anomaly.ABORTED_READ}),
    ],
)
def test_a_transaction_is_visible_as_a_whole_if_it_is_committed_and_else_not_at_all(
    outcome: Outcome, visible: bytes, found: set[Anomaly]
) -> None:
    history = TransactionHistory()
    written(history, (T0, b"1"), (T1, b"2"), outcome=outcome)
    values = [bytes([each]) for each in visible]
    history.audit(T0, log(*(each for each in values if each == b"1")))
    history.audit(T1, log(*(each for each in values if each != b"1")))
    assert anomalies(history) == found


@pytest.mark.parametrize(
    ("outcome", "now", "found"),
    [
        (Outcome.COMMITTED, 1.0, set()),
        (Outcome.UNKNOWN, 2.0, set()),
        (Outcome.COMMITTED, 0.9, {Anomaly.INTERMEDIATE_READ}),
        (Outcome.ABORTED, 2.0, {Anomaly.ABORTED_READ}),
    ],
)
def test_a_consumer_reads_no_transaction_that_is_aborted_or_not_being_committed(
    outcome: Outcome, now: float, found: set[Anomaly]
) -> None:
    history = TransactionHistory()
    written(history, (T0, b"1"), outcome=outcome)
    history.poll("reader", T0, 0, b"1", now=now)
    assert anomalies(history) == found


@pytest.mark.parametrize(("polled", "found"), [((0, 1, 2), set()), ((1, 2), set()), ((0, 2), {Anomaly.UNSEEN})])
def test_a_consumer_reads_all_committed_records_on_its_way(polled: Sequence[int], found: set[Anomaly]) -> None:
    history = TransactionHistory()
    values = b"a", b"b", b"c"
    for value in values:
        written(history, (T0, value))
    for offset in polled:
        history.poll("reader", T0, offset, values[offset], now=5.0)
    history.audit(T0, log(*values))
    assert anomalies(history) == found


@pytest.mark.parametrize("is_circular", [False, True])
def test_transactions_do_not_read_each_other(is_circular: bool) -> None:
    history = TransactionHistory()
    one, two = written(history, (T0, b"1")), written(history, (T1, b"2"))
    one.read(T1, 0, b"2")
    if is_circular:
        two.read(T0, 0, b"1")
    assert anomalies(history) == ({Anomaly.CIRCULAR_FLOW} if is_circular else set())


@pytest.mark.parametrize(("second", "is_cycle"), [((b"2", b"4"), False), ((b"4", b"2"), True)])
def test_write_cycles_are_found_on_demand(second: Sequence[bytes], is_cycle: bool) -> None:
    history = TransactionHistory()
    written(history, (T0, b"1"), (T1, b"2"))
    written(history, (T0, b"3"), (T1, b"4"))
    history.audit(T0, log(b"1", b"3"))
    history.audit(T1, log(*second))
    assert anomalies(history) == set()
    assert anomalies(history, with_write_cycles=True) == ({Anomaly.WRITE_CYCLE} if is_cycle else set())


@pytest.mark.parametrize(
    ("final", "found"), [(2, set()), (1, {Anomaly.LOST_OFFSET}), (3, {Anomaly.EARLY_OFFSET, Anomaly.LOST_OFFSET})]
)
def test_a_group_is_where_its_last_committed_transaction_left_it(final: int, found: set[Anomaly]) -> None:
    history = TransactionHistory()
    for value in (b"1", b"2", b"3"):
        written(history, (T0, value))
    consumed(history, b"1", b"2")
    history.audit(T0, log(b"1", b"2", b"3"))
    history.audit_offset("g", T0, final)
    assert anomalies(history) == found


@pytest.mark.parametrize(
    ("first", "values", "found"),
    [(1, (b"2", b"3"), set()), (0, (b"1", b"2", b"3"), {Anomaly.DOUBLED}), (2, (b"3",), {Anomaly.LOST_OFFSET})],
)
def test_each_record_is_consumed_by_one_transaction(first: int, values: Sequence[bytes], found: set[Anomaly]) -> None:
    history = TransactionHistory()
    for value in (b"1", b"2", b"3"):
        written(history, (T0, value))
    consumed(history, b"1")
    transaction = written(history, *((OUT, b"again " + value) for value in values))
    for number, value in enumerate(values, first):
        transaction.read(T0, number, value)
    transaction.send_offsets("g", {T0: 3})
    history.audit(T0, log(b"1", b"2", b"3"))
    history.audit_offset("g", T0, 3)
    assert anomalies(history) == found


@pytest.mark.parametrize(
    ("outcome", "now", "is_early"),
    [(Outcome.COMMITTED, 1.0, False), (Outcome.COMMITTED, 0.5, True), (Outcome.ABORTED, 2.0, True)],
)
def test_offsets_appear_with_the_commit_of_their_transaction(outcome: Outcome, now: float, is_early: bool) -> None:
    history = TransactionHistory()
    written(history, (OUT, b"1"), outcome=outcome).send_offsets("g", {T0: 1})
    history.saw_offset("g", T0, 1, now=now)
    assert anomalies(history) == ({Anomaly.EARLY_OFFSET} if is_early else set())


def test_a_finding_names_records_and_transactions() -> None:
    history = TransactionHistory()
    written(history, (T0, b"1"), (T1, b"2"))
    history.audit(T0, log(b"1"))
    history.audit(T1, [])
    assert [str(each) for each in findings(history)] == [
        "lost: [b'2'] of a#0, which is committed",
        "torn: a#0 (committed): [b'1'] are visible, [b'2'] are not",
    ]
