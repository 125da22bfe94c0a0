"""The states of a transactional producer: the table, and what each error does."""

import re

import pytest

from odradek.clients import PreparedTransaction, ProducerFencedError, TransactionAbortedError
from odradek.clients.producer.transactions.machine import (
    TRANSITIONS,
    TransactionEvent,
    TransactionMachine,
    TransactionState,
)
from odradek.model import AuthenticationError, ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError

PLACE = TopicPartition("t", 0)
TABLE = """
UNINITIALIZED    INITIALIZE → INITIALIZING
INITIALIZING     INITIALIZED → READY, FOUND_PREPARED → PREPARED, GIVE_UP → UNINITIALIZED, FATAL_ERROR → FATAL_ERROR
READY            BEGIN → IN_TRANSACTION, FATAL_ERROR → FATAL_ERROR
IN_TRANSACTION   PREPARE → PREPARED, COMMIT → COMMITTING, ABORT → ABORTING, ABORTABLE_ERROR → ABORTABLE_ERROR, \
FATAL_ERROR → FATAL_ERROR
PREPARED         COMMIT → COMMITTING, ABORT → ABORTING, FATAL_ERROR → FATAL_ERROR
COMMITTING       COMMIT → COMMITTING, COMPLETED → READY, ABORTABLE_ERROR → ABORTABLE_ERROR, FATAL_ERROR → FATAL_ERROR
ABORTING         ABORT → ABORTING, COMPLETED → READY, FATAL_ERROR → FATAL_ERROR
ABORTABLE_ERROR  ABORT → ABORTING, FATAL_ERROR → FATAL_ERROR
FATAL_ERROR
"""


def machine(*events: TransactionEvent, version: int = 1) -> TransactionMachine:
    made = TransactionMachine("x", 60_000)
    made.step(TransactionEvent.INITIALIZE)
    made.initialized(None, uses_version_2=False)
    made.begin(100.0, uses_version_2=version == 2)
    for event in events:
        made.step(event)
    return made


def test_the_table_is_that_of_kafkas_transaction_manager() -> None:
    lines = [
        f"{state.name:<17}{', '.join(f'{event.name} → {to.name}' for event, to in TRANSITIONS[state].items())}".rstrip()
        for state in TransactionState
    ]
    assert lines == TABLE.strip().splitlines()


@pytest.mark.parametrize(
    ("events", "call", "sentence"),
    [
        (
            (TransactionEvent.COMMIT, TransactionEvent.COMPLETED),
            TransactionEvent.COMMIT,
            "no transaction is open: begin",
        ),
        ((), TransactionEvent.BEGIN, "begin_transaction: a transaction is open: commit or abort it first"),
        ((TransactionEvent.PREPARE,), TransactionEvent.BEGIN, "is prepared: complete, commit or abort it first"),
        ((TransactionEvent.COMMIT,), TransactionEvent.ABORT, "being committed: call commit_transaction again"),
        ((TransactionEvent.ABORT,), TransactionEvent.COMMIT, "being aborted: call abort_transaction again"),
    ],
)
def test_a_wrong_call_says_what_to_do_and_changes_nothing(
    events: tuple[TransactionEvent, ...], call: TransactionEvent, sentence: str
) -> None:
    made = machine(*events)
    before = made.state
    with pytest.raises(KafkaError, match=sentence):
        made.step(call)
    assert made.state is before
    if before is not TransactionState.IN_TRANSACTION:
        with pytest.raises(KafkaError, match=re.escape(before.value)):
            made.check_open()


def kafka(code: str) -> KafkaError:
    return KafkaError(ErrorCode[code])


ABORTABLE, FATAL = TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR


@pytest.mark.parametrize(
    ("error", "of_a_batch", "of_the_coordinator"),
    [
        (kafka("topic_authorization_failed"), ABORTABLE, ABORTABLE),
        (kafka("illegal_generation"), ABORTABLE, ABORTABLE),
        (kafka("transaction_abortable"), ABORTABLE, ABORTABLE),
        (kafka("invalid_producer_id_mapping"), ABORTABLE, ABORTABLE),
        (UnavailableError("no broker answers"), ABORTABLE, ABORTABLE),
        (kafka("invalid_producer_epoch"), ABORTABLE, FATAL),
        (kafka("producer_fenced"), FATAL, FATAL),
        (kafka("transactional_id_authorization_failed"), FATAL, FATAL),
        (kafka("invalid_txn_state"), FATAL, FATAL),
        (AuthenticationError("no"), ABORTABLE, FATAL),
    ],
)
def test_an_error_aborts_the_transaction_or_ends_the_producer(
    error: OdradekError, of_a_batch: TransactionState, of_the_coordinator: TransactionState
) -> None:
    sends, asks = machine(), machine()
    sends.batch_failed(error, 101.0)
    asks.coordinator_failed(error, 101.0)
    assert (sends.state, asks.state) == (of_a_batch, of_the_coordinator)
    for each in (sends, asks):
        expected = TransactionAbortedError if each.state is ABORTABLE else type(error)
        for call in (each.check_open, each.raise_error, lambda made=each: made.step(TransactionEvent.COMMIT)):
            with pytest.raises(expected):
                call()


