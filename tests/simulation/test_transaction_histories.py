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


def anomalies(history: TransactionHistory, *, with_legal_cycles: bool = False) -> set[Anomaly]:
    return {each.anomaly for each in findings(history, with_legal_cycles=with_legal_cycles)}


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


# ---- cycles


@pytest.mark.parametrize("is_circular", [False, True])
def test_transactions_do_not_read_each_other(is_circular: bool) -> None:
    history = TransactionHistory()
    one, two = written(history, (T0, b"1")), written(history, (T1, b"2"), producer="b")
    one.read(T1, 0, b"2", now=2.0)
    if is_circular:
        two.read(T0, 0, b"1", now=2.0)
    found = ["circular flow: b#1 → a#0 (wr t-1 offset 0), a#0 → b#1 (wr t-0 offset 0)"]
    assert [str(each) for each in findings(history)] == (found if is_circular else [])


@pytest.mark.parametrize(("reader", "is_circular"), [(1, False), (0, True)])
def test_a_transaction_reads_nothing_of_the_next_one_of_its_transactional_id(reader: int, is_circular: bool) -> None:
    history = TransactionHistory()
    transactions = written(history, (T0, b"1")), written(history, (T0, b"2"))
    transactions[reader].read(T0, 1 - reader, b"2" if is_circular else b"1", now=2.0)
    assert anomalies(history) == ({Anomaly.CIRCULAR_FLOW} if is_circular else set())


@pytest.mark.parametrize(
    ("moves", "found"),
    [
        # Each transaction: for each partition, where it began, and the offset that it committed.
        (({T0: (0, 1), T1: (0, 1)}, {T0: (1, 2), T1: (1, 2)}), set()),
        (({T0: (0, 1), T1: (2, 3)}, {T0: (2, 3), T1: (0, 1)}), {Anomaly.WRITE_CYCLE}),
        (({T0: (0, 1)}, {T0: (1, 2), T1: (0, 1)}, {T1: (2, 4)}), set()),
        (({T0: (0, 1), T1: (1, 0)}, {T0: (1, 0), T1: (0, 1)}), {Anomaly.CIRCULAR_FLOW}),
        (({T0: (0, 1)}, {T0: (0, 2)}), {Anomaly.READ_SKEW}),
        (({T0: (0, 1), T1: (0, 0)}, {T0: (0, 0), T1: (0, 1)}), {Anomaly.WRITE_SKEW}),
        (({T0: (0, 1), T1: (0, 0)}, {T0: (1, 0), T1: (0, 1)}), set()),
    ],
    ids=["one after the other", "G0", "partitions alone", "G1c", "a lost update: G-single", "G2", "seen"],
)
def test_transactions_move_the_offsets_of_a_group_one_after_the_other(
    moves: Sequence[dict[TopicPartition, tuple[int, int]]], found: set[Anomaly]
) -> None:
    """A transaction that committed offset 0 only looked at the partition."""
    history = TransactionHistory()
    for number, move in enumerate(moves):
        transaction = written(history, (OUT, b"%d" % number), producer=f"p{number}")
        for partition, (start, end) in move.items():
            history.saw_offset("g", partition, start, now=2.0, by=transaction)
            if end:
                transaction.send_offsets("g", {partition: end})
    assert anomalies(history) - {Anomaly.EARLY_OFFSET} == found


def of_two_partitions(first: Sequence[bytes], second: Sequence[bytes]) -> TransactionHistory:
    """Return a history of the transactions a#0 and b#1, with records 1 and 2, 3 and 4, in these orders in the logs."""
    history = TransactionHistory()
    written(history, (T0, b"1"), (T1, b"2"))
    written(history, (T0, b"3"), (T1, b"4"), producer="b")
    history.audit(T0, log(*first))
    history.audit(T1, log(*second))
    return history


@pytest.mark.parametrize(
    ("second", "reads", "found"),
    [
        ((b"2", b"4"), "", set()),
        ((b"4", b"2"), "", {Anomaly.WRITE_CYCLE}),
        ((b"2", b"4"), "0 of b", {Anomaly.CIRCULAR_FLOW}),
        ((b"2", b"4"), "0 and 1", {Anomaly.READ_SKEW}),
        ((b"2", b"4"), "both", {Anomaly.WRITE_SKEW}),
    ],
)
def test_cycles_that_kafka_allows_are_found_on_demand(second: Sequence[bytes], reads: str, found: set[Anomaly]) -> None:
    history = of_two_partitions((b"1", b"3"), second)
    if reads == "0 of b":  # it wrote to the partition first, and the other one had ended meanwhile
        history.transactions[0].read(T0, 1, b"3", now=2.0)
    elif reads == "0 and 1":  # a consumer reads both partitions, one of them before b#1 has ended there
        reader = written(history, (OUT, b"5"), producer="c")
        reader.read(T0, 1, b"3", now=2.0)
        reader.read(T1, 0, b"2", now=2.0)
    elif reads == "both":  # two readers, each of which does not see what the other one adds
        for producer, partition, other, value in (("c", T0, T1, b"4"), ("d", T1, T0, b"3")):
            reader = written(history, (partition, b"of " + value), producer=producer)
            reader.read(other, 1, value, now=2.0)
            history.audit(partition, [*history.logs[partition], (2, b"of " + value)])
    assert anomalies(history) == set()
    assert anomalies(history, with_legal_cycles=True) == found


def test_the_search_for_cycles_is_linear_in_a_long_history() -> None:
    """A recursive search would fail."""
    history, count = TransactionHistory(), 2_000
    for number in range(count):
        transaction = written(history, (T0, b"%d" % number), producer=f"p{number % 3}")
        if number:
            transaction.read(T0, number - 1, b"%d" % (number - 1), now=2.0)
    history.audit(T0, log(*(b"%d" % number for number in range(count))))
    assert anomalies(history, with_legal_cycles=True) == set()
    history.transactions[0].read(T0, count - 1, b"%d" % (count - 1), now=2.0)
    assert anomalies(history) == {Anomaly.CIRCULAR_FLOW}


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
