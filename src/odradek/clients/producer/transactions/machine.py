"""The state of a transactional producer and its transitions, as in Kafka's TransactionManager; no clock and no I/O.

With transaction.version 0 and 1, AddPartitionsToTxn precedes a transaction's first batch of each partition, and after
a lost batch InitProducerId starts a new epoch (KIP-360). With version 2 the leaders add partitions themselves, and each
EndTxn starts a new epoch (KIP-890).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct, field

from odradek.clients.producer.transactions.errors import ProducerFencedError, TransactionAbortedError, fenced_by
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.model import AuthenticationError, ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.model.probes import probe, transition

FORGOTTEN: Final = {ErrorCode.invalid_producer_id_mapping, ErrorCode.unknown_producer_id}
"""The coordinator has removed the transactional id: there is no transaction, and a new epoch is needed."""
_FENCED: Final = {ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch}
_ABORTED: Final = {ErrorCode.invalid_producer_epoch, ErrorCode.invalid_txn_state}
"""Errors after which a transaction can be aborted, that mean that the coordinator has ended it."""
_FATAL: Final = _FENCED | {
    ErrorCode.transactional_id_authorization_failed,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.invalid_txn_state,
    ErrorCode.unsupported_version,
    ErrorCode.unsupported_for_message_format,
}


class TransactionState(Enum):
    """Kafka's states of a transactional producer."""

    UNINITIALIZED = "the producer is not started"
    INITIALIZING = "the producer is being started"
    READY = "no transaction is open: begin one, as in `async with producer.transaction():`"
    IN_TRANSACTION = "a transaction is open: commit or abort it first"
    PREPARED = "the transaction is prepared: complete, commit or abort it first"
    COMMITTING = "the transaction is being committed: call commit_transaction again if that has failed"
    ABORTING = "the transaction is being aborted: call abort_transaction again if that has failed"
    ABORTABLE_ERROR = "the transaction must be aborted"
    FATAL_ERROR = "the producer must be closed"


class TransactionEvent(Enum):
    """Calls of the application and their results."""

    INITIALIZE = "start"
    INITIALIZED = "started"
    FOUND_PREPARED = "started with a prepared transaction"
    GIVE_UP = "not started"
    BEGIN = "begin_transaction"
    PREPARE = "prepare"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"
    COMPLETED = "the transaction has ended"
    ABORTABLE_ERROR = "an error of the transaction"
    FATAL_ERROR = "an error of the producer"


_S, _E = TransactionState, TransactionEvent
_FAILS: Final = {_E.FATAL_ERROR: _S.FATAL_ERROR}
TRANSITIONS: Final[Mapping[TransactionState, Mapping[TransactionEvent, TransactionState]]] = {
    _S.UNINITIALIZED: {_E.INITIALIZE: _S.INITIALIZING},
    _S.INITIALIZING: {
        _E.INITIALIZED: _S.READY,
        _E.FOUND_PREPARED: _S.PREPARED,
        _E.GIVE_UP: _S.UNINITIALIZED,
        **_FAILS,
    },
    _S.READY: {_E.BEGIN: _S.IN_TRANSACTION, **_FAILS},
    _S.IN_TRANSACTION: {
        _E.PREPARE: _S.PREPARED,
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.ABORTABLE_ERROR: _S.ABORTABLE_ERROR,
        **_FAILS,
    },
    _S.PREPARED: {_E.COMMIT: _S.COMMITTING, _E.ABORT: _S.ABORTING, **_FAILS},
    _S.COMMITTING: {
        _E.COMMIT: _S.COMMITTING,
        _E.COMPLETED: _S.READY,
        _E.ABORTABLE_ERROR: _S.ABORTABLE_ERROR,
        **_FAILS,
    },
    _S.ABORTING: {_E.ABORT: _S.ABORTING, _E.COMPLETED: _S.READY, **_FAILS},
    _S.ABORTABLE_ERROR: {_E.ABORT: _S.ABORTING, **_FAILS},
    _S.FATAL_ERROR: {},
}


