"""The checker of transactions finds each anomaly in a minimal history, and none in the correct one beside it."""

from collections.abc import Sequence

import pytest

from odradek.model import TopicPartition
from odradek.simulation.transaction_histories import (
    Anomaly,
    Outcome,
    RecordedTransaction,
    TransactionHistory,
    findings,
)

T0, T1, OUT = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("out", 0)


def written(
    history: TransactionHistory,
    *records: tuple[TopicPartition, bytes],
    outcome: Outcome = Outcome.COMMITTED,
    producer: str = "a",
) -> RecordedTransaction:
    """Add a transaction with these records; a commit was asked for at 1 s."""
    transaction = history.begin(producer)
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
        transaction.read(T0, number, value, now=2.0)
    transaction.send_offsets("g", {T0: first + len(values) if offset is None else offset})


def anomalies(history: TransactionHistory) -> set[Anomaly]:
    return {each.anomaly for each in findings(history)}


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


@pytest.mark.parametrize("polled", [(0, 1, 2), (0, 1, 1), (1, 0, 2)])
def test_consumers_and_transactions_do_not_go_back(polled: Sequence[int]) -> None:
    of_reader, of_transaction = TransactionHistory(), TransactionHistory()
    for history in (of_reader, of_transaction):
        written(history, (T0, b"0"), (T0, b"1"), (T0, b"2"))
    processing = written(of_transaction, (OUT, b"of all"), producer="b")
    for offset in polled:
        of_reader.poll("reader", T0, offset, b"%d" % offset, now=2.0)
        processing.read(T0, offset, b"%d" % offset, now=2.0)
    expected = set() if polled == (0, 1, 2) else {Anomaly.REPEATED}
    assert anomalies(of_reader) == expected
    assert anomalies(of_transaction) == expected | ({Anomaly.DOUBLED} if polled == (0, 1, 1) else set())


@pytest.mark.parametrize(
    ("outcome", "now", "found"),
    [
        (Outcome.COMMITTED, 1.0, set()),
        (Outcome.COMMITTED, 0.9, {Anomaly.INTERMEDIATE_READ}),
        (Outcome.ABORTED, 2.0, {Anomaly.ABORTED_READ}),
    ],
)
def test_a_transaction_reads_what_a_consumer_may_read_even_if_it_is_aborted(
    outcome: Outcome, now: float, found: set[Anomaly]
) -> None:
    history = TransactionHistory()
    written(history, (T0, b"1"), outcome=outcome)
    written(history, (OUT, b"2"), outcome=Outcome.ABORTED).read(T0, 0, b"1", now=now)
    assert anomalies(history) == found


@pytest.mark.parametrize("is_polled", [False, True])
@pytest.mark.parametrize(("offset", "value"), [(0, b"1"), (0, b"2"), (7, b"1")])
def test_readers_acknowledgements_and_the_log_have_the_same_record_at_an_offset(
    offset: int, value: bytes, is_polled: bool
) -> None:
    history = TransactionHistory()
    transaction = written(history, (T0, b"1"), (T0, b"2"))
    history.audit(T0, log(b"1", b"2"))
    if is_polled:
        history.poll("reader", T0, offset, value, now=2.0)
    else:
        transaction.acknowledge(value, offset)
    is_right = (offset, value) == (0, b"1")
    assert anomalies(history) - {Anomaly.UNSEEN} == (set() if is_right else {Anomaly.MISPLACED})


@pytest.mark.parametrize(
    ("producers", "visible", "is_found"),
    [
        ("aa", (b"1", b"2", b"3"), False),
        ("aa", (b"2", b"1", b"3"), True),  # two records of one transaction
        ("aa", (b"1", b"3", b"2"), True),  # two transactions of one transactional id
        ("ab", (b"1", b"3", b"2"), False),
    ],
)
def test_records_of_one_transactional_id_are_in_the_order_of_its_sends(
    producers: str, visible: Sequence[bytes], is_found: bool
) -> None:
    history = TransactionHistory()
    written(history, (T0, b"1"), (T0, b"2"), producer=producers[0])
    written(history, (T0, b"3"), producer=producers[1])
    history.audit(T0, log(*visible))
    assert anomalies(history) == ({Anomaly.REORDERED} if is_found else set())


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
        transaction.read(T0, number, value, now=2.0)
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