def test_the_first_error_counts_and_errors_of_batches_in_flight_do_not_stop_an_abort() -> None:
    made = machine()
    made.batch_failed(kafka("corrupt_message"), 101.0)
    first = made.error
    made.batch_failed(kafka("topic_authorization_failed"), 101.0)
    assert made.error is first
    made.step(TransactionEvent.ABORT)
    made.batch_failed(kafka("invalid_producer_epoch"), 102.0)
    assert made.state is TransactionState.ABORTING
    made.completed()
    assert made.error is None
    made.begin(103.0, uses_version_2=False)


def test_an_abort_that_the_coordinator_refuses_is_fatal() -> None:
    made = machine(TransactionEvent.ABORT)
    made.coordinator_failed(kafka("topic_authorization_failed"), 101.0)
    assert made.state is TransactionState.ABORTING
    made.coordinator_failed(kafka("transaction_abortable"), 101.0, is_end=True)
    assert made.state is FATAL


def test_a_commit_of_a_transaction_that_the_coordinator_has_aborted_says_so_and_can_be_aborted() -> None:
    made = machine(TransactionEvent.COMMIT, version=2)
    made.coordinator_failed(kafka("invalid_txn_state"), 165.0, is_end=True)
    text = r"INVALID_TXN_STATE: the transaction was open for 65,000 ms, and the coordinator aborts it after .*60,000"
    with pytest.raises(TransactionAbortedError, match=text):
        made.raise_error()
    made.step(TransactionEvent.ABORT)


@pytest.mark.parametrize(
    ("now", "who"),
    [(159.9, "another producer was started with this transactional id"), (160.0, "was open for 60,000 ms")],
)
def test_a_fenced_producer_says_who_has_fenced_it(now: float, who: str) -> None:
    made = machine()
    made.coordinator_failed(kafka("producer_fenced"), now)
    with pytest.raises(ProducerFencedError, match=rf"^PRODUCER_FENCED: transactional id 'x': .*{who}.*close this"):
        made.step(TransactionEvent.BEGIN)
    sends = machine()
    sends.batch_failed(kafka("invalid_producer_epoch"), now)
    with pytest.raises(TransactionAbortedError, match=who):
        sends.check_open()


def test_version_1_adds_partitions_before_their_batches() -> None:
    made = machine()
    assert not made.may_send(PLACE)
    assert made.has_new_partitions
    made.partitions_added({PLACE})
    assert made.may_send(PLACE)
    assert not made.has_new_partitions
    assert not made.may_send(TopicPartition("t", 1))
    made.step(TransactionEvent.ABORT)
    assert not made.has_new_partitions, "AddPartitionsToTxn after EndTxn would open another transaction"
    made.completed()
    made.begin(101.0, uses_version_2=False)
    assert not made.may_send(PLACE), "each transaction adds its partitions"


def test_version_2_sends_at_once_and_must_end_what_was_sent() -> None:
    made = machine(version=2)
    assert not made.is_started
    assert made.may_send(PLACE)
    assert made.is_started
    assert not made.has_new_partitions


def test_a_prepared_transaction_has_kafkas_text() -> None:
    state = PreparedTransaction(4000, 7)
    assert str(state) == "4000:7"
    assert PreparedTransaction.parse("4000:7") == state
    for text in ("", "4000", "4000:", ":7", "4000:-1", "a:b", "1:2:3"):
        with pytest.raises(ValueError, match="such as 4000:7, not"):
            PreparedTransaction.parse(text)


def test_a_fenced_producer_adds_no_more_partitions() -> None:
    """Otherwise it would repeat the refused AddPartitionsToTxn for ever."""
    fenced = machine()
    assert not fenced.may_send(PLACE)
    assert fenced.has_new_partitions
    fenced.coordinator_failed(KafkaError(ErrorCode.producer_fenced), 100.0)
    assert fenced.state is TransactionState.FATAL_ERROR
    assert not fenced.has_new_partitions