class TransactionMachine(Struct):
    """One transactional producer. `error` is the reason of ABORTABLE_ERROR and FATAL_ERROR.

    `is_started`: the coordinator may know the transaction, so EndTxn must end it. `begun_at` and `now` are monotonic
    seconds.
    """

    transactional_id: str
    timeout_ms: int
    state: TransactionState = TransactionState.UNINITIALIZED
    error: OdradekError | None = None
    uses_version_2: bool = False
    is_started: bool = False
    needs_new_epoch: bool = False
    begun_at: float | None = None
    prepared: PreparedTransaction | None = None
    new_partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions that AddPartitionsToTxn must add."""
    partitions: set[TopicPartition] = field(default_factory=set)
    """Partitions that are part of the transaction."""

    def step(self, event: TransactionEvent) -> None:
        """Change the state. Raises the error of a failed state, and `KafkaError` INVALID_TXN_STATE for a wrong call."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            self.raise_error()
            raise KafkaError(ErrorCode.invalid_txn_state, f"{event.value}: {self.state.value}")
        transition("transactional producer", self.state.name, following.name)
        self.state = following

    def raise_error(self) -> None:
        """Raise the reason of ABORTABLE_ERROR or FATAL_ERROR."""
        if self.error is not None:
            raise self.error

    def check_open(self) -> None:
        """Raise an error unless records and offsets may be added to the transaction."""
        if self.state is not TransactionState.IN_TRANSACTION:
            self.raise_error()
            raise KafkaError(ErrorCode.invalid_txn_state, self.state.value)

    @property
    def is_aborting(self) -> bool:
        """Return whether no more batches are sent or retried."""
        return self.state in {TransactionState.ABORTABLE_ERROR, TransactionState.ABORTING}

    def begin(self, now: float, *, uses_version_2: bool) -> None:
        self.step(TransactionEvent.BEGIN)
        self.begun_at, self.uses_version_2 = now, uses_version_2

    def initialized(self, prepared: PreparedTransaction | None, *, uses_version_2: bool) -> None:
        """Handle the first InitProducerId response; `prepared` is the transaction that the coordinator has kept."""
        self.step(TransactionEvent.FOUND_PREPARED if prepared else TransactionEvent.INITIALIZED)
        self.prepared, self.is_started, self.uses_version_2 = prepared, prepared is not None, uses_version_2

    def prepare(self, prepared: PreparedTransaction) -> None:
        self.step(TransactionEvent.PREPARE)
        self.prepared = prepared

    def may_send(self, partition: TopicPartition) -> bool:
        """Return whether a batch may be sent; otherwise request AddPartitionsToTxn for its partition."""
        if partition in self.partitions:
            return True
        if self.uses_version_2:
            self.partitions.add(partition)
            self.is_started = True
            return True
        self.new_partitions.add(partition)
        return False

    @property
    def has_new_partitions(self) -> bool:
        """Return whether AddPartitionsToTxn must be sent."""
        return bool(self.new_partitions) and self.error is None and not self.is_aborting

    def add_partitions(self) -> set[TopicPartition]:
        """Return the partitions of an AddPartitionsToTxn that is sent now."""
        self.is_started = True
        return set(self.new_partitions)

    def add_offsets(self) -> None:
        """Handle a request with offsets of a group that is sent now."""
        self.is_started = True

    def partitions_added(self, partitions: set[TopicPartition]) -> None:
        """Handle AddPartitionsToTxn's success."""
        self.new_partitions -= partitions
        self.partitions |= partitions

    def ended(self, *, is_forgotten: bool) -> None:
        """Handle EndTxn's response; `is_forgotten` if the coordinator has removed the transactional id."""
        self.is_started = False
        if is_forgotten:
            self.needs_new_epoch, self.uses_version_2 = True, False

    @property
    def must_initialize(self) -> bool:
        """Return whether InitProducerId must follow EndTxn."""
        return self.needs_new_epoch and not self.uses_version_2

    def completed(self) -> None:
        """Handle the end of a transaction, after EndTxn and, if necessary, InitProducerId."""
        self.step(TransactionEvent.COMPLETED)
        self.error = self.begun_at = self.prepared = None
        self.is_started = self.needs_new_epoch = False
        self.new_partitions.clear()
        self.partitions.clear()

    # ---- errors -------------------------------------------------------------------------------------------------

    def batch_lost(self) -> None:
        """Handle a batch with sequences that is not sent again."""
        self.needs_new_epoch = True

    def batch_failed(self, error: OdradekError, now: float) -> None:
        """Handle a batch that is not delivered."""
        # A leader may have learned of a new epoch before this producer, so only the coordinator's answer is final.
        self._failed(error, now, is_fatal=_code(error) in _FATAL - {ErrorCode.invalid_producer_epoch})

    def coordinator_failed(self, error: OdradekError, now: float, *, is_end: bool = False) -> None:
        """Handle a coordinator's error that is not to be retried; if an abort fails (`is_end`), it is fatal.

        With version 2, a commit fails with INVALID_TXN_STATE if the coordinator has aborted the transaction; an abort
        then succeeds, and has the new epoch, unless another producer has been started.
        """
        was_aborted = self.state is TransactionState.COMMITTING and self.uses_version_2
        fatal = _FATAL - {ErrorCode.invalid_txn_state} if was_aborted else _FATAL
        is_fatal = _code(error) in fatal or isinstance(error, AuthenticationError)
        self._failed(error, now, is_fatal=is_fatal or (is_end and self.state is TransactionState.ABORTING))

    def _failed(self, error: OdradekError, now: float, *, is_fatal: bool) -> None:
        event = TransactionEvent.FATAL_ERROR if is_fatal else TransactionEvent.ABORTABLE_ERROR
        if event not in TRANSITIONS[self.state]:
            probe("producer: a transaction fails twice")
            return  # the first error counts
        self.step(event)
        open_ms = None if self.begun_at is None else round((now - self.begun_at) * 1000)
        reason = fenced_by(open_ms, self.timeout_ms)
        if is_fatal:
            self.error = ProducerFencedError(self.transactional_id, reason) if _code(error) in _FENCED else error
        else:
            if isinstance(error, KafkaError) and error.code in _ABORTED:
                error = KafkaError(error.code, f"{error.code.name.upper()}: {reason}")
            self.error = TransactionAbortedError(self.transactional_id, error)


def _code(error: OdradekError) -> ErrorCode | None:
    return error.code if isinstance(error, KafkaError) else None
